/* The kinds of regions in the ledger: what is counted and what is damage, who has scratch memory, and the way over a restart. */
#include "daemon/ledger/region.h"
#include "proto/wire/messages_region.h"
#include "tests/support/daemon/snapshot.h"

static struct region_table table, back_table;

static void open_all(void)
{
	ledger_open();
	region_table_init(&table);
	region_table_init(&back_table);
}

static void close_all(void)
{
	region_table_clear(&table);
	region_table_clear(&back_table);
	if (back.registry)
		back_clear();
	ledger_close();
}

#define KindTest(name) TestBetween(region_kind, name, open_all(), close_all())

enum { BLOCKS = 19, BLOCK_BYTES = 512 };

/* Each has the sizes of its kind. */
static struct region_wish wish_of(const struct region_kind *kind)
{
	struct region_wish wish = {
		.device = ledger.host,
		.uid = LEDGER_UID,
		.kind = kind,
		.many_writers = true,
		.owned_by_uid = true,
		.bytes = 16384,
		.memory_bytes = 16384,
	};

	if (kind == &region_kind_pool)
		wish.shape.chunks = 8;
	if (kind == &region_kind_queue)
		wish.item_bytes = 1024;
	if (kind == &region_kind_blocks) {
		wish.shape.blocks = BLOCKS;
		wish.block_bytes = BLOCK_BYTES;
		wish.bytes = BLOCKS * BLOCK_BYTES;
	}
	if (kind == &region_kind_scratch)
		wish.clear = true;
	return wish;
}

static struct region *add_like(const struct region_wish *wish)
{
	struct region *region = NULL;

	cr_assert_eq(region_add(&table, wish, &region, &ledger.error), 0, "%s", ledger.error.message);
	cr_assert_eq(region_make_control(region, &ledger.error), 0, "%s", ledger.error.message);
	region->state = REGION_READY;
	return region;
}

static struct region *add(const struct region_kind *kind)
{
	const struct region_wish wish = wish_of(kind);

	return add_like(&wish);
}

static struct region_user *use(struct region *region)
{
	const struct region_user like = {
		.uid = LEDGER_UID, .pid = 7, .command = "worker", .pidfd = -1, .write = true};
	struct region_user *user = NULL;

	cr_assert_eq(region_user_add(&table, region, &like, &user, &ledger.error), 0, "%s",
		     ledger.error.message);
	region_user_came(user);
	return user;
}

/* A request of another kind is refused with the names of all kinds: "kind" is "pool", … or "scratch", not "ring". */
KindTest(the_ledger_has_each_kind_that_a_request_may_name)
{
	const struct region_create_params none = {.device = "host", .kind = "ring", .bytes = 4096};
	struct error refusal = {0};
	const struct region_kind *found = NULL;
	char *left = NULL, *name;
	unsigned count = 0;

	cr_assert_eq(form_region_create.params->check(&none, &refusal), -EINVAL);
	for (name = strtok_r(refusal.message, "\"", &left); name; name = strtok_r(NULL, "\"", &left)) {
		if (strcspn(name, " ,") < strlen(name) || strcmp(name, "kind") == 0 ||
		    strcmp(name, "ring") == 0)
			continue; /* what is between the names */
		cr_expect_eq(region_kind_find(name, &found, &ledger.error), 0, "region_kind.c lacks %s", name);
		count++;
	}
	cr_expect_eq(count, 4, "wish_of has four");
}

KindTest(a_kind_that_there_is_not_is_named)
{
	const struct region_kind *found = NULL;

	expect_error(region_kind_find("ring", &found, &ledger.error), -EINVAL, "no regions of kind \"ring\"");
	cr_assert_null(found);
}

/* ---- blocks ------------------------------------------------------------- */

static _Atomic uint64_t *word(const struct region *region, uint32_t number)
{
	return &region->control.blocks.words[number];
}

static void own(const struct region *region, uint32_t number, unsigned slot)
{
	uint64_t next;

	cr_assert_eq(block_word_own(atomic_load(word(region, number)), slot, &next), 0);
	atomic_store(word(region, number), next);
}

static void publish(const struct region *region, uint32_t number, unsigned slot)
{
	const uint64_t now = atomic_load(word(region, number));
	uint64_t next;

	cr_assert_eq(block_word_publish(now, slot, block_word_generation(now), &next), 0);
	atomic_store(word(region, number), next);
}

