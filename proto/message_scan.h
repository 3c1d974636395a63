/* The bounded scan that comes before msgpack-c sees a byte: counts against the
 * bytes that are left, depth, sizes of maps, keys. The scan allocates nothing, and its time is linear in
 * `bytes`, whatever the bytes are. */
#ifndef GPUWM_PROTO_MESSAGE_SCAN_H
#define GPUWM_PROTO_MESSAGE_SCAN_H

#include <stddef.h>
#include <stdint.h>

#define MESSAGE_ELEMENTS_ANY UINT64_MAX

/* 0 when `data` is exactly one well-formed value, else -EPROTO and why. Each value and each key is an
 * element, containers and what they hold alike: the value may have `elements_max` of them. */
int message_scan(const void *data, size_t bytes, uint64_t elements_max, const char **ret_why);

#endif
