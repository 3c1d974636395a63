/* What processes do in the storm over blocks. */
#include "blocks_storm.h"

static bool some(struct blocks_worker *w, unsigned percent)
{
	return dice_percent(&w->actor.dice, percent);
}

static unsigned one_to(struct blocks_worker *w, unsigned most)
{
	return 1 + (unsigned)dice_throw(&w->actor.dice, most);
}

static uint64_t *address_of(const struct blocks_worker *w, const struct blocks_use *use)
{
	uint64_t *address = gpuwm_block_address(w->region, use->block.number);

	CHILD_ASSERT(address == (uint64_t *)((char *)gpuwm_region_address(w->region) +
					     (size_t)use->block.number * BLOCKS_BYTES));
	return address;
}

/* The first of some keys that follow each other. Some keys are wanted more often than others. */
static uint32_t choose_first(struct blocks_worker *w, unsigned count)
{
	return (uint32_t)dice_throw(&w->actor.dice, some(w, 50) ? BLOCKS_TWINS : BLOCKS_KEYS - count + 1);
}

static uint32_t choose_keys(struct blocks_worker *w, unsigned count, struct gpuwm_block_key *ret)
{
	const uint32_t first = choose_first(w, count);

	for (unsigned i = 0; i < count; i++)
		ret[i] = blocks_key(first + i);
	return first;
}

/* Takes some out of a list. */
static unsigned choose_uses(struct blocks_worker *w, struct blocks_use *list, unsigned *count,
			    struct blocks_use *ret)
{
	const unsigned some_of = some(w, 70) ? 1 : one_to(w, *count);

	for (unsigned i = 0; i < some_of; i++) {
		const unsigned at = (unsigned)dice_throw(&w->actor.dice, *count);

		ret[i] = list[at];
		list[at] = list[--*count];
	}
	return some_of;
}

#define NAMES_MOST (2 * BLOCKS_OWNED)

/* With blocks that there are not in between, which are passed over. */
static size_t names_of(struct blocks_worker *w, const struct blocks_use *uses, unsigned count,
		       struct gpuwm_block ret[NAMES_MOST])
{
	size_t n = 0;

	for (unsigned i = 0; i < count; i++) {
		if (some(w, 20))
			ret[n++] = (struct gpuwm_block){.number = GPUWM_BLOCK_NONE};
		ret[n++] = uses[i].block;
	}
	return n;
}

/* ---- filling --------------------------------------------------------------- */

static void fill(struct blocks_worker *w, struct blocks_use *uses, unsigned count)
{
	blocks_at(w, AT_RESERVED);
	for (unsigned i = 0; i < count; i++) {
		uint64_t words[BLOCKS_WORDS], *to = address_of(w, &uses[i]);

		blocks_fill(words, &uses[i]);
		memcpy(to, words, BLOCKS_BYTES / 2);
		blocks_at(w, AT_FILLING);
		memcpy(to + BLOCKS_WORDS / 2, words + BLOCKS_WORDS / 2, BLOCKS_BYTES / 2);
	}
	blocks_at(w, AT_FILLED);
}

static int act_reserve(struct storm_actor *a)
{
	struct blocks_worker *w = (struct blocks_worker *)a;
	const unsigned room = BLOCKS_OWNED - w->owned_count;
	const int64_t wait_ms = some(w, 70) ? 0 : (int64_t)dice_throw(&w->actor.dice, 4);
	struct gpuwm_block_key keys[BLOCKS_OWNED];
	struct gpuwm_block blocks[BLOCKS_OWNED];
	unsigned count, owned = w->owned_count;
	uint32_t first;
	size_t done;
	int r;

	if (room == 0)
		return -EBUSY;
	count = one_to(w, room);
	first = choose_keys(w, count, keys);
	atomic_store(&w->told->filling, 1 + first);
	blocks_at(w, AT_RESERVE);
	r = MAY_REFUSE(gpuwm_blocks_reserve(w->region, keys, count, wait_ms, blocks, &done), EAGAIN);
	if (r < 0)
		return r;
	CHILD_ASSERT(done <= count);
	for (unsigned i = 0; i < done; i++) {
		if (blocks[i].number == GPUWM_BLOCK_NONE)
			continue;
		blocks_owns(w, &blocks[i]);
		w->owned[w->owned_count++] =
			(struct blocks_use){blocks[i], first + i, 1 + dice_throw(&w->actor.dice, UINT64_MAX)};
	}
	fill(w, w->owned + owned, w->owned_count - owned);
	return 0;
}

