/* Publishing and attaching on a GPU: on tests/fakecuda, or a real one. */
#include "memory/memory.h"
#include "include/gpuwm/client.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

#include "tests/support/lib/fake.h"

#ifdef GPUWM_CUDA

#include "memory/cuda.h"

#define VALUES 300

static const uint64_t shape[] = {VALUES};
static const struct gpuwm_tensor_spec spec = {.name = "x", .dtype = GPUWM_I32, .ndim = 1, .shape = shape};

static void need_driver(void)
{
	if (!getenv("GPUWM_TEST_BACKEND") || strcmp(getenv("GPUWM_TEST_BACKEND"), "host") == 0)
		cr_skip("GPUWM_TEST_BACKEND is not set: no CUDA driver to test with");
}

TestSuite(attach_cuda, .init = need_driver, .timeout = 120);

static int publish(struct gpuwm_client *client, const char *device)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	struct gpuwm_publish *publishing;
	int32_t values[VALUES];
	int r;

	options.name = "m@v1";
	options.device = device;
	r = gpuwm_publish_begin(client, &options, &spec, 1, &publishing);
	if (r < 0)
		return r;
	for (int i = 0; i < VALUES; i++)
		values[i] = i;
	r = gpuwm_publish_write(publishing, 0, 0, values, sizeof(values));
	if (r < 0) {
		gpuwm_publish_abort(publishing, gpuwm_error()->message);
		return r;
	}
	return gpuwm_publish_commit(publishing, NULL);
}

static int attach_and_read(struct gpuwm_client *client)
{
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor tensor;
	int32_t value = 0;
	int r = gpuwm_attach(client, "m", NULL, &mapping), detached;

	if (r < 0)
		return r;
	gpuwm_tensor_at(mapping, 0, &tensor);
	r = gpuwm_tensor_read(mapping, &tensor, (VALUES - 1) * 4, &value, 4);
	if (r == 0 && value != VALUES - 1)
		r = -EBADMSG;
	detached = gpuwm_detach(mapping);
	return r < 0 ? r : detached;
}

static struct gpuwm_client *connect_to(const struct fake *fake)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_client *client = NULL;

	options.socket = fake->path;
	gpuwm_connect(&options, &client);
	return client;
}

static bool context_active(const struct cuda_driver *cuda)
{
	unsigned flags;
	int active = 0;

	cuda->cuDevicePrimaryCtxGetState(0, &flags, &active);
	return active;
}

Test(attach_cuda, shows_what_was_published_and_leaves_no_context_behind)
{
	const struct cuda_driver *cuda;
	struct fake *fake = fake_start();
	struct gpuwm_client *client;
	char id[CUDA_ID_BYTES];

	cr_assert(eq(int, cuda_id(0, id, NULL), 0));
	cr_assert(eq(int, cuda_open(&cuda, NULL), 0));
	strcpy(fake->device, id);
	client = connect_to(fake);
	cr_assert(eq(int, publish(client, id), 0), "%s", gpuwm_error()->message);
	cr_assert(context_active(cuda) == false);
	cr_assert(eq(int, attach_and_read(client), 0), "%s", gpuwm_error()->message);
	cr_assert(context_active(cuda) == false);
	cr_assert(eq(uint, fake->leases, 0));
	gpuwm_close(client);
	fake_stop(fake);
}

Test(attach_cuda, asks_again_for_the_device_of_the_callers_context)
{
	struct fake *fake = fake_start();
	struct gpuwm_client *client;
	struct memory_device device;
	struct gpuwm_mapping *mapping;
	char id[CUDA_ID_BYTES];

	cr_assert(eq(int, cuda_id(0, id, NULL), 0));
	strcpy(fake->device, id);
	client = connect_to(fake);
	cr_assert(eq(int, publish(client, id), 0), "%s", gpuwm_error()->message);
	fake->ambiguous = true;
	cr_assert(eq(int, gpuwm_attach(client, "m", NULL, &mapping), -ENODEV));
	cr_assert(eq(int, memory_device_open(id, &device, NULL), 0));
	cr_assert(eq(int, memory_cuda.enter(&device, NULL), 0));
	cr_assert(eq(int, gpuwm_attach(client, "m", NULL, &mapping), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
	memory_cuda.leave(&device);
	gpuwm_close(client);
	fake_stop(fake);
}

enum outcome { WHOLE = 10, REFUSED = 11 };

/* In a process of its own, whose n-th call of the driver fails: an error in
 * words, no lease that stays, no publish that is neither committed nor aborted. */
static int with_failing_call(int n)
{
	struct fake *fake = fake_start();
	struct gpuwm_client *client;
	char fail[32], id[CUDA_ID_BYTES];
	unsigned begun;
	int r;

	snprintf(fail, sizeof(fail), "*:%d:999", n);
	setenv("FAKECUDA_FAIL", fail, 1);
	if (cuda_id(0, id, NULL) < 0)
		return REFUSED;
	strcpy(fake->device, id);
	client = connect_to(fake);
	r = publish(client, id);
	begun = fake->granted ? 1 : 0;
	if (r < 0)
		return *gpuwm_error()->message && fake->aborts == begun ? REFUSED : 1;
	r = attach_and_read(client);
	if (fake->leases != 0)
		return 2;
	if (gpuwm_ping(client, NULL) < 0)
		return 3;
	gpuwm_close(client);
	return r < 0 ? REFUSED : WHOLE;
}

Test(attach_cuda, survives_the_failure_of_any_call)
{
	int refused = 0;

	if (strcmp(getenv("GPUWM_TEST_BACKEND"), "fakecuda") != 0)
		cr_skip("a real driver fails when it likes");
	/* Calls whose failure changes nothing (releasing, unmapping) leave it whole;
	 * so many in a row means that n is past the last call. */
	for (int n = 1, whole = 0; whole < 20; n++) {
		int status;
		pid_t child = fork();

		if (child == 0)
			_exit(with_failing_call(n));
		waitpid(child, &status, 0);
		cr_assert(status == WHOLE << 8 || status == REFUSED << 8, "call %d: %#x", n, status);
		whole = status == WHOLE << 8 ? whole + 1 : 0;
		refused += status == REFUSED << 8;
	}
	cr_assert(lt(int, 20, refused));
}

#else

Test(attach_cuda, needs_the_header)
{
	cr_skip("built without cuda.h");
}

#endif
