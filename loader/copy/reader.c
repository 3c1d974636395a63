#include "reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void reader_open(const struct source_file *file, struct reader *ret)
{
	*ret = (struct reader){.file = file, .direct = -1};
	pthread_mutex_init(&ret->lock, NULL);
	/* Asking for bytes that are not cached starts readahead. With this advice the kernel reads
	 * only the pages that were asked for. */
	posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM);
}

void reader_close(struct reader *reader)
{
	if (reader->direct >= 0)
		close(reader->direct);
	reader->direct = -1;
	pthread_mutex_destroy(&reader->lock);
}

/* Sets a flag for good, and keeps the first reason. */
static void reader_give_up(struct reader *reader, bool *flag, const char *what, int code)
{
	pthread_mutex_lock(&reader->lock);
	if (!*flag && !reader->note[0])
		snprintf(reader->note, sizeof(reader->note),
			 "%s is read through the page cache, which is slower where it is not cached: %s: %s",
			 reader->file->path, what, strerror(code));
	__atomic_store_n(flag, true, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&reader->lock);
	/* What is read through the page cache needs readahead. */
	posix_fadvise(reader->file->fd, 0, 0, POSIX_FADV_NORMAL);
}

static bool is_given_up(const bool *flag)
{
	return __atomic_load_n(flag, __ATOMIC_RELAXED);
}

/* Something was cached. All readers of a file share this word, so they write it only if it changes. */
static void is_warm(struct reader *reader)
{
	if (__atomic_load_n(&reader->cold, __ATOMIC_RELAXED) > 0)
		__atomic_store_n(&reader->cold, 0, __ATOMIC_RELAXED);
}

static ssize_t read_nowait(struct reader *reader, const struct iovec *places, int count, uint64_t offset)
{
	ssize_t n;

	do
		n = preadv2(reader->file->fd, places, count, (off_t)offset, RWF_NOWAIT);
	while (n < 0 && errno == EINTR);
	if (n >= 0)
		return n;
	if (errno == EFAULT)
		return -EFAULT;
	/* EINVAL and ENOSYS mean that the kernel, or a sandbox, does not know the call. */
	if (errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS)
		reader_give_up(reader, &reader->no_nowait, "asking what is cached (RWF_NOWAIT)", errno);
	return 0; /* after EIO too: reader_fetch will name the byte */
}

static bool reader_seems_cold(struct reader *reader)
{
	unsigned cold = __atomic_load_n(&reader->cold, __ATOMIC_RELAXED);

	if (cold < READER_COLD)
		return false;
	cold = __atomic_add_fetch(&reader->cold, 1, __ATOMIC_RELAXED);
	return cold % READER_ASK_EVERY != 0;
}

ssize_t reader_cached(struct reader *reader, const struct iovec *places, int count, uint64_t offset)
{
	char byte;
	ssize_t n;

	if (is_given_up(&reader->no_nowait) || reader_seems_cold(reader))
		return 0;
	/* Asks for one byte first: a read that finds nothing cached makes the kernel read all that
	 * it asked for. */
	n = read_nowait(reader, &(struct iovec){&byte, 1}, 1, offset);
	if (n > 0)
		is_warm(reader);
	else
		__atomic_add_fetch(&reader->cold, 1, __ATOMIC_RELAXED);
	return n <= 0 ? n : read_nowait(reader, places, count, offset);
}

/* ---- holes --------------------------------------------------------------- */

/* Asks whether the page at `at` is cached. */
static bool hole_ask(struct reader *reader, struct reader_hole *hole, uint64_t at)
{
	char byte;

	if (read_nowait(reader, &(struct iovec){&byte, 1}, 1, at) > 0) {
		is_warm(reader);
		return true;
	}
	hole->asked[hole->ask_count++] = at;
	return false;
}

/* Asks about places that are twice as far away each time, the last one near the end. Then halves the
 * distance back. */
