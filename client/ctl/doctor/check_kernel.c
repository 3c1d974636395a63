/* kernel: what gpuwm needs of it, tried. */
#include "groups.h"
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5; older headers do not have it */
#endif

#define SHMEM_ENABLED "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

static int descriptor_try(int fd)
{
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int pidfd_try(void)
{
	return descriptor_try((int)syscall(SYS_pidfd_open, getpid(), 0));
}

static int peer_try(void)
{
	int pair[2], fd = -1, r;
	socklen_t size = sizeof(fd);

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	r = getsockopt(pair[0], SOL_SOCKET, SO_PEERPIDFD, &fd, &size) < 0 ? -errno : descriptor_try(fd);
	close(pair[0]);
	close(pair[1]);
	return r;
}

static int openat2_try(void)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH};

	return descriptor_try((int)syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof(how)));
}

static int seals_try(void)
{
	int fd = memfd_create("gpuwmctl-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING), r = 0;

	if (fd < 0)
		return -errno;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		r = -errno;
	close(fd);
	return r;
}

struct feature {
	const char *name;
	int (*try)(void);
	enum verdict without;
	const char *lost, *remedy;
};

static const struct feature features[] = {
	{"pidfd_open", pidfd_try, VERDICT_FAILED, "loaders can't watch gpuwmd",
	 "Linux 5.3 or newer is needed, and a sandbox must allow pidfd_open"},
	{"SO_PEERPIDFD", peer_try, VERDICT_WARNING,
	 "a worker's death shows only when its socket ends, and regions can't be made",
	 "Linux 6.5 or newer has it"},
	{"openat2", openat2_try, VERDICT_FAILED, "nothing can be loaded",
	 "Linux 5.6 or newer is needed, and a sandbox must allow openat2"},
	{"memfd seals", seals_try, VERDICT_FAILED, "versions can't be kept in the host's memory",
	 "a sandbox must allow memfd_create and F_ADD_SEALS"},
};

/* The kernel's default is "never". Copies of versions in the host's memory, and versions on `host`, then take longer to make and to map:
 * docs/benchmarks/2026-11-20.md. */
static void check_huge_pages(struct findings *findings)
{
	char said[128] = "";

	if (!machine_read(SHMEM_ENABLED, said, sizeof(said)))
		finding(findings, VERDICT_NOT_APPLICABLE, "huge pages", NULL, NULL,
			"this kernel has none for shared memory");
	else if (strstr(said, "[never]") || strstr(said, "[deny]"))
		finding(findings, VERDICT_WARNING, "huge pages", NULL,
			"write \"advise\" to " SHMEM_ENABLED ", as the packages do",
			"the host's memory has small ones: copies of versions there take longer");
	else
		finding(findings, VERDICT_OK, "huge pages", NULL, NULL,
			"versions in the host's memory have them");
}

void check_kernel(struct findings *findings, const char *socket)
{
	char release[128] = "?";

	(void)socket;
	machine_read("/proc/sys/kernel/osrelease", release, sizeof(release));
	release[strcspn(release, "\n")] = '\0';
	finding(findings, VERDICT_OK, "kernel", NULL, NULL, "Linux %s", release);
	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++) {
		const struct feature *feature = &features[i];
		int r = feature->try();

		if (r == 0)
			finding(findings, VERDICT_OK, "feature", feature->name, NULL, "it works");
		else
			finding(findings, feature->without, "feature", feature->name, feature->remedy, "%s: %s",
				strerror(-r), feature->lost);
	}
	check_huge_pages(findings);
}
