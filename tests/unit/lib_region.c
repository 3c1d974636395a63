/* Regions as a process has them: mapped, listed, closed; forks and allocations that fail in between. */
#include "tests/support/any/between.h"
#include "tests/support/any/child.h"
#include "tests/support/any/fd_count.h"
#include "tests/support/any/reach.h"
#include "tests/support/fail_alloc.h"
#include "tests/support/lib/pools.h"

#include <unistd.h>

#define OWNER 0
#define READER 1

static struct shared_region shared, shared_queue;
static struct gpuwm_region *pool, *reader, *queue;
static struct error error;

static void begin(void)
{
	share(&shared, &(struct shared_wish){.bytes = MIB(2), .chunks = 8});
	share(&shared_queue, &(struct shared_wish){.items = 3, .item_bytes = 1001});
	pool = open_as(&shared, OWNER, true);
	reader = open_as(&shared, READER, false);
	queue = open_as(&shared_queue, OWNER, true);
}

static void end(void)
{
	close_as(&shared_queue, queue);
	close_as(&shared, reader);
	close_as(&shared, pool);
	share_end(&shared_queue);
	share_end(&shared);
}

#define RegionTest(name) TestBetween(region, name, begin(), end(), .timeout = 60)

RegionTest(says_what_it_is)
{
	struct gpuwm_region_info info;

	gpuwm_region_info(pool, &info);
	cr_assert(info.kind == GPUWM_REGION_POOL && info.writers == GPUWM_WRITERS_ONE &&
		  info.owner == GPUWM_OWNER_PROCESS);
	cr_assert(info.bytes == MIB(2) && info.chunks == 8 && info.items == 0 && info.item_bytes == 0);
	cr_assert(info.slot == OWNER && info.writes && info.owns);
	cr_assert(eq(u64, strlen(info.id), 32));
	gpuwm_region_info(reader, &info);
	cr_assert(info.slot == READER && info.writes == false && info.owns == false);
	gpuwm_region_info(queue, &info);
	cr_assert(info.kind == GPUWM_REGION_QUEUE && info.items == 3 && info.item_bytes == 1001);
	cr_assert(eq(str, (char *)info.device, "host"));
}

RegionTest(is_mapped_for_reading_by_readers)
{
	if (!pools_on_host())
		return;
	cr_assert(can_write(gpuwm_region_address(pool)));
	cr_assert(can_read(gpuwm_region_address(reader)));
	cr_assert(can_write(gpuwm_region_address(reader)) == false);
}

RegionTest(is_open_once_in_a_process)
{
	cr_assert(eq(int, region_list_add(pool, &error), 0));
	cr_assert(eq(int, region_list_add(reader, &error), -EALREADY));
	cr_assert(region_list_use(&pool->id) == pool);
	FAILS(gpuwm_region_close(pool), -EBUSY);
	region_unuse(pool);
	region_list_remove(pool);
	cr_assert(region_list_use(&pool->id) == NULL);
}

static int opens_it_itself(void)
{
	return region_list_use(&pool->id) != NULL || region_list_add(reader, &error) != 0;
}

RegionTest(a_forked_child_may_open_it_itself)
{
	cr_assert(eq(int, region_list_add(pool, &error), 0));
	cr_assert(eq(int, IN_CHILD(opens_it_itself()), 0));
	region_list_remove(pool);
}

/* A later gpuwmd may have made it, with control memory that this library could not read. */
RegionTest(of_an_unknown_kind_is_not_opened)
{
	struct region_use use = shared.facts;
	struct gpuwm_region *none = NULL;

	use.kind = "ring";
	cr_assert(eq(int, region_begin(NULL, &use, &none, &error), -ENOTSUP));
	cr_assert(none == NULL && strstr(error.message, "no regions of kind \"ring\""), "%s", error.message);
}

RegionTest(a_forked_child_keeps_neither_its_memory_nor_its_descriptors)
{
	struct region_use use = shared.facts;
	struct gpuwm_region *third;
	const int before = fd_count();

	cr_assert(eq(int, region_begin(NULL, &use, &third, &error), 0));
	third->control_fd = dup(shared.control_fd);
	third->memory_fd = dup(shared.memory_fd);
	cr_assert(eq(int, IN_CHILD(fd_count() != before), 0));
	if (pools_on_host())
		cr_assert(eq(int, IN_CHILD(can_read(gpuwm_region_address(pool))), 0));
	cr_assert(eq(int, IN_CHILD(can_read(pool->control.head)), 0));
	region_free(third);
	cr_assert(eq(int, fd_count(), before));
}

