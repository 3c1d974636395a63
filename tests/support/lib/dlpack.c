#include "dlpack.h"

#include "tests/support/any/fd_count.h"

#include <sys/wait.h>

void export_start_on(const char *device_id)
{
	struct gpuwm_connect_options options;
	struct made first = made_default("v1", 1), second = made_default("v2", 2);

	fake = fake_start();
	strcpy(fake->device, device_id);
	cr_assert(eq(int, memory_device_open(device_id, &device, NULL), 0));
	made_add(fake, &device, &first);
	made_add(fake, &device, &second);
	options = to_fake();
	client = client_with(&options);
}

bool on_host(void)
{
	return device.ops == &memory_host;
}

void export_start(void)
{
	const char *backend = getenv("GPUWM_TEST_BACKEND");
	char id[DEVICE_BYTES_MAX + 1] = "host";

	if (backend && strcmp(backend, "host") != 0) {
#ifdef GPUWM_CUDA
		cr_assert(eq(int, cuda_id(0, id, NULL), 0));
#else
		cr_skip("built without cuda.h");
#endif
	}
	export_start_on(id);
}

struct DLManagedTensor *export_of(struct gpuwm_mapping *mapping, const char *name)
{
	struct DLManagedTensor *export = NULL;
	struct gpuwm_tensor tensor;

	cr_assert(eq(int, gpuwm_tensor_find(mapping, name, &tensor), 0));
	cr_assert(ge(int, gpuwm_dlpack(mapping, &tensor, &export), 0), "%s", gpuwm_error()->message);
	return export;
}

static pid_t parent;

static void leave(int status, void *unused)
{
	(void)unused;
	if (getpid() != parent)
		_exit(status);
}

void children_leave_early(void)
{
	parent = getpid();
	on_exit(leave, NULL);
}

void export_stop(void)
{
	UNTIL(leases() == 0);
	gpuwm_close(client);
	/* The library's thread may be on its way to close the last of them. */
	UNTIL(fake->peer_count == 2);
	fake_stop(fake);
}

void export_setup(void)
{
	children_leave_early();
	fds_before = fd_count();
	export_start_on("host");
}

void export_teardown(void)
{
	export_stop();
	UNTIL(fd_count() == fds_before);
}
