/* The files of a load that come as descriptors from the process that began it: a folder without a path.
 *
 * Whoever passes a descriptor that is open for reading may read the file; so the loader, which runs as another user,
 * reads nothing for him that he could not read himself. A descriptor that is open for writing alone, or only names a file
 * (O_PATH), proves no such right, and is refused: the loader opens files again with O_DIRECT. Only regular files are taken, so that
 * no FIFO or device can block a read. A file may still lie in a file system of his own (FUSE) that never answers, or
 * be written meanwhile: the load then stalls, or fails, as a load of a path does. */
#ifndef GPUWM_LOADER_HANDED_H
#define GPUWM_LOADER_HANDED_H

#include "../base/errors.h"
#include "../base/limits.h"

#include <stddef.h>

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