RegionTest(control_memory_of_another_size_is_refused)
{
	struct gpuwm_region *third;

	shared.facts.chunks = 200;
	FAILS(try_open_as(&shared, 5, false, &third), -EPROTO);
	shared.facts.chunks = 8;
}

/* ---- allocations that fail ---------------------------------------------------------- */

RegionTest(opening_without_memory_leaves_nothing)
{
	struct gpuwm_region *third = NULL;
	const int before = fd_count();
	struct region_use use = shared.facts;
	unsigned n = 0;
	int r;

	do {
		fail_alloc_arm(++n);
		r = region_begin(NULL, &use, &third, &error);
		if (r == 0) {
			r = pool_new(pool, &third->pool, &error);
			if (r == 0)
				pool_free(third->pool);
			region_free(third);
		}
		cr_assert(r == 0 || r == -ENOMEM);
	} while (fail_alloc_disarm());
	cr_assert(n > 4 && r == 0);
	cr_assert(eq(int, fd_count(), before));
}

RegionTest(an_allocation_without_memory_takes_no_chunk)
{
	struct gpuwm_chunk *chunk;
	unsigned n = 0;
	int r;

	do {
		fail_alloc_arm(++n);
		r = gpuwm_chunk_alloc(pool, 1, -1, &chunk);
		cr_assert(r == 0 || r == -ENOMEM);
	} while (fail_alloc_disarm());
	cr_assert(n > 1 && r == 0);
	OK(gpuwm_chunk_discard(chunk));
	all_is_free(pool);
}

RegionTest(a_reader_without_memory_takes_no_chunk)
{
	struct gpuwm_token token = offer(pool, 1, UINT32_C(1) << READER, 0);
	struct gpuwm_chunk *chunk;
	unsigned n = 0;
	int r;

	do {
		fail_alloc_arm(++n);
		r = gpuwm_chunk_take(reader, &token, 0, &chunk);
		cr_assert(r == 0 || r == -ENOMEM);
	} while (fail_alloc_disarm());
	cr_assert(n > 1 && r == 0);
	OK(gpuwm_chunk_finish(chunk));
	all_is_free(pool);
}

RegionTest(a_getter_without_memory_leaves_the_message)
{
	struct gpuwm_token tokens[2] = {offer(pool, 1, 0, 1), offer(pool, 1, 0, 1)};
	struct gpuwm_message *message;
	unsigned n = 0;
	int r;

	cr_assert(eq(int, region_list_add(reader, &error), 0));
	OK(gpuwm_queue_put(queue, "abc", 3, tokens, 2, 0));
	do {
		fail_alloc_arm(++n);
		r = gpuwm_queue_get(queue, 0, NULL, 0, &message, NULL);
		cr_assert(r == 0 || r == -ENOMEM);
	} while (fail_alloc_disarm());
	cr_assert(n > 3 && r == 0);
	gpuwm_message_free(message);
	all_is_free(pool);
}

RegionTest(figures_without_memory_fail)
{
	struct gpuwm_pool_figures figures;

	fail_alloc_arm(1);
	FAILS(gpuwm_pool_figures(pool, &figures), -ENOMEM);
	cr_assert(fail_alloc_disarm());
	fail_alloc_arm(1);
	FAILS(gpuwm_chunks_alloc(pool, &(uint64_t){1}, 1, 0, NULL), -ENOMEM);
	cr_assert(fail_alloc_disarm());
}

RegionTest(a_request_without_memory_takes_no_chunk)
{
	const uint64_t bytes[] = {1, 1000};
	const struct gpuwm_chunks_wish wish = {bytes, 2, 0};

	/* The memory of the request, of each of two handles; then the thread is made. */
	for (unsigned n = 1; n <= 3; n++) {
		fail_alloc_arm(n);
		FAILS(gpuwm_chunks_alloc_later(pool, &wish, (gpuwm_chunks_fn *)1, NULL, NULL), -ENOMEM);
		cr_assert(fail_alloc_disarm());
	}
	all_is_free(pool);
}
