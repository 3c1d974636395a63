/* Which blocks make room. */
#include "blocks.h"

/* ---- a heap, of the picks that were wanted longest ago: the latest of them is on top ------ */

static void swap(struct block_pick *a, struct block_pick *b)
{
	const struct block_pick between = *a;

	*a = *b;
	*b = between;
}

static void heap_sink(struct block_pick *heap, uint32_t count)
{
	uint32_t at = 0, below;

	while ((below = at * 2 + 1) < count) {
		if (below + 1 < count && heap[below + 1].used > heap[below].used)
			below++;
		if (heap[at].used >= heap[below].used)
			return;
		swap(&heap[at], &heap[below]);
		at = below;
	}
}

static void heap_add(struct block_pick *heap, uint32_t *count, uint32_t most, const struct block_pick *pick)
{
	if (*count < most) {
		uint32_t at = (*count)++;

		heap[at] = *pick;
		while (at > 0 && heap[(at - 1) / 2].used < heap[at].used) {
			swap(&heap[(at - 1) / 2], &heap[at]);
			at = (at - 1) / 2;
		}
	} else if (pick->used < heap[0].used) {
		heap[0] = *pick;
		heap_sink(heap, *count);
	}
}

/* ---- choosing --------------------------------------------------------------------- */

bool blocks_pick(struct blocks *blocks, uint32_t wanted)
{
	const struct control_blocks *shared = &blocks->shared;
	struct block_picks *picks = &blocks->picks;
	uint32_t at = picks->cursor, frees = 0, readies = 0;

	for (uint32_t i = 0; i < shared->count && frees < wanted; i++) {
		const uint64_t word = atomic_load_explicit(&shared->words[at], memory_order_relaxed);

		if (block_word_is_unused(word) && block_word_state(word) == BLOCK_FREE) {
			picks->frees[frees++] = at;
		} else if (block_word_is_unused(word)) {
			const uint64_t used = atomic_load_explicit(&shared->used[at], memory_order_relaxed);

			heap_add(picks->readies, &readies, wanted, &(struct block_pick){used, at});
		}
		at = at + 1 < shared->count ? at + 1 : 0;
	}
	picks->cursor = at;
	picks->free_count = frees;
	/* Sorted: the one that was wanted longest ago comes first. */
	for (uint32_t count = readies; count > 1;) {
		swap(&picks->readies[0], &picks->readies[--count]);
		heap_sink(picks->readies, count);
	}
	/* So many FREE blocks come before them that the rest is not wanted. */
	picks->ready_count = readies < wanted - frees ? readies : wanted - frees;
	picks->next_free = picks->next_ready = 0;
	return frees + readies > 0;
}

static bool block_own(struct blocks *blocks, uint32_t number, uint64_t word, struct gpuwm_block *ret)
{
	uint64_t next;

	if (block_word_own(word, blocks->slot, &next) < 0 ||
	    !atomic_compare_exchange_strong(&blocks->shared.words[number], &word, next))
		return false;
	*ret = (struct gpuwm_block){number, block_word_generation(next)};
	return true;
}

bool blocks_own_next(struct blocks *blocks, struct gpuwm_block *ret)
{
	const struct control_blocks *shared = &blocks->shared;
	struct block_picks *picks = &blocks->picks;

	while (picks->next_free < picks->free_count) {
		const uint32_t number = picks->frees[picks->next_free++];
		const uint64_t word = atomic_load(&shared->words[number]);

		if (block_word_state(word) == BLOCK_FREE && block_own(blocks, number, word, ret))
			return true;
	}
	while (picks->next_ready < picks->ready_count) {
		const struct block_pick *pick = &picks->readies[picks->next_ready++];
		const uint64_t word = atomic_load(&shared->words[pick->number]);

		/* A block that was wanted since is not the one that was wanted longest ago. The word is read first: if the block
		 * is held and released in between, `used` has changed. */
		if (atomic_load(&shared->used[pick->number]) == pick->used &&
		    block_own(blocks, pick->number, word, ret))
			return true;
	}
	return false;
}