static void post(struct blocks_worker *w, const struct blocks_use *use)
{
	struct blocks_posts *posts = &w->board->posts[w->actor.number];
	const uint64_t end = atomic_load(&posts->end), at = end % BLOCKS_POSTS;

	atomic_store(&posts->whole[at], 0);
	posts->uses[at] = *use;
	atomic_store(&posts->whole[at], end + 1);
	atomic_store(&posts->end, end + 1);
}

static void tell_published(struct blocks_worker *w, const struct blocks_use *uses, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		blocks_publishes(w, &uses[i]);
		post(w, &uses[i]);
	}
}

/* Other bytes than before come with the stream. */
static void publish_in_stream(struct blocks_worker *w, struct blocks_use *uses, unsigned count)
{
	struct gpuwm_block names[NAMES_MOST];
	size_t n;

	blocks_settle(w);
	for (unsigned i = 0; i < count; i++) {
		uint64_t *staging = w->staging + i * BLOCKS_WORDS;

		uses[i].salt = 1 + dice_throw(&w->actor.dice, UINT64_MAX);
		blocks_fill(staging, &uses[i]);
		storm_copy_in(w->actor.stream, address_of(w, &uses[i]), staging, BLOCKS_BYTES);
		w->queued[i] = uses[i];
	}
	tell_published(w, uses, count);
	n = names_of(w, uses, count, names);
	CHILD_ASSERT(gpuwm_blocks_publish_in_stream(w->region, names, n, w->actor.stream) == 0);
	memset(names, 0xff, sizeof names);
	w->queued_count = count;
	blocks_at(w, AT_QUEUED);
	if (some(w, 50))
		blocks_settle(w);
}

static int act_publish(struct storm_actor *a)
{
	struct blocks_worker *w = (struct blocks_worker *)a;
	struct blocks_use uses[BLOCKS_OWNED];
	struct gpuwm_block names[NAMES_MOST];
	unsigned count;
	size_t n;

	if (w->owned_count == 0)
		return -EBUSY;
	count = choose_uses(w, w->owned, &w->owned_count, uses);
	for (unsigned i = 0; i < count; i++)
		CHILD_ASSERT(blocks_bytes_are(address_of(w, &uses[i]), &uses[i], NULL));
	if (w->actor.stream && some(w, 50)) {
		publish_in_stream(w, uses, count);
		return 0;
	}
	tell_published(w, uses, count);
	n = names_of(w, uses, count, names);
	blocks_at(w, AT_PUBLISH);
	CHILD_ASSERT(gpuwm_blocks_publish(w->region, names, n) == 0);
	for (unsigned i = 0; i < count; i++)
		blocks_published(w, &uses[i]);
	return 0;
}

static int act_abandon(struct storm_actor *a)
{
	struct blocks_worker *w = (struct blocks_worker *)a;
	struct blocks_use uses[BLOCKS_OWNED];
	struct gpuwm_block names[NAMES_MOST];
	unsigned count;
	size_t n;

	if (w->owned_count == 0)
		return -EBUSY;
	count = choose_uses(w, w->owned, &w->owned_count, uses);
	for (unsigned i = 0; i < count; i++)
		blocks_disowns(w, &uses[i].block);
	n = names_of(w, uses, count, names);
	CHILD_ASSERT(gpuwm_blocks_abandon(w->region, names, n) == 0);
	return 0;
}

/* ---- reading --------------------------------------------------------------- */