static void hold(const struct region *region, uint32_t number, unsigned slot)
{
	const uint64_t now = atomic_load(word(region, number));
	uint64_t next;

	cr_assert_eq(block_word_hold(now, slot, block_word_generation(now), &next), 0);
	atomic_store(word(region, number), next);
}

/* Of 19 blocks: 3 owned, 4 ready, 9 held, the last of them by two. */
static struct region *with_blocks(void)
{
	struct region *region = add(&region_kind_blocks);

	for (unsigned i = 0; i < 3; i++)
		use(region);
	for (uint32_t i = 0; i < 16; i++)
		own(region, i, i % 2);
	for (uint32_t i = 3; i < 16; i++)
		publish(region, i, i % 2);
	for (uint32_t i = 7; i < 16; i++)
		hold(region, i, 2);
	hold(region, 15, 0);
	return region;
}

KindTest(blocks_are_counted_by_state_and_by_user)
{
	struct region *region = with_blocks();
	struct region_figures figures;

	region_count(region, &figures);
	cr_assert(figures.blocks_owned == 3 && figures.blocks_ready == 4 && figures.blocks_held == 9);
	cr_assert_eq(figures.bytes_used, 16 * BLOCK_BYTES);
	region_look(region, &figures);
	cr_assert(figures.blocks_owned == 3 && figures.blocks_ready == 4 && figures.blocks_held == 9);
	cr_assert_eq(figures.bytes_used, 16 * BLOCK_BYTES);
	cr_assert_eq(figures.holds[0], 3, "it owns two, and holds one");
	cr_assert_eq(figures.holds[1], 1);
	cr_assert_eq(figures.holds[2], 9);
	for (unsigned slot = 3; slot < REGION_USERS_MAX; slot++)
		cr_assert_eq(figures.holds[slot], 0);
}

/* The figures of all slots are added up at once. */
KindTest(all_users_may_hold_many_blocks)
{
	struct region_wish wish = wish_of(&region_kind_blocks);
	uint64_t expected[REGION_USERS_MAX] = {0};
	struct region_figures figures;
	struct region *region;

	wish.shape.blocks = 1003;
	wish.block_bytes = 256;
	wish.bytes = wish.memory_bytes = 1003 * 256;
	region = add_like(&wish);
	for (uint32_t i = 0; i < 1003; i++) {
		own(region, i, 0);
		publish(region, i, 0);
		for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
			if ((i * 2654435761u >> slot & 3) == 0)
				continue;
			hold(region, i, slot);
			expected[slot]++;
		}
	}
	region_look(region, &figures);
	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++)
		cr_assert_eq(figures.holds[slot], expected[slot], "slot %u", slot);
}

KindTest(what_a_user_writes_over_the_words_bounds_the_figures)
{
	struct region *region = add(&region_kind_blocks);
	struct region_figures figures;

	for (uint32_t i = 0; i < BLOCKS; i++)
		atomic_store(word(region, i), UINT64_MAX);
	region_look(region, &figures);
	cr_assert(figures.blocks_owned + figures.blocks_ready + figures.blocks_held <= BLOCKS);
	cr_assert_leq(figures.bytes_used, region->is.bytes);
	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++)
		cr_assert_leq(figures.holds[slot], BLOCKS);
}

/* What is owned by this slot is freed, and what it holds is let go. */
KindTest(a_user_that_goes_leaves_no_blocks)
{
	struct region *region = with_blocks();
	struct region_user *first = region->users[0], *third = region->users[2];
	struct region_figures figures;

	cr_assert_eq(region_user_left(third), 9);
	region_user_free(&table, third);
	region_count(region, &figures);
	cr_assert(figures.blocks_owned == 3 && figures.blocks_ready == 12 && figures.blocks_held == 1);
	cr_assert_eq(region_user_left(first), 3);
	region_user_free(&table, first);
	region_count(region, &figures);
	cr_assert(figures.blocks_owned == 1 && figures.blocks_ready == 13 && figures.blocks_held == 0);
	cr_assert_null(region_damage(region), "who wrote a block may have gone");
}

