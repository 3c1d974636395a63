/* Sizes as people write and read them. */
#ifndef GPUWM_PROTO_BYTES_H
#define GPUWM_PROTO_BYTES_H

#include <stdint.h>

#define BYTES_TEXT 16

/* Writes a size as "512 B" or "12.0 GiB" into `text`. Returns `text`, for use as an argument. */
const char *bytes_format(uint64_t bytes, char text[BYTES_TEXT]);

/* Reads a size such as "4096" or "64G": digits, then perhaps one of K, M, G and T (powers of 1024).
 * Returns 0 and sets *ret_bytes. Fails with -EINVAL for any other text, and with -ERANGE above 64
 * bits. */
int bytes_parse(const char *text, uint64_t *ret_bytes);

#endif
