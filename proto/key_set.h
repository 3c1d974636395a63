/* The keys of one map, to find one that comes twice: a small map's by comparing all pairs, a larger one's by a
 * table of hashes. The hash is SipHash with the random bytes that the kernel gave the process: a peer
 * that does not know them can't make keys that collide. So the expected time is linear in the keys' bytes. */
#ifndef GPUWM_PROTO_KEY_SET_H
#define GPUWM_PROTO_KEY_SET_H

#include "limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Half of the places stay empty, so that a search ends after one or two. */
#define KEY_SET_PLACES (2 * MESSAGE_MAP_MAX)

struct key_set {
	struct {
		const uint8_t *text;
		size_t bytes;
	} keys[MESSAGE_MAP_MAX];
	unsigned count;
	bool is_small; /* the table is not used */
	uint64_t secret[2];
	uint16_t places[KEY_SET_PLACES]; /* a key's position + 1; 0: empty */
};

/* An empty set that will get `expected` keys, MESSAGE_MAP_MAX at most. */
void key_set_init(struct key_set *set, unsigned expected);

/* False if the key is there already. The set keeps the pointer, not the text. The caller adds no more keys
 * than were expected. */
bool key_set_add(struct key_set *set, const void *text, size_t bytes);

/* SipHash-1-3 of a text, for its test. */
uint64_t key_set_hash(const uint64_t secret[2], const void *text, size_t bytes);

#endif
