#include "beneath.h"

#include "handed.h"

#include "../proto/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/openat2.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel returns EAGAIN if something was renamed while it walked "..". */
#define WALK_TRIES 64

/* Returns what follows the root in `path`, or NULL if the root does not contain it. */
static const char *below(const char *root, const char *path)
{
	size_t length = strlen(root);

	while (length && root[length - 1] == '/')
		length--;
	if (strncmp(path, root, length) != 0 || (path[length] != '/' && path[length] != '\0'))
		return NULL;
	path += length;
	while (*path == '/')
		path++;
	return *path ? path : ".";
}

#define READ (O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
#define LOOK_AT_LINK (O_PATH | O_NOFOLLOW | O_CLOEXEC) /* at the link itself, if the path ends in one */

/* Returns a descriptor or -errno, as openat2 does. */
static int open_in(const char *root, const char *rest, uint64_t flags)
{
	struct open_how how = {
		.flags = flags,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};
	int folder = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	long fd = -1;

	if (folder < 0)
		return -errno;
	for (int i = 0; i < WALK_TRIES; i++) {
		fd = syscall(SYS_openat2, folder, rest, &how, sizeof(how));
		if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
			break;
	}
	fd = fd < 0 ? -errno : fd;
	close(folder);
	return (int)fd;
}

static bool process_has(gid_t gid, const gid_t *groups, int count)
{
	for (int i = 0; i < count; i++) {
		if (groups[i] == gid)
			return true;
	}
	return getegid() == gid;
}

/* Whether the user belongs to a group now that this process, which stood by, does not have. */
static bool has_old_groups(void)
{
	static gid_t mine[GROUPS_MAX], now[GROUPS_MAX];
	char buffer[PASSWD_BYTES];
	struct passwd entry, *user = NULL;
	int mine_count = getgroups(GROUPS_MAX, mine), now_count = GROUPS_MAX;

	if (getpwuid_r(geteuid(), &entry, buffer, sizeof(buffer), &user) != 0 || !user || mine_count < 0 ||
	    getgrouplist(user->pw_name, user->pw_gid, now, &now_count) < 0)
		return false;
	for (int i = 0; i < now_count; i++) {
		if (!process_has(now[i], mine, mine_count))
			return true;
	}
	return false;
}

static void list_roots(const struct roots *roots, char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "configured roots:%s", roots->count ? "" : " none");

	for (size_t i = 0; i < roots->count && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s %s", i ? "," : "", roots->paths[i]);
}

/* Whether the path, which leads to nothing, ends in a link. */
static bool is_link(const char *root, const char *rest)
{
	int fd = open_in(root, rest, LOOK_AT_LINK);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* root: one that contains the path, which is `rest` there. */
static int refuse(const struct roots *roots, const char *root, const char *path, int code, struct error *error)
{
	char list[TEXT_BYTES_MAX + 1];

	list_roots(roots, list, sizeof(list));
	if (code == -EXDEV)
		return error_set(error, -EACCES, list, "%s: a link in it leads out of the root, or is absolute",
				 path);
	if (code == -ELOOP)
		return error_set(error, -EACCES, list, "%s: its links run in a circle, or through /proc", path);
	if (code == -ENOSYS)
		return error_set(error, -ENOTSUP,
				 "Linux 5.6 or newer is needed, and a sandbox must allow openat2",
				 "%s: the kernel has no openat2", path);
	if (code == -ENOENT && is_link(root, below(root, path)))
		return error_set(error, -EBADMSG, "is the download complete? Download it again",
				 "%s is a link to a file that is missing", path);
	if (code == -EACCES && has_old_groups())
		snprintf(
			list, sizeof(list),
			"this gpuwm-loader began before the groups of its uid %u changed: gpuwmctl reload ends "
			"those that stand by; if gpuwmd starts its loaders itself, restart gpuwmd",
			(unsigned)geteuid());
	else if (code == -EACCES)
		snprintf(
			list, sizeof(list),
			"gpuwm-loader runs as uid %u, which may not read it: put that user into a group that may",
			(unsigned)geteuid());
	else if (code == -ENOENT)
		snprintf(list, sizeof(list),
			 "look where gpuwm-loader looks: its service or container may have other mounts than "
			 "your shell");
	else
		list[0] = '\0';
	return error_set(error, code, list, "cannot open %s: %s", path, strerror(-code));
}

/* The root itself can't be opened: returns the code and sets the error. 0: it can. */
static int check_root(const char *root, struct error *error)
{
	int folder = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC), code = -errno;

	if (folder < 0)
		return error_set(
			error, code,
			"make the folder, mount it where gpuwm-loader runs, or change root in [loader] of "
			"gpuwmd's configuration",
			"the root %s can't be used: %s", root, strerror(-code));
	close(folder);
	return 0;
}

int beneath_open(const struct roots *roots, const char *path, int *ret_fd, struct error *error)
{
	char list[TEXT_BYTES_MAX + 1];
	const char *contained = NULL; /* the first root that contains it */
	int code = 0;

	if (roots->handed)
		return handed_open(roots->handed, path, ret_fd, error);
	if (path[0] != '/')
		return error_set(error, -EINVAL, "give an absolute path", "%s: the path is not absolute", path);
	for (size_t i = 0; i < roots->count; i++) {
		const char *rest = below(roots->paths[i], path);
		int fd;

		if (!rest)
			continue;
		contained = contained ? contained : roots->paths[i];
		fd = open_in(roots->paths[i], rest, READ);
		if (fd >= 0) {
			*ret_fd = fd;
			return 0;
		}
		/* If one root lies in another, that one may hold what the link leads to. */
		if (code == 0 || code == -EXDEV)
			code = fd;
	}
	if (contained && check_root(contained, error) < 0)
		return error->code;
	if (contained)
		return refuse(roots, contained, path, code, error);
	list_roots(roots, list, sizeof(list));
	return error_set(error, -EACCES, list, "%s lies beneath none of the configured roots", path);
}
