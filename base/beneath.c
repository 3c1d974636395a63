#include "beneath.h"

#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel returns EAGAIN if something was renamed while it walked "..". */
#define WALK_TRIES 64
#define FOLDER_MODE 0777 /* as the umask lets it be */

/* Opens the folder of the last part of the name, one subfolder after the other. */
static int walk_to_parent(int folder, const char *name, unsigned *made)
{
	int at = fcntl(folder, F_DUPFD_CLOEXEC, 0);
	const char *slash;

	if (at < 0)
		return -errno;
	for (; at >= 0 && (slash = strchr(name, '/')); name = slash + 1) {
		char part[NAME_MAX + 1];
		int next;

		if (slash - name > NAME_MAX) {
			close(at);
			return -ENAMETOOLONG;
		}
		snprintf(part, sizeof(part), "%.*s", (int)(slash - name), name);
		if (made && mkdirat(at, part, FOLDER_MODE) == 0)
			++*made;
		next = openat(at, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0)
			next = -errno;
		close(at);
		at = next;
	}
	return at;
}

/* No part of the name may be "..": then nothing but a link could lead out of the folder. */
static int walk(int folder, const char *name, int flags)
{
	int parent, fd;

	if (!path_is_beneath(name) && strcmp(name, ".") != 0)
		return -EXDEV;
	parent = walk_to_parent(folder, name, NULL);
	if (parent < 0)
		return parent;
	fd = openat(parent, path_last(name), flags | O_NOFOLLOW);
	if (fd < 0)
		fd = -errno;
	close(parent);
	return fd;
}

int beneath_open_in(int folder, const char *name, int flags, enum beneath_links links)
{
	struct open_how how = {
		.flags = (uint64_t)flags,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS |
			   (links == BENEATH_NO_LINKS ? RESOLVE_NO_SYMLINKS : 0),
	};
	long fd = -1;

	for (int i = 0; i < WALK_TRIES; i++) {
		fd = syscall(SYS_openat2, folder, name, &how, sizeof(how));
		if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
			break;
	}
	if (fd >= 0)
		return (int)fd;
	if ((errno == ENOSYS || errno == EPERM) && links == BENEATH_NO_LINKS)
		return walk(folder, name, flags);
	return -errno;
}

int beneath_open_parent(int folder, const char *name, unsigned *made)
{
	char parent[PATH_MAX];
	const char *last = path_last(name);

	if (!path_is_beneath(name))
		return -EXDEV;
	if (last == name)
		return beneath_open_in(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, BENEATH_NO_LINKS);
	if (made)
		return walk_to_parent(folder, name, made);
	if (last - name >= PATH_MAX)
		return -ENAMETOOLONG;
	snprintf(parent, sizeof(parent), "%.*s", (int)(last - name - 1), name);
	return beneath_open_in(folder, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC, BENEATH_NO_LINKS);
}

/* O_NONBLOCK: no open may wait for another process, whatever a file system answers to O_EXCL. */
int beneath_make(int folder, const char *name, int flags, mode_t mode, struct stat *ret)
{
	int fd = openat(folder, name, flags | O_CREAT | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode), r;

	*ret = (struct stat){0};
	if (fd < 0)
		return -errno;
	r = fstat(fd, ret) < 0 ? -errno : 0;
	/* Whoever else owned the file could go on writing into it. */
	if (r == 0 && (!S_ISREG(ret->st_mode) || ret->st_uid != geteuid() || ret->st_nlink != 1))
		r = -EPERM;
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}
