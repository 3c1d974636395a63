/* Sizes as people write and read them. */
#ifndef GPUWM_PROTO_BYTES_H
#define GPUWM_PROTO_BYTES_H

#include <stdint.h>

#define BYTES_TEXT 16

/* "512 B", "12.0 GiB". Gives text back, for use as an argument. */
const char *bytes_format(uint64_t bytes, char text[BYTES_TEXT]);

/* "4096", "64G": digits and one of K, M, G, T (powers of 1024). -EINVAL: anything
 * else; -ERANGE: above 64 bits. */
int bytes_parse(const char *text, uint64_t *ret_bytes);

#endif
