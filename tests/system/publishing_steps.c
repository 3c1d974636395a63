/* Publishes whose memory is made piece by piece. */
#include "harness.h"

#include "tests/support/any/fd_count.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

SYSTEM_SUITE(publishing_steps);

#define COUNT 6
#define TENSOR MB(1) + 256

/* Tensors that fill a segment of 2 MiB each, given in another order than they lie. */
static const char *const names[COUNT] = {"d", "a", "f", "c", "b", "e"};

static int steps_begin(struct gpuwm_client *client, const char *device, bool stepwise,
		       struct gpuwm_publish **ret_publish)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	struct gpuwm_tensor_spec specs[COUNT];
	uint64_t shape = TENSOR;

	for (int i = 0; i < COUNT; i++)
		specs[i] = (struct gpuwm_tensor_spec){
			.name = names[i], .dtype = GPUWM_U8, .ndim = 1, .shape = &shape};
	options.name = "m@v1";
	options.device = device;
	options.segment_bytes = MB(2);
	options.stepwise = stepwise;
	return gpuwm_publish_begin(client, &options, specs, COUNT, ret_publish);
}

static void write_tensor(struct gpuwm_publish *publish, size_t position)
{
	uint8_t *data = malloc(TENSOR);

	content_fill(1, names[position], 0, data, TENSOR);
	OK(gpuwm_publish_write(publish, position, 0, data, TENSOR));
	free(data);
}

static void expect_version(struct gpuwmd *d, struct gpuwm_client *client)
{
	struct gpuwm_mapping *mapping;

	OK(gpuwm_attach(client, "m@v1", NULL, &mapping));
	cr_assert_eq(gpuwm_mapping_version(mapping)->segments, COUNT);
	cr_assert(mapping_holds(mapping, 1));
	OK(gpuwm_detach(mapping));
	DROP(d, "m@v1");
}

GPUWMD_TEST(publishing_steps, memory_is_made_when_a_tensor_in_it_is_asked_for)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_publish *publish;
	size_t order[COUNT];
	int begun;

	OK(steps_begin(client, d->device, true, &publish));
	begun = fd_count();
	OK(gpuwm_publish_order(publish, order));
	for (int i = 0; i < COUNT; i++) {
		cr_assert_eq(names[order[i]][0], 'a' + i);
		write_tensor(publish, order[i]);
		write_tensor(publish, order[i]);
		/* Each piece of memory holds a descriptor, but on a real GPU. */
		cr_assert(backend() == BACKEND_CUDA || fd_count() == begun + i + 1);
	}
	OK(gpuwm_publish_commit(publish, NULL));
	expect_version(d, client);
	gpuwm_close(client);
}

static void *ask_for_all(void *publish)
{
	void *data;

	for (size_t i = 0; i < COUNT; i++) {
		if (gpuwm_publish_memory(publish, i, &data, NULL) < 0)
			return publish;
	}
	return NULL;
}

GPUWMD_TEST(publishing_steps, threads_make_each_piece_once)
{
	enum { THREADS = 8 };
	struct gpuwm_client *client = client_new();
	struct gpuwm_publish *publish;
	pthread_t threads[THREADS];
	void *failed;
	int begun;

	OK(steps_begin(client, d->device, true, &publish));
	begun = fd_count();
	for (int i = 0; i < THREADS; i++)
		cr_assert(pthread_create(&threads[i], NULL, ask_for_all, publish) == 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &failed);
		cr_assert(!failed);
	}
	cr_assert(backend() == BACKEND_CUDA || fd_count() == begun + COUNT);
	for (size_t i = 0; i < COUNT; i++)
		write_tensor(publish, i);
	OK(gpuwm_publish_commit(publish, NULL));
	expect_version(d, client);
	gpuwm_close(client);
}

