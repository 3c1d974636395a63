/* Formats of model files. A format is one file (safetensors_file.c), which has a `struct format`, and
 * one row of `formats` in formats.c. What the loader wants to know of a model's files, it asks that
 * struct. */
#ifndef GPUWM_LOADER_FORMAT_H
#define GPUWM_LOADER_FORMAT_H

#include "../../base/errors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The names of all formats in `formats`, as messages list them. */
#define FORMAT_NAMES "safetensors"
#define FORMATS_SUPPORTED "supported are " FORMAT_NAMES " files, and folders of them"

/* This many of a file's first bytes tell formats apart, foreign ones too: tar has its magic at
 * byte 257. */
#define FORMAT_HEAD_BYTES 512

struct source_file;

/* How a file begins. */
struct format_head {
	uint8_t bytes[FORMAT_HEAD_BYTES]; /* zero after the file's end */
	size_t count; /* how many of them the file has */
	uint64_t file_bytes;
};

struct format_tensor {
	const char *name;
	unsigned dtype, ndim;
	const uint64_t *shape;
	uint64_t offset; /* from the beginning of the file */
	uint64_t bytes;
};

/* A text of the file's metadata. */
struct format_text {
	const char *key, *value;
};

/* What the header of a file says. A zeroed content is that of a file without tensors. */
struct format_content {
	struct format_tensor *tensors; /* in the order of their offsets */
	size_t count;
	struct format_text *metadata;
	size_t metadata_count;
	uint64_t *dims; /* the shapes point into this array */
	char *texts; /* names, keys and values point into this memory */
};

struct format {
	const char *name; /* "safetensors": messages say it */
	const char *file_end; /* how names of its files end: ".safetensors" */
	const char *index_end; /* how names of indices of shards end; NULL: the format has no shards */
	/* Whether a file that begins so has this format, even if it is damaged. */
	bool (*begins)(const struct format_head *head);
	/* Reads the header, and nothing else of the file. `head` is how the file begins. Everything
	 * that the header says is checked: names, dtypes and shapes are within gpuwm's limits, and
	 * each tensor lies in the file. The call takes memory in proportion to the header's bytes.
	 *
	 * Returns 0 and sets *ret, for format_content_clear. Fails with
	 *   -EBADMSG  The file is damaged. The message names the file, the tensor and the rule.
	 *   -ENOTSUP  The file does not have this format, or it exceeds a limit of gpuwm.
	 *   -EIO      Reading failed.
	 *   -ENOMEM   There is no memory. */
	int (*read)(const struct source_file *file, const struct format_head *head, struct format_content *ret,
		    struct error *error);
};

extern const struct format format_safetensors;

/* The formats in the order of their preference: if a folder has files of several, the first counts.
 * NULL ends the array. */
extern const struct format *const formats[];

/* Frees the content. It may be zeroed, or cleared already. */
void format_content_clear(struct format_content *content);

/* Returns the format whose files' names end as this one does, or NULL. The name has more than that
 * end. */
const struct format *format_of_name(const char *name);
/* Whether the name ends as indices of shards do. */
bool format_is_index(const char *name);
/* Whether the name is longer than `end`, which may be NULL, and ends so. */
bool format_name_ends(const char *name, const char *end);

/* Reads the header of a file in its format, as `read` does. If no format knows how the file begins,
 * the call fails with -ENOTSUP and says what the file is, if that is known. */
int format_read(const struct source_file *file, struct format_content *ret, struct error *error);

/* ---- foreign files (foreign.c) ----
 *
 * Files of no format that the loader reads: what they are instead, and what helps. */

struct foreign {
	const char *what; /* "a GGUF file": messages say that the file is `what` */
	const char *remedy;
};

/* Returns the format of a file by its first bytes (up to FORMAT_HEAD_BYTES of them) or by the end of
 * its name, or NULL if neither is known. Call it only for a file that no format above knows: a
 * safetensors file may begin with some of these bytes too. */
const struct foreign *foreign_format(const char *path, const uint8_t *peek, size_t bytes);
/* Whether the file is a JSON text, as an index of shards is. */
bool foreign_is_json(const struct foreign *foreign);
/* Returns the format by the end of the name alone. */
const struct foreign *foreign_name(const char *path);
/* As foreign_format, for a file that stands beside weights: NULL also for texts, and for a compressed file unless its name, without
 * the end that the compression added, says that it is more than a text. */
const struct foreign *foreign_beside(const char *path, const uint8_t *peek, size_t bytes);
/* Whether this is a pointer of Git LFS, which stands for a file. */
bool foreign_is_pointer(const struct foreign *foreign);
/* Whether the name is that of an index of shards of any format. */
bool foreign_is_index(const char *name);

/* ---- safetensors (safetensors.c) ----
 *
 * The header of a safetensors file, parsed by the rules of the reference. It touches no file.
 *
 * A file has N (8 bytes, little-endian), N bytes of JSON, then the bytes of the tensors. */

#define SAFETENSORS_PREFIX 8
/* The most memory that the parser takes, in multiples of the header's bytes: texts take at most 1,
 * dimensions 4, tensors 1, metadata 3, and the search for duplicates 2. */
#define HEADER_MEMORY_FACTOR 16

/* Reads the length of the JSON from a file's first 8 bytes. It checks the length against the limit
 * and the size of the file, before anybody reads that much. `file` is only for messages. Returns 0
 * and sets the length. Fails with -EBADMSG if the file is truncated, or is not a safetensors
 * file. */
int safetensors_header_bytes(const uint8_t prefix[SAFETENSORS_PREFIX], uint64_t file_bytes, const char *file,
			     uint64_t *ret_bytes, struct error *error);

/* Parses the header of a file of file_bytes bytes, and checks everything: that the JSON has no
 * duplicate keys and nothing behind it, the dtypes, the shapes, and that the tensors fill the rest
 * of the file without a gap or an overlap. It takes at most HEADER_MEMORY_FACTOR times the header's
 * bytes of memory.
 *
 * Returns 0 and sets *ret, for format_content_clear.
 *
 * Fails with
 *   -EBADMSG  A key is there twice, or the reference refuses the file too. The message names the
 *             file, the tensor and the rule.
 *   -ENOTSUP  The dtype is unknown, or the file exceeds a limit of gpuwm (names, dimensions).
 *   -ENOMEM   There is no memory. */
int safetensors_parse(const char *file, const void *header, size_t header_bytes, uint64_t file_bytes,
		      struct format_content *ret, struct error *error);

#endif
