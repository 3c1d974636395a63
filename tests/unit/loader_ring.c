/* The loader's buffers, with and without a driver that pins them. */
#include "loader/copy/copy.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define CHUNK (MIB(1) + 8192)

static struct error error;

Test(ring, gives_buffers_for_direct_reading)
{
	struct ring ring;

	cr_assert_eq(ring_make(CHUNK, 5, &ring, &error), 0, "%s", error.message);
	for (size_t i = 0; i < 5; i++) {
		cr_assert_eq((uintptr_t)ring_buffer(&ring, i) % 4096, 0);
		memset(ring_buffer(&ring, i), (int)i + 1, CHUNK);
	}
	for (size_t i = 0; i < 5; i++)
		cr_assert_eq(*((char *)ring_buffer(&ring, i) + CHUNK - 1), (char)(i + 1));
	cr_assert_not(ring.pinned);
	ring_free(&ring);
	cr_assert_null(ring.base);
	ring_free(&ring);
}

/* Huge pages begin at multiples of their size only. */
Test(ring, maps_memory_where_huge_pages_can_be)
{
	const size_t bytes = MIB(4) + 8192;
	char *area = ring_map(bytes);

	cr_assert_not_null(area);
	cr_assert_eq((uintptr_t)area % MIB(2), 0);
	cr_assert(area[0] == 0 && area[bytes - 1] == 0);
	memset(area, 1, bytes);
	cr_assert_eq(munmap(area, bytes), 0);
	cr_assert_null(ring_map(SIZE_MAX / 2 / 4096 * 4096));
}

Test(ring, says_when_there_are_no_huge_pages)
{
	struct ring ring;

	cr_assert_eq(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
	cr_assert_eq(ring_make(CHUNK, 4, &ring, &error), 0, "%s", error.message);
	cr_assert(strstr(ring.note, "no huge pages"), "'%s'", ring.note);
	ring_free(&ring);
}

#ifndef __SANITIZE_ADDRESS__ /* which needs more addresses than that itself */
Test(ring, fails_without_memory)
{
	struct rlimit limit = {.rlim_cur = MIB(512), .rlim_max = MIB(512)};
	struct ring ring;

	cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
	cr_assert_eq(ring_make(MIB(8), 1024, &ring, &error), -ENOMEM);
	cr_assert(strstr(error.message, "1024 buffers"), "%s", error.message);
}
#endif

#ifdef GPUWM_CUDA

#include "memory/memory.h"

#define GPU0 "GPU-fa4e0000-0000-4000-8000-000000000000"

static struct memory_device device;

/* A ring of 7 buffers, locked inside the first GPU's context, with a driver that fails so. */
static struct ring locked(const char *failure)
{
	const char *backend = getenv("GPUWM_TEST_BACKEND");
	struct ring ring;

	if (!backend || strcmp(backend, "fakecuda") != 0)
		cr_skip_test("needs the stand-in for the driver");
	if (failure)
		setenv("FAKECUDA_FAIL", failure, 1);
	cr_assert_eq(memory_device_open(GPU0, &device, &error), 0, "%s", error.message);
	cr_assert_eq(device.ops->enter(&device, &error), 0, "%s", error.message);
	cr_assert_eq(ring_make(CHUNK, 7, &ring, &error), 0, "%s", error.message);
	ring_lock(&ring, &device);
	return ring;
}

/* Freed, its memory can be pinned again by others. */
static void finish(struct ring *ring)
{
	ring_free(ring);
	cr_assert_null(ring->base);
	device.ops->leave(&device);
}

Test(ring, is_pinned_once)
{
	struct ring ring = locked(NULL);

	cr_assert_eq(ring.pinned, 7);
	cr_assert_eq(ring_usable(&ring), 7);
	cr_assert_not(strstr(ring.note, "pinned"), "'%s'", ring.note);
	finish(&ring);
}

Test(ring, is_used_in_part_where_the_driver_refuses_all_of_it)
{
	struct ring ring = locked("cuMemHostRegister_v2:1:2,cuMemHostRegister_v2:2:2");

	cr_assert_eq(ring.pinned, 1);
	cr_assert_eq(ring_usable(&ring), 1);
	cr_assert_eq(ring.count, 7, "what is being read into the others stays there");
	cr_assert(strstr(ring.note, "pinned 1 of 7 buffers") && strstr(ring.note, "OUT_OF_MEMORY"), "'%s'",
		  ring.note);
	memset(ring_buffer(&ring, 0), 1, CHUNK);
	finish(&ring);
}

Test(ring, stays_plain_memory_where_the_driver_pins_nothing)
{
	struct ring ring = locked("cuMemHostRegister_v2:0:801");

	cr_assert_not(ring.pinned);
	cr_assert_eq(ring_usable(&ring), 7);
	cr_assert(strstr(ring.note, "pinned none") && strstr(ring.note, "NOT_SUPPORTED"), "'%s'", ring.note);
	memset(ring_buffer(&ring, 6), 1, CHUNK);
	finish(&ring);
}

#endif