static int act_find(struct storm_actor *a)
{
	struct blocks_worker *w = (struct blocks_worker *)a;
	const unsigned count = one_to(w, BLOCKS_RUN);
	struct gpuwm_block_key keys[BLOCKS_RUN];
	size_t found;

	choose_keys(w, count, keys);
	CHILD_ASSERT(gpuwm_blocks_find(w->region, keys, count, &found) == 0);
	CHILD_ASSERT(found <= count);
	return found == 0 ? -ENOENT : 0;
}

/* The worker has got it: the bytes are of its key, and of the publish that the ledger knows. */
static void keep(struct blocks_worker *w, const struct blocks_use *use)
{
	const struct blocks_known *known = &w->board->known[use->block.number];
	struct blocks_use *held = &w->held[w->held_count++];
	struct gpuwm_block_key key, wanted = blocks_key(use->key);

	blocks_holds(w, &use->block);
	*held = *use;
	CHILD_ASSERT(blocks_bytes_are(address_of(w, use), use, &held->salt));
	CHILD_ASSERT(atomic_load(&known->key) == use->key && atomic_load(&known->salt) == held->salt);
	CHILD_ASSERT(gpuwm_block_key_of(w->region, &use->block, &key) == 0);
	CHILD_ASSERT(blocks_key_is(&key, &wanted));
}

static int hold(struct blocks_worker *w, uint32_t first, unsigned count, int64_t wait_ms)
{
	struct gpuwm_block_key keys[BLOCKS_HELD];
	struct gpuwm_block blocks[BLOCKS_HELD];
	size_t held;

	for (unsigned i = 0; i < count; i++)
		keys[i] = blocks_key(first + i);
	blocks_at(w, AT_HOLD);
	CHILD_ASSERT(gpuwm_blocks_hold(w->region, keys, count, wait_ms, blocks, &held) == 0);
	CHILD_ASSERT(held <= count);
	for (unsigned i = 0; i < held; i++)
		keep(w, &(struct blocks_use){.block = blocks[i], .key = first + i});
	blocks_at(w, AT_HELD);
	return held == 0 ? -ENOENT : 0;
}

static int act_hold(struct storm_actor *a)
{
	struct blocks_worker *w = (struct blocks_worker *)a;
	const int64_t wait_ms = some(w, 70) ? 0 : (int64_t)dice_throw(&w->actor.dice, 4);
	const unsigned room = BLOCKS_HELD - w->held_count;
	unsigned count;

	if (room == 0)
		return -EBUSY;
	count = one_to(w, room);
	return hold(w, choose_first(w, count), count, wait_ms);
}

/* What another one is filling now, if it does. */
static int act_await(struct storm_actor *a)
{
	struct blocks_worker *w = (struct blocks_worker *)a;
	const struct blocks_told *other = &w->board->told[dice_throw(&w->actor.dice, BLOCKS_WORKERS)];
	const uint64_t filling = atomic_load(&other->filling);

	if (w->held_count == BLOCKS_HELD || filling == 0 || other == w->told)
		return -EBUSY;
	return hold(w, (uint32_t)filling - 1, 1, (int64_t)dice_throw(&w->actor.dice, 20));
}

/* One of the last posts of a worker. Returns false if it is being written. */
static bool look_up(struct blocks_worker *w, struct blocks_use *ret)
{
	const struct blocks_posts *posts = &w->board->posts[dice_throw(&w->actor.dice, BLOCKS_WORKERS)];
	const uint64_t end = atomic_load(&posts->end);
	const uint64_t at = dice_throw(&w->actor.dice, some(w, 70) && end > 3 ? 3 : BLOCKS_POSTS);
	const uint64_t i = (end + BLOCKS_POSTS - 1 - at) % BLOCKS_POSTS, whole = atomic_load(&posts->whole[i]);

	*ret = posts->uses[i];
	return whole > 0 && atomic_load(&posts->whole[i]) == whole;
}

