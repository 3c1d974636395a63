#include "roots.h"

#include "../../base/beneath.h"
#include "../../base/limits.h"
#include "../../service/root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
static int open_in(const char *root, const char *rest, int flags, enum beneath_links links)
{
	int folder = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC), fd;

	if (folder < 0)
		return -errno;
	fd = beneath_open_in(folder, rest, flags, links);
	close(folder);
	return fd;
}

static void list_roots(const struct roots *roots, char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "configured roots:%s", roots->count ? "" : " none");

	for (size_t i = 0; i < roots->count && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s %s", i ? "," : "", roots->paths[i]);
}

/* root: one that contains the path, which is `rest` there. */
static int beneath_refuse(const struct roots *roots, const char *root, const char *path, int code,
			  struct error *error)
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
	if (code == -ENOENT) {
		int link = open_in(root, below(root, path), LOOK_AT_LINK, BENEATH_LINKS);

		if (link >= 0) {
			close(link);
			return error_set(error, -EBADMSG, "is the download complete? Download it again",
					 "%s is a link to a file that is missing", path);
		}
	}
	if (code == -EACCES)
		root_access_remedy(list, sizeof(list));
	else if (code == -ENOENT)
		snprintf(list, sizeof(list),
			 "look where gpuwm-loader looks: its service or container may have other mounts than "
			 "your shell");
	else
		list[0] = '\0';
	return error_set(error, code, list, "cannot open %s: %s", path, strerror(-code));
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
		fd = open_in(roots->paths[i], rest, READ, roots->links);
		if (fd >= 0) {
			*ret_fd = fd;
			return 0;
		}
		/* If one root lies in another, that one may hold what the link leads to. */
		if (code == 0 || code == -EXDEV)
			code = fd;
	}
	if (contained && root_check(contained, error) < 0)
		return error->code;
	if (contained)
		return beneath_refuse(roots, contained, path, code, error);
	list_roots(roots, list, sizeof(list));
	return error_set(error, -EACCES, list, "%s lies beneath none of the configured roots", path);
}
