/* Readers fill the first buffers before anything of a GPU is there. */
#include "loader/copy/copy.h"
#include "loader/devices/lanes.h"

#include "tests/support/loader/files.h"

#include <errno.h>
#include <unistd.h>

#define TENSOR_BYTES 100000
#define CHUNK 4096

static struct error error;
static struct source source;
static struct memory_device device;
static struct memory_ops ops;
static char *memory;
static struct digest digest;
static struct copy_report report;
static struct ring ring;
static struct lanes *lanes;
static int opened; /* calls of `open` */

static int write_memory(const struct memory_device *unused, void *to, const void *from, uint64_t bytes,
			struct error *never)
{
	(void)unused;
	(void)never;
	memcpy(to, from, bytes);
	return 0;
}

static void setup(void)
{
	char *roots[] = {folder};

	folder_make();
	write_safetensors(in_folder("m.safetensors"),
			  "{\"a\":{\"dtype\":\"U8\",\"shape\":[100000],\"data_offsets\":[0,100000]}}",
			  TENSOR_BYTES);
	cr_assert_eq(source_open(in_folder("m.safetensors"), &(struct load_choice){0},
				 &(struct roots){.paths = roots, .count = 1}, &source, &error),
		     0, "%s", error.message);
	/* A device that is not `host`, so that there are lanes. */
	ops = memory_host;
	ops.write = write_memory;
	device = (struct memory_device){.ops = &ops, .id = "GPU-x"};
	memory = calloc(1, TENSOR_BYTES);
	cr_assert_eq(ring_make(copy_buffer_bytes(CHUNK), 6, &ring, &error), 0, "%s", error.message);
}

static void teardown(void)
{
	lanes_close(lanes);
	ring.pinned = 0; /* nothing was */
	ring_free(&ring);
	free(memory);
	source_close(&source);
	folder_remove();
}

TestSuite(copy_ahead, .init = setup, .fini = teardown, .timeout = 60);

static int copy_with(int (*open)(struct lanes **, void *, struct error *), memory_progress_fn *progress)
{
	void *addresses[] = {memory};
	struct copy_target target = {.device = &device, .addresses = addresses};
	struct copy copy = {
		.source = &source,
		.targets = &target,
		.target_count = 1,
		.ring = &ring,
		.open = open,
		.open_data = &target,
		.chunk = CHUNK,
		.readers = 3,
		.progress = progress,
	};

	return copy_run(&copy, &digest, &report, &error);
}

static void expect_copied(void)
{
	for (size_t i = 0; i < TENSOR_BYTES; i++)
		cr_assert_eq((uint8_t)memory[i], (uint8_t)i, "byte %zu", i);
}

static unsigned filled_buffers(void)
{
	unsigned count = 0;

	for (size_t i = 0; i < ring.count; i++) {
		const char *buffer = ring_buffer(&ring, i);
		bool filled = false;

		for (size_t k = 0; k < ring.chunk && !filled; k++)
			filled = __atomic_load_n(&buffer[k], __ATOMIC_RELAXED);
		count += filled;
	}
	return count;
}

static int open_now(struct lanes **ret, void *target, struct error *why)
{
	int r = lanes_open(target, 1, ring.count, &lanes, why);

	opened++;
	*ret = lanes;
	return r;
}

/* As a GPU that takes its time: it comes when every reader has filled a buffer. */
static int open_late(struct lanes **ret, void *target, struct error *why)
{
	while (filled_buffers() < 3)
		usleep(1000);
	for (size_t i = 0; i < TENSOR_BYTES; i++)
		cr_assert_eq(memory[i], 0, "nothing is sent before");
	return open_now(ret, target, why);
}

Test(copy_ahead, buffers_are_filled_before_there_are_lanes)
{
	cr_assert_eq(copy_with(open_late, NULL), 0, "%s", error.message);
	cr_expect_eq(opened, 1);
	expect_copied();
}

static int fail_late(struct lanes **ret, void *target, struct error *why)
{
	(void)ret;
	(void)target;
	while (filled_buffers() < 3)
		usleep(1000);
	return error_set(why, -ENOSPC, NULL, "no room for a CUDA context");
}

/* Readers that wait for lanes in vain end. */
Test(copy_ahead, that_never_gets_lanes_ends)
{
	cr_assert_eq(copy_with(fail_late, NULL), -ENOSPC);
	cr_expect_str_eq(error.message, "no room for a CUDA context");
	cr_expect_eq(memory[1], 0);
}

static int stop(uint64_t bytes, void *unused)
{
	(void)bytes;
	(void)unused;
	return -ECANCELED;
}

Test(copy_ahead, can_be_stopped)
{
	cr_assert_eq(copy_with(open_late, stop), -ECANCELED);
}

/* Two of six buffers: what was read into the others is sent, and they are left alone then. */
static int open_few(struct lanes **ret, void *target, struct error *why)
{
	while (filled_buffers() < 3)
		usleep(1000);
	ring.pinned = 2;
	return open_now(ret, target, why);
}

Test(copy_ahead, goes_on_with_the_buffers_that_were_pinned)
{
	cr_assert_eq(copy_with(open_few, NULL), 0, "%s", error.message);
	expect_copied();
	cr_expect_leq(filled_buffers(), 3, "the others were not used");
}

static int open_one(struct lanes **ret, void *target, struct error *why)
{
	int r = open_few(ret, target, why);

	ring.pinned = 1;
	return r;
}

Test(copy_ahead, goes_on_with_fewer_buffers_than_readers)
{
	cr_assert_eq(copy_with(open_one, NULL), 0, "%s", error.message);
	expect_copied();
}