static int act_hold_these(struct storm_actor *a)
{
	struct blocks_worker *w = (struct blocks_worker *)a;
	const unsigned room = BLOCKS_HELD - w->held_count;
	struct blocks_use uses[BLOCKS_HELD];
	struct gpuwm_block names[NAMES_MOST];
	unsigned count;
	int64_t wait_ms = some(w, 60) ? 0 : (int64_t)dice_throw(&w->actor.dice, 4);
	size_t n;
	int r;

	if (room == 0)
		return -EBUSY;
	count = some(w, 60) ? 1 : one_to(w, room);
	for (unsigned i = 0; i < count; i++) {
		if (!look_up(w, &uses[i]))
			return -EBUSY;
	}
	n = names_of(w, uses, count, names);
	blocks_at(w, AT_HOLD);
	r = MAY_REFUSE(gpuwm_blocks_hold_these(w->region, names, n, wait_ms), ESTALE, EAGAIN);
	for (unsigned i = 0; r == 0 && i < count; i++)
		keep(w, &uses[i]);
	blocks_at(w, AT_HELD);
	return r;
}

/* The stream reads them before it lets them go. */
static void release_in_stream(struct blocks_worker *w, const struct blocks_use *uses, unsigned count)
{
	struct gpuwm_block names[NAMES_MOST];
	size_t n;

	blocks_settle(w);
	for (unsigned i = 0; i < count; i++) {
		uint64_t *staging = w->staging + (BLOCKS_OWNED + i) * BLOCKS_WORDS;

		storm_copy_out(w->actor.stream, staging, address_of(w, &uses[i]), BLOCKS_BYTES);
		w->reads[i] = (struct blocks_copy){uses[i], staging};
		blocks_lets_go(w, &uses[i].block);
	}
	w->read_count = count;
	n = names_of(w, uses, count, names);
	CHILD_ASSERT(gpuwm_blocks_release_in_stream(w->region, names, n, w->actor.stream) == 0);
	memset(names, 0xff, sizeof names);
	if (some(w, 50))
		blocks_settle(w);
}

static int act_release(struct storm_actor *a)
{
	struct blocks_worker *w = (struct blocks_worker *)a;
	struct blocks_use uses[BLOCKS_HELD];
	struct gpuwm_block names[NAMES_MOST];
	unsigned count;
	size_t n;

	if (w->held_count == 0)
		return -EBUSY;
	count = choose_uses(w, w->held, &w->held_count, uses);
	for (unsigned i = 0; i < count; i++)
		CHILD_ASSERT(blocks_bytes_are(address_of(w, &uses[i]), &uses[i], NULL));
	if (w->actor.stream && some(w, 50)) {
		release_in_stream(w, uses, count);
		return 0;
	}
	for (unsigned i = 0; i < count; i++)
		blocks_lets_go(w, &uses[i].block);
	n = names_of(w, uses, count, names);
	blocks_at(w, AT_RELEASE);
	CHILD_ASSERT(gpuwm_blocks_release(w->region, names, n) == 0);
	return 0;
}

/* ---- the rest -------------------------------------------------------------- */

static int act_drop(struct storm_actor *a)
{
	struct blocks_worker *w = (struct blocks_worker *)a;
	const unsigned count = one_to(w, BLOCKS_RUN);
	struct gpuwm_block_key keys[BLOCKS_RUN];
	const uint32_t first = choose_keys(w, count, keys);
	size_t dropped;

	blocks_drops(w, first, count);
	blocks_at(w, AT_DROP);
	CHILD_ASSERT(gpuwm_blocks_drop(w->region, keys, count, some(w, 50) ? &dropped : NULL) == 0);
	blocks_dropped(w);
	return 0;
}

static bool has(const struct blocks_use *list, unsigned count, const struct gpuwm_block *block)
{
	for (unsigned i = 0; i < count; i++) {
		if (list[i].block.number == block->number && list[i].block.generation == block->generation)
			return true;
	}
	return false;
}

