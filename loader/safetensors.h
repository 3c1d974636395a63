/* The header of a safetensors file, parsed by the reference's rules. Pure: no
 * file is touched.
 *
 * A file is: N (8 bytes, little-endian), N bytes of JSON, the tensors' bytes.
 */
#ifndef GPUWM_LOADER_SAFETENSORS_H
#define GPUWM_LOADER_SAFETENSORS_H

#include "../proto/errors.h"

#include <stddef.h>
#include <stdint.h>

#define SAFETENSORS_PREFIX 8
/* The parser's memory, in multiples of the header's bytes: texts take at most 1, dimensions 4, tensors 1, metadata 3, and the
 * search for duplicates 2. */
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
	uint64_t *dims; /* what the shapes point into */
	char *texts; /* what names, keys and values point into */
};

/* The length of the JSON from a file's first 8 bytes, checked against the
 * limit and the file before anybody reads that much. `file` is for messages
 * only. -EBADMSG: the file is truncated, or is no safetensors file. */
int safetensors_header_bytes(const uint8_t prefix[SAFETENSORS_PREFIX], uint64_t file_bytes, const char *file,
			     uint64_t *ret_bytes, struct error *error);

/* Parses the header of a file of file_bytes bytes, and checks everything: that the JSON has no duplicate keys and nothing
 * after it, the dtypes, the shapes, and that the tensors fill the rest of the file without gap or overlap. Takes at most
 * HEADER_MEMORY_FACTOR times the header's bytes of memory. On success sets *ret; free it with safetensors_clear.
 * -EBADMSG, naming file, tensor and rule: a key is there twice, or the reference refuses the file too; -ENOTSUP: the dtype is
 * unknown, or the file exceeds a limit of gpuwm (names, dimensions); -ENOMEM. */
int safetensors_parse(const char *file, const void *header, size_t header_bytes, uint64_t file_bytes,
		      struct safetensors *ret, struct error *error);
/* A zeroed one is fine, and twice too. */
void safetensors_clear(struct safetensors *content);

/* How many bytes of a text from a file a message shows: cut at a character. */
int text_shown(const char *text);

#endif
