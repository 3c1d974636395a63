/* Regions in the ledger: slots, names, charges, the control memory, and the way over a restart. */
#include "daemon/ledger/region.h"
#include "tests/support/daemon/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

#define RegionTest(name) TestBetween(region, name, open_all(), close_all())

static struct region_wish wish_of(const char *name)
{
	return (struct region_wish){.name = name,
				    .device = ledger.host,
				    .uid = LEDGER_UID,
				    .kind = &region_kind_pool,
				    .many_writers = true,
				    .bytes = 8192,
				    .memory_bytes = 8192,
				    .shape = {.chunks = 8}};
}

static struct region *add(const char *name)
{
	const struct region_wish wish = wish_of(name);
	struct region *region = NULL;

	cr_assert_eq(region_add(&table, &wish, &region, &ledger.error), 0, "%s", ledger.error.message);
	return region;
}

static struct region *add_ready(const char *name)
{
	struct region *region = add(name);

	cr_assert_eq(region_make_control(region, &ledger.error), 0, "%s", ledger.error.message);
	region->state = REGION_READY;
	return region;
}

static struct region_user *use(struct region *region)
{
	const struct region_user like = {.uid = LEDGER_UID, .pid = 7, .command = "worker", .pidfd = -1};
	struct region_user *user = NULL;

	cr_assert_eq(region_user_add(&table, region, &like, &user, &ledger.error), 0, "%s",
		     ledger.error.message);
	return user;
}

/* ---- slots ------------------------------------------------------------ */

RegionTest(a_user_gets_the_slot_that_was_free_for_longest)
{
	struct region *region = add("kv");
	struct region_user *users[REGION_USERS_MAX];

	for (unsigned i = 0; i < REGION_USERS_MAX; i++) {
		users[i] = use(region);
		cr_assert_eq(users[i]->slot, i);
	}
	expect_error(region_user_add(&table, region, users[0], &users[0], &ledger.error), -EDQUOT, "26 users");
	region_user_free(&table, users[9]);
	region_user_free(&table, users[3]);
	cr_assert_eq(use(region)->slot, 9);
	cr_assert_eq(use(region)->slot, 3);
	cr_assert_eq(table.users, REGION_USERS_MAX);
}

RegionTest(only_a_secret_finds_a_user)
{
	struct region_user *one = use(add("a")), *other = use(add("b"));

	cr_assert(!version_id_equal(&one->use, &other->use));
	cr_assert_eq(region_find_user(&table, &other->use), other);
	cr_assert_null(region_find_user(&table, &one->region->id));
}

RegionTest(a_region_may_end_with_its_owner)
{
	struct region *region = add("kv");
	struct region_user *user = use(region);

	cr_assert(!region_ends_with(user) && !region_owner(region));
	user->owns = true;
	cr_assert(region_ends_with(user) && region_owner(region) == user);
	region->is.owned_by_uid = true;
	cr_assert(!region_ends_with(user));
}

/* ---- names ------------------------------------------------------------ */

RegionTest(a_region_that_has_ended_gives_its_name_up)
{
	const struct region_wish wish = wish_of("kv");
	const struct error why = {.code = -ESHUTDOWN, .message = "removed"};
	struct region *old = add("kv"), *new;

	expect_error(region_add(&table, &wish, &new, &ledger.error), -EEXIST, "kv");
	cr_assert(region_end(old, CONTROL_REMOVED, 0, &why));
	cr_assert(!region_end(old, CONTROL_OWNER_DIED, 0, &why), "it ends once");
	cr_assert_eq(region_find_name(&table, "kv"), old);
	new = add("kv");
	cr_assert_eq(region_find_name(&table, "kv"), new);
	cr_assert_eq(region_find(&table, &old->id), old);
	add(NULL);
	add(NULL);
	cr_assert_null(region_find_name(&table, ""));
}