/* What it does not own, or does not hold: alone, or behind what it has, which stays as it was. */
static int act_misuse(struct storm_actor *a)
{
	struct blocks_worker *w = (struct blocks_worker *)a;
	struct gpuwm_block names[2];
	struct gpuwm_block_key key;
	struct blocks_use use;
	size_t n = 0;

	blocks_settle(w);
	if (!look_up(w, &use) || has(w->owned, w->owned_count, &use.block) ||
	    has(w->held, w->held_count, &use.block))
		return -EBUSY;
	CHILD_ASSERT(gpuwm_block_key_of(w->region, &use.block, &key) == -EALREADY);
	if (some(w, 50)) {
		if (w->held_count > 0)
			names[n++] = w->held[0].block;
		names[n++] = use.block;
		CHILD_ASSERT(gpuwm_blocks_release(w->region, names, n) == -EALREADY);
		return 0;
	}
	if (w->owned_count > 0)
		names[n++] = w->owned[0].block;
	names[n++] = use.block;
	if (some(w, 50))
		CHILD_ASSERT(gpuwm_blocks_publish(w->region, names, n) == -ESTALE);
	else
		CHILD_ASSERT(gpuwm_blocks_abandon(w->region, names, n) == -ESTALE);
	return 0;
}

static int act_look(struct storm_actor *a)
{
	struct blocks_worker *w = (struct blocks_worker *)a;
	struct gpuwm_blocks_figures f;

	CHILD_ASSERT(gpuwm_blocks_figures(w->region, &f) == 0);
	CHILD_ASSERT(f.blocks == BLOCKS_COUNT);
	CHILD_ASSERT(f.free + f.owned + f.ready + f.held == BLOCKS_COUNT);
	return 0;
}

void blocks_drop_all(struct blocks_worker *w)
{
	while (w->held_count > 0) {
		const struct blocks_use *use = &w->held[--w->held_count];

		CHILD_ASSERT(blocks_bytes_are(address_of(w, use), use, NULL));
		blocks_lets_go(w, &use->block);
		CHILD_ASSERT(gpuwm_blocks_release(w->region, &use->block, 1) == 0);
	}
	while (w->owned_count > 0) {
		const struct blocks_use *use = &w->owned[--w->owned_count];

		blocks_disowns(w, &use->block);
		CHILD_ASSERT(gpuwm_blocks_abandon(w->region, &use->block, 1) == 0);
	}
	blocks_settle(w);
}

/* ---- opening ------------------------------------------------------------- */

void blocks_open(struct blocks_worker *w)
{
	struct gpuwm_region_info info;

	w->region = storm_region_open(&w->actor, "blocks", GPUWM_REGION_WRITE);
	gpuwm_region_info(w->region, &info);
	CHILD_ASSERT(info.kind == GPUWM_REGION_BLOCKS && info.writes && !info.owns);
	CHILD_ASSERT(info.blocks == BLOCKS_COUNT && info.block_bytes == BLOCKS_BYTES);
	atomic_store(&w->actor.told->slot, info.slot);
}

static int act_reopen(struct storm_actor *a)
{
	struct blocks_worker *w = (struct blocks_worker *)a;

	blocks_drop_all(w);
	blocks_at(w, AT_REOPEN);
	CHILD_ASSERT(gpuwm_region_close(w->region) == 0);
	blocks_open(w);
	return 0;
}

/* ---- all of them -------------------------------------------------------------- */

const struct storm_operation blocks_operations[] = {
	/* How often: else, and while workers hoard. */
	{"reserve", act_reserve, {20, 20}},
	{"publish", act_publish, {14, 0}},
	{"abandon", act_abandon, {2, 0}},
	{"find", act_find, {6, 6}},
	{"hold", act_hold, {20, 20}},
	{"await", act_await, {6, 6}},
	{"these", act_hold_these, {10, 10}},
	{"release", act_release, {14, 0}},
	{"drop", act_drop, {3, 3}},
	{"misuse", act_misuse, {3, 3}},
	{"look", act_look, {2, 2}},
	{"reopen", act_reopen, {1, 0}},
	{0},
};
