/* Moves between a GPU and host memory, on tests/fakecuda where GPUWM_TEST_BACKEND says so. */
#include "tests/support/any/huge_pages.h"
#include "tests/support/loader/moved.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static int pages_left = -1; /* so many calls that make pages go well; -1: all do */

static bool no_pages(void)
{
	if (pages_left == 0) {
		errno = ENOSPC;
		return true;
	}
	pages_left -= pages_left > 0;
	return false;
}

/* In the place of the C library's: host memory that ends half-way. */
int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
	return no_pages() ? -1 : (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
}

/* For huge pages. */
int madvise(void *address, size_t bytes, int advice)
{
	return advice == MADV_POPULATE_WRITE && no_pages() ? -1
							   : (int)syscall(SYS_madvise, address, bytes, advice);
}

TestSuite(move_gpu, .init = move_begin, .fini = move_end, .timeout = 120);

static void send_memory(const char *from, const char *to, const char *device, int64_t changed)
{
	if (!on_fakecuda())
		cr_skip_test("it takes a GPU");
	moved_make(device, changed, &part);
	send_move(from, to, NULL, &part);
}

Test(move_gpu, goes_to_the_host)
{
	send_memory("device", "host", MOVED_GPU, -1);
	expect_moved(&moved);
	expect_whole(DEVICE_HOST, &part, &moved);
	move_done();
}

Test(move_gpu, goes_into_huge_pages_of_the_host)
{
	const long before = huge_pages_kilobytes();

	if (!huge_pages_advised())
		cr_skip_test("/sys/kernel/mm/transparent_hugepage/shmem_enabled does not say advise");
	send_memory("device", "host", MOVED_GPU, -1);
	expect_moved(&moved);
	cr_expect_geq(huge_pages_kilobytes() - before, 2048); /* others come and go */
	move_done();
}

Test(move_gpu, comes_back_from_the_host)
{
	send_memory("host", "device", DEVICE_HOST, -1);
	expect_moved(&moved);
	expect_whole(MOVED_GPU, &part, &moved);
	move_done();
}

/* Which segment of the version is damaged, as loader_done says; -1: it says none. */
static int64_t damaged(void)
{
	struct fields f;

	fields_of(&f, message.body);
	return fields_have(&f, "segment") ? (int64_t)fields_u64(&f, "segment") : -1;
}

static void expect_damage(void)
{
	part_close(&part);
	expect("loader_done");
	cr_expect_eq(damaged(), 0);
	answer_empty();
	expect_end(0);
}

Test(move_gpu, damage_on_the_gpu_is_told)
{
	send_memory("device", "host", MOVED_GPU, 300);
	expect_damage();
}

Test(move_gpu, damage_on_the_host_is_told)
{
	send_memory("host", "device", DEVICE_HOST, 300);
	expect_damage();
}

Test(move_gpu, damage_between_tensors_is_told)
{
	send_memory("device", "host", MOVED_GPU, MIB(1));
	expect_damage();
}

/* Memory that is smaller than gpuwmd says, or not sealed. */
Test(move_gpu, memory_that_is_none_is_no_damage)
{
	if (!on_fakecuda())
		cr_skip_test("it takes a GPU");
	moved_make(DEVICE_HOST, -1, &part);
	close(part.segments[1].fd);
	part.segments[1].fd = memfd_create("short", MFD_CLOEXEC);
	send_move("host", "device", NULL, &part);
	move_failed("EIO", "segment 1 of m@v1 in host memory: ");
}

Test(move_gpu, segments_of_other_sizes_are_no_damage)
{
	if (!on_fakecuda())
		cr_skip_test("it takes a GPU");
	moved_make(MOVED_GPU, -1, &part);
	part.segments[1].bytes += 4096;
	send_move("device", "host", NULL, &part);
	move_failed("EIO", "segment 1: the index says 6291456 bytes, the job says 6295552");
}

Test(move_gpu, a_descriptor_that_is_no_gpu_memory_is_no_damage)
{
	if (!on_fakecuda())
		cr_skip_test("it takes a GPU");
	moved_make(DEVICE_HOST, -1, &part);
	send_move("device", "host", NULL, &part);
	move_failed("EIO", "segment 0: ");
}

Test(move_gpu, host_memory_that_ends_half_way_is_an_error)
{
	pages_left = 1;
	send_memory("device", "host", MOVED_GPU, -1);
	move_failed("ENOSPC", "of host memory: No space left on device");
}

Test(move_gpu, ends_when_it_is_cancelled_while_it_goes)
{
	send_memory("device", "host", MOVED_GPU, -1);
	move_cancel_when("mapping");
	move_failed("ECANCELED", "cancelled while ");
}

static void begin_failing(const char *call)
{
	setenv("FAKECUDA_FAIL", call, 1);
	move_begin();
}

static void no_reading(void)
{
	begin_failing("cuMemcpyDtoH_v2:0:999");
}

Test(move_short, the_gpu_can_not_be_read, .init = no_reading, .fini = move_end, .timeout = 120)
{
	send_memory("device", "host", MOVED_GPU, -1);
	move_failed("EIO", "copying from the GPU");
}

static void no_copying(void)
{
	begin_failing("cuMemcpyHtoDAsync_v2:1:999");
}

Test(move_short, the_gpu_can_not_be_written, .init = no_copying, .fini = move_end, .timeout = 120)
{
	send_memory("host", "device", DEVICE_HOST, -1);
	move_failed("EIO", "copying to ");
}

static void no_room(void)
{
	begin_failing("cuMemCreate:1:2");
}

Test(move_short, the_gpu_has_no_room, .init = no_room, .fini = move_end, .timeout = 120)
{
	send_memory("host", "device", DEVICE_HOST, -1);
	move_failed("ENOSPC", "no room for ");
}

static void no_clearing(void)
{
	begin_failing("cuMemsetD8_v2:0:1");
}

Test(move_short, what_is_not_cleared_is_not_handed_over, .init = no_clearing, .fini = move_end, .timeout = 120)
{
	if (!on_fakecuda())
		cr_skip_test("it takes a GPU");
	move_write_ranks(NULL);
	move_send_files("files", "device");
	move_failed("EIO", "filling memory with zeros");
}

static void flips(void)
{
	setenv("FAKECUDA_FLIP", "1", 1);
	move_begin();
}

static void flips_back(void)
{
	setenv("FAKECUDA_FLIP_BACK", "1", 1);
	move_begin();
}

/* The version is as it was, so it is not told to be damaged. */
static void expect_no_damage(const char *says)
{
	part_close(&part);
	expect("loader_done");
	cr_expect_eq(damaged(), -1);
	expect_error("EIO", says);
	answer_empty();
	expect_end(0);
}

Test(move_short, a_bit_that_flips_on_its_way_is_no_damage, .init = flips, .fini = move_end, .timeout = 120)
{
	send_memory("host", "device", DEVICE_HOST, -1);
	expect_no_damage("the bytes that arrived on " MOVED_GPU " are not those that lie on host: ");
}

Test(move_short, a_bit_that_flips_on_its_way_to_the_host_is_no_damage, .init = flips_back, .fini = move_end,
     .timeout = 120)
{
	if (!on_fakecuda())
		cr_skip_test("it takes a GPU");
	send_memory("device", "host", MOVED_GPU, -1);
	expect_no_damage("the bytes that arrived on host are not those that lie on " MOVED_GPU ": ");
}
