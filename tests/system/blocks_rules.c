/* Regions of blocks: who makes and opens them, for what, and how many may use one. */
#include "blocks_actor.h"
#include "region_raw.h"
#include "user.h"

#include "tests/support/any/own_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(blocks_rules);

#define BLOCKS 8

static struct gpuwm_region_options options_of(const struct gpuwmd *d)
{
	struct gpuwm_region_options options = GPUWM_OPTIONS(struct gpuwm_region_options);

	options.name = "kv";
	options.device = d->device;
	options.kind = GPUWM_REGION_BLOCKS;
	options.writers = GPUWM_WRITERS_MANY;
	options.owner = GPUWM_OWNER_UID;
	options.blocks = BLOCKS;
	options.block_bytes = BLOCKS_BYTES;
	return options;
}

static struct gpuwm_region *make(struct gpuwmd *d, struct gpuwm_client *client)
{
	const struct gpuwm_region_options options = options_of(d);
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

/* ---- making ------------------------------------------------------------------ */

static void is_refused(struct gpuwm_client *client, struct gpuwm_region_options options)
{
	struct gpuwm_region *none;

	FAILS(EINVAL, gpuwm_region_create(client, &options, &none));
}

GPUWMD_TEST(blocks_rules, wrong_options_are_refused)
{
	struct gpuwm_client *client = client_new();
	const struct gpuwm_region_options good = options_of(d);
	struct gpuwm_region_options bad;

#define REFUSED_WITH(change) bad = good, change, is_refused(client, bad)
	REFUSED_WITH(bad.writers = GPUWM_WRITERS_ONE);
	REFUSED_WITH(bad.owner = GPUWM_OWNER_PROCESS);
	REFUSED_WITH(bad.blocks = 0);
	REFUSED_WITH(bad.blocks = 262145);
	REFUSED_WITH(bad.block_bytes = 0);
	REFUSED_WITH(bad.block_bytes = 255);
	REFUSED_WITH(bad.block_bytes = UINT64_MAX - 255);
	cr_assert_eq(regions_count(d), 0);
	gpuwm_close(client);
}

GPUWMD_TEST(blocks_rules, the_region_says_what_it_is)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client), *none;
	const struct gpuwm_region_options options = options_of(d);
	struct gpuwm_region_info info;
	char *address;

	gpuwm_region_info(region, &info);
	cr_assert(info.kind == GPUWM_REGION_BLOCKS && info.blocks == BLOCKS &&
		  info.block_bytes == BLOCKS_BYTES);
	cr_assert(info.bytes >= BLOCKS * BLOCKS_BYTES && info.writes && !info.owns);
	address = gpuwm_region_address(region);
	cr_assert_eq(gpuwm_block_address(region, 0), address);
	cr_assert_eq(gpuwm_block_address(region, BLOCKS - 1), address + (BLOCKS - 1) * BLOCKS_BYTES);
	cr_assert_null(gpuwm_block_address(region, BLOCKS));
	cr_assert_null(gpuwm_block_address(region, GPUWM_BLOCK_NONE));
	FAILS(EEXIST, gpuwm_region_create(client, &options, &none));
	FAILS(EALREADY, gpuwm_region_open(client, "kv", 0, 0, &none));
	end(d, client, region);
}

GPUWMD_TEST(blocks_rules, nobody_owns_them)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client);

	OK(gpuwm_region_close(region));
	FAILS(EINVAL, gpuwm_region_open(client, "kv", GPUWM_REGION_OWN, 0, &region));
	OK(gpuwm_region_open(client, "kv", GPUWM_REGION_WRITE, 0, &region));
	end(d, client, region);
}

