/* What must be true of the blocks while nobody does anything. */
#include "blocks_storm.h"

static struct blocks_board *board(const struct blocks_storm *s)
{
	return blocks_board_of(&s->storm);
}

static uint64_t word_at(const struct blocks_storm *s, uint32_t block)
{
	return atomic_load(&s->control.blocks.words[block]);
}

bool blocks_has_any(const struct blocks_storm *s, unsigned slot)
{
	for (uint32_t i = 0; i < BLOCKS_COUNT; i++) {
		const uint64_t word = word_at(s, i);

		if (block_word_holders(word) >> slot & 1)
			return true;
		if (block_word_state(word) == BLOCK_OWNED && block_word_writer(word) == slot)
			return true;
	}
	return false;
}

static unsigned slot_of(const struct blocks_storm *s, unsigned worker)
{
	return atomic_load(&s->storm.board->told[worker].slot);
}

/* ---- a block by the ledger --------------------------------------------------- */

static uint32_t holders_told(const struct blocks_storm *s, uint32_t block)
{
	uint32_t holders = 0;

	for (unsigned i = 0; i < BLOCKS_WORKERS; i++) {
		if (atomic_load(&board(s)->told[i].holds[block]) > 0)
			holders |= 1u << slot_of(s, i);
	}
	return holders;
}

/* Returns false if nobody that lives owns it. */
static bool owner_told(const struct blocks_storm *s, uint32_t block, unsigned *ret_slot)
{
	const uint64_t owner = atomic_load(&board(s)->known[block].owner);
	const unsigned worker = owner % BLOCKS_WORKERS;

	*ret_slot = slot_of(s, worker);
	return owner != 0 && atomic_load(&board(s)->told[worker].start) == owner / BLOCKS_WORKERS;
}

/* What was published stays, until it is dropped or the block is used again. */
static void check_free(const struct blocks_storm *s, uint32_t block, uint32_t generation)
{
	const struct blocks_known *known = &board(s)->known[block];

	if (generation > 0 && atomic_load(&known->published) == generation)
		cr_assert(atomic_load(&board(s)->dropped[known->key]) > atomic_load(&known->dropped),
			  "block %u was published and not dropped, and is free: word %#jx", block,
			  (uintmax_t)word_at(s, block));
}

static void check_ready(const struct blocks_storm *s, uint32_t block, uint32_t generation)
{
	const struct blocks_known *known = &board(s)->known[block];
	const struct control_name *name = &s->control.blocks.names[block];
	const struct gpuwm_block_key wanted = blocks_key(known->key);
	const struct gpuwm_block_key is = {.key = {name->key[0], name->key[1]}, .check = name->check};
	const struct blocks_use use = {{block, generation}, known->key, known->salt};

	cr_assert_eq(generation, known->generation, "block %u: nobody has published generation %u", block,
		     generation);
	cr_assert(blocks_key_is(&is, &wanted), "block %u has not the name of key %u", block, known->key);
	cr_assert(blocks_bytes_are(gpuwm_block_address(s->region, block), &use, NULL),
		  "block %u has not the bytes of key %u", block, known->key);
}

static void check_block(const struct blocks_storm *s, uint32_t block)
{
	const uint64_t word = word_at(s, block);
	const enum block_state state = block_word_state(word);
	const uint32_t holders = block_word_holders(word), told = holders_told(s, block);
	unsigned slot;

	cr_assert_eq(holders, told, "block %u: %#x hold it, %#x say so: word %#jx", block, holders, told,
		     (uintmax_t)word);
	cr_assert_eq(owner_told(s, block, &slot), state == BLOCK_OWNED, "block %u: word %#jx, owner %ju", block,
		     (uintmax_t)word, (uintmax_t)board(s)->known[block].owner);
	if (state == BLOCK_OWNED)
		cr_assert_eq(block_word_writer(word), slot, "block %u: word %#jx", block, (uintmax_t)word);
	else if (state == BLOCK_READY)
		check_ready(s, block, block_word_generation(word));
	else
		check_free(s, block, block_word_generation(word));
}

