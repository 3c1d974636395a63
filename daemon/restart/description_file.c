#include "description_file.h"

#include "../../base/beneath.h"
#include "../../base/limits.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_BYTES KIB(256) /* a multiple of 8, as digest_update wants */
#define FILE_NAME_BYTES 80
#define SEALS (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)

static const char magic[8] = "GPUWMDS";

struct header {
	char magic[8];
	uint32_t format, kind;
	uint64_t body_bytes, index_bytes;
	struct digest digest, index_digest;
};
static_assert(sizeof(struct header) == 64, "the same in every format");

static struct digest digest_header(const struct header *header, const void *body)
{
	struct header plain = *header;
	struct digest_sum sum = {0};

	plain.digest = plain.index_digest = (struct digest){0};
	digest_update(&sum, 0, &plain, sizeof(plain));
	digest_update(&sum, sizeof(plain), body, header->body_bytes);
	return digest_final(&sum, sizeof(plain) + header->body_bytes);
}

/* ---- bytes ---- */

static int write_all(int fd, const void *data, size_t bytes, uint64_t offset)
{
	while (bytes > 0) {
		ssize_t done = pwrite(fd, data, bytes, (off_t)offset);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done < 0 ? -errno : -EIO;
		data = (const char *)data + done;
		offset += (uint64_t)done;
		bytes -= (size_t)done;
	}
	return 0;
}

/* -EUCLEAN: the file ends before. */
static int description_read_all(int fd, void *data, size_t bytes, uint64_t offset)
{
	while (bytes > 0) {
		ssize_t done = pread(fd, data, bytes, (off_t)offset);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done < 0 ? -errno : -EUCLEAN;
		data = (char *)data + done;
		offset += (uint64_t)done;
		bytes -= (size_t)done;
	}
	return 0;
}

static uint64_t padded(uint64_t bytes)
{
	return (bytes + 7) / 8 * 8;
}

/* Copies `bytes` from one descriptor to another. Zeros follow in the digest, and in the copy if `pad` says so. */
struct copying {
	int from, to;
	uint64_t from_offset, to_offset, bytes;
	bool pad;
	struct digest_sum *sum; /* NULL: none */
	uint64_t summed; /* what the sum has already */
};

static int copy_some(const struct copying *c, uint64_t at, char *buffer)
{
	const uint64_t left = c->bytes - at;
	const size_t some = left < COPY_BYTES ? (size_t)left : COPY_BYTES;
	int r;

	memset(buffer + some, 0, padded(some) - some);
	r = description_read_all(c->from, buffer, some, c->from_offset + at);
	if (r == 0)
		r = write_all(c->to, buffer, c->pad ? padded(some) : some, c->to_offset + at);
	if (r == 0 && c->sum)
		digest_update(c->sum, c->summed + at, buffer, padded(some));
	return r;
}

static int description_copy(const struct copying *c)
{
	char *buffer = malloc(COPY_BYTES);
	int r = buffer ? 0 : -ENOMEM;

	for (uint64_t at = 0; r == 0 && at < c->bytes; at += COPY_BYTES)
		r = copy_some(c, at, buffer);
	free(buffer);
	return r;
}

/* ---- writing ---- */

/* The header comes last, when the digest of the indices is known. */
static int write_file(int fd, const struct description_bytes *what)
{
	struct header header = {
		.format = DESCRIPTION_FORMAT, .kind = (uint32_t)what->kind, .body_bytes = what->body_bytes};
	const uint64_t begin = sizeof(header) + what->body_bytes;
	struct digest_sum sum = {0};
	int r = write_all(fd, what->body, what->body_bytes, sizeof(header));

	for (uint32_t i = 0; r == 0 && i < what->index_count; i++) {
		r = description_copy(&(struct copying){.from = what->indices[i].fd,
						       .to = fd,
						       .to_offset = begin + header.index_bytes,
						       .bytes = what->indices[i].bytes,
						       .pad = true,
						       .sum = &sum,
						       .summed = header.index_bytes});
		header.index_bytes += padded(what->indices[i].bytes);
	}
	if (r < 0)
		return r;
	memcpy(header.magic, magic, sizeof(magic));
	header.index_digest = digest_final(&sum, header.index_bytes);
	header.digest = digest_header(&header, what->body);
	r = write_all(fd, &header, sizeof(header), 0);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	return r;
}

