#include "key_set.h"

#include <string.h>
#include <sys/auxv.h>

/* Up to this number, comparing all pairs takes less time than hashing (measured: the same time at
 * 16 keys). */
#define SMALL 16

_Static_assert((KEY_SET_PLACES & (KEY_SET_PLACES - 1)) == 0, "the search wraps around with a mask");

static uint64_t rotate(uint64_t word, unsigned bits)
{
	return word << bits | word >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = rotate(v[1], 13) ^ v[0];
	v[3] = rotate(v[3], 16) ^ v[2];
	v[0] = rotate(v[0], 32);
	v[2] += v[1];
	v[0] += v[3];
	v[1] = rotate(v[1], 17) ^ v[2];
	v[3] = rotate(v[3], 21) ^ v[0];
	v[2] = rotate(v[2], 32);
}

static void sip_word(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	sip_round(v);
	v[0] ^= word;
}

uint64_t key_set_hash(const uint64_t secret[2], const void *text, size_t bytes)
{
	uint64_t v[4] = {secret[0] ^ 0x736f6d6570736575, secret[1] ^ 0x646f72616e646f6d,
			 secret[0] ^ 0x6c7967656e657261, secret[1] ^ 0x7465646279746573};
	const uint8_t *at = text, *end = at + bytes;
	uint64_t word;

	for (; end - at >= 8; at += 8) {
		memcpy(&word, at, 8);
		sip_word(v, word);
	}
	word = (uint64_t)bytes << 56;
	for (unsigned i = 0; at + i < end; i++)
		word |= (uint64_t)at[i] << (8 * i);
	sip_word(v, word);
	v[2] ^= 0xff;
	for (int i = 0; i < 3; i++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void key_set_init(struct key_set *set, unsigned expected)
{
	set->count = 0;
	set->is_small = expected <= SMALL;
	if (set->is_small)
		return;
	/* The kernel gives every process 16 random bytes. */
	memcpy(set->secret, (const void *)getauxval(AT_RANDOM), sizeof(set->secret));
	memset(set->places, 0, sizeof(set->places));
}

static bool is_key(const struct key_set *set, unsigned position, const void *text, size_t bytes)
{
	return set->keys[position].bytes == bytes && memcmp(set->keys[position].text, text, bytes) == 0;
}

/* Returns the key's place in the table, or the empty place where it belongs. */
static uint16_t *find_place(struct key_set *set, const void *text, size_t bytes)
{
	size_t i = key_set_hash(set->secret, text, bytes) & (KEY_SET_PLACES - 1);

	while (set->places[i] != 0 && !is_key(set, set->places[i] - 1u, text, bytes))
		i = (i + 1) & (KEY_SET_PLACES - 1);
	return &set->places[i];
}

bool key_set_add(struct key_set *set, const void *text, size_t bytes)
{
	if (set->is_small) {
		for (unsigned i = 0; i < set->count; i++)
			if (is_key(set, i, text, bytes))
				return false;
	} else {
		uint16_t *place = find_place(set, text, bytes);

		if (*place != 0)
			return false;
		*place = (uint16_t)(set->count + 1);
	}
	set->keys[set->count].text = text;
	set->keys[set->count++].bytes = bytes;
	return true;
}
