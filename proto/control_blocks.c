#include "control_blocks.h"

_Static_assert(sizeof(struct control_name) == 24, "a name has padding");

static uint32_t buckets_of(uint32_t count)
{
	uint32_t buckets = 1;

	while ((uint64_t)buckets * CONTROL_BUCKET_SLOTS < (uint64_t)count * CONTROL_SLOTS_PER_BLOCK)
		buckets *= 2;
	return buckets;
}

/* Parts of 8 bytes each, the index first, whose buckets are to begin at cache lines. */
uint64_t control_blocks_bytes(uint32_t count)
{
	const uint64_t each = 2 * sizeof(uint64_t) + sizeof(struct control_name);

	if (count == 0)
		return 0;
	return (uint64_t)buckets_of(count) * CONTROL_BUCKET_SLOTS * sizeof(uint64_t) + count * each;
}

struct control_blocks control_blocks_at(void *address, uint32_t count)
{
	const uint32_t buckets = count ? buckets_of(count) : 0;
	_Atomic uint64_t *index = address, *words = index + (size_t)buckets * CONTROL_BUCKET_SLOTS;

	return (struct control_blocks){
		.index = index,
		.words = words,
		.used = words + count,
		.names = (struct control_name *)(words + (size_t)count * 2),
		.count = count,
		.buckets = buckets,
	};
}

/* Others hold and let go meanwhile. */
static bool block_forget(_Atomic uint64_t *word, unsigned slot)
{
	uint64_t old = atomic_load(word), next;

	do {
		next = block_word_forget(old, slot);
	} while (next != old && !atomic_compare_exchange_weak(word, &old, next));
	return next != old;
}

uint32_t control_blocks_forget(const struct control_blocks *blocks, unsigned slot)
{
	uint32_t forgotten = 0;

	for (uint32_t i = 0; i < blocks->count; i++)
		forgotten += block_forget(&blocks->words[i], slot);
	return forgotten;
}

static const char *word_damage(uint64_t word, uint32_t here)
{
	const enum block_state state = block_word_state(word);
	const uint32_t holders = block_word_holders(word);

	if (state > BLOCK_READY)
		return "a block has a state that there is not";
	if (holders & ~here)
		return "a block is held by a user that there is not";
	if (holders && state != BLOCK_READY)
		return "a block is held that has no bytes";
	if (state != BLOCK_FREE && !(here >> block_word_writer(word) & 1))
		return "a block was written by a user that there is not";
	return NULL;
}

const char *control_blocks_damage(const struct control_blocks *blocks, uint32_t here)
{
	const char *wrong = NULL;

	for (uint32_t i = 0; !wrong && i < blocks->count; i++)
		wrong = word_damage(atomic_load(&blocks->words[i]), here);
	return wrong;
}
