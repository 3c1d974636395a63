/* The blocks in the control memory of a region, and the index by which a key finds its block. control.h has the memory around it.
 *
 *   words     one for each block: block_word.h
 *   used      one for each block: what the clock of the head said when the block was last wanted. The lowest one is evicted first
 *   names     one for each block: the key of its bytes
 *   index     buckets of CONTROL_BUCKET_SLOTS words, a power of two of them
 *
 * A key has one bucket. Whoever owns a block writes its name, and then puts the block's number and generation into a slot of that bucket.
 * Nobody clears a slot: it is void as soon as the block is FREE or has another generation, and the next one that needs a slot takes the
 * first one that is void. So behind a slot that is 0 there are only slots that are 0. A process may die anywhere, and nothing has to be
 * repaired. */
#ifndef GPUWM_PROTO_CONTROL_BLOCKS_H
#define GPUWM_PROTO_CONTROL_BLOCKS_H

#include "block_word.h"

#include <stdatomic.h>
#include <stddef.h>

/* What names the bytes of a block. `check` is of the same bytes as the key, but computed otherwise: two keys that are equal by accident, or
 * on purpose, differ there. */
struct control_name {
	_Atomic uint64_t key[2];
	_Atomic uint64_t check;
};

struct control_blocks {
	_Atomic uint64_t *words, *used;
	struct control_name *names;
	_Atomic uint64_t *index;
	uint32_t count, buckets;
};

/* Two cache lines: a lookup reads both. There are four times as many slots as blocks or more, so with good keys one bucket in a million is
 * full. */
#define CONTROL_BUCKET_SLOTS 16
#define CONTROL_SLOTS_PER_BLOCK 4

/* How many bytes it has, a multiple of 8. */
uint64_t control_blocks_bytes(uint32_t count);
/* The parts of it that begins at `address`, a multiple of 64. */
struct control_blocks control_blocks_at(void *address, uint32_t count);

/* A slot of the index: the generation in the bits 0 to 30, 1 + the number from bit 32 on, and the tag from bit 51 on. The tag is a part of
 * the key: a lookup needs neither the word nor the name of a block with another tag. */
#define CONTROL_SLOT_NUMBER_SHIFT 32
#define CONTROL_SLOT_TAG_SHIFT 51
_Static_assert(REGION_BLOCKS_MAX < UINT32_C(1) << (CONTROL_SLOT_TAG_SHIFT - CONTROL_SLOT_NUMBER_SHIFT),
	       "a slot has no room for the number");

/* The tag of a key, in its place. It takes bits of the part that does not say which bucket the key has. */
static inline uint64_t control_slot_tag(const uint64_t key[2])
{
	return key[1] << CONTROL_SLOT_TAG_SHIFT;
}

/* Never 0, which is what was never taken. */
static inline uint64_t control_slot_of(uint32_t number, uint32_t generation, const uint64_t key[2])
{
	return control_slot_tag(key) | ((uint64_t)number + 1) << CONTROL_SLOT_NUMBER_SHIFT | generation;
}

/* Whether the slot has the key's tag. */
static inline bool control_slot_has_tag(uint64_t slot, const uint64_t key[2])
{
	return ((slot ^ control_slot_tag(key)) >> CONTROL_SLOT_TAG_SHIFT) == 0;
}

/* Returns whether the slot names a block; then sets *ret_number, which may be out of range if a hostile user wrote it, and
 * *ret_generation. */
static inline bool control_slot_names(uint64_t slot, uint32_t *ret_number, uint32_t *ret_generation)
{
	const uint64_t number = slot & ((UINT64_C(1) << CONTROL_SLOT_TAG_SHIFT) - 1);

	*ret_number = (uint32_t)(number >> CONTROL_SLOT_NUMBER_SHIFT) - 1;
	*ret_generation = (uint32_t)slot;
	return number >> CONTROL_SLOT_NUMBER_SHIFT;
}

/* The first slot of the key's bucket. Keys are digests: any of their bits will do. */
static inline _Atomic uint64_t *control_bucket(const struct control_blocks *blocks, const uint64_t key[2])
{
	return &blocks->index[(key[0] & (blocks->buckets - 1)) * CONTROL_BUCKET_SLOTS];
}

/* The process in this slot has exited, or given the slot back: what it owned is free, what it held is let go. Returns how many
 * blocks that were. */
uint32_t control_blocks_forget(const struct control_blocks *blocks, unsigned slot);
/* NULL: nothing is wrong; else what no user would have written. here: the slots that gpuwmd has ever given, a bit for each. */
const char *control_blocks_damage(const struct control_blocks *blocks, uint32_t here);

#endif
