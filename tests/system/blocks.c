/* Blocks of the library, between processes and with a gpuwmd. */
#include "blocks_actor.h"
#include "region_raw.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(blocks);

/* The memory is looked at by the CPU: on the stand-in too. */
#define LOOKS_AT_MEMORY() SKIP_UNLESS(backend() != BACKEND_CUDA, "the CPU looks at the memory")
#define BLOCKS_TEST(name) GPUWMD_TEST_IF(blocks, name, LOOKS_AT_MEMORY(), gpuwmd_start(NULL), gpuwmd_stop_empty)
#define LET_GO_MS (SANITIZED ? 5000 : 1000) /* what a dead process owned and held */
#define PASSES 10
#define FEW 4 /* blocks of a region that is to be full */

static struct gpuwm_region *make(struct gpuwmd *d, struct gpuwm_client *client, uint32_t blocks)
{
	struct gpuwm_region_options options = {
		.size = sizeof(struct gpuwm_region_options),
		.name = "kv",
		.device = d->device,
		.kind = GPUWM_REGION_BLOCKS,
		.writers = GPUWM_WRITERS_MANY,
		.owner = GPUWM_OWNER_UID,
		.blocks = blocks,
		.block_bytes = BLOCKS_BYTES,
	};
	struct gpuwm_region *region;

	OK(gpuwm_region_create(client, &options, &region));
	return region;
}

static void end(struct gpuwmd *d, struct gpuwm_client *client, struct gpuwm_region *region)
{
	OK(gpuwm_region_remove(client, "kv"));
	OK(gpuwm_region_close(region));
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	gpuwm_close(client);
}

static struct gpuwm_blocks_figures figures_of(struct gpuwm_region *region)
{
	struct gpuwm_blocks_figures f;

	OK(gpuwm_blocks_figures(region, &f));
	cr_assert_eq(f.free + f.owned + f.ready + f.held, f.blocks);
	return f;
}

#define FIGURES_ARE(region, free_, owned_, ready_, held_)                                                      \
	do {                                                                                                   \
		const struct gpuwm_blocks_figures f_ = figures_of(region);                                     \
		cr_assert(f_.free == (free_) && f_.owned == (owned_) && f_.ready == (ready_) &&                \
				  f_.held == (held_),                                                          \
			  "%u free, %u owned, %u ready, %u held", f_.free, f_.owned, f_.ready, f_.held);       \
	} while (0)

static int reserve(struct gpuwm_region *region, uint32_t key, int64_t wait_ms, struct gpuwm_block *ret)
{
	const struct gpuwm_block_key name = blocks_key(key);
	size_t done;
	int r = gpuwm_blocks_reserve(region, &name, 1, wait_ms, ret, &done);

	if (r == 0)
		cr_assert_eq(done, 1);
	return r;
}

static size_t hold(struct gpuwm_region *region, uint32_t key, int64_t wait_ms, struct gpuwm_block *ret)
{
	const struct gpuwm_block_key name = blocks_key(key);
	size_t held;

	OK(gpuwm_blocks_hold(region, &name, 1, wait_ms, ret, &held));
	return held;
}

static size_t found(struct gpuwm_region *region, uint32_t key)
{
	const struct gpuwm_block_key name = blocks_key(key);
	size_t count;

	OK(gpuwm_blocks_find(region, &name, 1, &count));
	return count;
}

/* As actors fill it. */
static void fill(struct gpuwm_region *region, const struct gpuwm_block *block, uint32_t key)
{
	blocks_fill(gpuwm_block_address(region, block->number),
		    &(const struct blocks_use){*block, key, 1 + key});
}

static bool holds_bytes(struct gpuwm_region *region, const struct gpuwm_block *block, uint32_t key)
{
	return blocks_bytes_are(gpuwm_block_address(region, block->number),
				&(const struct blocks_use){*block, key, 1 + key}, NULL);
}

static struct gpuwm_block publish(struct gpuwm_region *region, uint32_t key)
{
	struct gpuwm_block block;

	OK(reserve(region, key, 0, &block));
	cr_assert_neq(block.number, GPUWM_BLOCK_NONE, "key %u is there", key);
	fill(region, &block, key);
	OK(gpuwm_blocks_publish(region, &block, 1));
	return block;
}

/* ---- between processes ------------------------------------------------------- */