RegionTest(there_are_so_many_regions)
{
	const struct region_wish wish = wish_of(NULL);
	struct region *region;

	for (int i = 0; i < REGIONS_MAX; i++)
		add(NULL);
	expect_error(region_add(&table, &wish, &region, &ledger.error), -EDQUOT, "256 regions");
	region_free(&table, table.first);
	add(NULL);
	cr_assert_eq(table.bytes, REGIONS_MAX * UINT64_C(8192));
}

/* ---- charges ---------------------------------------------------------- */

static uint64_t charged(enum quota_kind kind)
{
	return quota_used(ledger.quota, LEDGER_UID, kind);
}

RegionTest(its_user_and_its_device_are_charged_until_it_is_gone)
{
	struct region *region = add("kv");
	struct region_user *user = use(region);

	cr_assert_eq(region_charge(region, ledger.quota, false, &ledger.error), 0);
	cr_assert_eq(region_user_charge(user, ledger.quota, false, &ledger.error), 0);
	cr_assert_eq(ledger.host->used, 8192);
	cr_assert(charged(QUOTA_REGIONS) == 1 && charged(QUOTA_BYTES) == 8192 && charged(QUOTA_FDS) == 3);
	region_user_free(&table, user);
	cr_assert_eq(charged(QUOTA_FDS), 2);
	region_free(&table, region);
	cr_assert_eq(ledger.host->used, 0);
	cr_assert(charged(QUOTA_REGIONS) == 0 && charged(QUOTA_BYTES) == 0 && charged(QUOTA_FDS) == 0);
}

RegionTest(what_does_not_fit_is_not_charged)
{
	struct quota_limits limits = quota_defaults;
	struct region *region = add("kv");

	limits.per_uid[QUOTA_BYTES] = 100;
	quota_set_limits(ledger.quota, &limits);
	expect_error(region_charge(region, ledger.quota, false, &ledger.error), -EDQUOT,
		     "uid 1000 may have 100 B");
	cr_assert(charged(QUOTA_REGIONS) == 0 && charged(QUOTA_FDS) == 0 && ledger.host->used == 0);
	cr_assert_eq(region_charge(region, ledger.quota, true, &ledger.error), 0, "what was there stays");
	cr_assert_eq(charged(QUOTA_BYTES), 8192);
}

RegionTest(an_operators_region_counts_for_no_quota)
{
	struct region *region = add("kv");
	struct region_user *user = use(region);

	region->is.by_operator = user->by_operator = true;
	cr_assert_eq(region_charge(region, ledger.quota, false, &ledger.error), 0);
	cr_assert_eq(region_user_charge(user, ledger.quota, false, &ledger.error), 0);
	cr_assert_eq(ledger.host->used, 8192);
	cr_assert_null(quota_next_user(ledger.quota, NULL));
}

/* ---- shares ------------------------------------------------------------ */

static uint64_t paid_by(uid_t uid, enum quota_kind kind)
{
	return quota_used(ledger.quota, uid, kind);
}

static struct region_user *use_as(struct region *region, uid_t uid)
{
	struct region_user *user = use(region);

	user->uid = uid;
	cr_assert_eq(region_user_charge(user, ledger.quota, false, &ledger.error), 0);
	return user;
}

