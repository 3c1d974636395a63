/* Waiting for blocks: until they are filled, and until there is room. */
#include "base/clock.h"
#include "tests/support/any/between.h"
#include "tests/support/any/until.h"
#include "tests/support/lib/blocks.h"

#include <pthread.h>

#define WRITER 0
#define READER 1
#define BLOCKS 4

static struct shared_region shared;
static struct gpuwm_region *writer, *reader;

static void begin(void)
{
	share(&shared, &(struct shared_wish){.blocks = BLOCKS, .block_bytes = BLOCK_BYTES});
	writer = open_as(&shared, WRITER, true);
	reader = open_as(&shared, READER, true);
}

static void end(void)
{
	close_as(&shared, reader);
	close_as(&shared, writer);
	share_end(&shared);
}

#define WaitTest(name) TestBetween(blocks_wait, name, begin(), end(), .timeout = 60)

/* ---- a thread that waits ------------------------------------------------------------------ */

/* One call of the reader, for ever: it holds the keys from 1 on, or the block, or reserves a block for the key 50. */
struct waiter {
	enum { HOLDS, HOLDS_THIS, RESERVES } what;
	size_t keys;
	struct gpuwm_block blocks[BLOCKS];
	size_t count;
	int code;
	char message[256];
	pthread_t thread;
};

static void *wait_for(void *data)
{
	struct waiter *w = data;
	const struct gpuwm_block_key wanted = key_of(50);
	struct gpuwm_block_key keys[BLOCKS];

	keys_from(1, w->keys, keys);
	if (w->what == HOLDS)
		w->code = gpuwm_blocks_hold(reader, keys, w->keys, -1, w->blocks, &w->count);
	else if (w->what == HOLDS_THIS)
		w->code = gpuwm_blocks_hold_these(reader, w->blocks, 1, -1);
	else
		w->code = gpuwm_blocks_reserve(reader, &wanted, 1, -1, w->blocks, &w->count);
	if (w->code < 0)
		strncpy(w->message, gpuwm_error()->message, sizeof(w->message) - 1);
	return NULL;
}

static void start(struct waiter *w)
{
	cr_assert(eq(int, pthread_create(&w->thread, NULL, wait_for, w), 0));
	UNTIL(atomic_load(&shared.control.head->freed.sleepers) == 1);
}

/* A waiter that was woken returns long before it would look again by itself. */
static void ends(struct waiter *w, uint64_t since_ms)
{
	pthread_join(w->thread, NULL);
	cr_assert(lt(i64, clock_steady_ms() - since_ms, BLOCK_LOOK_AGAIN_MS / 2));
	cr_assert(eq(u32, atomic_load(&shared.control.head->freed.sleepers), 0));
}

/* The wait just before has begun anew: so much time is left before it looks again. */
static uint64_t fresh(void)
{
	control_ring(&shared.control.head->freed);
	until_pause(until_deadline());
	UNTIL(atomic_load(&shared.control.head->freed.sleepers) == 1);
	return clock_steady_ms();
}

static uint32_t blocks_held(void)
{
	struct gpuwm_blocks_figures figures;

	OK(gpuwm_blocks_figures(writer, &figures));
	return figures.held;
}

/* ---- holding -------------------------------------------------------------------------------- */

WaitTest(a_hold_waits_until_the_blocks_are_published)
{
	struct gpuwm_block first = reserve_one(writer, 1), second = reserve_one(writer, 2);
	struct waiter w = {.what = HOLDS, .keys = 3};
	uint64_t since;

	start(&w);
	OK(gpuwm_blocks_publish(writer, &first, 1));
	UNTIL(blocks_held() == 1);
	figures_are(writer, BLOCKS - 2, 1, 0, 1);
	since = fresh();
	OK(gpuwm_blocks_publish(writer, &second, 1));
	ends(&w, since);
	/* Nobody fills the third key. */
	cr_assert(w.code == 0 && w.count == 2);
	OK(gpuwm_blocks_release(reader, w.blocks, 2));
}

WaitTest(a_hold_does_not_wait_for_a_block_that_is_abandoned)
{
	struct gpuwm_block block = reserve_one(writer, 1);
	struct waiter w = {.what = HOLDS, .keys = 1};
	uint64_t since;

	start(&w);
	since = fresh();
	OK(gpuwm_blocks_abandon(writer, &block, 1));
	ends(&w, since);
	cr_assert(w.code == 0 && w.count == 0);
}

