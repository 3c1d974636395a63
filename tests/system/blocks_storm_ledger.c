/* Keys and bytes of the storm over blocks, and its ledger. */
#include "blocks_storm.h"

#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)
#define HEAD_WORDS 3 /* key, salt, generation */

/* ---- keys and bytes -------------------------------------------------------- */

/* Its lowest bits say which bucket. */
struct gpuwm_block_key blocks_key(uint32_t key)
{
	const uint32_t bucket = key % BLOCKS_KEY_BUCKETS;
	const uint64_t like = key < BLOCKS_TWINS ? bucket : key;

	return (struct gpuwm_block_key){
		.key = {(dice_mixed(like + 1) & ~UINT64_C(15)) | bucket, dice_mixed(like + 1000)},
		.check = dice_mixed(key + 2000),
	};
}

bool blocks_key_is(const struct gpuwm_block_key *a, const struct gpuwm_block_key *b)
{
	return a->key[0] == b->key[0] && a->key[1] == b->key[1] && a->check == b->check;
}

static uint64_t word_of(const struct blocks_use *use, unsigned i)
{
	return dice_mixed(use->salt + i * GOLDEN) + use->key;
}

void blocks_fill(uint64_t *words, const struct blocks_use *use)
{
	words[0] = use->key;
	words[1] = use->salt;
	words[2] = use->block.generation;
	for (unsigned i = HEAD_WORDS; i < BLOCKS_WORDS; i++)
		words[i] = word_of(use, i);
}

bool blocks_bytes_are(const uint64_t *words, const struct blocks_use *use, uint64_t *ret_salt)
{
	struct blocks_use found = *use;

	found.salt = words[1];
	if (words[0] != use->key || words[2] != use->block.generation || (use->salt && use->salt != found.salt))
		return false;
	for (unsigned i = HEAD_WORDS; i < BLOCKS_WORDS; i++) {
		if (words[i] != word_of(&found, i))
			return false;
	}
	if (ret_salt)
		*ret_salt = found.salt;
	return true;
}

/* ---- who lives ------------------------------------------------------------- */

static bool worker_lives(const struct blocks_told *told, uint64_t start)
{
	const int32_t pid = atomic_load(&told->pid);

	return atomic_load(&told->start) == start && pid > 0 && process_runs(pid);
}

static bool owner_lives(const struct blocks_worker *w, uint64_t owner)
{
	return owner != 0 && worker_lives(&w->board->told[owner % BLOCKS_WORKERS], owner / BLOCKS_WORKERS);
}

/* ---- owners ---------------------------------------------------------------- */

static uint64_t owner_me(const struct blocks_worker *w)
{
	return atomic_load(&w->told->start) * BLOCKS_WORKERS + w->actor.number;
}

/* Who holds a block tells so after it has got it, and lets go here before it does so in earnest. */
static bool is_held(const struct blocks_worker *w, uint32_t number)
{
	for (unsigned i = 0; i < BLOCKS_WORKERS; i++) {
		const struct blocks_told *told = &w->board->told[i];
		const uint64_t start = atomic_load(&told->start);

		if (atomic_load(&told->holds[number]) > 0 && worker_lives(told, start))
			return true;
	}
	return false;
}

void blocks_owns(struct blocks_worker *w, const struct gpuwm_block *block)
{
	struct blocks_known *known;
	uint64_t owner;

	CHILD_ASSERT(block->number < BLOCKS_COUNT);
	known = &w->board->known[block->number];
	owner = atomic_exchange(&known->owner, owner_me(w));
	CHILD_ASSERT(!owner_lives(w, owner));
	CHILD_ASSERT(!is_held(w, block->number));
	w->told->evicted += atomic_load(&known->published) + 1 == block->generation;
}

void blocks_disowns(struct blocks_worker *w, const struct gpuwm_block *block)
{
	uint64_t owner = owner_me(w);

	CHILD_ASSERT(atomic_compare_exchange_strong(&w->board->known[block->number].owner, &owner, 0));
}

void blocks_publishes(struct blocks_worker *w, const struct blocks_use *use)
{
	struct blocks_known *known = &w->board->known[use->block.number];

	atomic_store(&known->generation, use->block.generation);
	atomic_store(&known->key, use->key);
	atomic_store(&known->salt, use->salt);
	atomic_store(&known->dropped, atomic_load(&w->board->dropped[use->key]));
	blocks_disowns(w, &use->block);
}

/* Others may have published later uses of the block already. */
void blocks_published(struct blocks_worker *w, const struct blocks_use *use)
{
	control_raise(&w->board->known[use->block.number].published, use->block.generation);
}

/* ---- holders --------------------------------------------------------------- */

void blocks_holds(struct blocks_worker *w, const struct gpuwm_block *block)
{
	CHILD_ASSERT(block->number < BLOCKS_COUNT);
	atomic_fetch_add(&w->told->holds[block->number], 1);
	CHILD_ASSERT(!owner_lives(w, atomic_load(&w->board->known[block->number].owner)));
	CHILD_ASSERT(atomic_load(&w->board->known[block->number].generation) == block->generation);
}

void blocks_lets_go(struct blocks_worker *w, const struct gpuwm_block *block)
{
	CHILD_ASSERT(atomic_fetch_sub(&w->told->holds[block->number], 1) > 0);
}

/* ---- drops ----------------------------------------------------------------- */

static void drops_count(struct blocks_board *board, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		atomic_fetch_add(&board->dropped[first + i], 1);
}

void blocks_drops(struct blocks_worker *w, uint32_t first, uint32_t count)
{
	atomic_store(&w->told->dropping, first);
	atomic_store(&w->told->dropping_count, count);
	drops_count(w->board, first, count);
}

void blocks_dropped(struct blocks_worker *w)
{
	blocks_drop_ended(w->board, w->told);
}

void blocks_drop_ended(struct blocks_board *board, struct blocks_told *told)
{
	drops_count(board, atomic_load(&told->dropping), atomic_load(&told->dropping_count));
	atomic_store(&told->dropping_count, 0);
}
