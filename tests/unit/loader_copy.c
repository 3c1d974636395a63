#include "../../loader/lanes.h"

#include "loader_files.h"

#include <errno.h>
#include <sched.h>

#define TENSORS 3
#define BIG 100000

static struct source source;
static struct error error;
static struct copy_report report;
static struct memory_device host;
static char *memory[2][TENSORS];
static struct digest digests[TENSORS];

/* A file of a (8 bytes), b (BIG bytes), c (13 bytes), and two places for each. */
static void setup(void)
{
	char *roots[] = {folder};

	folder_make();
	write_safetensors(in_folder("m.safetensors"),
			  "{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
			  "\"b\":{\"dtype\":\"U8\",\"shape\":[100000],\"data_offsets\":[8,100008]},"
			  "\"c\":{\"dtype\":\"U8\",\"shape\":[13],\"data_offsets\":[100008,100021]}}",
			  BIG + 21);
	cr_assert_eq(source_open(in_folder("m.safetensors"), &(struct roots){roots, 1}, &source, &error), 0,
		     "%s", error.message);
	cr_assert_eq(memory_device_open("host", &host, &error), 0);
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < TENSORS; k++)
			memory[i][k] = calloc(1, source.tensors[k].bytes);
}

static void teardown(void)
{
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < TENSORS; k++)
			free(memory[i][k]);
	source_close(&source);
	folder_remove();
}

TestSuite(copy, .init = setup, .fini = teardown);

static int copy_to(const struct copy_target *targets, size_t count, struct copy options)
{
	bool through_ring = targets[0].device->ops != &memory_host;
	struct ring ring;
	int r;

	options.source = &source;
	options.targets = targets;
	options.target_count = count;
	memset(&error, 0, sizeof(error));
	if (!through_ring)
		return copy_run(&options, digests, &report, &error);
	cr_assert_eq(ring_make(copy_buffer_bytes(options.chunk), 6, &ring, &error), 0);
	cr_assert_eq(lanes_open(targets, count, ring.count, &options.lanes, &error), 0);
	options.ring = &ring;
	r = copy_run(&options, digests, &report, &error);
	lanes_close(options.lanes);
	ring_free(&ring);
	return r;
}

static void expect_copied(int place)
{
	for (int k = 0; k < TENSORS; k++) {
		const struct source_tensor *tensor = &source.tensors[k];
		struct digest digest = digest_of(memory[place][k], tensor->bytes);

		for (uint64_t i = 0; i < tensor->bytes; i++)
			cr_assert_eq((uint8_t)memory[place][k][i],
				     (uint8_t)(tensor->offset - source.tensors[0].offset + i), "%s, byte %zu",
				     tensor->name, (size_t)i);
		cr_assert(digest_equal(&digest, &digests[k]), "%s", tensor->name);
	}
}

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

/* A device that is not `host`, so that the ring is used: writes go through. */
static struct memory_ops other_ops;
static int writes_left;

static int other_write(const struct memory_device *device, void *to, const void *from, uint64_t bytes,
		       struct error *write_error)
{
	(void)device;
	if (__atomic_fetch_sub(&writes_left, 1, __ATOMIC_RELAXED) <= 0)
		return error_set(write_error, -EIO, NULL, "the device is gone");
	memcpy(to, from, bytes);
	return 0;
}

static struct memory_device other(int writes)
{
	other_ops = memory_host;
	other_ops.write = other_write;
	writes_left = writes;
	return (struct memory_device){.ops = &other_ops, .id = "GPU-x"};
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

Test(copy, tells_what_a_device_says)
{
	struct memory_device device = other(3);
	struct copy_target target = {.device = &device, .addresses = (void *const *)memory[0]};

	cr_assert_eq(copy_to(&target, 1, (struct copy){.chunk = 1024, .readers = 4}), -EIO);
	cr_assert_str_eq(error.message, "the device is gone");
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

Test(copy, stops_between_pieces, .timeout = 20)
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
