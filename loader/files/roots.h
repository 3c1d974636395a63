/* The roots: folders below which the loader opens files, and nowhere else, wherever links lead. */
#ifndef GPUWM_LOADER_ROOTS_H
#define GPUWM_LOADER_ROOTS_H

#include "../../base/beneath.h"
#include "../../base/errors.h"
#include "../../base/limits.h"

#include <stdbool.h>
#include <stddef.h>

struct handed;

/* Absolute paths. The strings belong to the caller. */
struct roots {
	char **paths;
	size_t count;
	const struct handed *
		handed; /* the files that a load was passed, which takes these alone; NULL: it was passed none */
	enum beneath_links links; /* below a root: BENEATH_LINKS are followed where they stay there */
};

/* ---- opening (beneath.c) ---- */

/* Opens `path` (absolute) for reading, beneath a root that its text begins with. Links may lead
 * anywhere beneath that root, but not out of it. It never blocks on a FIFO.
 *
 * Returns 0 and sets *ret_fd. Fails with -EACCES if the path is beneath no root, or if a link leads
 * out of its root (the message names the roots), with -EBADMSG if the path is a link to a file that is
 * missing, with -ENOENT, and with any other -errno, which names the path. */
int beneath_open(const struct roots *roots, const char *path, int *ret_fd, struct error *error);

/* ---- the roots that a service sets for its own loaders ----
 *
 * They are the lines `root` of [loader] in gpuwmd's configuration. Besides them only [peers] in that file concerns a loader. */

/* Which roots count for a job. */
struct roots_service {
	bool own; /* the service's, and not the job's: `file` is read at each load, so that it may change */
	const char *file;
};

/* Reads the roots, and skips all other keys of [loader]. Returns 0 and sets *ret, for roots_clear.
 * A file without any root is an error too, since nothing could be loaded: -EACCES, with the remedy.
 * The same holds for a NULL `path`: the service names no file. Fails with -EINVAL for a wrong line
 * (the message names the file, the line and what is wrong), and with the errno of opening the
 * file. */
int roots_read(const char *path, struct roots *ret, struct error *error);
/* Frees the paths. Zeroed roots are fine. */
void roots_clear(struct roots *roots);

/* ---- files that are handed over (../handed.c) ----
 *
 * The files of a load that come as descriptors from the process that began it: a folder without a path.
 *
 * Whoever passes a descriptor that is open for reading may read the file; so the loader, which runs as another user,
 * reads nothing for him that he could not read himself. A descriptor that is open for writing alone, or only names a file
 * (O_PATH), proves no such right, and is refused: the loader opens files again with O_DIRECT. Only regular files are taken, so that
 * no FIFO or device can block a read. A file may still lie in a file system of his own (FUSE) that never answers, or
 * be written meanwhile: the load then stalls, or fails, as a load of a path does. */

struct work;

struct handed {
	const char *folder; /* the load's source, which stands before each name as a folder's path would */
	char *names[LOAD_FILES_MAX];
	int fds[LOAD_FILES_MAX];
	size_t count;
};

/* Receives the files from the socket, and waits LOAD_FILES_WAIT_MS for them at most.
 *
 * Returns 0 and sets *ret, for handed_close. Fails with -ETIMEDOUT and -ECONNABORTED if they do not come, -EINVAL if a descriptor is
 * not of a regular file, or its name is none of a file in a folder, -EACCES if it is not open for reading, -EPROTO if the packet is
 * none of files, -ECANCELED and -ECONNRESET as work_advance, and -ENOMEM. */
int handed_receive(int sock, const char *folder, struct work *work, struct handed *ret, struct error *error);
/* Closes the descriptors. A zeroed one is fine. */
void handed_close(struct handed *handed);
/* Opens a file by its path, which begins with the folder. Sets *ret_fd to a descriptor of the caller's. Fails with -ENOENT, and
 * -EMFILE. */
int handed_open(const struct handed *handed, const char *path, int *ret_fd, struct error *error);

#endif
