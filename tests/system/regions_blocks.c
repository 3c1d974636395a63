/* Regions of blocks, as gpuwmd sees them. The blocks are written by hand here. */
#include "region_raw.h"

#include <stdio.h>
#include <unistd.h>

SYSTEM_SUITE(regions_blocks);

enum { BLOCKS = 16, BLOCK_BYTES = 4096 };

static void make(struct raw_region *ret, int sock, const char *name, const char *device)
{
	cr_assert_eq(REGION_CREATE(ret, sock, TEXT("name", name), TEXT("kind", "blocks"),
				   TEXT("device", device), TEXT("writers", "many"), TEXT("owner", "uid"),
				   NUMBER("blocks", BLOCKS), NUMBER("block_bytes", BLOCK_BYTES),
				   NUMBER("bytes", BLOCKS * BLOCK_BYTES)),
		     0, "%s", raw_refusal());
}

static void remove_region(struct gpuwmd *d, const char *region)
{
	int sock = raw_client(d->socket);

	cr_assert_eq(RAW_ASK(sock, "region_remove", TEXT("region", region)), 0, "%s", raw_refusal());
	close(sock);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
}

static _Atomic uint64_t *word(const struct raw_region *region, uint32_t number)
{
	return &region->control.blocks.words[number];
}

static void publish(const struct raw_region *region, uint32_t number)
{
	const unsigned slot = (unsigned)region->slot;
	uint64_t next;

	cr_assert_eq(block_word_own(atomic_load(word(region, number)), slot, &next), 0);
	cr_assert_eq(block_word_publish(next, slot, block_word_generation(next), &next), 0);
	atomic_store(word(region, number), next);
}

static void hold(const struct raw_region *region, uint32_t number)
{
	uint64_t now = atomic_load(word(region, number)), next;

	cr_assert_eq(block_word_hold(now, (unsigned)region->slot, block_word_generation(now), &next), 0);
	atomic_store(word(region, number), next);
}

static uint64_t holds_of(struct gpuwmd *d, const char *region, uint64_t slot)
{
	json_t *answer = query(d->admin, "region_list", region), *user;
	uint64_t holds = UINT64_MAX;
	size_t i;

	json_array_foreach(json_object_get(json_array_get(json_object_get(answer, "regions"), 0), "users"), i,
			   user) {
		if ((uint64_t)json_integer_value(json_object_get(user, "slot")) == slot)
			holds = (uint64_t)json_integer_value(json_object_get(user, "holds"));
	}
	json_decref(answer);
	return holds;
}

GPUWMD_TEST(regions_blocks, are_made_and_opened)
{
	struct raw_region made, opened, none;
	int sock = raw_client(d->socket);

	make(&made, sock, "kv", "host");
	cr_assert(made.write && !made.owns && made.chunks == 0 && made.blocks == BLOCKS);
	cr_assert_eq(made.bytes, BLOCKS * BLOCK_BYTES);
	cr_assert_eq(made.control.head->blocks, BLOCKS);
	cr_assert_eq(REGION_OPEN(&none, sock, TEXT("region", "kv"), FLAG("own", true)), -EINVAL);
	cr_assert(strstr(raw_refusal(), "no process owns a region of kind blocks"), "%s", raw_refusal());
	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "kv")), 0, "%s", raw_refusal());
	cr_assert(!opened.write && !opened.owns && opened.blocks == BLOCKS);
	publish(&made, 3);
	cr_assert_eq(atomic_load(word(&opened, 3)), atomic_load(word(&made, 3)));
	cr_assert_eq(region_close(sock, &opened), 0);
	cr_assert_eq(region_close(sock, &made), 0);
	cr_assert(region_is(d, "kv", "ready", 0), "it outlives those who use it");
	close(sock);
	remove_region(d, "kv");
}

/* It is charged as a whole, and its users get what they asked for. */
GPUWMD_TEST(regions_blocks, on_a_device_are_charged_to_it)
{
	struct raw_region made;
	int sock = raw_client(d->socket);
	const uint64_t before = device_used(d), step = device_number(d, "granularity");
	const uint64_t bytes = (BLOCKS * BLOCK_BYTES + step - 1) / step * step;

	make(&made, sock, "kv", d->device);
	cr_assert_eq(made.bytes, BLOCKS * BLOCK_BYTES);
	cr_assert(EVENTUALLY(SOON_MS, device_used(d) == before + bytes));
	cr_assert_eq(region_close(sock, &made), 0);
	close(sock);
	remove_region(d, "kv");
	cr_assert(EVENTUALLY(SOON_MS, device_used(d) == before));
}

/* The owner's bytes may lack; what it held stays for others. */
GPUWMD_TEST(regions_blocks, of_a_dead_user_are_freed_or_let_go)
{
	struct raw_region made;
	int sock = raw_client(d->socket);
	struct process user;

	make(&made, sock, "kv", "host");
	publish(&made, 1);
	publish(&made, 2);
	hold(&made, 1);
	user = region_user_start("kv", "w");
	region_user_does(&user, 'b');
	cr_assert_eq(block_word_state(atomic_load(word(&made, 0))), BLOCK_OWNED);
	cr_assert_eq(block_word_holders(atomic_load(word(&made, 1))), 1 << 0 | 1 << 1);
	cr_assert(region_number(d, "kv", "blocks_owned") == 1 && region_number(d, "kv", "blocks_held") == 1 &&
		  region_number(d, "kv", "blocks_ready") == 1);
	cr_assert_eq(region_number(d, "kv", "bytes_used"), 3 * BLOCK_BYTES);
	cr_assert(holds_of(d, "kv", 0) == 1 && holds_of(d, "kv", 1) == 2);
	process_kill(&user, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, region_is(d, "kv", "ready", 1)));
	cr_assert_eq(log_count(d, "exited as a user of the region kv, with 2 blocks"), 1);
	cr_assert_eq(block_word_state(atomic_load(word(&made, 0))), BLOCK_FREE);
	cr_assert_eq(block_word_holders(atomic_load(word(&made, 1))), 1 << 0);
	cr_assert_eq(block_word_state(atomic_load(word(&made, 2))), BLOCK_READY);
	cr_assert_eq(region_close(sock, &made), 0);
	cr_assert_eq(region_number(d, "kv", "blocks_ready"), 2);
	cr_assert_eq(region_number(d, "kv", "blocks_held"), 0);
	close(sock);
	remove_region(d, "kv");
}

