/* A hostile user writes anything into the control memory of a region of blocks. The others get errors: they neither crash, nor run for
 * ever, nor read or write outside of the region. gpuwmd ends the region where it sees the damage, and stays well. */
#include "blocks_storm.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

STORM_SUITE(blocks_scribble);

#define ROUNDS 6
#define ROUND_MS 250
#define WORKERS_EACH 3
#define LONGEST_MS 20000 /* of a round, on a busy machine */
#define CALLS_LEAST 20 /* of a worker in a round */

struct user {
	struct gpuwm_client *client;
	struct gpuwm_region *region;
	struct dice dice;
	struct gpuwm_block seen[BLOCKS_RUN];
	size_t calls;
};

static void user_open(struct user *u, char **argv, unsigned flags)
{
	u->dice.state = strtoull(argv[0], NULL, 10);
	CHILD_ASSERT(gpuwm_connect(NULL, &u->client) == 0);
	CHILD_ASSERT(gpuwm_region_open(u->client, "blocks", flags, 0, &u->region) == 0);
	storm_ready();
}

/* ---- the hostile one ------------------------------------------------------ */

#define CONTROL control_at(control_mapping(NULL), (struct control_shape){.blocks = BLOCKS_COUNT})

/* A word of one of the parts: mostly one that decides something. */
static _Atomic uint64_t *choose_word(struct user *u, const struct control *control)
{
	const struct control_blocks *blocks = &control->blocks;
	const uint64_t slots = (uint64_t)blocks->buckets * CONTROL_BUCKET_SLOTS;

	switch (dice_throw(&u->dice, 6)) {
	case 0:
		return (_Atomic uint64_t *)control->head + dice_throw(&u->dice, CONTROL_HEAD_BYTES / 8);
	case 1:
		return &blocks->used[dice_throw(&u->dice, BLOCKS_COUNT)];
	case 2:
		return &blocks->names[dice_throw(&u->dice, BLOCKS_COUNT)].key[0] + dice_throw(&u->dice, 3);
	case 3:
		return &blocks->index[dice_throw(&u->dice, slots)];
	default:
		return &blocks->words[dice_throw(&u->dice, BLOCKS_COUNT)];
	}
}

/* Another word of the same kind: what makes sense, but not there. */
static uint64_t stolen(struct user *u, const struct control *control)
{
	return atomic_load(choose_word(u, control));
}

static int scribbler(int argc, char **argv)
{
	static struct user u;
	struct control control;

	CHILD_ASSERT(argc == 2);
	user_open(&u, argv, GPUWM_REGION_LOOK);
	control = CONTROL;
	for (;;) {
		_Atomic uint64_t *word = choose_word(&u, &control);

		switch (dice_throw(&u.dice, 5)) {
		case 0:
			atomic_store(word, dice_throw(&u.dice, UINT64_MAX));
			break;
		case 1:
			atomic_fetch_xor(word, UINT64_C(1) << dice_throw(&u.dice, 64));
			break;
		case 2:
			atomic_store(word, dice_throw(&u.dice, 8));
			break;
		case 3:
			atomic_store(word, stolen(&u, &control));
			break;
		case 4:
			/* A block far outside, of the generation that is there. */
			atomic_store(word, dice_throw(&u.dice, UINT64_MAX) << 32 | (uint32_t)atomic_load(word));
			break;
		}
		pause_us(dice_throw(&u.dice, 200));
	}
}

/* ---- the others ----------------------------------------------------------- */

/* What a call gave is inside of the region, and its memory is there. */
static void touch(struct user *u, const struct gpuwm_block *blocks, size_t count, bool write)
{
	CHILD_ASSERT(count <= BLOCKS_RUN);
	for (size_t i = 0; i < count; i++) {
		volatile char *first = gpuwm_block_address(u->region, blocks[i].number);

		if (blocks[i].number == GPUWM_BLOCK_NONE)
			continue;
		CHILD_ASSERT(blocks[i].number < BLOCKS_COUNT && first);
		if (write)
			first[0] = first[BLOCKS_BYTES - 1] = 1;
		(void)first[0];
		(void)first[BLOCKS_BYTES - 1];
	}
}

