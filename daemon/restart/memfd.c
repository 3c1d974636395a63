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

int look_again(int (*look)(int fd, void *data), int fd, void *data)
{
	int r = look(fd, data);

	for (int i = 1; i < TRIES && r < 0 && r != -EINVAL; i++) {
		poll(NULL, 0, PAUSE_MS);
		r = look(fd, data);
	}
	return r;
}

/* EBADF: a descriptor of a path alone (O_PATH), which is no memfd either. */
static int look_at_seals(int fd, void *data)
{
	int seals = fcntl(fd, F_GET_SEALS);

	(void)data;
	if (seals >= 0)
		return seals;
	return errno == EBADF ? -EINVAL : -errno;
}

int memfd_seals(int fd)
{
	return look_again(look_at_seals, fd, NULL);
}

static int look_at_bytes(int fd, void *data)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*(uint64_t *)data = (uint64_t)st.st_size;
	return 0;
}

int memfd_bytes(int fd, uint64_t *ret_bytes)
{
	return look_again(look_at_bytes, fd, ret_bytes);
}
