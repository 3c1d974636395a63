/* What tests of publishing in place share: a fake gpuwmd, and a publish of three tensors in two segments. */
#ifndef LIB_PUBLISHED_H
#define LIB_PUBLISHED_H

#include "include/gpuwm/client.h"
#include "include/gpuwm/dlpack.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "lib_fake.h"
#include "reach.h"

#define TENSORS 3
#define FIRST_BYTES (MIB(1) + 512)

static struct fake *fake;
static struct gpuwm_client *client;
static int fds_before;

/* "b" and "c" lie in the second segment. */
static const uint64_t shapes[TENSORS][2] = {{3, 64}, {FIRST_BYTES / 64, 64}, {2, 600000}};
static const struct gpuwm_tensor_spec specs[TENSORS] = {
	{.name = "c", .dtype = GPUWM_F16, .ndim = 2, .shape = shapes[0]},
	{.name = "a", .dtype = GPUWM_U8, .ndim = 2, .shape = shapes[1]},
	{.name = "b", .dtype = GPUWM_U8, .ndim = 2, .shape = shapes[2]},
};

static inline void start_on(const char *device)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);

	fds_before = open_fds();
	fake = fake_start();
	strcpy(fake->device, device);
	options.socket = fake->path;
	options.restart_ms = 5000;
	cr_assert(eq(int, gpuwm_connect(&options, &client), 0), "%s", gpuwm_error()->message);
}

static inline struct gpuwm_publish *begin(bool stepwise)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	struct gpuwm_publish *publish = NULL;

	options.name = "m@v1";
	options.device = fake->device;
	options.segment_bytes = MIB(2);
	options.stepwise = stepwise;
	cr_assert(eq(int, gpuwm_publish_begin(client, &options, specs, TENSORS, &publish), 0), "%s",
		  gpuwm_error()->message);
	return publish;
}

/* What byte `at` of tensor `position` is. */
static inline uint8_t byte_of(size_t position, size_t at)
{
	return (uint8_t)(1 + position * 89 + at % 251);
}

static inline void fill(struct gpuwm_publish *publish, size_t position)
{
	uint64_t bytes;
	uint8_t *data;
	void *place;

	cr_assert(eq(int, gpuwm_publish_memory(publish, position, &place, &bytes), 0));
	data = malloc(bytes);
	for (size_t i = 0; i < bytes; i++)
		data[i] = byte_of(position, i);
	cr_assert(eq(int, gpuwm_publish_write(publish, position, 0, data, bytes), 0));
	free(data);
}

/* Of tensors that are all filled; *ret: an export of each. */
static inline struct gpuwm_publish *begin_exported(struct DLManagedTensor *ret[TENSORS])
{
	struct gpuwm_publish *publish = begin(true);

	for (size_t i = 0; i < TENSORS; i++) {
		cr_assert(eq(int, gpuwm_publish_dlpack(publish, i, &ret[i]), 0), "%s", gpuwm_error()->message);
		fill(publish, i);
	}
	return publish;
}

/* By the CPU: host memory, or that of the stand-in. */
static inline bool holds(const void *data, size_t position)
{
	const uint8_t *bytes = data;
	const uint64_t count = shapes[position][0] * shapes[position][1] * (position == 0 ? 2 : 1);

	for (size_t i = 0; i < count; i++) {
		if (bytes[i] != byte_of(position, i))
			return false;
	}
	return true;
}

static inline void expect_exports(struct DLManagedTensor *const exports[TENSORS], bool writable)
{
	for (size_t i = 0; i < TENSORS; i++) {
		cr_assert(can_read(exports[i]->dl_tensor.data), "tensor %zu", i);
		cr_assert(holds(exports[i]->dl_tensor.data, i), "tensor %zu", i);
		cr_assert(eq(int, can_write(exports[i]->dl_tensor.data), writable), "tensor %zu", i);
	}
}

static inline void free_exports(struct DLManagedTensor *const exports[TENSORS])
{
	for (size_t i = 0; i < TENSORS; i++)
		exports[i]->deleter(exports[i]);
}

static inline unsigned leases(void)
{
	return __atomic_load_n(&fake->leases, __ATOMIC_SEQ_CST);
}

static inline void refuses(const char *method, int code)
{
	error_set(&fake->refusal, code, NULL, "%s is refused", method);
	strcpy(fake->refuse, method);
}

/* What a forked child of the test ended with. */
static inline int child_status(pid_t child)
{
	int status;

	cr_assert(eq(int, waitpid(child, &status, 0), child));
	return status;
}

static inline void stop(void)
{
	gpuwm_close(client);
	/* The library's thread may be on its way to close the last connection. */
	UNTIL(fake->peer_count <= 3);
	fake_stop(fake);
	UNTIL(open_fds() == fds_before);
}

#ifdef GPUWM_CUDA

#include "client/lib/cuda.h"

static inline void start_cuda(void)
{
	char id[CUDA_ID_BYTES];

	if (!getenv("GPUWM_TEST_BACKEND") || strcmp(getenv("GPUWM_TEST_BACKEND"), "fakecuda") != 0)
		cr_skip("needs GPUWM_TEST_BACKEND=fakecuda: the CPU looks at the memory");
	cr_assert(eq(int, cuda_id(0, id, NULL), 0));
	start_on(id);
}

#endif

#endif
