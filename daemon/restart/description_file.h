/* One file of the folder of descriptions: how it lies on disk. description_body.h says what its body means.
 *
 * A file begins with a header of 64 bytes, little-endian, the same in every format: magic "GPUWMDS" and a zero, format u32,
 * kind u32 (1: a version, 2: names), body bytes u64, index bytes u64, digest 16 of the header and the body, digest 16 of
 * the indices. The body follows, then the bytes of all indices, each with zeros up to a multiple of 8. In the first digest both digests
 * count as zeros. A file is written under another name, synchronised, and then renamed, so that it is there as a
 * whole or not at all.
 *
 * All functions block, and may be called on any thread. */
#ifndef GPUWM_DAEMON_DESCRIPTION_FILE_H
#define GPUWM_DAEMON_DESCRIPTION_FILE_H

#include "../../proto/index/digest.h"
#include "../../base/errors.h"

#include <stddef.h>
#include <stdint.h>

/* The format that this program writes. It reads this format and all earlier ones. */
#define DESCRIPTION_FORMAT 1
/* A file that is being written has this at the end of its name. */
#define DESCRIPTION_NEW ".new"

enum description_kind { DESCRIPTION_VERSION = 1, DESCRIPTION_NAMES = 2 };

/* A sealed memfd. Its bytes are copied without being checked. */
struct description_index {
	int fd;
	uint64_t bytes;
};

/* What is to be written. Nothing of it is owned. */
struct description_bytes {
	enum description_kind kind;
	const void *body;
	size_t body_bytes;
	const struct description_index *indices;
	uint32_t index_count;
};
/* Writes the file of this name into the folder, with mode 0600. The folder itself is not synchronised. Returns 0 or -errno; then
 * a file of this name that was there before is unchanged. */
int description_file_write(int folder, const char *name, const struct description_bytes *what);

/* A file that is being read. */
struct description_reading {
	int fd;
	void *body; /* malloced */
	size_t body_bytes;
	uint64_t index_bytes; /* of all indices, with the zeros behind each */
	uint64_t taken; /* of these, so many have been read */
	struct digest promised; /* of the indices */
	struct digest_sum sum;
};
/* Opens a file and reads its body. The caller ends the reading with description_file_close. Fails with -ENOENT; -EUCLEAN (the
 * file is no description, is torn, or belongs to another user; the message says which); -EPROTONOSUPPORT (a newer gpuwmd wrote it);
 * -ENOMEM; any other -errno of a call that failed. */
int description_file_open(int folder, const char *name, enum description_kind kind,
			  struct description_reading *ret, struct error *error);
/* Copies the next index into a new memfd with all seals, and sets *ret_fd to it. Fails with -EUCLEAN (the file has no more so
 * many bytes) and any -errno. */
int description_file_index(struct description_reading *reading, uint64_t bytes, int *ret_fd,
			   struct error *error);
/* Checks that all indices were read, and are what was written. Fails with -EUCLEAN. */
int description_file_check(const struct description_reading *reading, struct error *error);
void description_file_close(struct description_reading *reading);

#endif
