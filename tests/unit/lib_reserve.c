/* Addresses whose memory comes later, on host and on a GPU: tests/fakecuda, or a real one. */
#include "memory/memory.h"
#include "include/gpuwm/client.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/any/child.h"
#include "tests/support/any/fd_count.h"
#include "tests/support/lib/both.h"

#ifdef GPUWM_CUDA
#include "memory/cuda.h"

#include <dlfcn.h>
#endif

#define BLOCK MIB(64) /* the largest block */
#define BYTES (3 * BLOCK)

static struct memory_device device;
static struct gpuwm_reservation *reservation;
static char *base;
static int fds_before;

static void setup_on(const char *id)
{
	struct error error;

	cr_assert(eq(int, memory_device_open(id, &device, &error), 0), "%s", error.message);
	fds_before = fd_count();
}

static void setup_host(void)
{
	setup_on("host");
}

static void teardown(void)
{
	cr_assert(eq(int, fd_count(), fds_before));
}

TestSuite(reserve_host, .init = setup_host, .fini = teardown, .timeout = 60);

static void reserves(uint64_t bytes)
{
	cr_assert(eq(int, gpuwm_reserve(device.id, bytes, &reservation), 0), "%s", gpuwm_error()->message);
	base = gpuwm_reservation_address(reservation, NULL);
}

static void frees(void)
{
	cr_assert(eq(int, gpuwm_reservation_free(reservation), 0), "%s", gpuwm_error()->message);
}

static void occupies(void)
{
	cr_assert(eq(int, gpuwm_occupy(reservation, 0), 0), "%s", gpuwm_error()->message);
}

static void vacates(void)
{
	cr_assert(eq(int, gpuwm_vacate(reservation), 0), "%s", gpuwm_error()->message);
}

static int byte_at(uint64_t offset)
{
	struct error error;
	uint8_t byte = 0xff;

	cr_assert(eq(int, device.ops->enter(&device, &error), 0), "%s", error.message);
	cr_assert(eq(int, device.ops->read(&device, &byte, base + offset, 1, &error), 0), "%s", error.message);
	device.ops->leave(&device);
	return byte;
}

static void put_at(uint64_t offset, uint8_t byte)
{
	struct error error;

	cr_assert(eq(int, device.ops->enter(&device, &error), 0), "%s", error.message);
	cr_assert(eq(int, device.ops->write(&device, base + offset, &byte, 1, &error), 0), "%s", error.message);
	device.ops->leave(&device);
}

TestBoth(reserve, one_block_stands_in_everywhere)
{
	uint64_t bytes;

	reserves(BYTES - 1);
	gpuwm_reservation_address(reservation, &bytes);
	cr_assert(eq(u64, bytes, BYTES));
	cr_assert(eq(u64, (uintptr_t)base % MIB(2), 0));
	cr_assert(eq(int, byte_at(5), 0));
	put_at(5, 7);
	cr_assert(eq(int, byte_at(BLOCK + 5), 7));
	cr_assert(eq(int, byte_at(2 * BLOCK + 5), 7));
	cr_assert(eq(int, byte_at(BYTES - 1), 0));
	frees();
}

TestBoth(reserve, memory_comes_to_the_same_addresses_and_is_zero)
{
	reserves(BYTES);
	put_at(5, 7);
	occupies();
	cr_assert(gpuwm_reservation_address(reservation, NULL) == base);
	for (uint64_t at = 5; at < BYTES; at += BLOCK)
		cr_assert(eq(int, byte_at(at), 0));
	put_at(5, 8);
	cr_assert(eq(int, byte_at(BLOCK + 5), 0));
	occupies(); /* changes nothing */
	cr_assert(eq(int, byte_at(5), 8));
	frees();
}

