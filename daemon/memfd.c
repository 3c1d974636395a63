#include "memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <sys/stat.h>

/* The kernel is short of memory for moments. A cause that lasts longer than this is left to the next start, which has
 * the same descriptors again: 0.1 seconds a descriptor delay no start by much. */
#define TRIES 6
#define PAUSE_MS 20

/* EBADF: a descriptor of a path alone (O_PATH), which is no memfd either. */
static int seals_once(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals >= 0)
		return seals;
	return errno == EBADF ? -EINVAL : -errno;
}

int memfd_seals(int fd)
{
	int r = seals_once(fd);

	for (int i = 1; i < TRIES && r < 0 && r != -EINVAL; i++) {
		poll(NULL, 0, PAUSE_MS);
		r = seals_once(fd);
	}
	return r;
}

static int bytes_once(int fd, uint64_t *ret_bytes)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*ret_bytes = (uint64_t)st.st_size;
	return 0;
}

int memfd_bytes(int fd, uint64_t *ret_bytes)
{
	int r = bytes_once(fd, ret_bytes);

	for (int i = 1; i < TRIES && r < 0; i++) {
		poll(NULL, 0, PAUSE_MS);
		r = bytes_once(fd, ret_bytes);
	}
	return r;
}