BLOCKS_TEST(outlive_the_process_that_made_and_filled_them)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client, FEW);
	struct process writer = actor_start("kv", GPUWM_REGION_WRITE), reader;
	struct gpuwm_block block;

	block = ACTOR_OK(&writer, ACTOR_RESERVE, .first = 7, .count = 1)->blocks[0];
	ACTOR_OK(&writer, ACTOR_FILL, 7, 1, 8, {block});
	ACTOR_OK(&writer, ACTOR_PUBLISH, .count = 1, .blocks = {block});
	OK(gpuwm_region_close(region));
	actor_end(&writer);
	cr_assert(EVENTUALLY(SOON_MS, region_is(d, "kv", "ready", 0)));
	reader = actor_start("kv", 0);
	cr_assert_eq(ACTOR_OK(&reader, ACTOR_FIND, .first = 7, .count = 1)->count, 1);
	cr_assert_eq(ACTOR_OK(&reader, ACTOR_HOLD, .first = 7, .count = 1)->count, 1);
	ACTOR_OK(&reader, ACTOR_VERIFY, 7, 1, 0, {block});
	ACTOR_OK(&reader, ACTOR_RELEASE, .count = 1, .blocks = {block});
	actor_end(&reader);
	OK(gpuwm_region_open(client, "kv", GPUWM_REGION_WRITE, 0, &region));
	end(d, client, region);
}

BLOCKS_TEST(are_held_by_number_until_their_use_ends)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client, FEW);
	struct process reader = actor_start("kv", 0);
	struct gpuwm_block blocks[2];

	OK(reserve(region, 1, 0, &blocks[0]));
	OK(reserve(region, 2, 0, &blocks[1]));
	fill(region, &blocks[0], 1);
	OK(gpuwm_blocks_publish(region, blocks, 1));
	ACTOR_FAILS(EAGAIN, &reader, ACTOR_HOLD_THESE, .count = 2, .blocks = {blocks[0], blocks[1]});
	FIGURES_ARE(region, FEW - 2, 1, 1, 0); /* all of them, or none */
	OK(gpuwm_blocks_publish(region, &blocks[1], 1));
	ACTOR_OK(&reader, ACTOR_HOLD_THESE, .count = 2, .blocks = {blocks[0], blocks[1]});
	FIGURES_ARE(region, FEW - 2, 0, 0, 2);
	ACTOR_OK(&reader, ACTOR_VERIFY, 1, 1, 0, {blocks[0]});
	ACTOR_OK(&reader, ACTOR_RELEASE, .count = 2, .blocks = {blocks[0], blocks[1]});
	ACTOR_FAILS(EALREADY, &reader, ACTOR_RELEASE, .count = 1, .blocks = {blocks[0]});
	OK(gpuwm_blocks_drop(region, &(const struct gpuwm_block_key[]){blocks_key(1)}[0], 1, NULL));
	ACTOR_FAILS(ESTALE, &reader, ACTOR_HOLD_THESE, .count = 2, .blocks = {blocks[1], blocks[0]});
	FIGURES_ARE(region, FEW - 1, 0, 1, 0);
	actor_end(&reader);
	end(d, client, region);
}

BLOCKS_TEST(with_one_key_and_two_checks_are_two)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client, FEW);
	const struct gpuwm_block_key twins[2] = {blocks_key(3), blocks_key(13)};
	struct gpuwm_block block, held;

	cr_assert(twins[0].key[0] == twins[1].key[0] && twins[0].key[1] == twins[1].key[1] &&
		  twins[0].check != twins[1].check);
	block = publish(region, 3);
	cr_assert(found(region, 3) == 1 && found(region, 13) == 0);
	cr_assert_eq(hold(region, 13, 0, &held), 0);
	publish(region, 13);
	cr_assert_eq(hold(region, 3, 0, &held), 1);
	cr_assert(held.number == block.number && holds_bytes(region, &held, 3));
	OK(gpuwm_blocks_release(region, &held, 1));
	end(d, client, region);
}

/* A process may hold a block more than once, and the next one as well. */
BLOCKS_TEST(are_held_until_each_hold_was_released)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client, 1);
	struct process reader = actor_start("kv", 0);
	const struct gpuwm_block block = publish(region, 1);
	struct gpuwm_block held, other;

	cr_assert_eq(hold(region, 1, 0, &held), 1);
	OK(gpuwm_blocks_hold_these(region, &block, 1, 0));
	ACTOR_OK(&reader, ACTOR_HOLD_THESE, .count = 1, .blocks = {block});
	FAILS(EALREADY, gpuwm_blocks_release(region, (const struct gpuwm_block[]){block, block, block}, 3));
	OK(gpuwm_blocks_release(region, (const struct gpuwm_block[]){block, block}, 2));
	FAILS(EALREADY, gpuwm_blocks_release(region, &block, 1));
	FAILS(EAGAIN, reserve(region, 2, 0, &other));
	ACTOR_OK(&reader, ACTOR_RELEASE, .count = 1, .blocks = {block});
	OK(reserve(region, 2, 0, &other));
	cr_assert(other.number == block.number && other.generation == block.generation + 1);
	OK(gpuwm_blocks_abandon(region, &other, 1));
	actor_end(&reader);
	end(d, client, region);
}