GPUWMD_TEST(blocks_rules, functions_are_for_one_kind)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client), *pool;
	struct gpuwm_region_options options = GPUWM_OPTIONS(struct gpuwm_region_options);
	const struct gpuwm_block_key key = blocks_key(1);
	struct gpuwm_block block = {0};
	struct gpuwm_blocks_figures figures;
	struct gpuwm_chunk *chunk;
	size_t count;

	options.bytes = MB(1);
	OK(gpuwm_region_create(client, &options, &pool));
	FAILS(EINVAL, gpuwm_blocks_reserve(pool, &key, 1, 0, &block, &count));
	FAILS(EINVAL, gpuwm_blocks_publish(pool, &block, 1));
	FAILS(EINVAL, gpuwm_blocks_find(pool, &key, 1, &count));
	FAILS(EINVAL, gpuwm_blocks_hold(pool, &key, 1, 0, &block, &count));
	FAILS(EINVAL, gpuwm_blocks_drop(pool, &key, 1, NULL));
	FAILS(EINVAL, gpuwm_blocks_figures(pool, &figures));
	cr_assert_null(gpuwm_block_address(pool, 0));
	cr_assert(gpuwm_chunk_alloc(region, 1, 0, &chunk) < 0);
	OK(gpuwm_region_close(pool));
	end(d, client, region);
}

/* ---- opening ----------------------------------------------------------------- */

GPUWMD_TEST(blocks_rules, a_reader_fills_and_drops_nothing)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client);
	struct process reader = actor_start("kv", 0);

	ACTOR_FAILS(EACCES, &reader, ACTOR_RESERVE, .first = 1, .count = 1);
	ACTOR_FAILS(EACCES, &reader, ACTOR_DROP, .first = 1, .count = 1);
	ACTOR_OK(&reader, ACTOR_ADDRESS, .count = 0);
	actor_end(&reader);
	end(d, client, region);
}

/* It has the control memory only. */
GPUWMD_TEST(blocks_rules, one_that_looks_holds_blocks_but_sees_no_bytes)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client);
	const struct gpuwm_block_key key = blocks_key(1);
	struct process looks = actor_start("kv", GPUWM_REGION_LOOK);
	struct gpuwm_block block, none;
	size_t done;

	ACTOR_FAILS(ENXIO, &looks, ACTOR_ADDRESS, .count = 0);
	OK(gpuwm_blocks_reserve(region, &key, 1, 0, &block, &done));
	OK(gpuwm_blocks_publish(region, &block, 1));
	cr_assert_eq(ACTOR_OK(&looks, ACTOR_FIND, .first = 1, .count = 2)->count, 1);
	cr_assert_eq(ACTOR_OK(&looks, ACTOR_HOLD, .first = 1, .count = 1)->blocks[0].number, block.number);
	ACTOR_FAILS(EACCES, &looks, ACTOR_RESERVE, .first = 2, .count = 1);
	OK(gpuwm_blocks_drop(region, &key, 1, &done));
	cr_assert_eq(done, 0);
	ACTOR_OK(&looks, ACTOR_RELEASE, .count = 1, .blocks = {block});
	OK(gpuwm_blocks_drop(region, &key, 1, &done));
	cr_assert_eq(done, 1);
	FAILS(ESTALE, gpuwm_blocks_hold_these(region, &block, 1, -1));
	FAILS(ESTALE, gpuwm_blocks_publish(region, &block, 1));
	none = (struct gpuwm_block){.number = GPUWM_BLOCK_NONE};
	OK(gpuwm_blocks_publish(region, &none, 1));
	actor_end(&looks);
	end(d, client, region);
}

GPUWMD_TEST(blocks_rules, a_region_has_26_users)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client);
	struct process users[REGION_USERS_MAX - 1];
	struct raw_region opened;
	int sock = raw_client(d->socket);

	for (unsigned i = 0; i < REGION_USERS_MAX - 1; i++)
		users[i] = actor_start("kv", GPUWM_REGION_LOOK);
	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "kv")), -EDQUOT);
	cr_assert(strstr(raw_refusal(), "26"), "%s", raw_refusal());
	process_kill(&users[3], SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, REGION_OPEN(&opened, sock, TEXT("region", "kv")) == 0));
	cr_assert_eq(region_close(sock, &opened), 0);
	for (unsigned i = 0; i < REGION_USERS_MAX - 1; i++) {
		if (i != 3)
			process_kill(&users[i], SIGKILL);
	}
	close(sock);
	end(d, client, region);
}

