/* What tests of exports share: a fake gpuwmd that has the versions of lib_versions.h, and a client of it. */
#ifndef LIB_DLPACK_H
#define LIB_DLPACK_H

#ifdef GPUWM_CUDA
#include "client/lib/cuda.h"
#endif
#include "client/lib/attach.h"
#include "include/gpuwm/client.h"
#include "include/gpuwm/dlpack.h"

#include <sys/wait.h>

#include "lib_versions.h"

static struct fake *fake;
static struct gpuwm_client *client;
static struct memory_device device;

/* Two versions of one layout, "m@v1" full of 1 and "m@v2" full of 2. */
static inline void start_on(const char *device_id)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct made first = made_default("v1", 1), second = made_default("v2", 2);

	fake = fake_start();
	strcpy(fake->device, device_id);
	cr_assert(eq(int, memory_device_open(device_id, &device, NULL), 0));
	made_add(fake, &device, &first);
	made_add(fake, &device, &second);
	options.socket = fake->path;
	cr_assert(eq(int, gpuwm_connect(&options, &client), 0), "%s", gpuwm_error()->message);
}

static inline bool on_host(void)
{
	return device.ops == &memory_host;
}

/* The backend's: of a GPU where there is a driver to test with. */
static inline void start(void)
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
	start_on(id);
}

static inline struct gpuwm_mapping *attach_to(const char *ref)
{
	struct gpuwm_mapping *mapping = NULL;

	cr_assert(eq(int, gpuwm_attach(client, ref, NULL, &mapping), 0), "%s", gpuwm_error()->message);
	return mapping;
}

static inline struct DLManagedTensor *export_of(struct gpuwm_mapping *mapping, const char *name)
{
	struct DLManagedTensor *export = NULL;
	struct gpuwm_tensor tensor;

	cr_assert(eq(int, gpuwm_tensor_find(mapping, name, &tensor), 0));
	cr_assert(ge(int, gpuwm_dlpack(mapping, &tensor, &export), 0), "%s", gpuwm_error()->message);
	return export;
}

static inline unsigned leases(void)
{
	return __atomic_load_n(&fake->leases, __ATOMIC_SEQ_CST);
}

static pid_t parent;

static inline void leave(int status, void *unused)
{
	(void)unused;
	if (getpid() != parent)
		_exit(status);
}

/* A forked child that calls exit goes after all that is registered from now on, before LeakSanitizer takes the threads
 * of its parent for its own. */
static inline void children_leave_early(void)
{
	parent = getpid();
	on_exit(leave, NULL);
}

/* What a forked child of the test ended with. */
static inline int child_status(pid_t child)
{
	int status;

	cr_assert(eq(int, waitpid(child, &status, 0), child));
	return status;
}

#endif