WaitTest(a_hold_does_not_wait_for_a_process_that_has_exited)
{
	struct gpuwm_region *other = open_as(&shared, 5, true);
	struct waiter w = {.what = HOLDS, .keys = 1};
	uint64_t since;

	reserve_one(other, 1);
	start(&w);
	since = fresh();
	has_exited(&shared, 5);
	ends(&w, since);
	cr_assert(w.code == 0 && w.count == 0);
	blocks_free(other->blocks);
	region_free(other);
}

WaitTest(a_hold_that_fails_lets_go_what_it_has)
{
	struct gpuwm_block block;
	struct waiter w = {.what = HOLDS, .keys = 2};
	uint64_t since;

	put(writer, 1, 1);
	block = reserve_one(writer, 2);
	start(&w);
	figures_are(writer, BLOCKS - 2, 1, 0, 1);
	since = fresh();
	control_ended(&shared.control, CONTROL_REMOVED, 0);
	ends(&w, since);
	cr_assert(w.code == -ESHUTDOWN && strstr(w.message, "it was removed"));
	figures_are(writer, BLOCKS - 2, 1, 1, 0);
	OK(gpuwm_blocks_abandon(writer, &block, 1));
}

WaitTest(a_hold_by_number_waits_for_its_block)
{
	struct waiter w = {.what = HOLDS_THIS, .blocks = {reserve_one(writer, 1)}};
	uint64_t since;

	start(&w);
	since = fresh();
	OK(gpuwm_blocks_publish(writer, w.blocks, 1));
	ends(&w, since);
	cr_assert(eq(int, w.code, 0));
	OK(gpuwm_blocks_release(reader, w.blocks, 1));
}

WaitTest(a_hold_waits_no_longer_than_it_was_told)
{
	const struct gpuwm_block_key key = key_of(1);
	struct gpuwm_block block = reserve_one(writer, 1), held;
	const uint64_t since = clock_steady_ms();
	size_t count = 9;

	OK(gpuwm_blocks_hold(reader, &key, 1, 120, &held, &count));
	cr_assert(eq(sz, count, 0));
	cr_assert(ge(i64, clock_steady_ms() - since, 120));
	FAILS(gpuwm_blocks_hold_these(reader, &block, 1, 1), -EAGAIN);
	OK(gpuwm_blocks_abandon(writer, &block, 1));
}

/* ---- reserving ------------------------------------------------------------------------------- */

static void fill(struct gpuwm_block owned[2], struct gpuwm_block held[2])
{
	owned[0] = reserve_one(writer, 1);
	owned[1] = reserve_one(writer, 2);
	put(writer, 3, 2);
	held[0] = hold_one(writer, 3);
	held[1] = hold_one(writer, 4);
}

static void make_room(unsigned how, struct gpuwm_block owned[2], struct gpuwm_block held[2])
{
	switch (how) {
	case 0:
		OK(gpuwm_blocks_publish(writer, owned, 1));
		break;
	case 1:
		OK(gpuwm_blocks_abandon(writer, owned, 1));
		break;
	default:
		OK(gpuwm_blocks_release(writer, held, 1));
	}
}

WaitTest(a_reservation_waits_until_there_is_room)
{
	for (unsigned how = 0; how < 3; how++) {
		struct waiter w = {.what = RESERVES};
		struct gpuwm_block owned[2], held[2];
		uint64_t since;

		fill(owned, held);
		start(&w);
		since = fresh();
		make_room(how, owned, held);
		ends(&w, since);
		cr_assert(w.code == 0 && w.count == 1 && w.blocks[0].number != GPUWM_BLOCK_NONE);
		OK(gpuwm_blocks_abandon(reader, w.blocks, 1));
		OK(gpuwm_blocks_abandon(writer, owned + (how < 2), how < 2 ? 1 : 2));
		OK(gpuwm_blocks_release(writer, held + (how == 2), how == 2 ? 1 : 2));
		OK(gpuwm_blocks_drop(writer, (struct gpuwm_block_key[]){key_of(1), key_of(3), key_of(4)}, 3,
				     NULL));
		figures_are(writer, BLOCKS, 0, 0, 0);
	}
}

WaitTest(a_reservation_does_not_wait_in_a_region_that_has_ended)
{
	struct gpuwm_block owned[2], held[2];
	struct waiter w = {.what = RESERVES};
	uint64_t since;

	fill(owned, held);
	start(&w);
	since = fresh();
	control_ended(&shared.control, CONTROL_DAMAGED, 0);
	ends(&w, since);
	cr_assert(eq(int, w.code, -ESHUTDOWN));
	OK(gpuwm_blocks_abandon(writer, owned, 2));
	OK(gpuwm_blocks_release(writer, held, 2));
}