TestBoth(reserve, comes_in_pieces)
{
	reserves(GIB(1) + BLOCK);
	occupies();
	put_at(GIB(1) - 1, 7);
	put_at(GIB(1) + BLOCK - 1, 8);
	cr_assert(eq(int, byte_at(GIB(1)), 0));
	cr_assert(eq(int, byte_at(GIB(1) - 1), 7));
	cr_assert(eq(int, byte_at(GIB(1) + BLOCK - 1), 8));
	frees();
}

TestBoth(reserve, a_small_one_has_a_small_block)
{
	uint64_t unit, bytes;

	cr_assert(eq(int, device.ops->granularity(&device, &unit, NULL), 0));
	reserves(1);
	gpuwm_reservation_address(reservation, &bytes);
	cr_assert(eq(u64, bytes, unit));
	occupies();
	frees();
	cr_assert(eq(int, gpuwm_reservation_free(NULL), 0));
}

TestBoth(reserve, sizes_that_are_none_are_refused)
{
	cr_assert(eq(int, gpuwm_reserve(device.id, 0, &reservation), -EINVAL));
	cr_assert(eq(int, gpuwm_reserve(device.id, UINT64_MAX, &reservation), -EINVAL));
	cr_assert(
		lt(int, gpuwm_reserve(device.id, GIB(131072), &reservation), 0)); /* all addresses there are */
}

Test(reserve_host, devices_that_are_none_are_refused)
{
	cr_assert(eq(int, gpuwm_reserve(NULL, 1, &reservation), -EINVAL));
	cr_assert(eq(int, gpuwm_reserve("tape", 1, &reservation), -EINVAL));
	cr_assert(strstr(gpuwm_error()->message, "tape") != NULL);
}

/* In a child, which inherits neither the memory nor descriptors. */
static int refused_in_the_child(void)
{
	bool refused = gpuwm_vacate(reservation) == -ECHILD && gpuwm_occupy(reservation, 0) == -ECHILD &&
		       gpuwm_reservation_free(reservation) == -ECHILD;

	return refused && fd_count() == fds_before ? 0 : 1;
}

Test(reserve_host, a_child_has_nothing_of_it)
{
	reserves(BYTES);
	cr_assert(eq(int, IN_CHILD(refused_in_the_child()), 0));
	vacates();
	cr_assert(eq(int, IN_CHILD(refused_in_the_child()), 0));
	occupies();
	cr_assert(eq(int, IN_CHILD(refused_in_the_child()), 0));
	frees();
}

static int occupies_without_descriptors(void)
{
	struct rlimit before, none;

	if (gpuwm_reserve("host", BYTES, &reservation) < 0 || getrlimit(RLIMIT_NOFILE, &before) < 0)
		return 1;
	none = before;
	none.rlim_cur = 0;
	if (setrlimit(RLIMIT_NOFILE, &none) < 0 || gpuwm_occupy(reservation, 0) != -EMFILE)
		return 2;
	setrlimit(RLIMIT_NOFILE, &before);
	return gpuwm_occupy(reservation, 0) == 0 ? 0 : 3;
}

Test(reserve_host, may_be_occupied_later_where_there_is_no_memory)
{
	cr_assert(eq(int, IN_CHILD(occupies_without_descriptors()), 0));
}

static int reserves_without_descriptors(void)
{
	struct rlimit none = {0};

	setrlimit(RLIMIT_NOFILE, &none);
	return gpuwm_reserve("host", BYTES, &reservation) == -EMFILE ? 0 : 1;
}

Test(reserve_host, a_block_that_can_not_be_made_is_an_error)
{
	cr_assert(eq(int, IN_CHILD(reserves_without_descriptors()), 0));
}

#ifdef GPUWM_CUDA