/* ---- deaths ------------------------------------------------------------------ */

BLOCKS_TEST(of_a_killed_reader_are_let_go_within_a_second)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client, FEW);
	struct process reader = actor_start("kv", 0);
	struct gpuwm_block block;
	char holder[64];

	for (uint32_t key = 0; key < FEW; key++)
		publish(region, key);
	cr_assert_eq(ACTOR_OK(&reader, ACTOR_HOLD, .first = 0, .count = FEW)->count, FEW);
	FAILS(EAGAIN, reserve(region, FEW, 0, &block));
	snprintf(holder, sizeof holder, "process %d", (int)reader.pid);
	cr_assert(strstr(gpuwm_error()->message, holder), "%s", gpuwm_error()->message);
	process_kill(&reader, SIGKILL);
	OK(reserve(region, FEW, LET_GO_MS, &block));
	FIGURES_ARE(region, 0, 1, FEW - 1, 0);
	OK(gpuwm_blocks_abandon(region, &block, 1));
	end(d, client, region);
}

/* How far a writer gets with keys 1 and 2: it has published the first one. */
static void writer_dies(struct gpuwmd *d, const char *steps)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client, FEW);
	struct process writer = actor_start("kv", GPUWM_REGION_WRITE);
	struct gpuwm_block first, second, held;

	first = ACTOR_OK(&writer, ACTOR_RESERVE, .first = 1, .count = 1)->blocks[0];
	ACTOR_OK(&writer, ACTOR_FILL, 1, 1, 8, {first});
	ACTOR_OK(&writer, ACTOR_PUBLISH, .count = 1, .blocks = {first});
	second = ACTOR_OK(&writer, ACTOR_RESERVE, .first = 2, .count = 1)->blocks[0];
	for (; *steps; steps++)
		ACTOR_OK(&writer, ACTOR_FILL, 2, 1, *steps == 'h' ? 4 : 8, {second});
	FIGURES_ARE(region, FEW - 2, 1, 1, 0);
	process_kill(&writer, SIGKILL);
	cr_assert_eq(hold(region, 2, -1, &held), 0);
	FAILS(ESTALE, gpuwm_blocks_hold_these(region, &second, 1, -1));
	FIGURES_ARE(region, FEW - 1, 0, 1, 0);
	cr_assert_eq(hold(region, 1, 0, &held), 1);
	cr_assert(holds_bytes(region, &held, 1));
	OK(gpuwm_blocks_release(region, &held, 1));
	end(d, client, region);
}

BLOCKS_TEST(of_a_writer_that_was_killed_without_bytes_are_free)
{
	writer_dies(d, "");
}

BLOCKS_TEST(of_a_writer_that_was_killed_amid_the_bytes_are_free)
{
	writer_dies(d, "h");
}

BLOCKS_TEST(of_a_writer_that_was_killed_before_it_published_are_free)
{
	writer_dies(d, "hw");
}

BLOCKS_TEST(of_a_user_that_closed_the_region_are_let_go)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client, FEW);
	struct process user = actor_start("kv", GPUWM_REGION_WRITE);

	publish(region, 1);
	ACTOR_OK(&user, ACTOR_HOLD, .first = 1, .count = 1);
	ACTOR_OK(&user, ACTOR_RESERVE, .first = 2, .count = 1);
	FIGURES_ARE(region, FEW - 2, 1, 0, 1);
	ACTOR(&user, ACTOR_CLOSE,
	      .count = 0); /* refused with -EBUSY, or done: either way the next line holds */
	process_kill(&user, SIGKILL);
	cr_assert(EVENTUALLY(LET_GO_MS, figures_of(region).free == FEW - 1));
	FIGURES_ARE(region, FEW - 1, 0, 1, 0);
	end(d, client, region);
}

/* ---- waiting ----------------------------------------------------------------- */

/* Whether the call took so long or longer, and not seconds more. */
#define TAKES(ms, call)                                                                                        \
	do {                                                                                                   \
		const int64_t began_ = clock_ms();                                                             \
		call;                                                                                          \
		cr_assert(clock_ms() - began_ >= (ms) && clock_ms() - began_ < (ms) + SOON_MS);                \
	} while (0)