KindTest(words_that_no_user_writes_are_damage)
{
	struct region *region = with_blocks();
	const uint64_t ready = atomic_load(word(region, 4)), owned = atomic_load(word(region, 0));

	cr_assert_null(region_damage(region));
	atomic_store(word(region, 18), UINT64_C(3) << BLOCK_STATE_SHIFT);
	cr_assert_str_eq(region_damage(region), "a block has a state that there is not");
	atomic_store(word(region, 18), ready | 1 << 3);
	cr_assert_str_eq(region_damage(region), "a block is held by a user that there is not");
	atomic_store(word(region, 18), owned | 1 << 1);
	cr_assert_str_eq(region_damage(region), "a block is held that has no bytes");
	atomic_store(word(region, 18), ready | UINT64_C(30) << BLOCK_WRITER_SHIFT);
	cr_assert_str_eq(region_damage(region), "a block was written by a user that there is not");
	atomic_store(word(region, 18), 0);
	cr_assert_null(region_damage(region));
	region->control.head->blocks = BLOCKS + 1;
	cr_assert_str_eq(region_damage(region), "its head was written over");
}

/* ---- scratch ------------------------------------------------------------ */

KindTest(scratch_memory_has_one_holder)
{
	struct region *region = add(&region_kind_scratch);
	struct region_user *one = use(region), *two = use(region);
	struct region_figures figures;

	cr_assert_null(region_scratch_holder(region));
	region_look(region, &figures);
	cr_assert(figures.bytes_used == 0 && figures.holds[0] == 0 && figures.holds[1] == 0);
	region_scratch_give(two);
	cr_assert_eq(region_scratch_holder(region), two);
	region_look(region, &figures);
	cr_assert(figures.bytes_used == region->is.bytes && figures.holds[0] == 0 && figures.holds[1] == 1);
	cr_assert(!region_scratch_take_back(one, false), "it has nothing");
	cr_assert_eq(region_scratch_holder(region), two);
	cr_assert(region_scratch_take_back(two, false));
	cr_assert_null(region_scratch_holder(region));
	cr_assert(!region_scratch_take_back(two, false));
}

KindTest(scratch_memory_has_the_bytes_of_its_last_holder)
{
	struct region *region = add(&region_kind_scratch);
	struct region_user *one = use(region), *two = use(region);

	cr_assert(!region_scratch_is_foreign(one), "it is new");
	region_scratch_give(one);
	cr_assert(!region_scratch_is_foreign(one));
	region_scratch_take_back(one, false);
	cr_assert(!region_scratch_is_foreign(one) && region_scratch_is_foreign(two));
	region_scratch_give(two);
	cr_assert(region_scratch_is_foreign(two), "until it gives it back, it may not have cleared it");
	region_scratch_take_back(two, true);
	cr_assert(region_scratch_is_foreign(two) && !region_scratch_is_foreign(one));
	region_scratch_give(two);
	region_scratch_take_back(two, false);
	cr_assert(!region_scratch_is_foreign(two) && region_scratch_is_foreign(one));
}

/* ---- restarts ------------------------------------------------------------ */

static struct region_user *keep(struct region *region)
{
	struct region_user *user = use(region);

	region->memory_stored_as = fake_next_name++;
	region->control_stored_as = fake_next_name++;
	user->stored_as = fake_next_name++;
	user->state = USER_HERE;
	return user;
}

static int restart(void)
{
	const struct snapshot_fds fds = {.look = fake_look, .take = fake_take};
	struct snapshot snapshot = fake_snapshot();
	struct message_writer w;
	int r;

	snapshot.regions = &table;
	message_writer_init(&w, MESSAGE_BODY_MAX);
	snapshot_put(&w, &snapshot);
	cr_assert_eq(message_finish(&w), 0);
	back_open();
	back.snapshot.regions = &back_table;
	r = snapshot_take(&(struct snapshot_stored){w.buffer.data, w.buffer.size, 1}, &fds, &back.snapshot,
			  &back.lost, &ledger.error);
	message_writer_clear(&w);
	if (r == 0 && back.unread.first) {
		ledger.error = back.unread.first->why;
		r = ledger.error.code;
	}
	return r;
}

