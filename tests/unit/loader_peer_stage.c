/* Where messages lie while they are sent: host memory, and a GPU's with a transport that carries it, or that does not. */
#include "memory/memory_ipc.h"
#include "peer/stage.h"
#include "tests/support/any/pieces.h"
#include "tests/support/peer/wire_local.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BYTES MIB(2)

static struct memory_device device;
static struct wire_ops ops;
static struct wire *wire;
static struct stage *stage;
static struct error error;
static void *registered;
static uint8_t bytes[BYTES], back[BYTES];

static bool carries_gpu(const struct wire *unused)
{
	(void)unused;
	return true;
}

static void add_memory(struct wire *unused, void *data, size_t size, enum wire_memory memory)
{
	(void)unused;
	cr_expect_eq(memory, WIRE_CUDA);
	cr_expect_eq(size, STAGE_PLACES_GPU * BYTES);
	registered = data;
}

static void begin(const char *id, bool carries)
{
	char run[32];

	/* The stand-in's memory is this test's alone. */
	snprintf(run, sizeof(run), "stage%d", (int)getpid());
	setenv("FAKECUDA_RUN", run, 1);
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (uint8_t)(i * 7 + i / 256);
	cr_assert_eq(memory_device_open(id, &device, &error), 0, "%s", error.message);
	cr_assert_eq(device.ops->enter(&device, &error), 0, "%s", error.message);
	ops = wire_local;
	ops.carries_gpu = carries ? carries_gpu : NULL;
	ops.add_memory = add_memory;
	cr_assert_eq(wire_open(&ops, true, &wire, &error), 0, "%s", error.message);
	cr_assert_eq(stage_new(&device, wire, BYTES, &stage, &error), 0, "%s", error.message);
}

static void end(void)
{
	wire_close(wire);
	stage_free(stage);
	device.ops->leave(&device);
}

#define GPU "GPU-fa4e0000-0000-4000-8000-000000000000"

static void put(const void *from, unsigned place, void **ret)
{
	cr_assert_eq(stage_put(stage, place, from, BYTES, ret, &error), 0, "%s", error.message);
}

Test(stage, sends_host_memory_from_where_it_is)
{
	void *at;

	begin("host", true);
	cr_expect_eq(stage_memory(stage), WIRE_HOST);
	put(bytes, 0, &at);
	cr_expect_eq(at, bytes);
	end();
}

Test(stage, copies_within_a_gpu_that_the_transport_knows)
{
	void *source, *at;

	if (!on_gpu())
		cr_skip("only with the stand-in driver");
	begin(GPU, true);
	cr_assert_eq(device.ops->ipc->alloc(BYTES, &source, &error), 0, "%s", error.message);
	cr_assert_eq(device.ops->write(&device, source, bytes, BYTES, &error), 0);
	cr_expect_eq(stage_memory(stage), WIRE_CUDA);
	put(source, 1, &at);
	cr_expect_eq(at, (char *)registered + BYTES);
	cr_assert_eq(device.ops->read(&device, back, at, BYTES, &error), 0);
	cr_expect_arr_eq(back, bytes, BYTES);
	device.ops->ipc->free(source);
	end();
}

Test(stage, reads_a_gpu_that_the_transport_does_not_know)
{
	void *source, *at;

	if (!on_gpu())
		cr_skip("only with the stand-in driver");
	begin(GPU, false);
	cr_assert_eq(device.ops->ipc->alloc(BYTES, &source, &error), 0, "%s", error.message);
	cr_assert_eq(device.ops->write(&device, source, bytes, BYTES, &error), 0);
	cr_expect_eq(stage_memory(stage), WIRE_HOST);
	put(source, 0, &at);
	cr_expect_arr_eq(at, bytes, BYTES);
	cr_expect_null(registered);
	/* A larger one gets another buffer. */
	cr_assert_eq(stage_put(stage, 1, source, BYTES / 2, &at, &error), 0);
	put(source, 1, &at);
	cr_expect_arr_eq(at, bytes, BYTES);
	device.ops->ipc->free(source);
	end();
}