static size_t hole_search(struct reader *reader, struct reader_hole *hole, uint64_t offset, size_t bytes)
{
	uint64_t first = offset / READER_ALIGN * READER_ALIGN, end = offset + bytes, low = first, high = end;
	uint64_t last =
		end - first > READER_STEP ? (end - first - READER_STEP) / READER_ALIGN * READER_ALIGN : 0;
	uint64_t far = end - first > READER_STEP ? READER_STEP : 0;

	while (far > 0 && high == end && hole->ask_count < READER_ASKS_MAX / 2) {
		if (hole_ask(reader, hole, first + far))
			high = first + far;
		else
			low = first + far;
		if (2 * far <= last)
			far = 2 * far;
		else
			far = far < last ? last : 0;
	}
	while (high < end && high - low > READER_STEP && hole->ask_count < READER_ASKS_MAX) {
		uint64_t middle = low + (high - low) / 2 / READER_ALIGN * READER_ALIGN;

		if (hole_ask(reader, hole, middle))
			high = middle;
		else
			low = middle;
	}
	return high - offset;
}

void reader_hole(struct reader *reader, uint64_t offset, size_t bytes, struct reader_hole *ret)
{
	*ret = (struct reader_hole){.bytes = bytes};
	if (reader_is_direct(reader) && __atomic_load_n(&reader->cold, __ATOMIC_RELAXED) < READER_COLD)
		ret->bytes = hole_search(reader, ret, offset, bytes);
}

void reader_hole_forget(struct reader *reader, const struct reader_hole *hole)
{
	for (unsigned i = 0; i < hole->ask_count; i++)
		posix_fadvise(reader->file->fd, (off_t)hole->asked[i], READER_ALIGN, POSIX_FADV_DONTNEED);
}

/* ---- fetching ------------------------------------------------------------ */

/* Opens the same file once more. That needs no path, and no right but to read the file. */
static int open_direct(const struct reader *reader)
{
	char path[32];
	struct stat now;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", reader->file->fd);
	fd = open(path, O_RDONLY | O_DIRECT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &now) == 0 && now.st_dev == reader->file->stat.st_dev &&
	    now.st_ino == reader->file->stat.st_ino)
		return fd;
	close(fd);
	return -ESTALE;
}

/* Returns the descriptor with O_DIRECT, or -1 if there is none. */
static int direct_fd(struct reader *reader)
{
	int fd;

	if (is_given_up(&reader->no_nowait) || is_given_up(&reader->no_direct))
		return -1;
	pthread_mutex_lock(&reader->lock);
	if (reader->direct < 0)
		reader->direct = open_direct(reader);
	fd = reader->direct;
	pthread_mutex_unlock(&reader->lock);
	if (fd >= 0)
		return fd;
	reader_give_up(reader, &reader->no_direct, "opening it with O_DIRECT", -fd);
	return -1;
}

/* Returns how many bytes of the range came directly, 0 or more. If some are missing, or reading
 * failed, source_file_read_at reads the rest, and names the very byte that fails. */
static size_t read_direct(struct reader *reader, void *to, uint64_t offset, size_t bytes)
{
	size_t before = offset % READER_ALIGN;
	size_t whole = (before + bytes + READER_ALIGN - 1) / READER_ALIGN * READER_ALIGN;
	int fd = direct_fd(reader);
	ssize_t n;

	if (fd < 0)
		return 0;
	do
		n = pread(fd, (char *)to - before, whole, (off_t)(offset - before));
	while (n < 0 && errno == EINTR);
	if (n < 0 && (errno == EINVAL || errno == EOPNOTSUPP))
		reader_give_up(reader, &reader->no_direct, "reading it with O_DIRECT", errno);
	if (n <= (ssize_t)before)
		return 0;
	/* This drops the page that asking brought into the cache. Otherwise it would look like a
	 * cached range the next time. */
	posix_fadvise(reader->file->fd, (off_t)(offset - before), READER_ALIGN, POSIX_FADV_DONTNEED);
	return (size_t)n - before < bytes ? (size_t)n - before : bytes;
}

int reader_fetch(struct reader *reader, void *to, uint64_t offset, size_t bytes, struct read_counts *counts,
		 struct error *error)
{
	size_t done = read_direct(reader, to, offset, bytes);

	counts->direct += done;
	counts->buffered += bytes - done;
	return source_file_read_at(reader->file, (char *)to + done, bytes - done, offset + done, error);
}

bool reader_is_direct(struct reader *reader)
{
	return !is_given_up(&reader->no_nowait) && !is_given_up(&reader->no_direct);
}

const char *reader_note(const struct reader *reader)
{
	return reader->note;
}
