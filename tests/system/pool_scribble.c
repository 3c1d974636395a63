/* A hostile user writes anything into the control memory of a pool and of a queue, and into the queue's messages. The others get errors:
 * they neither crash nor read or write outside of the regions, and gpuwmd and other regions stay well. */
#include "storm.h"

#include <stdio.h>
#include <stdlib.h>

STORM_SUITE(pool_scribble);

#define ROUNDS 6
#define ROUND_MS 250
#define WORKERS_EACH 3
#define BYTES MB(2)
#define ITEM_BYTES 512
#define MAPPINGS 4

struct user {
	struct gpuwm_client *client;
	struct gpuwm_region *pool, *queue;
	struct dice dice;
};

static void user_open(struct user *u, char **argv, unsigned flags)
{
	u->dice.state = strtoull(argv[0], NULL, 10);
	CHILD_ASSERT(gpuwm_connect(NULL, &u->client) == 0);
	CHILD_ASSERT(gpuwm_region_open(u->client, "pool", flags, 0, &u->pool) == 0);
	CHILD_ASSERT(gpuwm_region_open(u->client, "queue", GPUWM_REGION_WRITE, 0, &u->queue) == 0);
	storm_ready();
}

/* ---- the hostile one ------------------------------------------------------ */

struct place {
	char *first;
	uint64_t bytes;
};

/* The control memories, and what the queue's messages lie in. */
static size_t find_places(const struct user *u, struct place *ret)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	size_t count = 0;

	CHILD_ASSERT(maps);
	while (count < MAPPINGS && fgets(line, sizeof line, maps)) {
		void *first, *end;

		CHILD_ASSERT(sscanf(line, "%p-%p", &first, &end) == 2);
		if (strstr(line, "memfd:gpuwm-control") || first == gpuwm_region_address(u->queue))
			ret[count++] = (struct place){first, (uint64_t)((char *)end - (char *)first)};
	}
	fclose(maps);
	CHILD_ASSERT(count == 3);
	return count;
}

static int scribbler(int argc, char **argv)
{
	static const uint64_t paces_us[] = {200, 2000, 20000}; /* the faster, the sooner all calls fail */
	static struct user u;
	struct place places[MAPPINGS];
	uint64_t pace_us;
	size_t count;

	CHILD_ASSERT(argc == 2);
	user_open(&u, argv, GPUWM_REGION_WRITE);
	count = find_places(&u, places);
	pace_us = paces_us[dice_throw(&u.dice, 3)];
	for (;;) {
		const struct place *place = &places[dice_throw(&u.dice, count)];
		/* What is used lies in front. */
		const uint64_t most = dice_percent(&u.dice, 80) && place->bytes > KB(6) ? KB(6) : place->bytes;
		_Atomic uint64_t *word = (_Atomic uint64_t *)(place->first + 8 * dice_throw(&u.dice, most / 8));

		switch (dice_throw(&u.dice, 3)) {
		case 0:
			atomic_store(word, dice_throw(&u.dice, UINT64_MAX));
			break;
		case 1:
			atomic_fetch_xor(word, UINT64_C(1) << dice_throw(&u.dice, 64));
			break;
		case 2:
			atomic_store(word, dice_throw(&u.dice, 8));
			break;
		}
		pause_us(dice_throw(&u.dice, pace_us));
	}
}

/* ---- the others ----------------------------------------------------------- */

static void touch(const struct user *u, const struct gpuwm_chunk *chunk, bool write)
{
	char *first = gpuwm_chunk_address(chunk), *base = gpuwm_region_address(u->pool);
	const uint64_t bytes = gpuwm_chunk_bytes(chunk);

	CHILD_ASSERT(bytes > 0 && first >= base && bytes <= BYTES && first + bytes <= base + BYTES);
	if (write)
		first[0] = first[bytes - 1] = 1;
	(void)*(volatile char *)first;
	(void)*(volatile char *)(first + bytes - 1);
}

static void fill_and_offer(struct user *u, struct gpuwm_token *token)
{
	const struct gpuwm_readers readers = {.named = (uint32_t)dice_throw(&u->dice, 8), .others = 2};
	struct gpuwm_chunk *chunk;

	if (gpuwm_chunk_alloc(u->pool, 1 + dice_throw(&u->dice, KB(64)), 1, &chunk) < 0)
		return;
	touch(u, chunk, true);
	if (gpuwm_chunk_offer(chunk, &readers, token) < 0)
		gpuwm_chunk_discard(chunk);
	else
		gpuwm_queue_put(u->queue, token, sizeof *token, token, 1, 0);
}

