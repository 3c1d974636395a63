/* The keys of one map, to find a key that comes twice. In a small map all pairs are compared; in a
 * larger one a table of hashes is used. The hash is SipHash with the random bytes that the kernel
 * gave the process. A peer does not know these bytes, so it can't choose keys that collide, and the
 * expected time is linear in the keys' bytes. */
#ifndef GPUWM_PROTO_KEY_SET_H
#define GPUWM_PROTO_KEY_SET_H

#include "../../base/limits.h"

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
	bool is_small; /* all pairs are compared, and the table is not used */
	uint64_t secret[2];
	uint16_t places[KEY_SET_PLACES]; /* a key's position + 1, or 0 if the place is empty */
};

/* Makes an empty set that will get `expected` keys, at most MESSAGE_MAP_MAX. */
void key_set_init(struct key_set *set, unsigned expected);

/* Adds a key. Returns false if the key is there already. The set keeps the pointer and does not
 * copy the text. The caller adds no more keys than it said. */
bool key_set_add(struct key_set *set, const void *text, size_t bytes);

/* Computes SipHash-1-3 of a text. It is declared here for its test. */
uint64_t key_set_hash(const uint64_t secret[2], const void *text, size_t bytes);

#endif
