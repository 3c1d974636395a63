/* The bounded scan of a message before msgpack-c sees a byte of it. It checks counts against the
 * bytes that are left, the depth, the sizes of maps, and keys. It allocates nothing, and its time
 * is linear in `bytes` for any input. */
#ifndef GPUWM_PROTO_MESSAGE_SCAN_H
#define GPUWM_PROTO_MESSAGE_SCAN_H

#include <stddef.h>
#include <stdint.h>

#define MESSAGE_ELEMENTS_ANY UINT64_MAX

/* Returns 0 if `data` is exactly one well-formed value with at most `elements_max` elements. Each
 * value, each key and each container is an element. Otherwise fails with -EPROTO and sets
 * *ret_why. */
int message_scan(const void *data, size_t bytes, uint64_t elements_max, const char **ret_why);

#endif
