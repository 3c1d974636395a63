#include "state_copy.h"
#include "../service/store_answer.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_BYTES 65536

static int copy_bytes(int from, int to, off_t offset, off_t end)
{
	char chunk[CHUNK_BYTES];

	while (offset < end) {
		size_t wanted = end - offset < CHUNK_BYTES ? (size_t)(end - offset) : CHUNK_BYTES;
		ssize_t got = pread(from, chunk, wanted, offset);

		if (got <= 0 || pwrite(to, chunk, (size_t)got, offset) != got)
			return got < 0 ? -errno : -EIO;
		offset += got;
	}
	return 0;
}

/* The state has 128 MiB, of which the kernel holds only what was written. */
static int copy_data(int from, int to)
{
	off_t data = lseek(from, 0, SEEK_DATA), hole;
	int r = 0;

	while (r == 0 && data >= 0) {
		hole = lseek(from, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		r = copy_bytes(from, to, data, hole);
		data = lseek(from, hole, SEEK_DATA);
	}
	return r < 0 || errno == ENXIO ? r : -errno; /* ENXIO: there is no more */
}

int state_copy(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS), copy, r;
	struct stat status;

	if (seals < 0)
		return -errno;
	copy = memfd_create(STORE_STATE_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (copy < 0)
		return -errno;
	r = fstat(fd, &status) < 0 || ftruncate(copy, status.st_size) < 0 ? -errno : copy_data(fd, copy);
	if (r == 0 && fcntl(copy, F_ADD_SEALS, seals) < 0)
		r = -errno;
	if (r == 0)
		return copy;
	close(copy);
	return r;
}