int description_file_write(int folder, const char *name, const struct description_bytes *what)
{
	char temporary[FILE_NAME_BYTES];
	struct stat st;
	int fd, r;

	snprintf(temporary, sizeof(temporary), "%s%s", name, DESCRIPTION_NEW);
	if (unlinkat(folder, temporary, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = beneath_make(folder, temporary, O_RDWR, 0600, &st);
	if (fd < 0)
		return fd;
	r = write_file(fd, what);
	if (close(fd) < 0 && r == 0)
		r = -errno;
	if (r == 0 && renameat(folder, temporary, folder, name) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(folder, temporary, 0);
	return r;
}

/* ---- reading ---- */

static int unclean(struct error *error, const char *name, const char *what)
{
	return error_set(error, -EUCLEAN, NULL, "%s %s", name, what);
}

static int check_file(int fd, const char *name, uint64_t *ret_bytes, struct error *error)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return error_set(error, -errno, NULL, "%s can't be looked at: %s", name, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return unclean(error, name, "is no file");
	if (st.st_uid != geteuid())
		return error_set(error, -EUCLEAN, NULL, "%s belongs to user %u, not to gpuwmd's user %u", name,
				 (unsigned)st.st_uid, (unsigned)geteuid());
	*ret_bytes = (uint64_t)st.st_size;
	return 0;
}

static int check_header(const struct header *header, const char *name, enum description_kind kind,
			uint64_t file_bytes, struct error *error)
{
	uint64_t bytes;

	if (memcmp(header->magic, magic, sizeof(magic)) != 0)
		return unclean(error, name, "was not written by gpuwmd");
	if (header->format > DESCRIPTION_FORMAT)
		return error_set(error, -EPROTONOSUPPORT, NULL,
				 "%s has format %u of a newer gpuwmd; this one reads up to %d", name,
				 header->format, DESCRIPTION_FORMAT);
	if (header->format == 0 || header->kind != (uint32_t)kind || header->body_bytes > MESSAGE_BODY_MAX ||
	    __builtin_add_overflow(sizeof(*header) + header->body_bytes, header->index_bytes, &bytes))
		return unclean(error, name, "has a header that gpuwmd does not write");
	if (bytes != file_bytes)
		return error_set(error, -EUCLEAN, NULL, "%s has %llu bytes, its header says %llu", name,
				 (unsigned long long)file_bytes, (unsigned long long)bytes);
	return 0;
}

static int cant_read(struct error *error, const char *name, int code)
{
	return error_set(error, code, NULL, "%s can't be read: %s", name, strerror(-code));
}

static int read_body(struct description_reading *reading, const struct header *header, const char *name,
		     struct error *error)
{
	struct digest digest;
	int r;

	reading->body = malloc(header->body_bytes ? header->body_bytes : 1);
	if (!reading->body)
		return cant_read(error, name, -ENOMEM);
	r = description_read_all(reading->fd, reading->body, header->body_bytes, sizeof(*header));
	if (r < 0)
		return cant_read(error, name, r);
	digest = digest_header(header, reading->body);
	if (!digest_equal(&digest, &header->digest))
		return unclean(error, name, "is damaged: its digest is another one");
	reading->body_bytes = header->body_bytes;
	reading->index_bytes = header->index_bytes;
	reading->promised = header->index_digest;
	return 0;
}

/* From here on the file is in memory, and its file system is asked no more. */
static int take_copy(struct description_reading *reading, const char *name, uint64_t bytes, struct error *error)
{
	int fd = memfd_create("gpuwm-description", MFD_CLOEXEC), r;

	if (fd < 0)
		return cant_read(error, name, -errno);
	r = description_copy(&(struct copying){.from = reading->fd, .to = fd, .bytes = bytes});
	close(reading->fd);
	reading->fd = fd;
	return r < 0 ? cant_read(error, name, r) : 0;
}

static int read_file(struct description_reading *reading, const char *name, enum description_kind kind,
		     struct error *error)
{
	struct header header;
	uint64_t bytes = 0;
	int r = check_file(reading->fd, name, &bytes, error);

	if (r < 0)
		return r;
	if (bytes < sizeof(header))
		return error_set(error, -EUCLEAN, NULL, "%s has %llu bytes, a header has %zu", name,
				 (unsigned long long)bytes, sizeof(header));
	r = description_read_all(reading->fd, &header, sizeof(header), 0);
	if (r < 0)
		return cant_read(error, name, r);
	r = check_header(&header, name, kind, bytes, error);
	if (r == 0)
		r = take_copy(reading, name, bytes, error);
	return r < 0 ? r : read_body(reading, &header, name, error);
}

/* O_NONBLOCK: somebody may have put a FIFO there. */
int description_file_open(int folder, const char *name, enum description_kind kind,
			  struct description_reading *ret, struct error *error)
{
	int r;

	*ret = (struct description_reading){.fd = -1};
	ret->fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (ret->fd < 0 && errno == ELOOP)
		return unclean(error, name, "is a link");
	if (ret->fd < 0)
		return error_set(error, -errno, NULL, "%s can't be opened: %s", name, strerror(errno));
	r = read_file(ret, name, kind, error);
	if (r < 0)
		description_file_close(ret);
	return r;
}

int description_file_index(struct description_reading *reading, uint64_t bytes, int *ret_fd,
			   struct error *error)
{
	int fd, r;

	if (bytes == 0 || bytes > INDEX_BYTES_MAX || padded(bytes) > reading->index_bytes - reading->taken)
		return error_set(error, -EUCLEAN, NULL, "the file has no index of %llu bytes at %llu of %llu",
				 (unsigned long long)bytes, (unsigned long long)reading->taken,
				 (unsigned long long)reading->index_bytes);
	fd = memfd_create("gpuwm-index", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return cant_read(error, "an index", -errno);
	r = description_copy(&(struct copying){
		.from = reading->fd,
		.to = fd,
		.from_offset = sizeof(struct header) + reading->body_bytes + reading->taken,
		.bytes = bytes,
		.sum = &reading->sum,
		.summed = reading->taken,
	});
	if (r == 0 && fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		r = -errno;
	if (r < 0) {
		close(fd);
		return cant_read(error, "an index", r);
	}
	reading->taken += padded(bytes);
	*ret_fd = fd;
	return 0;
}

int description_file_check(const struct description_reading *reading, struct error *error)
{
	struct digest digest = digest_final(&reading->sum, reading->index_bytes);

	if (reading->taken != reading->index_bytes)
		return error_set(error, -EUCLEAN, NULL,
				 "the file has %llu bytes of indices, %llu belong to parts",
				 (unsigned long long)reading->index_bytes, (unsigned long long)reading->taken);
	return digest_equal(&digest, &reading->promised)
		       ? 0
		       : error_set(error, -EUCLEAN, NULL, "an index is damaged: its digest is another one");
}

void description_file_close(struct description_reading *reading)
{
	free(reading->body);
	if (reading->fd >= 0)
		close(reading->fd);
	*reading = (struct description_reading){.fd = -1};
}