static void setup_cuda(void)
{
	char id[CUDA_ID_BYTES], run[32];

	if (!getenv("GPUWM_TEST_BACKEND") || strcmp(getenv("GPUWM_TEST_BACKEND"), "host") == 0)
		cr_skip("GPUWM_TEST_BACKEND is not set: no CUDA driver to test with");
	snprintf(run, sizeof(run), "reserve%d", getpid());
	setenv("FAKECUDA_RUN", run, 1); /* nobody else's memory counts */
	setenv("FAKECUDA_DIRTY", "1", 1);
	setenv("FAKECUDA_MEMORY", "2G",
	       1); /* a test takes all of it, several times, and each byte is written */
	cr_assert(eq(int, cuda_id(0, id, NULL), 0));
	setup_on(id);
}

TestSuite(reserve_cuda, .init = setup_cuda, .timeout = 60);

static void memory_info(size_t *ret_free, size_t *ret_total)
{
	const struct cuda_driver *cuda;
	__typeof__(cuMemGetInfo_v2) *info;

	cr_assert(eq(int, cuda_open(&cuda, NULL), 0));
	info = (__typeof__(cuMemGetInfo_v2) *)dlsym(cuda->library, "cuMemGetInfo_v2");
	cr_assert(info != NULL);
	cr_assert(eq(int, device.ops->enter(&device, NULL), 0));
	cr_assert(eq(int, info(ret_free, ret_total), CUDA_SUCCESS));
	device.ops->leave(&device);
}

static uint64_t used_by_this_process(void)
{
	size_t free_bytes, total;

	memory_info(&free_bytes, &total);
	return total - free_bytes;
}

static uint64_t memory_bytes(void)
{
	size_t free_bytes, total;

	memory_info(&free_bytes, &total);
	return total;
}

static void need_fakecuda(void)
{
	if (strcmp(getenv("GPUWM_TEST_BACKEND"), "fakecuda") != 0)
		cr_skip("a real GPU has other users, and fails when it likes");
}

static void *gives_back(void *memory)
{
	/* As soon as somebody wants more than there is. */
	while (used_by_this_process() < memory_bytes())
		;
	device.ops->release(&device, memory);
	return NULL;
}

Test(reserve_cuda, waits_for_memory_that_comes_back)
{
	struct memory_segment taken;
	pthread_t thread;
	struct error error;
	uint64_t most = memory_bytes();

	need_fakecuda(); /* it takes all memory of the GPU */
	cr_assert(eq(int, device.ops->create(&device, most - GIB(1), &taken, &error), 0), "%s", error.message);
	reserves(GIB(2));
	cr_assert(eq(int, gpuwm_occupy(reservation, 0), -ENOSPC));
	cr_assert(strstr(gpuwm_error()->message, "the last 1073741824 are missing") != NULL, "%s",
		  gpuwm_error()->message);
	cr_assert(eq(int, gpuwm_occupy(reservation, 20), -ENOSPC));
	cr_assert(eq(int, pthread_create(&thread, NULL, gives_back, &taken), 0));
	cr_assert(eq(int, gpuwm_occupy(reservation, -1), 0), "%s", gpuwm_error()->message);
	pthread_join(thread, NULL);
	cr_assert(eq(int, byte_at(GIB(2) - 1), 0));
	frees();
}

Test(reserve_cuda, takes_what_is_mapped_and_gives_all_back)
{
	uint64_t before;

	cr_assert(eq(int, device.ops->hold(&device, NULL), 0));
	before = used_by_this_process();
	reserves(BYTES);
	cr_assert(eq(u64, used_by_this_process() - before, BLOCK));
	vacates();
	cr_assert(eq(u64, used_by_this_process(), before));
	vacates(); /* changes nothing */
	occupies();
	vacates();
	cr_assert(eq(u64, used_by_this_process() - before, BYTES));
	frees();
	cr_assert(eq(u64, used_by_this_process(), before));
	device.ops->unhold(&device);
}

Test(reserve_cuda, waits_for_no_stream_that_is_captured)
{
	reserves(BYTES);
	gpuwm_capture_begin();
	cr_assert(eq(int, gpuwm_vacate(reservation), -EBUSY));
	cr_assert(eq(int, gpuwm_occupy(reservation, 0), -EBUSY));
	cr_assert(eq(int, gpuwm_reservation_free(reservation), -EBUSY));
	gpuwm_capture_end();
	occupies();
	frees();
}