/* All of them want one block, hold it, and are killed. */
GPUWMD_TEST(blocks_rules, a_block_is_held_by_all_users_at_once)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client);
	const struct gpuwm_block_key key = blocks_key(1);
	struct process users[REGION_USERS_MAX - 1];
	struct gpuwm_block block;
	size_t done;

	OK(gpuwm_blocks_reserve(region, &key, 1, 0, &block, &done));
	for (unsigned i = 0; i < REGION_USERS_MAX - 1; i++) {
		users[i] = actor_start("kv", GPUWM_REGION_LOOK);
		actor_send(&users[i], &(const struct actor_wish){ACTOR_HOLD, 1, 1, -1, {{0}}});
	}
	OK(gpuwm_blocks_publish(region, &block, 1));
	OK(gpuwm_blocks_hold(region, &key, 1, 0, &block, &done));
	for (unsigned i = 0; i < REGION_USERS_MAX - 1; i++)
		cr_assert_eq(actor_hear(&users[i])->count, 1);
	for (unsigned i = 0; i < REGION_USERS_MAX - 1; i++)
		process_kill(&users[i], SIGKILL);
	OK(gpuwm_blocks_release(region, &block, 1));
	cr_assert(EVENTUALLY(SOON_MS, gpuwm_blocks_drop(region, &key, 1, &done) == 0 && done == 1));
	end(d, client, region);
}

GPUWMD_TEST(blocks_rules, a_forked_child_is_refused)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client);
	const struct gpuwm_block_key key = blocks_key(1);
	struct gpuwm_block block;
	size_t done;
	int status;
	pid_t child;

	OK(gpuwm_blocks_reserve(region, &key, 1, 0, &block, &done));
	child = fork();
	if (child == 0)
		_exit(gpuwm_blocks_publish(region, &block, 1) != -ECHILD ||
		      gpuwm_blocks_hold(region, &key, 1, 0, &block, &done) != -ECHILD ||
		      gpuwm_blocks_reserve(region, &key, 1, 0, &block, &done) != -ECHILD);
	cr_assert(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	OK(gpuwm_blocks_publish(region, &block, 1));
	end(d, client, region);
}

/* ---- other users, and quotas --------------------------------------------------- */

static struct gpuwmd *with_rules(void)
{
	static const char rules[] = "[model.1]\nmatch = shared/*\nattach = 61002\npublish = 61001\n";
	char path[64];
	struct gpuwmd *d;
	FILE *file;

	snprintf(path, sizeof path, "%s/blocks.conf", own_folder());
	file = fopen(path, "w");
	cr_assert(file && fputs(rules, file) >= 0 && fclose(file) == 0);
	d = gpuwmd_start("--config", path, "--set", "socket.mode=0666", "--set", "access.publish_group=", NULL);
	return d;
}

static void tries(uid_t uid, const char *how, char answer)
{
	struct process p = region_user_begin_as(uid, "kv", how);

	cr_assert_eq(process_hear(&p), answer, "uid %u (%s)", (unsigned)uid, how);
	process_kill(&p, SIGKILL);
}

GPUWMD_TEST_IF(blocks_rules, they_are_their_users_alone, NEEDS_ROOT(), with_rules(), gpuwmd_stop_empty)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make(d, client);

	tries(ALICE, "r", 'n');
	tries(ALICE, "w", 'n');
	tries(0, "r", 'a');
	tries(0, "w", 'a');
	end(d, client, region);
}

static void second_is_refused(const char *set, const char *words)
{
	struct gpuwmd *d = gpuwmd_start("--set", set, NULL);
	struct gpuwm_region_options options = options_of(d);
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region, *none;

	options.device = "host";
	OK(gpuwm_region_create(client, &options, &region));
	options.name = "other";
	FAILS(EDQUOT, gpuwm_region_create(client, &options, &none));
	cr_assert(strstr(gpuwm_error()->message, words), "%s", gpuwm_error()->message);
	end(d, client, region);
	gpuwmd_stop_empty(d);
}

Test(blocks_rules, a_user_has_so_many_regions)
{
	second_is_refused("limits.regions_per_uid=1", "all 1 regions");
}

Test(blocks_rules, a_user_has_so_many_bytes)
{
	second_is_refused("limits.bytes_per_uid=48K", "it has 32.0 KiB and asks for 32.0 KiB more");
}
