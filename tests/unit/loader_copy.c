/* How a source gets into memory: pieces, readers, replicas, and what goes wrong. */
#include "tests/support/loader/copied.h"
#include "tests/support/any/page_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

TestSuite(copy, .init = copied_setup, .fini = copied_teardown);

Test(copy, fills_host_memory_and_digests_it)
{
	struct copy_target target = {.device = &host, .addresses = (void *const *)memory[0]};

	cr_assert_eq(copy_to(&target, 1, (struct copy){0}), 0, "%s", error.message);
	expect_copied(0);
}

Test(copy, takes_any_chunk_and_any_number_of_readers)
{
	struct copy_target target = {.device = &host, .addresses = (void *const *)memory[0]};

	for (size_t chunk = 8; chunk <= 4096; chunk *= 8)
		for (unsigned readers = 1; readers <= COPY_READERS_MAX + 1; readers += 4) {
			memset(memory[0][1], 0, BIG);
			cr_assert_eq(copy_to(&target, 1, (struct copy){.chunk = chunk, .readers = readers}), 0,
				     "%s", error.message);
			expect_copied(0);
		}
}

Test(copy, writes_replicas_from_one_reading)
{
	struct copy_target targets[] = {{.device = &host, .addresses = (void *const *)memory[0]},
					{.device = &host, .addresses = (void *const *)memory[1]}};

	cr_assert_eq(copy_to(targets, 2, (struct copy){.chunk = 1024, .readers = 3}), 0, "%s", error.message);
	expect_copied(0);
	expect_copied(1);
}

Test(copy, goes_through_the_ring_to_other_devices)
{
	struct memory_device first = other(1000000), second = first;
	struct copy_target targets[] = {{.device = &first, .addresses = (void *const *)memory[0]},
					{.device = &second, .addresses = (void *const *)memory[1]}};

	cr_assert_eq(copy_to(targets, 2, (struct copy){.chunk = 4096, .readers = 4}), 0, "%s", error.message);
	expect_copied(0);
	expect_copied(1);
}

Test(copy, has_a_reader_for_each_buffer_at_most)
{
	struct memory_device device = other(1000000);
	struct copy_target target = {.device = &device, .addresses = (void *const *)memory[0]};

	for (buffers = 1; buffers <= 3; buffers++) {
		memset(memory[0][1], 0, BIG);
		cr_assert_eq(copy_to(&target, 1, (struct copy){.chunk = 512, .readers = 8}), 0, "%s",
			     error.message);
		cr_expect_eq(report.readers, buffers);
		expect_copied(0);
	}
}

Test(copy, tells_what_a_device_says)
{
	struct memory_device device = other(3);
	struct copy_target target = {.device = &device, .addresses = (void *const *)memory[0]};

	cr_assert_eq(copy_to(&target, 1, (struct copy){.chunk = 1024, .readers = 4}), -EIO);
	cr_assert_str_eq(error.message, "the device is gone");
	cr_assert_gt(writes_left, -20, "the others stop too");
}

struct watcher {
	uint64_t bytes;
	int answer;
};

static int watch(uint64_t bytes, void *user_data)
{
	struct watcher *watcher = user_data;

	watcher->bytes += bytes;
	return watcher->answer;
}

Test(copy, tells_every_byte)
{
	struct copy_target target = {.device = &host, .addresses = (void *const *)memory[0]};
	struct watcher watcher = {0};

	cr_assert_eq(copy_to(&target, 1, (struct copy){.chunk = 8, .progress = watch, .user_data = &watcher}),
		     0);
	cr_assert_eq(watcher.bytes, BIG + 21);
}

/* The device does not go on before the copy was stopped. */
static int stopped;

static int slow_write(const struct memory_device *device, void *to, const void *from, uint64_t bytes,
		      struct error *write_error)
{
	(void)device;
	(void)write_error;
	memcpy(to, from, bytes);
	while (!__atomic_load_n(&stopped, __ATOMIC_ACQUIRE))
		sched_yield();
	return 0;
}

static int stop(uint64_t bytes, void *user_data)
{
	*(uint64_t *)user_data += bytes;
	__atomic_store_n(&stopped, 1, __ATOMIC_RELEASE);
	return -ECANCELED;
}

Test(copy, stops_between_pieces, .timeout = 120)
{
	struct memory_device device = other(0);
	struct copy_target target = {.device = &device, .addresses = (void *const *)memory[0]};
	uint64_t told = 0;

	other_ops.write = slow_write;
	cr_assert_eq(copy_to(&target, 1,
			     (struct copy){.chunk = 1024, .readers = 2, .progress = stop, .user_data = &told}),
		     -ECANCELED);
	cr_assert_eq(error.code, 0, "who stopped it knows why");
	cr_assert_lt(told, BIG);
}

Test(copy, names_a_file_that_was_truncated)
{
	struct copy_target target = {.device = &host, .addresses = (void *const *)memory[0]};

	cr_assert_eq(truncate(in_folder("m.safetensors"), 50000), 0);
	cr_assert_eq(copy_to(&target, 1, (struct copy){.chunk = 1024, .readers = 2}), -EIO);
	cr_assert(strstr(error.message, "m.safetensors was truncated while it was read"), "%s", error.message);
	cr_assert(strstr(error.message, "byte 50000"), "%s", error.message);
}

Test(copy, names_a_file_that_was_written)
{
	struct copy_target target = {.device = &host, .addresses = (void *const *)memory[0]};

	cr_assert_eq(utimensat(AT_FDCWD, in_folder("m.safetensors"), (struct timespec[2]){{1, 0}, {1, 0}}, 0),
		     0);
	cr_assert_eq(copy_to(&target, 1, (struct copy){0}), -EIO);
	cr_assert(strstr(error.message, "m.safetensors was written while it was read"), "%s", error.message);
}

Test(copy, copies_nothing_of_nothing)
{
	struct copy_target target = {.device = &host, .addresses = (void *const *)memory[0]};

	source.tensor_count = 0;
	cr_assert_eq(copy_to(&target, 1, (struct copy){0}), 0, "%s", error.message);
	source.tensor_count = TENSORS;
}