/* ---- keys ------------------------------------------------------------------ */

/* Whether a block that is READY has this key. */
static bool is_there(const struct blocks_storm *s, uint32_t key)
{
	for (uint32_t i = 0; i < BLOCKS_COUNT; i++) {
		if (block_word_state(word_at(s, i)) == BLOCK_READY && board(s)->known[i].key == key)
			return true;
	}
	return false;
}

static void check_key(const struct blocks_storm *s, uint32_t key)
{
	const struct gpuwm_block_key name = blocks_key(key);
	struct blocks_use use = {.key = key};
	const size_t wanted = is_there(s, key);
	size_t found, held;

	OK(gpuwm_blocks_find(s->region, &name, 1, &found));
	cr_assert_eq(found, wanted, "key %u: found %zu, %zu are there", key, found, wanted);
	OK(gpuwm_blocks_hold(s->region, &name, 1, 0, &use.block, &held));
	cr_assert_eq(held, wanted, "key %u: held %zu, %zu are there", key, held, wanted);
	if (held == 0)
		return;
	cr_assert(blocks_bytes_are(gpuwm_block_address(s->region, use.block.number), &use, NULL),
		  "block %u has not the bytes of key %u", use.block.number, key);
	OK(gpuwm_blocks_release(s->region, &use.block, 1));
}

/* Blocks of this key that nobody holds: two processes may have filled one each. */
static size_t unheld_of(const struct blocks_storm *s, uint32_t key)
{
	size_t count = 0;

	for (uint32_t i = 0; i < BLOCKS_COUNT; i++) {
		const uint64_t word = word_at(s, i);

		count += block_word_state(word) == BLOCK_READY && block_word_is_unused(word) &&
			 board(s)->known[i].key == key;
	}
	return count;
}

/* Drops the key that was looked up last, of those that are there. Its blocks make room before others that were not wanted for longer. */
static void check_drop(const struct blocks_storm *s)
{
	uint32_t key = BLOCKS_KEYS - 1;
	struct gpuwm_block_key name;
	size_t wanted, dropped;

	while (key > 0 && unheld_of(s, key) == 0)
		key--;
	name = blocks_key(key);
	wanted = unheld_of(s, key);
	atomic_fetch_add(&board(s)->dropped[key], 1);
	OK(gpuwm_blocks_drop(s->region, &name, 1, &dropped));
	cr_assert_eq(dropped, wanted, "key %u: %zu were dropped, %zu are not held", key, dropped, wanted);
	cr_assert_eq(unheld_of(s, key), 0);
}

/* ---- figures, and room ------------------------------------------------------- */

static struct gpuwm_blocks_figures counted(const struct blocks_storm *s)
{
	struct gpuwm_blocks_figures f = {.blocks = BLOCKS_COUNT};

	for (uint32_t i = 0; i < BLOCKS_COUNT; i++) {
		const uint64_t word = word_at(s, i);
		const enum block_state state = block_word_state(word);

		f.free += state == BLOCK_FREE;
		f.owned += state == BLOCK_OWNED;
		f.held += block_word_holders(word) != 0;
		f.ready += state == BLOCK_READY && block_word_holders(word) == 0;
	}
	return f;
}

static struct gpuwm_blocks_figures check_figures(const struct blocks_storm *s)
{
	const struct gpuwm_blocks_figures f = counted(s);
	struct gpuwm_blocks_figures told;

	OK(gpuwm_blocks_figures(s->region, &told));
	cr_assert(told.blocks == f.blocks && told.free == f.free && told.owned == f.owned &&
			  told.ready == f.ready && told.held == f.held,
		  "figures %u %u %u %u %u, counted %u %u %u %u %u", told.blocks, told.free, told.owned,
		  told.ready, told.held, f.blocks, f.free, f.owned, f.ready, f.held);
	cr_assert_eq(f.free + f.owned + f.ready + f.held, BLOCKS_COUNT);
	return f;
}