KindTest(each_kind_comes_back)
{
	static const struct region_kind *const kinds[] = {&region_kind_pool, &region_kind_queue,
							  &region_kind_blocks, &region_kind_scratch};
	const struct region *again;

	for (size_t i = 0; i < 4; i++)
		keep(add(kinds[i]));
	cr_assert_eq(restart(), 0, "%s", ledger.error.message);
	again = back_table.first;
	for (size_t i = 0; i < 4; i++, again = again->next) {
		const struct region_wish wish = wish_of(kinds[i]);

		cr_assert_eq(again->is.kind, kinds[i]);
		cr_assert(again->is.bytes == wish.bytes && again->is.memory_bytes == wish.memory_bytes);
		cr_assert(again->is.item_bytes == wish.item_bytes && again->is.block_bytes == wish.block_bytes);
		cr_assert(again->is.shape.chunks == wish.shape.chunks &&
			  again->is.shape.blocks == wish.shape.blocks && again->is.clear == wish.clear);
		cr_assert(!region_scratch_holder(again));
	}
	cr_assert_null(again);
}

/* A cell of a queue has its head besides the item. */
KindTest(a_queue_of_the_largest_items_comes_back)
{
	struct region_wish wish = wish_of(&region_kind_queue);

	wish.item_bytes = QUEUE_CELL_BYTES_MAX;
	wish.bytes = wish.memory_bytes = 2 * QUEUE_CELL_BYTES_MAX;
	keep(add_like(&wish));
	cr_assert_eq(restart(), 0, "%s", ledger.error.message);
	cr_assert_eq(back_table.first->is.item_bytes, QUEUE_CELL_BYTES_MAX);
}

KindTest(the_holder_of_scratch_memory_comes_back)
{
	struct region *region = add(&region_kind_scratch);
	struct region_user *one = keep(region), *two = keep(region);
	const struct region *again;

	region_scratch_give(one);
	region_scratch_take_back(one, false);
	region_scratch_give(two);
	cr_assert_eq(restart(), 0, "%s", ledger.error.message);
	again = back_table.first;
	cr_assert_eq(region_scratch_holder(again), again->users[1]);
	cr_assert(region_scratch_is_foreign(again->users[1]) && !region_scratch_is_foreign(again->users[0]));
	cr_assert(version_id_equal(&again->scratch.written_by, &one->use));
}

static void can_not_be(struct region *region, const char *words)
{
	keep(region);
	expect_error(restart(), -EUCLEAN, words);
}

KindTest(a_state_with_sizes_of_another_kind_is_refused)
{
	struct region *region = add(&region_kind_blocks);

	region->is.block_bytes = 513;
	can_not_be(region, "of a multiple of 256 bytes, not 19 blocks of 513 bytes");
	region->is.block_bytes = BLOCK_BYTES;
	region->is.clear = true;
	can_not_be(region, "a region of kind blocks has no \"clear\"");
	region->is.clear = false;
	region->is.kind = &region_kind_scratch;
	can_not_be(region, "a region of kind scratch has no \"blocks\"");
	region->is.kind = &region_kind_pool;
	can_not_be(region, "a region of kind pool has no \"blocks\"");
	region->is.kind = &region_kind_queue;
	can_not_be(region, "a region of kind queue has no \"blocks\"");
}

KindTest(a_state_with_a_kind_that_there_is_not_is_refused)
{
	struct region *region = add(&region_kind_scratch);
	struct region_kind ring = region_kind_scratch;

	ring.name = "ring";
	region->is.kind = &ring;
	can_not_be(region, "no regions of kind \"ring\"");
}

KindTest(a_state_with_what_no_request_may_ask_for_is_refused)
{
	struct region *region = add(&region_kind_scratch);

	region->is.many_writers = false;
	can_not_be(region, "a region with one writer can't outlive that process");
}

KindTest(a_state_with_a_holder_of_another_kind_is_refused)
{
	struct region *region = add(&region_kind_pool);

	region_scratch_give(keep(region));
	expect_error(restart(), -EUCLEAN, "its memory is held by the slot 0");
}

KindTest(a_state_with_a_holder_that_is_no_user_is_refused)
{
	struct region *region = add(&region_kind_scratch);
	struct region_user *user = keep(region);

	region_scratch_give(user);
	user->state = USER_GOING;
	expect_error(restart(), -EUCLEAN, "its memory is held by the slot 0, of which there is no user");
}