GPUWMD_TEST(regions_blocks, that_no_user_would_write_end_the_region)
{
	struct raw_region made, none;
	int sock = raw_client(d->socket);
	json_t *answer;

	make(&made, sock, "kv", "host");
	atomic_store(word(&made, 5), UINT64_C(3) << BLOCK_STATE_SHIFT);
	cr_assert_eq(REGION_OPEN(&none, sock, TEXT("region", "kv")), -ESHUTDOWN);
	cr_assert(strstr(raw_refusal(), "a block has a state that there is not"), "%s", raw_refusal());
	cr_assert_eq(atomic_load(&made.control.head->ended), CONTROL_DAMAGED);
	answer = query(d->admin, "region_list", "kv");
	cr_assert(answer, "%s", gpuwm_error()->message);
	json_decref(answer);
	cr_assert_eq(region_close(sock, &made), 0);
	close(sock);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
}

static void stop_empty(struct gpuwmd *d)
{
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	gpuwmd_stop_empty(d);
}

/* A user that is there goes on, and one that died meanwhile leaves nothing. */
GPUWMD_TEST_BY(regions_blocks, are_there_after_a_restart, gpuwmd_start_kept(KEPT_LONG), stop_empty)
{
	struct raw_region made, opened;
	int sock = raw_client(d->socket);
	json_t *before, *after;
	struct process user;

	make(&made, sock, "kv", "host");
	publish(&made, 1);
	publish(&made, 9);
	hold(&made, 9);
	before = region_entry(d, "kv");
	kept_kill(d, SIGKILL);
	after = region_entry(d, "kv");
	cr_assert(json_equal(before, after), "%s", json_dumps(after, 0));
	user = region_user_start("kv", "w");
	region_user_does(&user, 'b');
	cr_assert_eq(kill(d->pid, SIGSTOP), 0);
	process_kill(&user, SIGKILL);
	kept_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, region_is(d, "kv", "ready", 1)));
	cr_assert_eq(block_word_state(atomic_load(word(&made, 0))), BLOCK_FREE);
	cr_assert_eq(block_word_holders(atomic_load(word(&made, 1))), 0);
	cr_assert_eq(block_word_holders(atomic_load(word(&made, 9))), 1 << 0);
	close(sock);
	sock = raw_client(d->socket);
	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "kv")), 0, "%s", raw_refusal());
	cr_assert_eq(block_word_state(atomic_load(word(&opened, 1))), BLOCK_READY);
	cr_assert_eq(region_close(sock, &opened), 0);
	cr_assert_eq(region_close(sock, &made), 0);
	close(sock);
	remove_region(d, "kv");
	json_decref(before);
	json_decref(after);
}

/* ---- how long gpuwmd looks ------------------------------------------------ */

static void make_largest(struct raw_region *ret, int sock, const char *name)
{
	cr_assert_eq(REGION_CREATE(ret, sock, TEXT("name", name), TEXT("kind", "blocks"),
				   TEXT("device", "host"), TEXT("writers", "many"), TEXT("owner", "uid"),
				   NUMBER("blocks", REGION_BLOCKS_MAX), NUMBER("block_bytes", CHUNK_ALIGN),
				   NUMBER("bytes", (uint64_t)REGION_BLOCKS_MAX * CHUNK_ALIGN)),
		     0, "%s", raw_refusal());
	publish(ret, REGION_BLOCKS_MAX - 1);
}

/* What is asked for by name is counted in any case. */
GPUWMD_TEST(regions_blocks, beyond_a_million_are_not_counted_for_a_list)
{
	struct raw_region made;
	int sock = raw_client(d->socket);
	char name[8];
	json_t *entry, *answer;

	for (unsigned i = 0; i < 5; i++) {
		snprintf(name, sizeof name, "kv%u", i);
		make_largest(&made, sock, name);
		cr_assert_eq(region_close(sock, &made), 0);
	}
	for (unsigned i = 0; i < 5; i++) {
		snprintf(name, sizeof name, "kv%u", i);
		entry = region_entry(d, name);
		cr_assert_eq(json_is_integer(json_object_get(entry, "blocks_ready")), i < 4);
		cr_assert_eq(json_is_integer(json_object_get(entry, "bytes_used")), i < 4);
		json_decref(entry);
		answer = query(d->admin, "region_list", name);
		entry = json_array_get(json_object_get(answer, "regions"), 0);
		cr_assert_eq(json_integer_value(json_object_get(entry, "blocks_ready")), 1);
		json_decref(answer);
	}
	for (unsigned i = 0; i < 5; i++) {
		snprintf(name, sizeof name, "kv%u", i);
		cr_assert_eq(RAW_ASK(sock, "region_remove", TEXT("region", name)), 0);
	}
	close(sock);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
}
