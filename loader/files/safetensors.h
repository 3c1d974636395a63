/* The header of a safetensors file, parsed by the rules of the reference. It touches no file.
 *
 * A file has N (8 bytes, little-endian), N bytes of JSON, then the bytes of the tensors. */
#ifndef GPUWM_LOADER_SAFETENSORS_H
#define GPUWM_LOADER_SAFETENSORS_H

#include "format.h"

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