/* All words, and when each block was wanted. */
struct moment {
	uint64_t words[BLOCKS_COUNT], used[BLOCKS_COUNT];
};

static struct moment moment_now(const struct blocks_storm *s)
{
	struct moment m;

	for (uint32_t i = 0; i < BLOCKS_COUNT; i++) {
		m.words[i] = word_at(s, i);
		m.used[i] = atomic_load(&s->control.blocks.used[i]);
	}
	return m;
}

static bool is_among(const struct gpuwm_block *blocks, size_t count, uint32_t number)
{
	for (size_t i = 0; i < count; i++) {
		if (blocks[i].number == number)
			return true;
	}
	return false;
}

/* These blocks made room: nobody needed them. Of those that nobody needed, the others were not FREE, and were not wanted earlier. */
static void check_evicted(const struct moment *before, const struct gpuwm_block *blocks, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const uint32_t block = blocks[i].number;
		const bool was_free = block_word_state(before->words[block]) == BLOCK_FREE;

		cr_assert(block_word_is_unused(before->words[block]));
		for (uint32_t other = 0; other < BLOCKS_COUNT; other++) {
			if (is_among(blocks, count, other) || !block_word_is_unused(before->words[other]))
				continue;
			cr_assert(was_free || (block_word_state(before->words[other]) == BLOCK_READY &&
					       before->used[other] >= before->used[block]),
				  "block %u made room, and block %u did not", block, other);
		}
	}
}

#define NEW_KEYS 4

/* New keys get blocks that are FREE, and then those that were wanted longest ago. */
static void check_room(const struct blocks_storm *s, const struct gpuwm_blocks_figures *f)
{
	const struct moment before = moment_now(s);
	const size_t room = f->free + f->ready;
	struct gpuwm_block_key keys[NEW_KEYS];
	struct gpuwm_block blocks[NEW_KEYS];
	size_t done;

	for (uint32_t i = 0; i < NEW_KEYS; i++)
		keys[i] = blocks_key(BLOCKS_KEYS + i);
	if (room == 0) {
		FAILS(EAGAIN, gpuwm_blocks_reserve(s->region, keys, NEW_KEYS, 0, blocks, &done));
		return;
	}
	OK(gpuwm_blocks_reserve(s->region, keys, NEW_KEYS, 0, blocks, &done));
	cr_assert_eq(done, room < NEW_KEYS ? room : NEW_KEYS, "%zu new blocks, and room for %zu", done, room);
	check_evicted(&before, blocks, done);
	OK(gpuwm_blocks_abandon(s->region, blocks, done));
}

void blocks_check(const struct blocks_storm *s)
{
	struct gpuwm_blocks_figures figures;

	storm_check_users(&s->storm, &s->control, s->region);
	for (uint32_t i = 0; i < BLOCKS_COUNT; i++)
		check_block(s, i);
	for (uint32_t key = 0; key < BLOCKS_KEYS; key++)
		check_key(s, key);
	check_drop(s);
	figures = check_figures(s);
	check_room(s, &figures);
}

void blocks_check_end(const struct blocks_storm *s)
{
	struct gpuwm_block_key keys[BLOCKS_COUNT];
	struct gpuwm_block blocks[BLOCKS_COUNT];
	struct gpuwm_blocks_figures figures;
	size_t done;

	for (uint32_t i = 0; i < BLOCKS_COUNT; i++)
		keys[i] = blocks_key(BLOCKS_KEYS + i);
	OK(gpuwm_blocks_reserve(s->region, keys, BLOCKS_COUNT, SOON_MS, blocks, &done));
	cr_assert_eq(done, BLOCKS_COUNT);
	OK(gpuwm_blocks_abandon(s->region, blocks, BLOCKS_COUNT));
	OK(gpuwm_blocks_figures(s->region, &figures));
	cr_assert(figures.free == BLOCKS_COUNT && figures.owned + figures.ready + figures.held == 0);
}
