#include "published.h"

#ifdef GPUWM_CUDA
#include "memory/cuda.h"
#endif

#include <sys/mman.h>
#include <sys/wait.h>

#define FIRST_BYTES (MIB(1) + 512)

/* "b" and "c" lie in the second segment. */
static const uint64_t shapes[TENSORS][2] = {{3, 64}, {FIRST_BYTES / 64, 64}, {2, 600000}};
const struct gpuwm_tensor_spec specs[TENSORS] = {
	{.name = "c", .dtype = GPUWM_F16, .ndim = 2, .shape = shapes[0]},
	{.name = "a", .dtype = GPUWM_U8, .ndim = 2, .shape = shapes[1]},
	{.name = "b", .dtype = GPUWM_U8, .ndim = 2, .shape = shapes[2]},
};

void published_start_on(const char *device_id)
{
	struct gpuwm_connect_options options;

	fds_before = fd_count();
	fake = fake_start();
	strcpy(fake->device, device_id);
	options = to_fake();
	options.restart_ms = 5000;
	client = client_with(&options);
}

struct gpuwm_publish *begin(bool stepwise)
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
static uint8_t byte_of(size_t position, size_t at)
{
	return (uint8_t)(1 + position * 89 + at % 251);
}

void fill(struct gpuwm_publish *publish, size_t position)
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

struct gpuwm_publish *begin_exported(struct DLManagedTensor *ret[TENSORS])
{
	struct gpuwm_publish *publish = begin(true);

	for (size_t i = 0; i < TENSORS; i++) {
		cr_assert(eq(int, gpuwm_publish_dlpack(publish, i, &ret[i]), 0), "%s", gpuwm_error()->message);
		fill(publish, i);
	}
	return publish;
}

bool holds(const void *data, size_t position)
{
	const uint8_t *bytes = data;
	const uint64_t count = shapes[position][0] * shapes[position][1] * (position == 0 ? 2 : 1);

	for (size_t i = 0; i < count; i++) {
		if (bytes[i] != byte_of(position, i))
			return false;
	}
	return true;
}

void expect_exports(struct DLManagedTensor *const exports[TENSORS], bool writable)
{
	for (size_t i = 0; i < TENSORS; i++) {
		cr_assert(can_read(exports[i]->dl_tensor.data), "tensor %zu", i);
		cr_assert(holds(exports[i]->dl_tensor.data, i), "tensor %zu", i);
		cr_assert(eq(int, can_write(exports[i]->dl_tensor.data), writable), "tensor %zu", i);
	}
}

void free_exports(struct DLManagedTensor *const exports[TENSORS])
{
	for (size_t i = 0; i < TENSORS; i++)
		exports[i]->deleter(exports[i]);
}

void published_stop(void)
{
	gpuwm_close(client);
	/* The library's thread may be on its way to close the last connection. */
	UNTIL(fake->peer_count <= 3);
	fake_stop(fake);
	UNTIL(fd_count() == fds_before);
}

#ifdef GPUWM_CUDA

void published_start_cuda(void)
{
	char id[CUDA_ID_BYTES];

	if (!getenv("GPUWM_TEST_BACKEND") || strcmp(getenv("GPUWM_TEST_BACKEND"), "fakecuda") != 0)
		cr_skip("needs GPUWM_TEST_BACKEND=fakecuda: the CPU looks at the memory");
	cr_assert(eq(int, cuda_id(0, id, NULL), 0));
	published_start_on(id);
}

#endif
