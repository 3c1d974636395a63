#include "source.h"

#include "../../base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* xorshift64: returns a number, another one each time. */
static uint64_t draw(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Whether nothing was ever written there: a read finds zeros, with or without the page cache.
 * Returns false if the file system can't tell. */
static bool is_hole(const struct source_file *file, uint64_t offset)
{
	off_t data = lseek(file->fd, (off_t)offset, SEEK_DATA);

	return data < 0 ? errno == ENXIO : (uint64_t)data > offset;
}

/* Returns 1 if the byte is cached, 0 if it is not. */
static int sample(const struct source_file *file, uint64_t offset, struct error *error)
{
	char byte;
	struct iovec place = {.iov_base = &byte, .iov_len = 1};
	ssize_t n = preadv2(file->fd, &place, 1, (off_t)offset, RWF_NOWAIT);

	if (n >= 0)
		return n == 1 && !is_hole(file, offset);
	if (errno == EAGAIN || errno == EINTR)
		return 0;
	return error_set(error, -EOPNOTSUPP, NULL, "what is cached of %s can't be known: %s", file->path,
			 strerror(errno));
}

/* What is cached of [from, to). */
static int range_residency(const struct source_file *file, uint64_t from, uint64_t to,
			   memory_progress_fn *progress, void *user_data, uint64_t *state, uint64_t *bytes,
			   struct error *error)
{
	for (uint64_t at = from; at < to; at += RESIDENCY_SAMPLE_BYTES) {
		uint64_t left = to - at;
		uint64_t piece = left < RESIDENCY_SAMPLE_BYTES ? left : RESIDENCY_SAMPLE_BYTES;
		int r = sample(file, at + draw(state) % piece, error);

		if (r < 0)
			return r;
		*bytes += r ? piece : 0;
		r = progress(0, user_data);
		if (r != 0)
			return r;
	}
	return 0;
}

/* Returns the position behind those tensors that lie behind one another in a file, from the first on. *ret_end: where they end. */
static size_t run_of(const struct source *source, size_t first, uint64_t *ret_end)
{
	const struct source_tensor *tensors = source->tensors;
	size_t i = first;

	do {
		*ret_end = tensors[i].offset + tensors[i].bytes;
		i++;
	} while (i < source->tensor_count && tensors[i].file == tensors[first].file &&
		 tensors[i].offset == *ret_end);
	return i;
}

int residency_of(const struct source *source, memory_progress_fn *progress, void *user_data, uint64_t *ret,
		 struct error *error)
{
	uint64_t state = clock_steady_ns() | 1, bytes = 0, end;
	int r = 0;

	/* If a sample is not cached, the kernel shall read only its own page. */
	for (size_t i = 0; i < source->file_count; i++)
		posix_fadvise(source->files[i].fd, 0, 0, POSIX_FADV_RANDOM);
	for (size_t i = 0, next; r == 0 && i < source->tensor_count; i = next) {
		const struct source_tensor *first = &source->tensors[i];

		next = run_of(source, i, &end);
		r = range_residency(&source->files[first->file], first->offset, end, progress, user_data,
				    &state, &bytes, error);
	}
	if (r == 0)
		*ret = bytes;
	return r;
}