GPUWMD_TEST(publishing_steps, what_nobody_asked_for_is_made_at_the_commit_as_zeros)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_publish *publish;
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor tensor;
	uint8_t *data = malloc(TENSOR);

	OK(steps_begin(client, d->device, true, &publish));
	write_tensor(publish, 3);
	OK(gpuwm_publish_commit(publish, NULL));
	OK(gpuwm_attach(client, "m@v1", NULL, &mapping));
	for (int i = 0; i < COUNT; i++) {
		OK(gpuwm_tensor_find(mapping, names[i], &tensor));
		if (i == 3) {
			cr_assert(tensor_holds(mapping, &tensor, 1));
			continue;
		}
		OK(gpuwm_tensor_read(mapping, &tensor, 0, data, TENSOR));
		for (size_t k = 0; k < TENSOR; k++)
			cr_assert_eq(data[k], 0);
	}
	free(data);
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	DROP(d, "m@v1");
}

GPUWMD_TEST(publishing_steps, an_abort_leaves_nothing)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_publish *publish;
	int before = 0;

	for (int asked = 0; asked <= COUNT; asked += 2) {
		OK(steps_begin(client, d->device, true, &publish));
		for (int i = 0; i < asked; i++)
			write_tensor(publish, (size_t)i);
		OK(gpuwm_publish_abort(publish, "enough"));
		// The driver keeps what it opened when it was first used.
		if (asked == 0)
			before = fd_count();
		cr_assert_eq(fd_count(), before);
	}
	gpuwm_close(client);
}

GPUWMD_TEST(publishing_steps, the_layout_is_the_same_as_of_one_step)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_version_info versions[2];
	struct gpuwm_publish *publish;
	void *first, *last;

	for (int i = 0; i < 2; i++) {
		OK(steps_begin(client, d->device, i == 1, &publish));
		OK(gpuwm_publish_memory(publish, 2, &last, NULL));
		OK(gpuwm_publish_memory(publish, 1, &first, NULL));
		cr_assert_eq((char *)last - (char *)first, 5 * MB(2));
		OK(gpuwm_publish_commit(publish, &versions[i]));
		DROP(d, "m@v1");
	}
	cr_assert(memcmp(versions[0].layout, versions[1].layout, 16) == 0);
	gpuwm_close(client);
}

GPUWMD_TEST_IF(publishing_steps, a_device_that_is_full_is_told_and_tried_again,
	       SKIP_UNLESS(backend() == BACKEND_FAKECUDA, "injects a failure of the driver"),
	       gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	struct gpuwm_client *client;
	struct gpuwm_publish *publish;
	void *data;

	client = client_new();
	setenv("FAKECUDA_FAIL", "cuMemCreate:2:2,cuMemMap:3:999,cuMemsetD8_v2:4:999", 1);
	OK(steps_begin(client, d->device, true, &publish));
	OK(gpuwm_publish_memory(publish, 0, &data, NULL));
	FAILS(ENOSPC, gpuwm_publish_memory(publish, 1, &data, NULL));
	OK(gpuwm_publish_memory(publish, 1, &data, NULL));
	FAILS(EIO, gpuwm_publish_memory(publish, 2, &data, NULL));
	OK(gpuwm_publish_memory(publish, 2, &data, NULL));
	FAILS(EIO, gpuwm_publish_memory(publish, 3, &data, NULL));
	for (size_t i = 0; i < COUNT; i++)
		write_tensor(publish, i);
	OK(gpuwm_publish_commit(publish, NULL));
	expect_version(d, client);
	gpuwm_close(client);
}

GPUWMD_TEST_BY(publishing_steps, sizes_of_segments_that_can_not_be_are_refused, gpuwmd_start(NULL), gpuwmd_stop)
{
	static const uint64_t wrong[] = {1, MB(1), MB(3), MB(2) + 4096, MB(1024) * 1024 + MB(2)};
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	struct gpuwm_publish *publish;

	options.name = "m@v1";
	options.device = d->device;
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		options.segment_bytes = wrong[i];
		FAILS(EINVAL, gpuwm_publish_begin(d->admin, &options, NULL, 0, &publish));
		cr_assert(strstr(gpuwm_error()->detail, "2 MiB"));
	}
}
