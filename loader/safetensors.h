/* The header of a safetensors file, parsed by the rules of the reference. It touches no file.
 *
 * A file has N (8 bytes, little-endian), N bytes of JSON, then the bytes of the tensors. */
#ifndef GPUWM_LOADER_SAFETENSORS_H
#define GPUWM_LOADER_SAFETENSORS_H

#include "../proto/errors.h"

#include <stddef.h>
#include <stdint.h>

#define SAFETENSORS_PREFIX 8
/* The most memory that the parser takes, in multiples of the header's bytes: texts take at most 1,
 * dimensions 4, tensors 1, metadata 3, and the search for duplicates 2. */
#define HEADER_MEMORY_FACTOR 16

struct safetensors_tensor {
	const char *name;
	unsigned dtype, ndim;
	const uint64_t *shape;
	uint64_t offset; /* from the beginning of the file */
	uint64_t bytes;
};

struct safetensors_pair {
	const char *key, *value;
};

struct safetensors {
	struct safetensors_tensor *tensors; /* in the order of their offsets */
	size_t count;
	struct safetensors_pair *metadata;
	size_t metadata_count;
	uint64_t *dims; /* the shapes point into this array */
	char *texts; /* names, keys and values point into this memory */
};

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
 * Returns 0 and sets *ret, for safetensors_clear.
 *
 * Fails with
 *   -EBADMSG  A key is there twice, or the reference refuses the file too. The message names the
 *             file, the tensor and the rule.
 *   -ENOTSUP  The dtype is unknown, or the file exceeds a limit of gpuwm (names, dimensions).
 *   -ENOMEM   There is no memory. */
int safetensors_parse(const char *file, const void *header, size_t header_bytes, uint64_t file_bytes,
		      struct safetensors *ret, struct error *error);
/* Frees the content. It may be zeroed, or cleared already. */
void safetensors_clear(struct safetensors *content);

/* Returns how many bytes of a text from a file a message shows. It cuts between characters. */
int text_shown(const char *text);

#endif