/* What an operator has ended is charged to a user who can give it back. */
RegionTest(one_that_has_ended_is_charged_to_who_maps_it)
{
	const struct error why = {.code = -ESHUTDOWN};
	struct region *region = add("kv");
	struct region_user *owner = use_as(region, LEDGER_UID), *first = use_as(region, 2001),
			   *second = use_as(region, 2002);

	cr_assert_eq(region_charge(region, ledger.quota, false, &ledger.error), 0);
	region_repay(region);
	cr_expect_eq(paid_by(LEDGER_UID, QUOTA_BYTES), 8192, "it has not ended");
	region_end(region, CONTROL_REMOVED, 0, &why);
	region_repay(region);
	cr_expect_eq(paid_by(LEDGER_UID, QUOTA_BYTES), 8192, "its owner maps it");
	region_user_free(&table, owner);
	region_repay(region);
	cr_expect(paid_by(LEDGER_UID, QUOTA_BYTES) == 0 && paid_by(LEDGER_UID, QUOTA_REGIONS) == 0 &&
		  paid_by(LEDGER_UID, QUOTA_FDS) == 0);
	cr_expect(paid_by(2001, QUOTA_BYTES) == 8192 && paid_by(2001, QUOTA_REGIONS) == 1 &&
		  paid_by(2001, QUOTA_FDS) == 3);
	cr_expect_eq(ledger.host->by_users, 8192);
	region_user_free(&table, first);
	region_repay(region);
	cr_expect(paid_by(2001, QUOTA_BYTES) == 0 && paid_by(2002, QUOTA_BYTES) == 8192);
	second->by_operator = true; /* as if an operator mapped it */
	region_repay(region);
	cr_expect(paid_by(2002, QUOTA_BYTES) == 0 && paid_by(2002, QUOTA_REGIONS) == 0);
	cr_expect(ledger.host->by_users == 0 && ledger.host->used == 8192);
	region_user_free(&table, second);
}

RegionTest(those_who_still_map_what_has_ended_are_named)
{
	const struct error why = {.code = -ESHUTDOWN};
	struct region *region = add("kv");
	char text[256] = "users";

	for (unsigned i = 0; i < 5; i++)
		snprintf(use(region)->command, CONTROL_COMMAND_BYTES, "p%u", i);
	region_name_mappers(&table, ledger.host, text, sizeof(text));
	cr_expect_str_eq(text, "users", "it has not ended");
	region_end(region, CONTROL_REMOVED, 0, &why);
	region_name_mappers(&table, ledger.host, text, sizeof(text));
	cr_expect(strstr(text, "users: p0 (pid ") && strstr(text, ", p2 (pid ") && strstr(text, " and others"),
		  "%s", text);
	cr_expect_null(strstr(text, "p3"), "%s", text);
}

RegionTest(of_a_device_a_user_has_half_of_what_others_leave)
{
	struct region_wish wish = wish_of("more");
	struct region *region = add("kv");
	struct budget_charge operators = {0};

	cr_assert_eq(region_charge(region, ledger.quota, false, &ledger.error), 0);
	ledger.host->budget = 64 * 8192;
	wish.memory_bytes = 27 * 8192;
	cr_expect_eq(region_check_share(&table, &wish, ledger.quota, &ledger.error), 0, "28 in all");
	wish.memory_bytes++;
	expect_error(
		region_check_share(&table, &wish, ledger.quota, &ledger.error), -EDQUOT,
		"of 512.0 KiB, 64.0 KiB are kept for operators, and versions and others' regions hold 0 B");
	cr_expect(strstr(ledger.error.detail, "share for regions of this name"), "%s", ledger.error.detail);
	wish.share = 100;
	cr_expect_eq(region_check_share(&table, &wish, ledger.quota, &ledger.error), 0);
	wish.share = 0;
	budget_charge(ledger.host, 16 * 8192, &operators, &ledger.error);
	wish.memory_bytes = 24 * 8192;
	expect_error(region_check_share(&table, &wish, ledger.quota, &ledger.error), -EDQUOT,
		     "128.0 KiB are held by operators");
	wish.by_operator = true;
	cr_expect_eq(region_check_share(&table, &wish, ledger.quota, &ledger.error), 0);
	budget_release(&operators);
}

/* ---- the control memory ----------------------------------------------- */

RegionTest(nobody_can_resize_the_control_memory)
{
	struct region *region = add_ready("kv");
	struct stat st;

	cr_assert_eq(fstat(region->control_fd, &st), 0);
	cr_assert_eq((uint64_t)st.st_size, control_bytes((struct control_shape){.chunks = 8}));
	cr_assert_eq(st.st_mode & 0777, 0600);
	cr_assert_lt(ftruncate(region->control_fd, 4096), 0);
	cr_assert_lt(ftruncate(region->control_fd, 1 << 24), 0);
	cr_assert_null(region_damage(region));
}