static void reserve(struct user *u, const struct gpuwm_block_key *keys)
{
	struct gpuwm_block blocks[BLOCKS_RUN];
	size_t done = 0;

	if (gpuwm_blocks_reserve(u->region, keys, BLOCKS_RUN, 1, blocks, &done) < 0)
		return;
	touch(u, blocks, done, true);
	memcpy(u->seen, blocks, done * sizeof *blocks);
	if (gpuwm_blocks_publish(u->region, blocks, done) < 0)
		gpuwm_blocks_abandon(u->region, blocks, done);
}

static void hold(struct user *u, const struct gpuwm_block_key *keys)
{
	struct gpuwm_block blocks[BLOCKS_RUN];
	struct gpuwm_block_key key;
	size_t held = 0;

	if (gpuwm_blocks_hold(u->region, keys, BLOCKS_RUN, 1, blocks, &held) < 0)
		return;
	touch(u, blocks, held, false);
	if (held > 0)
		gpuwm_block_key_of(u->region, &blocks[0], &key);
	gpuwm_blocks_release(u->region, blocks, held);
}

static void hold_these(struct user *u)
{
	if (gpuwm_blocks_hold_these(u->region, u->seen, BLOCKS_RUN, 1) < 0)
		return;
	touch(u, u->seen, BLOCKS_RUN, false);
	gpuwm_blocks_release(u->region, u->seen, BLOCKS_RUN);
}

/* What no call has given. */
static void forge(struct user *u)
{
	struct gpuwm_block block = {(uint32_t)dice_throw(&u->dice, UINT64_C(1) << 32),
				    (uint32_t)dice_throw(&u->dice, UINT64_C(1) << 32)};
	struct gpuwm_block_key key;

	if (dice_percent(&u->dice, 50))
		block.number %= BLOCKS_COUNT;
	gpuwm_blocks_publish(u->region, &block, 1);
	gpuwm_blocks_abandon(u->region, &block, 1);
	gpuwm_blocks_release(u->region, &block, 1);
	gpuwm_block_key_of(u->region, &block, &key);
	if (gpuwm_blocks_hold_these(u->region, &block, 1, 0) == 0)
		gpuwm_blocks_release(u->region, &block, 1);
}

static void look(struct user *u, const struct gpuwm_block_key *keys)
{
	struct gpuwm_blocks_figures figures;
	size_t count;

	gpuwm_blocks_figures(u->region, &figures);
	if (gpuwm_blocks_find(u->region, keys, BLOCKS_RUN, &count) == 0)
		CHILD_ASSERT(count <= BLOCKS_RUN);
	/* Garbage may give a key all slots of its bucket. */
	if (gpuwm_blocks_drop(u->region, keys, BLOCKS_RUN, &count) == 0)
		CHILD_ASSERT(count <= (size_t)BLOCKS_RUN * CONTROL_BUCKET_SLOTS);
	gpuwm_region_check(u->region);
}

static void call(struct user *u)
{
	const uint32_t first = (uint32_t)dice_throw(&u->dice, BLOCKS_KEYS - BLOCKS_RUN);
	struct gpuwm_block_key keys[BLOCKS_RUN];

	for (uint32_t i = 0; i < BLOCKS_RUN; i++)
		keys[i] = blocks_key(first + i);
	switch (dice_throw(&u->dice, 5)) {
	case 0:
		reserve(u, keys);
		break;
	case 1:
		hold(u, keys);
		break;
	case 2:
		hold_these(u);
		break;
	case 3:
		forge(u);
		break;
	case 4:
		look(u, keys);
		break;
	}
	u->calls++;
}

/* It goes on when the region has ended. */
static int worker(int argc, char **argv)
{
	static struct user u;
	int64_t until;

	CHILD_ASSERT(argc == 2);
	user_open(&u, argv, GPUWM_REGION_WRITE);
	for (until = clock_ms() + ROUND_MS; clock_ms() < until || u.calls < CALLS_LEAST;)
		call(&u);
	gpuwm_region_close(u.region);
	gpuwm_close(u.client);
	return 0;
}

/* ---- the test -------------------------------------------------------------- */

static struct gpuwm_region *made(struct gpuwm_client *client, const char *name)
{
	struct gpuwm_region_options options = GPUWM_OPTIONS(struct gpuwm_region_options);
	struct gpuwm_region *region;

	options.name = name;
	options.kind = GPUWM_REGION_BLOCKS;
	options.writers = GPUWM_WRITERS_MANY;
	options.owner = GPUWM_OWNER_UID;
	options.blocks = BLOCKS_COUNT;
	options.block_bytes = BLOCKS_BYTES;
	OK(gpuwm_region_create(client, &options, &region));
	return region;
}