BLOCKS_TEST(are_waited_for_as_long_as_was_asked)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client, 1);
	struct gpuwm_block block, held, other;

	OK(reserve(region, 1, 0, &block));
	TAKES(50, FAILS(EAGAIN, reserve(region, 2, 50, &other)));
	TAKES(50, cr_assert_eq(hold(region, 1, 50, &held), 0));
	TAKES(50, FAILS(EAGAIN, gpuwm_blocks_hold_these(region, &block, 1, 50)));
	TAKES(0, cr_assert_eq(hold(region, 2, -1, &held), 0)); /* nobody is filling it */
	OK(gpuwm_blocks_abandon(region, &block, 1));
	end(d, client, region);
}

/* Readers that wait for a block, and a writer that waits for room: each is woken by what it waits for. */
BLOCKS_TEST(wake_whoever_waits)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client, 1);
	struct process by_key = actor_start("kv", 0), by_number = actor_start("kv", 0),
		       writer = actor_start("kv", GPUWM_REGION_WRITE);
	struct gpuwm_block block;

	OK(reserve(region, 1, 0, &block));
	actor_send(&by_key, &(const struct actor_wish){ACTOR_HOLD, 1, 1, -1, {{0}}});
	actor_send(&by_number, &(const struct actor_wish){ACTOR_HOLD_THESE, 1, 1, -1, {block}});
	actor_send(&writer, &(const struct actor_wish){ACTOR_RESERVE, 2, 1, -1, {{0}}});
	actor_waits(&by_key);
	actor_waits(&by_number);
	actor_waits(&writer);
	fill(region, &block, 1);
	OK(gpuwm_blocks_publish(region, &block, 1));
	/* The writer may be faster than both, and evict what they wait for. */
	if (actor_hear(&by_key)->count == 1)
		ACTOR_OK(&by_key, ACTOR_RELEASE, .count = 1, .blocks = {block});
	if (actor_hear(&by_number)->code == 0)
		ACTOR_OK(&by_number, ACTOR_RELEASE, .count = 1, .blocks = {block});
	cr_assert_eq(actor_hear(&writer)->count, 1);
	FIGURES_ARE(region, 0, 1, 0, 0);
	process_kill(&writer, SIGKILL);
	OK(reserve(region, 3, SOON_MS, &block));
	OK(gpuwm_blocks_abandon(region, &block, 1));
	actor_end(&by_key);
	actor_end(&by_number);
	end(d, client, region);
}

/* Each gives the only block back in its own way. */
BLOCKS_TEST(that_are_given_back_wake_who_waits_for_room)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client, 1);
	struct process writer = actor_start("kv", GPUWM_REGION_WRITE);
	const struct gpuwm_block_key key = blocks_key(1);
	const struct actor_wish wish = {ACTOR_RESERVE, 2, 1, -1, {{0}}};
	struct gpuwm_block block, held;

	OK(reserve(region, 1, 0, &block));
	actor_send(&writer, &wish);
	actor_waits(&writer);
	OK(gpuwm_blocks_abandon(region, &block, 1));
	block = actor_hear(&writer)->blocks[0];
	ACTOR_OK(&writer, ACTOR_ABANDON, .count = 1, .blocks = {block});
	publish(region, 1);
	cr_assert_eq(hold(region, 1, 0, &held), 1);
	actor_send(&writer, &wish);
	actor_waits(&writer);
	OK(gpuwm_blocks_drop(region, &key, 1, NULL)); /* held: it stays */
	OK(gpuwm_blocks_release(region, &held, 1));
	block = actor_hear(&writer)->blocks[0];
	ACTOR_OK(&writer, ACTOR_ABANDON, .count = 1, .blocks = {block});
	actor_end(&writer);
	end(d, client, region);
}

BLOCKS_TEST(that_are_all_held_are_an_error_that_says_by_whom)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client, FEW);
	struct process most = actor_start("kv", 0), fewer = actor_start("kv", 0);
	struct gpuwm_block block;
	char wanted[512];

	for (uint32_t key = 0; key < FEW; key++)
		publish(region, key);
	ACTOR_OK(&most, ACTOR_HOLD, .first = 1, .count = 3);
	ACTOR_OK(&fewer, ACTOR_HOLD, .first = 0, .count = 2);
	FAILS(EAGAIN, reserve(region, FEW, 0, &block));
	snprintf(
		wanted, sizeof wanted,
		"region kv has no room for a block: of 4 blocks, 0 are being filled and 4 are held. process %d "
		"(exe) has most of them, 3",
		(int)most.pid);
	cr_assert_str_eq(gpuwm_error()->message, wanted);
	process_kill(&most, SIGKILL);
	process_kill(&fewer, SIGKILL);
	end(d, client, region);
}