static void set_chunk(struct region *region, uint32_t i, uint64_t word, uint64_t offset, uint64_t bytes)
{
	struct control_chunk *chunk = &region->control.chunks[i];

	atomic_store(&chunk->offset, offset);
	atomic_store(&chunk->bytes, bytes);
	atomic_store(&chunk->generation, word >> 56);
	atomic_store(&chunk->word, word);
}

RegionTest(what_no_user_writes_is_damage)
{
	struct region *region = add_ready("kv");
	const uint64_t word = chunk_word_filling(1, 0);

	use(region);
	set_chunk(region, 0, word, 0, 8192);
	cr_assert_null(region_damage(region));
	set_chunk(region, 0, word, 4096, 8192);
	cr_assert_not_null(region_damage(region), "it lies outside");
	set_chunk(region, 0, word, UINT64_MAX, 1);
	cr_assert_not_null(region_damage(region));
	set_chunk(region, 0, chunk_word_filling(1, 1), 0, 1);
	cr_assert_not_null(region_damage(region), "nobody ever had slot 1");
	set_chunk(region, 0, 0, 4096, 8192);
	cr_assert_null(region_damage(region), "an owner writes the place of a free entry in two steps");
	region->control.head->chunks = 9;
	cr_assert_not_null(region_damage(region));
}

RegionTest(what_gpuwmd_has_not_written_about_users_is_damage)
{
	struct region *region = add_ready("kv");
	struct region_user *one = use(region), *other = use(region);
	struct control_user *table_of = region->control.head->users;

	region_user_came(one);
	region_user_came(other);
	cr_assert_null(region_damage(region));
	region_user_left(other);
	region_user_free(&table, other);
	cr_assert_null(region_damage(region));
	table_of[0].here = 0;
	cr_assert_not_null(region_damage(region), "others would forget it");
	table_of[0].here = 1;
	table_of[0].pid++;
	cr_assert_not_null(region_damage(region));
	table_of[0].pid--;
	table_of[1].generation++;
	cr_assert_not_null(region_damage(region), "also of a slot without a user");
	table_of[1].generation--;
	table_of[9].here = 1;
	cr_assert_not_null(region_damage(region), "writers would wait for it");
	region_slots_read(region);
	cr_assert_not_null(region_damage(region), "a new gpuwmd finds it too");
	table_of[9].here = 0;
	region_slots_read(region);
	cr_assert_null(region_damage(region));
}

RegionTest(a_lock_that_nobody_opens_is_damage)
{
	struct region *region = add_ready("q");
	struct region_user *user = use(region);

	region_user_came(user);
	region->control.head->lock = 1;
	cr_assert_null(region_damage(region));
	region->control.head->lock = 2;
	cr_assert_not_null(region_damage(region));
	region->control.head->lock = 1;
	region_user_left(user);
	region_user_free(&table, user);
	cr_assert_null(region_damage(region));
	region->control.head->lock = 1;
	cr_assert_not_null(region_damage(region));
	region->control.head->lock = UINT32_MAX;
	cr_assert_not_null(region_damage(region));
}

RegionTest(messages_that_there_can_not_be_are_damage)
{
	struct region *region = add_ready("q");
	struct control_head *head = region->control.head;

	region->is.kind = &region_kind_queue;
	region->is.item_bytes = 1024;
	head->first = 3;
	head->end = 11;
	cr_assert_null(region_damage(region));
	head->end = 12;
	cr_assert_not_null(region_damage(region), "more than there are cells");
	head->end = 2;
	cr_assert_not_null(region_damage(region));
	head->end = head->first = UINT64_MAX;
	cr_assert_null(region_damage(region));
}