/* ---- faults: what fails in a process whose driver fails, "function:n:result,…" ---- */

static const char *failing;

/* 0: the error is told, and nothing is left. */
static int reserve_fails(int expected)
{
	uint64_t before;

	setenv("FAKECUDA_FAIL", failing, 1);
	setup_cuda();
	before = used_by_this_process();
	if (gpuwm_reserve(device.id, BYTES, &reservation) != expected || !*gpuwm_error()->message)
		return 1;
	return used_by_this_process() == before ? 0 : 2;
}

static void reserves_where_it_fails(void)
{
	setenv("FAKECUDA_FAIL", failing, 1);
	setup_cuda();
	cr_assert(eq(int, device.ops->hold(&device, NULL), 0));
	reserves(BYTES);
}

/* 0: the error is told, and the block is there as before. */
static int vacate_fails(int expected)
{
	reserves_where_it_fails();
	put_at(5, 7);
	if (gpuwm_vacate(reservation) != expected || !*gpuwm_error()->message)
		return 1;
	if (byte_at(BLOCK + 5) != 7)
		return 2;
	occupies();
	return gpuwm_reservation_free(reservation);
}

/* 0: the error is told, no memory is taken, and the call may be repeated. */
static int occupy_fails(int expected)
{
	uint64_t with_block;

	reserves_where_it_fails();
	with_block = used_by_this_process();
	if (gpuwm_occupy(reservation, 0) != expected || !*gpuwm_error()->message)
		return 1;
	if (used_by_this_process() != with_block - BLOCK)
		return 2;
	occupies();
	if (byte_at(BYTES - 1) != 0)
		return 3;
	return gpuwm_reservation_free(reservation);
}

struct fault {
	const char *plan;
	int expected;
};

static void each_fails(const struct fault *faults, size_t count, int (*test)(int expected))
{
	if (!getenv("GPUWM_TEST_BACKEND") || strcmp(getenv("GPUWM_TEST_BACKEND"), "fakecuda") != 0)
		cr_skip("a real driver fails when it likes");
	for (size_t i = 0; i < count; i++) {
		failing = faults[i].plan;
		cr_assert(eq(int, IN_CHILD(test(faults[i].expected)), 0), "%s", failing);
	}
}

TestSuite(reserve_faults, .timeout = 60);

Test(reserve_faults, a_reservation_that_fails_leaves_nothing)
{
	static const struct fault faults[] = {
		{"cuMemGetAllocationGranularity:1:999", -EIO},
		{"cuMemAddressReserve:1:2", -ENOMEM},
		{"cuMemCreate:1:2", -ENOSPC},
		{"cuMemMap:2:999", -EIO},
		{"cuMemSetAccess:3:999", -EIO},
		{"cuMemsetD8_v2:1:999", -EIO},
		{"cuDevicePrimaryCtxRetain:2:2", -ENOSPC},
	};

	each_fails(faults, sizeof(faults) / sizeof(faults[0]), reserve_fails);
}

Test(reserve_faults, the_block_stays_when_vacating_fails)
{
	static const struct fault faults[] = {
		{"cuMemUnmap:1:999", -EIO},
		{"cuCtxSynchronize:1:999", -EIO},
	};

	each_fails(faults, sizeof(faults) / sizeof(faults[0]), vacate_fails);
}

Test(reserve_faults, nothing_is_taken_when_occupying_fails)
{
	static const struct fault faults[] = {
		{"cuMemCreate:2:2", -ENOSPC},
		{"cuMemMap:4:999", -EIO},
		{"cuMemSetAccess:4:999", -EIO},
		{"cuMemsetD8_v2:2:999", -EIO},
	};

	each_fails(faults, sizeof(faults) / sizeof(faults[0]), occupy_fails);
}

#endif