static void read_chunk(struct user *u, const struct gpuwm_token *token)
{
	struct gpuwm_chunk *chunk;

	if (gpuwm_chunk_take(u->pool, token, 1, &chunk) < 0)
		return;
	touch(u, chunk, false);
	CHILD_ASSERT(gpuwm_chunk_finish(chunk) == 0);
}

/* Its first token is taken later, in place of the process's own. */
static void get_message(struct user *u, struct gpuwm_token *token)
{
	struct gpuwm_message *message;
	char pool[33];

	if (gpuwm_queue_get(u->queue, 1, NULL, 0, &message, pool) < 0)
		return;
	if (message->chunk_count > 0)
		*token = message->tokens[0];
	for (uint32_t i = 0; i < message->chunk_count; i++) {
		if (message->chunks[i])
			touch(u, message->chunks[i], false);
	}
	gpuwm_message_free(message);
}

static void look(struct user *u, const struct gpuwm_token *token)
{
	struct gpuwm_pool_figures figures;
	uint64_t length;

	gpuwm_pool_figures(u->pool, &figures);
	gpuwm_queue_length(u->queue, &length);
	gpuwm_token_finished(u->pool, token, 0);
	gpuwm_token_withdraw(u->pool, token);
	gpuwm_region_check(u->pool);
}

static int worker(int argc, char **argv)
{
	static struct user u;
	struct gpuwm_token token = {0};
	int64_t until;

	CHILD_ASSERT(argc == 2);
	user_open(&u, argv, strcmp(argv[1], "0") == 0 ? GPUWM_REGION_OWN : 0);
	for (until = clock_ms() + ROUND_MS; clock_ms() < until;) {
		switch (dice_throw(&u.dice, 4)) {
		case 0:
			fill_and_offer(&u, &token);
			break;
		case 1:
			read_chunk(&u, &token);
			break;
		case 2:
			get_message(&u, &token);
			break;
		case 3:
			look(&u, &token);
			break;
		}
	}
	CHILD_ASSERT(gpuwm_region_close(u.pool) == 0);
	CHILD_ASSERT(gpuwm_region_close(u.queue) == 0);
	gpuwm_close(u.client);
	return 0;
}

/* ---- the test -------------------------------------------------------------- */

static void region_made(struct gpuwm_client *client, const char *name, enum gpuwm_region_kind kind)
{
	struct gpuwm_region_options options = GPUWM_OPTIONS(struct gpuwm_region_options);
	struct gpuwm_region *region;

	options.name = name;
	options.kind = kind;
	options.writers = GPUWM_WRITERS_MANY;
	options.owner = GPUWM_OWNER_UID;
	if (kind == GPUWM_REGION_POOL) {
		options.bytes = BYTES;
		options.chunks = 16;
	} else {
		options.items = 8;
		options.item_bytes = ITEM_BYTES;
	}
	OK(gpuwm_region_create(client, &options, &region));
	OK(gpuwm_region_close(region));
}

static void other_is_well(struct gpuwm_client *client)
{
	const struct gpuwm_readers readers = {.others = 1};
	struct gpuwm_region *region;
	struct gpuwm_chunk *chunk;
	struct gpuwm_token token;

	OK(gpuwm_region_open(client, "other", GPUWM_REGION_OWN, 0, &region));
	OK(gpuwm_chunk_alloc(region, BYTES, 0, &chunk));
	OK(gpuwm_chunk_offer(chunk, &readers, &token));
	OK(gpuwm_chunk_take(region, &token, 0, &chunk));
	OK(gpuwm_chunk_finish(chunk));
	OK(gpuwm_region_close(region));
}

static void round_of(struct gpuwmd *d, struct gpuwm_client *client, uint64_t seed)
{
	region_made(client, "pool", GPUWM_REGION_POOL);
	region_made(client, "queue", GPUWM_REGION_QUEUE);
	storm_harm(worker, WORKERS_EACH, scribbler, seed);
	gpuwm_region_remove(client, "pool");
	gpuwm_region_remove(client, "queue");
	other_is_well(client);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 1));
}

GPUWMD_TEST(pool_scribble, others_get_errors_and_gpuwmd_stays_well)
{
	struct gpuwm_client *client = client_new();
	struct storm storm;

	SKIP_UNLESS(backend() == BACKEND_HOST, "control memory is the same on every memory kind");
	storm_begin(&storm, "pool_scribble", "GPUWM_STORM_KILLS", ROUNDS);
	region_made(client, "other", GPUWM_REGION_POOL);
	for (uint64_t i = 0; i < storm.length; i++)
		round_of(d, client, storm.seed * 1000 + i * 10);
	OK(gpuwm_region_remove(client, "other"));
	gpuwm_close(client);
	storm_passed();
}