/* Its writer had not seen it go. */
RegionTest(a_chunk_may_wait_for_who_has_just_gone)
{
	struct region *region = add_ready("kv");
	struct region_user *owner = use(region), *reader = use(region);

	region_user_came(owner);
	region_user_came(reader);
	region_user_left(reader);
	region_user_free(&table, reader);
	set_chunk(region, 0, chunk_word_offered(chunk_word_filling(1, 0), 0, 1 << 1, 0), 0, 1);
	cr_assert_null(region_damage(region));
	control_user_came(&region->control, 1, 9, "next");
	cr_assert(chunk_word_is_free(atomic_load(&region->control.chunks[0].word)),
		  "the next one has not its debts");
}

RegionTest(figures_are_bounded_by_the_region)
{
	struct region *region = add_ready("kv");
	struct region_figures figures;
	struct region_chunk oldest[2];

	region_look(region, &figures);
	cr_assert(figures.chunks_used == 0 && figures.largest_free == 8192);
	set_chunk(region, 0, chunk_word_filling(1, 0), 1024, 1024);
	set_chunk(region, 1, chunk_word_offered(chunk_word_filling(1, 0), 0, 1 << 2 | 1 << 0, 0), 4096, 256);
	atomic_store(&region->control.chunks[0].since_ms, 500);
	atomic_store(&region->control.chunks[1].since_ms, 400);
	region_look(region, &figures);
	cr_assert(figures.chunks_used == 2 && figures.bytes_used == 1280);
	cr_assert_eq(figures.largest_free, 8192 - 4096 - 256);
	cr_assert(figures.holds[0] == 2 && figures.holds[2] == 1 && figures.holds[1] == 0);
	region_count(region, &figures);
	cr_assert(figures.chunks_used == 2 && figures.bytes_used == 1280);
	atomic_store(control_finished(&region->control, 0, 0), 1);
	region_count(region, &figures);
	cr_assert(figures.chunks_used == 1 && figures.bytes_used == 256, "a stream has finished with it");
	atomic_store(control_finished(&region->control, 0, 0), 0);
	for (uint32_t i = 0; i < 8; i++)
		set_chunk(region, i, UINT64_MAX, UINT64_MAX / 2 * i, UINT64_MAX);
	region_look(region, &figures);
	cr_assert(figures.bytes_used <= 8192 && figures.largest_free <= 8192);
	region_count(region, &figures);
	cr_assert(figures.bytes_used <= 8192);
	set_chunk(region, 0, chunk_word_filling(1, 0), 0, 1);
	for (uint32_t i = 2; i < 8; i++)
		set_chunk(region, i, 0, 0, 0);
	set_chunk(region, 1, chunk_word_filling(1, 0), 0, 1);
	cr_assert_eq(region_oldest(region, oldest, 2), 2);
	cr_assert(oldest[0].chunk == 1 && oldest[1].chunk == 0);
	cr_assert_eq(region_oldest(region, oldest, 1), 1);
	cr_assert_eq(oldest[0].chunk, 1);
}

RegionTest(a_queue_has_as_many_messages_as_cells_at_most)
{
	struct region *region = add_ready("q");
	struct region_figures figures;

	region->is.kind = &region_kind_queue;
	region->is.item_bytes = 1024;
	atomic_store(&region->control.head->end, 3);
	region_look(region, &figures);
	cr_assert_eq(figures.messages, 3);
	atomic_store(&region->control.head->first, 5);
	region_look(region, &figures);
	cr_assert_eq(figures.messages, 8);
}

/* ---- restarts --------------------------------------------------------- */

static struct region *kept_region(void)
{
	struct region *region = add_ready("kv");
	struct region_user *user = use(region);

	region->is.many_writers = region->is.owned_by_uid = true;
	region->is.ttl_ms = 9;
	region->memory_stored_as = fake_next_name++;
	region->control_stored_as = fake_next_name++;
	user->stored_as = fake_next_name++;
	user->state = USER_HERE;
	user->owns = user->write = true;
	use(region); /* one on its way, which is not kept */
	return region;
}

