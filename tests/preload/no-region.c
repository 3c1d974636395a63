/* LD_PRELOAD: while there is a file $NO_REGION, the kernel refuses gpuwmd the mapping of control memories (if the file has the word
 * "map"), or the watching of processes ("watch"). */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static bool is_refused(const char *word, const char *kind, int of)
{
	const char *path = getenv("NO_REGION");
	char link[64], target[64] = "", has[16] = "";
	int fd;

	if (!path || strcmp(program_invocation_short_name, "gpuwmd") != 0)
		return false;
	snprintf(link, sizeof link, "/proc/self/fd/%d", of);
	if (readlink(link, target, sizeof target - 1) < 0 || !strstr(target, kind))
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (read(fd, has, sizeof has - 1) < 0)
		has[0] = '\0';
	close(fd);
	return strcmp(has, word) == 0;
}

EXPORT int epoll_ctl(int epoll, int what, int fd, struct epoll_event *event)
{
	if (what == EPOLL_CTL_ADD && is_refused("watch", "pidfd", fd)) {
		errno = ENOSPC;
		return -1;
	}
	return (int)syscall(SYS_epoll_ctl, epoll, what, fd, event);
}

EXPORT void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	if (flags & MAP_SHARED && is_refused("map", "gpuwm-control", fd)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

EXPORT void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off64_t offset)
{
	return mmap(at, bytes, protection, flags, fd, offset);
}
