#include "blocks.h"

#include <errno.h>

/* Slots that other processes take meanwhile. Two that want the same slot need one more look each. */
#define PUT_TRIES 64

#define BUCKETS_AHEAD 8 /* how many lookups before its own the bucket of a key is loaded */

/* ---- names ------------------------------------------------------------------ */

/* The stores come after the word says OWNED, and before the slot names the block. */
void blocks_index_name(const struct control_blocks *shared, uint32_t number, const struct gpuwm_block_key *key)
{
	struct control_name *name = &shared->names[number];

	atomic_store_explicit(&name->key[0], key->key[0], memory_order_release);
	atomic_store_explicit(&name->key[1], key->key[1], memory_order_release);
	atomic_store_explicit(&name->check, key->check, memory_order_release);
}

struct gpuwm_block_key blocks_index_name_of(const struct control_blocks *shared, uint32_t number)
{
	const struct control_name *name = &shared->names[number];

	return (struct gpuwm_block_key){
		.key = {atomic_load_explicit(&name->key[0], memory_order_acquire),
			atomic_load_explicit(&name->key[1], memory_order_acquire)},
		.check = atomic_load_explicit(&name->check, memory_order_acquire),
	};
}

/* ---- slots ------------------------------------------------------------------ */

static bool is_alive(uint64_t word, uint32_t generation)
{
	const enum block_state state = block_word_state(word);

	return block_word_generation(word) == generation && (state == BLOCK_OWNED || state == BLOCK_READY);
}

/* Returns whether the slot names a block that is OWNED or READY. */
static bool slot_is_alive(const struct control_blocks *shared, uint64_t slot, struct block_at *ret)
{
	uint32_t number, generation;

	if (!control_slot_names(slot, &number, &generation) || number >= shared->count)
		return false;
	*ret = (struct block_at){number, atomic_load(&shared->words[number])};
	return is_alive(ret->word, generation);
}

/* Whether the block has this key. If the word is of the same generation after the name was read, the name is of that generation. */
static bool has_key(const struct control_blocks *shared, struct block_at *at, const struct gpuwm_block_key *key)
{
	const uint32_t generation = block_word_generation(at->word);
	const struct gpuwm_block_key name = blocks_index_name_of(shared, at->number);

	if (name.key[0] != key->key[0] || name.key[1] != key->key[1] || name.check != key->check)
		return false;
	at->word = atomic_load(&shared->words[at->number]);
	return is_alive(at->word, generation);
}

enum block_state blocks_index_find_next(const struct control_blocks *shared, const struct gpuwm_block_key *key,
					unsigned *at, struct block_at *ret)
{
	const _Atomic uint64_t *bucket = control_bucket(shared, key->key);
	struct block_at found;
	uint64_t slot;

	while (*at < CONTROL_BUCKET_SLOTS && (slot = atomic_load(&bucket[*at])) != 0) {
		(*at)++;
		if (control_slot_has_tag(slot, key->key) && slot_is_alive(shared, slot, &found) &&
		    has_key(shared, &found, key)) {
			*ret = found;
			return block_word_state(found.word);
		}
	}
	return BLOCK_FREE;
}

enum block_state blocks_index_find(const struct control_blocks *shared, const struct gpuwm_block_key *key,
				   struct block_at *ret)
{
	enum block_state state, best = BLOCK_FREE;
	struct block_at found;
	unsigned at = 0;

	while (best != BLOCK_READY &&
	       (state = blocks_index_find_next(shared, key, &at, &found)) != BLOCK_FREE) {
		best = state;
		*ret = found;
	}
	return best;
}

void blocks_index_expect(const struct control_blocks *shared, const struct gpuwm_block_key *keys, size_t count,
			 size_t position)
{
	const _Atomic uint64_t *bucket;

	if (position + BUCKETS_AHEAD >= count)
		return;
	bucket = control_bucket(shared, keys[position + BUCKETS_AHEAD].key);
	__builtin_prefetch((const void *)bucket);
	__builtin_prefetch((const void *)(bucket + CONTROL_BUCKET_SLOTS / 2));
}

/* ---- putting ----------------------------------------------------------------- */

/* A slot that can be taken: it is void, or its block is to be dropped. */
struct place {
	_Atomic uint64_t *slot; /* NULL: there is none */
	uint64_t seen;
	bool is_void;
	struct block_at block; /* if the slot is not void */
	uint64_t used;
};

/* The slot can be taken if it is void, or else if nobody needs its block. The first one that is void is the best, then the one whose
 * block was wanted longest ago. */
static void consider(const struct control_blocks *shared, struct place *place, _Atomic uint64_t *slot,
		     uint64_t seen)
{
	struct block_at block;
	uint64_t used;

	if (place->is_void)
		return;
	if (!slot_is_alive(shared, seen, &block)) {
		*place = (struct place){.slot = slot, .seen = seen, .is_void = true};
		return;
	}
	used = atomic_load(&shared->used[block.number]);
	if (block_word_is_unused(block.word) && (!place->slot || used < place->used))
		*place = (struct place){.slot = slot, .seen = seen, .block = block, .used = used};
}

/* Returns whether the key has a block already; else finds a place for one. */
static bool find_place(const struct control_blocks *shared, const struct gpuwm_block_key *key,
		       struct place *ret)
{
	_Atomic uint64_t *bucket = control_bucket(shared, key->key);
	struct block_at block;
	uint64_t seen = 1;

	*ret = (struct place){.slot = NULL};
	for (unsigned i = 0; i < CONTROL_BUCKET_SLOTS && seen != 0; i++) {
		seen = atomic_load(&bucket[i]);
		if (control_slot_has_tag(seen, key->key) && slot_is_alive(shared, seen, &block) &&
		    has_key(shared, &block, key))
			return true;
		consider(shared, ret, &bucket[i], seen);
	}
	return false;
}

/* Somebody may have held the block since, or wanted it. */
static bool place_drop(const struct control_blocks *shared, const struct place *place)
{
	uint64_t word = place->block.word, next;

	return block_word_drop(word, block_word_generation(word), &next) == 0 &&
	       atomic_compare_exchange_strong(&shared->words[place->block.number], &word, next);
}

bool blocks_index_can_put(const struct control_blocks *shared, const struct gpuwm_block_key *key)
{
	struct place place;

	return find_place(shared, key, &place) || place.slot;
}

int blocks_index_put(const struct control_blocks *shared, const struct gpuwm_block_key *key,
		     struct gpuwm_block block)
{
	const uint64_t slot = control_slot_of(block.number, block.generation, key->key);
	struct place place;

	for (unsigned tries = 0; tries < PUT_TRIES; tries++) {
		if (find_place(shared, key, &place))
			return -EEXIST;
		if (!place.slot)
			return -ENOSPC;
		if ((place.is_void || place_drop(shared, &place)) &&
		    atomic_compare_exchange_strong(place.slot, &place.seen, slot))
			return 0;
	}
	return -ENOSPC;
}
