/* The bounded scan that comes before msgpack-c sees a byte: counts against the
 * bytes that are left, depth, sizes of maps, keys. Allocates nothing. */
#ifndef GPUWM_PROTO_MESSAGE_SCAN_H
#define GPUWM_PROTO_MESSAGE_SCAN_H

#include <stddef.h>

/* 0 when `data` is exactly one well-formed value, else -EPROTO and why. */
int message_scan(const void *data, size_t bytes, const char **ret_why);

#endif