static void other_is_well(struct gpuwm_region *other)
{
	const struct gpuwm_block_key key = blocks_key(1);
	struct gpuwm_block block;
	size_t count;

	OK(gpuwm_blocks_reserve(other, &key, 1, 0, &block, &count));
	OK(gpuwm_blocks_publish(other, &block, 1));
	OK(gpuwm_blocks_hold(other, &key, 1, 0, &block, &count));
	OK(gpuwm_blocks_release(other, &block, 1));
	OK(gpuwm_blocks_drop(other, &key, 1, &count));
	cr_assert_eq(count, 1);
}

static void round_of(struct gpuwmd *d, struct gpuwm_client *client, uint64_t seed)
{
	struct gpuwm_region *region = made(client, "blocks");
	const int64_t began = clock_ms();

	OK(gpuwm_region_close(region));
	storm_harm(worker, WORKERS_EACH, scribbler, seed);
	cr_assert(clock_ms() - began < LONGEST_MS, "a round took %jd ms", (intmax_t)(clock_ms() - began));
	gpuwm_region_remove(client, "blocks");
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 1));
}

GPUWMD_TEST(blocks_scribble, others_get_errors_and_gpuwmd_stays_well)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *other;
	struct storm storm;

	SKIP_UNLESS(backend() == BACKEND_HOST, "control memory is the same on every memory kind");
	storm_begin(&storm, "blocks_scribble", "GPUWM_STORM_KILLS", ROUNDS);
	other = made(client, "other");
	for (uint64_t i = 0; i < storm.length; i++) {
		round_of(d, client, storm.seed * 1000 + i * 10);
		other_is_well(other);
	}
	OK(gpuwm_region_remove(client, "other"));
	OK(gpuwm_region_close(other));
	gpuwm_close(client);
	storm_passed();
}

/* ---- what gpuwmd sees --------------------------------------------------------- */

/* An address of the control memory of the one region that is open here. */
static void is_ended_by(struct gpuwmd *d, void (*damage)(const struct control *control), const char *words)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = made(client, "blocks");
	const struct control control = CONTROL;
	const struct gpuwm_block_key key = blocks_key(1);
	struct raw_region opened;
	struct gpuwm_block block;
	size_t done;
	int sock = raw_client(d->socket);

	OK(gpuwm_blocks_reserve(region, &key, 1, 0, &block, &done));
	OK(gpuwm_blocks_publish(region, &block, 1));
	damage(&control);
	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "blocks")), -ESHUTDOWN);
	cr_assert(strstr(raw_refusal(), words), "%s", raw_refusal());
	FAILS(ESHUTDOWN, gpuwm_region_check(region));
	FAILS(ESHUTDOWN, gpuwm_blocks_reserve(region, &key, 1, -1, &block, &done));
	OK(gpuwm_region_close(region));
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	close(sock);
	gpuwm_close(client);
}

static void state_that_there_is_not(const struct control *control)
{
	atomic_fetch_or(&control->blocks.words[3], UINT64_C(3) << REGION_USERS_MAX);
}

static void holder_that_there_is_not(const struct control *control)
{
	for (uint32_t i = 0; i < BLOCKS_COUNT; i++) {
		if (block_word_state(control->blocks.words[i]) == BLOCK_READY)
			atomic_fetch_or(&control->blocks.words[i], UINT64_C(1) << (REGION_USERS_MAX - 1));
	}
}

static void other_number_of_blocks(const struct control *control)
{
	control->head->blocks++;
}

GPUWMD_TEST(blocks_scribble, a_state_that_there_is_not_ends_the_region)
{
	SKIP_UNLESS(backend() == BACKEND_HOST, "control memory is the same on every memory kind");
	is_ended_by(d, state_that_there_is_not, "a block has a state that there is not");
}

GPUWMD_TEST(blocks_scribble, a_holder_that_there_is_not_ends_the_region)
{
	SKIP_UNLESS(backend() == BACKEND_HOST, "control memory is the same on every memory kind");
	is_ended_by(d, holder_that_there_is_not, "a block is held by a user that there is not");
}

GPUWMD_TEST(blocks_scribble, another_number_of_blocks_ends_the_region)
{
	SKIP_UNLESS(backend() == BACKEND_HOST, "control memory is the same on every memory kind");
	is_ended_by(d, other_number_of_blocks, "its head was written over");
}
