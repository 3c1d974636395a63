/* The segments of a part in one range of addresses: on host, and on a GPU where there is one. */
#include "memory/memory.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <sys/mman.h>

#include "tests/support/lib/fake.h"
#include "tests/support/any/own_folder.h"
#include "tests/support/any/reach.h"

#define COUNT 3

static struct memory_device device;
static const struct memory_ops *ops;
static uint64_t unit; /* the granularity */
static int fds_before;

static void open_device(const char *id)
{
	struct error error;

	cr_assert(eq(int, memory_device_open(id, &device, &error), 0), "%s", error.message);
	ops = device.ops;
	cr_assert(eq(int, ops->granularity(&device, &unit, &error), 0), "%s", error.message);
	fds_before = fd_count();
}

static void setup_host(void)
{
	open_device("host");
}

static void teardown(void)
{
	cr_assert(eq(int, fd_count(), fds_before));
}

TestSuite(range_host, .init = setup_host, .fini = teardown);

/* Segments of 1, 2 and 3 units whose first byte is their number, imported. */
static void import_all(struct memory_segment segments[COUNT])
{
	struct error error;

	for (uint8_t i = 0; i < COUNT; i++) {
		struct memory_segment made;

		cr_assert(eq(int, ops->create(&device, (i + 1) * unit, &made, &error), 0), "%s", error.message);
		cr_assert(eq(int, ops->map(&device, &made, MEMORY_WRITE, &error), 0), "%s", error.message);
		cr_assert(eq(int, ops->enter(&device, &error), 0), "%s", error.message);
		cr_assert(eq(int, ops->write(&device, made.address, &i, 1, &error), 0), "%s", error.message);
		ops->leave(&device);
		ops->unmap(&device, &made);
		cr_assert(eq(int, ops->export(&device, &made, &error), 0), "%s", error.message);
		cr_assert(eq(int, ops->import(&device, made.fd, made.bytes, true, &segments[i], &error), 0));
		ops->release(&device, &made);
	}
}