/* ---- gpuwmd ------------------------------------------------------------------ */

/* Blocks pass on; what the dead had is let go when gpuwmd is back. */
static void passes_on(struct gpuwm_region *region, struct process *reader, uint32_t first)
{
	for (uint32_t key = first; key < first + PASSES; key++) {
		const struct gpuwm_block block = publish(region, key);

		cr_assert_eq(ACTOR_OK(reader, ACTOR_HOLD, .first = key, .count = 1)->count, 1);
		ACTOR_OK(reader, ACTOR_VERIFY, key, 1, 0, {block});
		ACTOR_OK(reader, ACTOR_RELEASE, .count = 1, .blocks = {block});
	}
}

BLOCKS_TEST(go_on_while_gpuwmd_is_stopped)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client, FEW);
	struct process reader = actor_start("kv", 0);

	kill(d->pid, SIGSTOP);
	passes_on(region, &reader, 20);
	kill(d->pid, SIGCONT);
	actor_end(&reader);
	end(d, client, region);
}

GPUWMD_TEST_IF(blocks, of_those_who_died_while_gpuwmd_was_away_are_let_go, LOOKS_AT_MEMORY(),
	       gpuwmd_start_kept(&(struct kept){0}), gpuwmd_stop_empty)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client, 1 + FEW + PASSES);
	struct process reader = actor_start("kv", 0), dead = actor_start("kv", GPUWM_REGION_WRITE);

	publish(region, 1);
	ACTOR_OK(&dead, ACTOR_HOLD, .first = 1, .count = 1);
	ACTOR_OK(&dead, ACTOR_RESERVE, .first = 2, .count = FEW);
	kill(d->pid, SIGKILL);
	process_kill(&dead, SIGKILL);
	passes_on(region, &reader, 20);
	kept_wait(d);
	cr_assert(EVENTUALLY(LET_GO_MS, figures_of(region).owned == 0 && figures_of(region).held == 0));
	cr_assert_eq(found(region, 1), 1);
	passes_on(region, &reader, 40);
	actor_end(&reader);
	end(d, client, region);
}

/* ---- the end of a region ------------------------------------------------------ */

BLOCKS_TEST(of_a_region_that_was_removed_are_read_to_the_end)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client, FEW);
	struct process reader = actor_start("kv", 0), waits = actor_start("kv", 0);
	const struct gpuwm_block block = publish(region, 1);
	struct gpuwm_block owned, none;

	OK(reserve(region, 2, 0, &owned));
	ACTOR_OK(&reader, ACTOR_HOLD, .first = 1, .count = 1);
	actor_send(&waits, &(const struct actor_wish){ACTOR_HOLD, 2, 1, -1, {{0}}});
	actor_waits(&waits);
	OK(gpuwm_region_remove(client, "kv"));
	cr_assert_eq(actor_hear(&waits)->code, -ESHUTDOWN);
	FAILS(ESHUTDOWN, gpuwm_region_check(region));
	FAILS(ESHUTDOWN, reserve(region, 3, -1, &none));
	ACTOR_FAILS(ESHUTDOWN, &reader, ACTOR_HOLD, .first = 1, .count = 1);
	ACTOR_OK(&reader, ACTOR_VERIFY, 1, 1, 0, {block});
	ACTOR_OK(&reader, ACTOR_RELEASE, .count = 1, .blocks = {block});
	OK(gpuwm_blocks_abandon(region, &owned, 1));
	actor_end(&reader);
	actor_end(&waits);
	OK(gpuwm_region_close(region));
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	gpuwm_close(client);
}

BLOCKS_TEST(whose_control_memory_is_garbage_end_with_their_region)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client, FEW);
	struct process hostile = actor_start("kv", 0);
	struct gpuwm_block block;

	publish(region, 1);
	ACTOR_OK(&hostile, ACTOR_SCRIBBLE, .count = 0);
	process_kill(&hostile, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, region_is(d, "kv", "ended", 1)));
	FAILS(ESHUTDOWN, gpuwm_region_check(region));
	FAILS(ESHUTDOWN, reserve(region, 2, 0, &block));
	OK(gpuwm_region_close(region));
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	gpuwm_close(client);
}
