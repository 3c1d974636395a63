#include "block_word.h"

#include <errno.h>

_Static_assert(REGION_USERS_MAX <= 31, "a slot has five bits");
_Static_assert((uint64_t)BLOCK_GENERATION_MAX << BLOCK_GENERATION_SHIFT >> BLOCK_GENERATION_SHIFT ==
		       BLOCK_GENERATION_MAX,
	       "the generation has the bits above");

static uint64_t word_of(enum block_state state, unsigned writer, uint32_t generation)
{
	return (uint64_t)state << BLOCK_STATE_SHIFT | (uint64_t)writer << BLOCK_WRITER_SHIFT |
	       (uint64_t)generation << BLOCK_GENERATION_SHIFT;
}

static bool owns(uint64_t word, unsigned slot, uint32_t generation)
{
	return block_word_state(word) == BLOCK_OWNED && block_word_writer(word) == slot &&
	       block_word_generation(word) == generation;
}

int block_word_own(uint64_t word, unsigned slot, uint64_t *ret)
{
	const uint32_t next = (block_word_generation(word) + 1) & BLOCK_GENERATION_MAX;

	if (!block_word_is_unused(word))
		return -EBUSY;
	*ret = word_of(BLOCK_OWNED, slot, next);
	return 0;
}

int block_word_publish(uint64_t word, unsigned slot, uint32_t generation, uint64_t *ret)
{
	if (!owns(word, slot, generation))
		return -ESTALE;
	*ret = word_of(BLOCK_READY, slot, generation);
	return 0;
}

int block_word_abandon(uint64_t word, unsigned slot, uint32_t generation, uint64_t *ret)
{
	if (!owns(word, slot, generation))
		return -ESTALE;
	*ret = word_of(BLOCK_FREE, slot, generation);
	return 0;
}

int block_word_hold(uint64_t word, unsigned slot, uint32_t generation, uint64_t *ret)
{
	if (block_word_generation(word) != generation)
		return -ESTALE;
	if (block_word_state(word) == BLOCK_OWNED)
		return -EAGAIN;
	if (block_word_state(word) != BLOCK_READY)
		return -ESTALE;
	if (word >> slot & 1)
		return -EALREADY;
	*ret = word | UINT64_C(1) << slot;
	return 0;
}

int block_word_release(uint64_t word, unsigned slot, uint32_t generation, uint64_t *ret)
{
	if (block_word_state(word) != BLOCK_READY || block_word_generation(word) != generation ||
	    !(word >> slot & 1))
		return -EALREADY;
	*ret = word & ~(UINT64_C(1) << slot);
	return 0;
}

int block_word_drop(uint64_t word, uint32_t generation, uint64_t *ret)
{
	if (block_word_state(word) != BLOCK_READY || block_word_generation(word) != generation)
		return -ESTALE;
	if (block_word_holders(word))
		return -EBUSY;
	*ret = word_of(BLOCK_FREE, block_word_writer(word), generation);
	return 0;
}

uint64_t block_word_forget(uint64_t word, unsigned slot)
{
	if (block_word_state(word) == BLOCK_OWNED && block_word_writer(word) == slot)
		return word_of(BLOCK_FREE, slot, block_word_generation(word));
	return word & ~(UINT64_C(1) << slot);
}