static int first_byte(const struct memory_segment *segment)
{
	struct error error;
	uint8_t byte = 0xff;

	cr_assert(eq(int, ops->enter(&device, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->read(&device, &byte, segment->address, 1, &error), 0), "%s", error.message);
	ops->leave(&device);
	return byte;
}

static void release_all(struct memory_range *range, struct memory_segment segments[COUNT])
{
	ops->unreserve(&device, range, segments, COUNT);
	cr_assert(range->base == NULL);
	for (int i = 0; i < COUNT; i++) {
		cr_assert(segments[i].address == NULL);
		ops->release(&device, &segments[i]);
	}
	/* Twice is fine. */
	ops->unreserve(&device, range, segments, COUNT);
}

static void maps_all_in_their_order(void)
{
	struct memory_segment segments[COUNT];
	struct memory_range range;
	struct error error;
	uint64_t bytes;

	import_all(segments);
	bytes = memory_range_bytes(&device, segments, COUNT);
	cr_assert(eq(int, ops->reserve(&device, bytes, NULL, &range, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->map_all(&device, &range, segments, COUNT, &error), 0), "%s", error.message);
	for (uint32_t i = 0; i < COUNT; i++) {
		char *at = (char *)range.base + memory_range_bytes(&device, segments, i);

		cr_assert(segments[i].address == at);
		cr_assert(eq(int, first_byte(&segments[i]), (int)i));
	}
	release_all(&range, segments);
}

Test(range_host, maps_all_in_their_order)
{
	maps_all_in_their_order();
}

/* What can't be mapped comes last, so that something is to be undone. */
static void leaves_nothing_mapped_when_one_fails(void)
{
	struct memory_segment segments[COUNT];
	struct memory_range range;
	struct error error;
	uint64_t bytes;

	import_all(segments);
	bytes = memory_range_bytes(&device, segments, COUNT);
	segments[2].bytes = UINT64_C(1) << 62;
	cr_assert(eq(int, ops->reserve(&device, bytes, NULL, &range, &error), 0), "%s", error.message);
	cr_assert(lt(int, ops->map_all(&device, &range, segments, COUNT, &error), 0));
	cr_assert(lt(sz, 0, strlen(error.message)));
	for (uint32_t i = 0; i < COUNT; i++)
		cr_assert(segments[i].address == NULL);
	segments[2].bytes = 3 * unit;
	/* And so it can be tried again. */
	cr_assert(eq(int, ops->map_all(&device, &range, segments, COUNT, &error), 0), "%s", error.message);
	cr_assert(eq(int, first_byte(&segments[2]), 2));
	release_all(&range, segments);
}

Test(range_host, leaves_nothing_mapped_when_one_fails)
{
	leaves_nothing_mapped_when_one_fails();
}

static void begins_where_it_is_wished_if_that_is_free(void)
{
	struct memory_range range, taken, again;
	struct error error;
	void *wish;

	cr_assert(eq(int, ops->reserve(&device, 4 * unit, NULL, &range, &error), 0), "%s", error.message);
	wish = range.base;
	cr_assert(eq(int, ops->reserve(&device, 4 * unit, wish, &taken, &error), 0), "%s", error.message);
	cr_assert(taken.base != NULL && taken.base != wish);
	ops->unreserve(&device, &range, NULL, 0);
	cr_assert(eq(int, ops->reserve(&device, 4 * unit, wish, &again, &error), 0), "%s", error.message);
	cr_assert(again.base == wish);
	ops->unreserve(&device, &again, NULL, 0);
	/* No multiple of anything, and no address of a process. */
	cr_assert(eq(int, ops->reserve(&device, 4 * unit, (char *)wish + 1, &again, &error), 0));
	ops->unreserve(&device, &again, NULL, 0);
	cr_assert(eq(int, ops->reserve(&device, 4 * unit, (void *)(UINTPTR_MAX - 8191), &again, &error), 0));
	ops->unreserve(&device, &again, NULL, 0);
	ops->unreserve(&device, &taken, NULL, 0);
}

Test(range_host, begins_where_it_is_wished_if_that_is_free)
{
	begins_where_it_is_wished_if_that_is_free();
}

Test(range_host, puts_segments_where_huge_pages_can_be)
{
	struct memory_segment segments[COUNT];
	struct memory_range range;

	import_all(segments);
	cr_assert(eq(int,
		     ops->reserve(&device, memory_range_bytes(&device, segments, COUNT), NULL, &range, NULL),
		     0));
	cr_assert(eq(int, ops->map_all(&device, &range, segments, COUNT, NULL), 0));
	for (int i = 0; i < COUNT; i++)
		cr_assert(eq(u64, (uintptr_t)segments[i].address % MIB(2), 0));
	release_all(&range, segments);
}

Test(range_host, can_be_of_no_size)
{
	struct memory_segment huge[] = {{.bytes = INT64_MAX / 2}, {.bytes = INT64_MAX / 2}, {.bytes = 4096}};

	cr_assert(eq(u64, memory_range_bytes(&device, huge, 3), 0));
	cr_assert(eq(u64, memory_range_bytes(&device, huge, 0), 0));
}

/* ---- segments of one's own ------------------------------------------------ */

static void make_at(const struct memory_range *range, struct memory_segment *segments, uint32_t position)
{
	void *at = memory_range_at(&device, range, segments, position);
	struct memory_segment *segment = &segments[position];
	uint8_t byte = (uint8_t)position;
	struct error error;

	cr_assert(eq(int, ops->create(&device, segment->bytes, segment, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->map_at(&device, at, segment, MEMORY_WRITE, &error), 0), "%s", error.message);
	cr_assert(segment->address == at);
	cr_assert(eq(int, ops->enter(&device, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->write(&device, at, &byte, 1, &error), 0), "%s", error.message);
	ops->leave(&device);
}

/* Those with a bit are made. */
static void make_some(struct memory_range *range, struct memory_segment segments[COUNT], unsigned bits)
{
	struct error error;

	for (uint32_t i = 0; i < COUNT; i++)
		segments[i] = (struct memory_segment){.fd = -1, .bytes = (i + 1) * unit};
	cr_assert(eq(int,
		     ops->reserve(&device, memory_range_bytes(&device, segments, COUNT), NULL, range, &error),
		     0),
		  "%s", error.message);
	for (uint32_t i = 0; i < COUNT; i++) {
		if (bits >> i & 1)
			make_at(range, segments, i);
	}
}

static void unmaps_what_has_holes(void)
{
	struct memory_segment segments[COUNT];
	struct memory_range range;

	for (unsigned bits = 0; bits < 1 << COUNT; bits++) {
		make_some(&range, segments, bits);
		release_all(&range, segments);
	}
}

Test(range_host, unmaps_what_has_holes)
{
	unmaps_what_has_holes();
}

/* The stand-in's memory is the CPU's too. */
static bool is_writable(const struct memory_segment *segment)
{
	cr_assert(can_read(segment->address));
	return can_write(segment->address);
}

static void reaccess(const struct memory_range *range, struct memory_segment segments[COUNT],
		     enum memory_access access)
{
	struct error error;

	cr_assert(eq(int, ops->reaccess(&device, range, segments, COUNT, access, &error), 0), "%s",
		  error.message);
	for (uint32_t i = 0; i < COUNT; i++) {
		cr_assert(segments[i].address == memory_range_at(&device, range, segments, i));
		cr_assert(eq(int, is_writable(&segments[i]), access == MEMORY_WRITE));
		cr_assert(eq(int, first_byte(&segments[i]), (int)i));
	}
}

static void loses_and_gets_its_writers_where_it_is(void)
{
	struct memory_segment segments[COUNT];
	struct memory_range range;
	struct error error;

	make_some(&range, segments, (1 << COUNT) - 1);
	reaccess(&range, segments, MEMORY_READ);
	reaccess(&range, segments, MEMORY_WRITE);
	reaccess(&range, segments, MEMORY_READ);
	for (uint32_t i = 0; i < COUNT; i++)
		cr_assert(eq(int, ops->export(&device, &segments[i], &error), 0), "%s", error.message);
	reaccess(&range, segments, MEMORY_WRITE);
	reaccess(&range, segments, MEMORY_READ);
	release_all(&range, segments);
}

Test(range_host, loses_and_gets_its_writers_where_it_is)
{
	loses_and_gets_its_writers_where_it_is();
}

/* What is settled is put back by a switch that fails. */
static void settles_as_what_was_imported(void)
{
	struct memory_segment segments[COUNT], next[COUNT];
	struct memory_range range;
	struct error error;

	make_some(&range, segments, (1 << COUNT) - 1);
	reaccess(&range, segments, MEMORY_READ);
	for (uint32_t i = 0; i < COUNT; i++) {
		cr_assert(eq(int, ops->export(&device, &segments[i], &error), 0), "%s", error.message);
		ops->settle(&segments[i]);
		cr_assert(eq(int, segments[i].fd, -1));
	}
	import_all(next);
	next[1].bytes = UINT64_C(1) << 62;
	cr_assert(lt(int, ops->remap_all(&device, &range, segments, next, COUNT, &error), 0));
	for (uint32_t i = 0; i < COUNT; i++) {
		cr_assert(eq(int, is_writable(&segments[i]), false));
		cr_assert(eq(int, first_byte(&segments[i]), (int)i));
		ops->release(&device, &next[i]);
	}
	ops->close_fds(segments, COUNT);
	release_all(&range, segments);
}

Test(range_host, settles_as_what_was_imported)
{
	settles_as_what_was_imported();
}

#ifdef GPUWM_CUDA

#include "memory/cuda.h"

static char calls[64]; /* the log of the stand-in driver */

static void setup_cuda(void)
{
	char id[CUDA_ID_BYTES];
	struct error error;

	if (!getenv("GPUWM_TEST_BACKEND") || strcmp(getenv("GPUWM_TEST_BACKEND"), "host") == 0)
		cr_skip("GPUWM_TEST_BACKEND is not set: no CUDA driver to test with");
	snprintf(calls, sizeof(calls), "%s/calls", own_folder());
	setenv("FAKECUDA_LOG", calls, 1);
	cr_assert(eq(int, cuda_id(0, id, &error), 0), "%s", error.message);
	open_device(id);
}

static void teardown_cuda(void)
{
	unlink(calls);
	teardown();
}

TestSuite(range_cuda, .init = setup_cuda, .fini = teardown_cuda);

Test(range_cuda, maps_all_in_their_order)
{
	maps_all_in_their_order();
}

Test(range_cuda, leaves_nothing_mapped_when_one_fails)
{
	leaves_nothing_mapped_when_one_fails();
}

Test(range_cuda, begins_where_it_is_wished_if_that_is_free)
{
	begins_where_it_is_wished_if_that_is_free();
}

Test(range_cuda, unmaps_what_has_holes)
{
	unmaps_what_has_holes();
}

Test(range_cuda, loses_and_gets_its_writers_where_it_is)
{
	if (strcmp(getenv("GPUWM_TEST_BACKEND"), "fakecuda") != 0)
		cr_skip("a CPU can't look at a GPU's memory");
	loses_and_gets_its_writers_where_it_is();
}

Test(range_cuda, settles_as_what_was_imported)
{
	if (strcmp(getenv("GPUWM_TEST_BACKEND"), "fakecuda") != 0)
		cr_skip("a CPU can't look at a GPU's memory");
	settles_as_what_was_imported();
}

/* How often it was called so far. */
static int called(const char *function)
{
	FILE *log = fopen(calls, "re");
	char line[256], name[64];
	int count = 0;

	cr_assert(log != NULL);
	while (fgets(line, sizeof(line), log))
		count += sscanf(line, "%*d %*s %63s", name) == 1 && strcmp(name, function) == 0;
	fclose(log);
	return count;
}

Test(range_cuda, takes_one_call_for_the_access_and_one_for_the_end)
{
	struct memory_segment segments[COUNT];
	struct memory_range range;
	int access, reserved, unmapped;

	if (strcmp(getenv("GPUWM_TEST_BACKEND"), "fakecuda") != 0)
		cr_skip("a real driver tells nobody what it was asked");
	import_all(segments);
	access = called("cuMemSetAccess");
	reserved = called("cuMemAddressReserve");
	unmapped = called("cuMemUnmap");
	cr_assert(eq(int,
		     ops->reserve(&device, memory_range_bytes(&device, segments, COUNT), NULL, &range, NULL),
		     0));
	cr_assert(eq(int, ops->map_all(&device, &range, segments, COUNT, NULL), 0));
	cr_assert(eq(int, called("cuMemSetAccess") - access, 1));
	cr_assert(eq(int, called("cuMemAddressReserve") - reserved, 1));
	release_all(&range, segments);
	cr_assert(eq(int, called("cuMemUnmap") - unmapped, 1));
}

#endif
