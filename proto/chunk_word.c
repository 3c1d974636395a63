#include "chunk_word.h"

#include <errno.h>

#define STATE_BITS 2
#define STATE UINT64_C(3)
#define OPEN_SHIFT 52
#define LOW_BITS (((UINT64_C(1) << OPEN_SHIFT) - 1) / STATE) /* of all states */
#define OPEN ((uint64_t)CHUNK_OPEN_MAX << OPEN_SHIFT)
#define GENERATION_SHIFT 56
#define GENERATION (UINT64_C(0xff) << GENERATION_SHIFT)

_Static_assert(REGION_USERS_MAX *STATE_BITS == OPEN_SHIFT,
	       "the states of all users fill the bits below `open`");
_Static_assert(CHUNK_OPEN_MAX == 15, "`open` has four bits");

static uint64_t with_state(uint64_t word, unsigned slot, enum chunk_state state)
{
	return (word & chunk_word_forget(slot)) | (uint64_t)state << slot * STATE_BITS;
}

static uint64_t with_open(uint64_t word, unsigned open)
{
	return (word & ~OPEN) | ((uint64_t)open << OPEN_SHIFT & OPEN);
}

enum chunk_state chunk_word_state(uint64_t word, unsigned slot)
{
	return (enum chunk_state)(word >> slot * STATE_BITS & STATE);
}

bool chunk_word_is_of(uint64_t word, uint64_t generation)
{
	return (word & GENERATION) == generation << GENERATION_SHIFT;
}

unsigned chunk_word_open(uint64_t word)
{
	return (unsigned)((word & OPEN) >> OPEN_SHIFT);
}

/* The lower bit of each state that is this one. gpuwmd looks at thousands of words while others wait for it: no loop. */
static uint64_t in_state(uint64_t word, enum chunk_state state)
{
	const uint64_t differs = word ^ (LOW_BITS * (uint64_t)state);

	return ~(differs | differs >> 1) & LOW_BITS;
}

uint32_t chunk_word_users(uint64_t word, enum chunk_state state)
{
	uint64_t users = in_state(word, state); /* a bit in two, which move together */

	users = (users | users >> 1) & UINT64_C(0x3333333333333333);
	users = (users | users >> 2) & UINT64_C(0x0f0f0f0f0f0f0f0f);
	users = (users | users >> 4) & UINT64_C(0x00ff00ff00ff00ff);
	users = (users | users >> 8) & UINT64_C(0x0000ffff0000ffff);
	return (uint32_t)(users | users >> 16);
}

bool chunk_word_is_free(uint64_t word)
{
	return chunk_word_open(word) == 0 && in_state(word, CHUNK_WAITING) == 0 &&
	       in_state(word, CHUNK_HOLDING) == 0;
}

uint64_t chunk_word_filling(uint64_t generation, unsigned writer)
{
	return with_state(generation << GENERATION_SHIFT, writer, CHUNK_HOLDING);
}

uint64_t chunk_word_offered(uint64_t word, unsigned writer, uint32_t named, unsigned open)
{
	word = with_open(with_state(word, writer, CHUNK_NONE), open);
	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		if (named >> slot & 1)
			word = with_state(word, slot, CHUNK_WAITING);
	}
	return word;
}

int chunk_word_take(uint64_t word, unsigned slot, uint64_t generation, uint64_t *ret)
{
	const enum chunk_state state = chunk_word_state(word, slot);
	const unsigned open = chunk_word_open(word);

	if (!chunk_word_is_of(word, generation))
		return -ESTALE;
	if (state == CHUNK_HOLDING || state == CHUNK_DONE)
		return -EALREADY;
	if (state == CHUNK_NONE && open == 0)
		return -ESTALE;
	word = with_state(word, slot, CHUNK_HOLDING);
	*ret = state == CHUNK_NONE ? with_open(word, open - 1) : word;
	return 0;
}

int chunk_word_finish(uint64_t word, unsigned slot, uint64_t generation, uint64_t *ret)
{
	if (!chunk_word_is_of(word, generation) || chunk_word_state(word, slot) != CHUNK_HOLDING)
		return -EALREADY;
	*ret = with_state(word, slot, CHUNK_DONE);
	return 0;
}

uint64_t chunk_word_withdrawn(uint64_t word)
{
	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		if (chunk_word_state(word, slot) == CHUNK_WAITING)
			word = with_state(word, slot, CHUNK_NONE);
	}
	return with_open(word, 0);
}

uint64_t chunk_word_forget(unsigned slot)
{
	return ~(STATE << slot * STATE_BITS);
}