static void restart(void)
{
	const struct snapshot_fds fds = {.look = fake_look, .take = fake_take};
	struct snapshot snapshot = fake_snapshot();
	struct message_writer w;

	snapshot.regions = &table;
	message_writer_init(&w, MESSAGE_BODY_MAX);
	snapshot_put(&w, &snapshot);
	cr_assert_eq(message_finish(&w), 0);
	back_open();
	back.snapshot.regions = &back_table;
	cr_assert_eq(snapshot_take(&(struct snapshot_stored){w.buffer.data, w.buffer.size, 1}, &fds,
				   &back.snapshot, &back.lost, &ledger.error),
		     0, "%s", ledger.error.message);
	message_writer_clear(&w);
}

RegionTest(a_region_comes_back_with_its_users)
{
	struct region *region = kept_region(), *again;
	const struct region_user *user = region->users[0], *came;

	add("making");
	restart();
	again = back_table.first;
	cr_assert(back_table.count == 1 && back_table.users == 1);
	came = again->users[0];
	cr_assert(version_id_equal(&again->id, &region->id) && strcmp(again->name, "kv") == 0);
	cr_assert(again->state == REGION_READY && again->is.owned_by_uid && again->is.many_writers);
	cr_assert(again->is.bytes == 8192 && again->is.shape.chunks == 8 && again->is.ttl_ms == 9);
	cr_assert(version_id_equal(&came->use, &user->use) && came->owns && came->write && came->pid == 7);
	cr_assert_str_eq(came->command, "worker");
	cr_assert_eq(came->pidfd, FAKE_FD(user->stored_as));
	cr_assert_eq(again->memory_fd, FAKE_FD(region->memory_stored_as));
	cr_assert_eq(back.snapshot.next_name, fake_next_name);
	cr_assert_eq(registry_fds(back.registry), 3);
	cr_assert(charged(QUOTA_REGIONS) == 1 && charged(QUOTA_FDS) == 3 && charged(QUOTA_BYTES) == 8192);
}

RegionTest(one_that_has_ended_comes_back_as_long_as_it_is_used)
{
	struct region *region = kept_region(), *again;
	const struct error why = {-EOWNERDEAD, "its owner exited", ""};

	cr_assert(region_end(region, CONTROL_OWNER_DIED, 3, &why));
	restart();
	again = back_table.first;
	cr_assert(back_table.count == 1 && back_table.users == 1 && again->state == REGION_ENDED);
	cr_assert(again->end == CONTROL_OWNER_DIED && again->ended_by == 3);
	cr_assert(again->error.code == -EOWNERDEAD && strcmp(again->error.message, why.message) == 0);
	cr_assert(again->memory_fd == -1 && again->control_fd == FAKE_FD(region->control_stored_as));
	cr_assert_eq(registry_fds(back.registry), 2);
	cr_assert(charged(QUOTA_REGIONS) == 1 && charged(QUOTA_FDS) == 3 && charged(QUOTA_BYTES) == 8192);
	region->users[0]->state = USER_GOING;
	region_table_clear(&back_table);
	restart();
	cr_assert_eq(back_table.count, 0);
}

RegionTest(without_one_descriptor_it_has_ended)
{
	const struct region *region = kept_region();
	const uint64_t names[] = {region->memory_stored_as, region->control_stored_as,
				  region->users[0]->stored_as};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		region_table_clear(&back_table);
		fake_missing[0] = names[i];
		restart();
		cr_assert_eq(back_table.first->state, REGION_ENDED);
		cr_assert_eq(back_table.users, 0);
		cr_assert(strstr(back_table.first->error.message, "2 of its 3"), "%s",
			  back_table.first->error.message);
		cr_assert_eq(back_table.first->control_fd >= 0, i != 1, "its users learn of it there");
		cr_assert_null(quota_next_user(ledger.quota, NULL));
	}
	fake_missing[0] = 0;
}
