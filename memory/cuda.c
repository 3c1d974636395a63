#include "cuda.h"

#include "../base/fork.h"
#include "../proto/memory_kind.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct cuda_driver driver;
static struct error unusable; /* code 0: the driver can be used */
static uint64_t opened_by; /* the process that called cuInit */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *const MISSING_REMEDY =
	"GPU memory needs NVIDIA's driver 525 or newer; in a container, the nvidia runtime";

static bool driver_load(void)
{
	driver.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!driver.library) {
		error_set(&unusable, -ENOTSUP, MISSING_REMEDY, "there is no CUDA driver here: %s", dlerror());
		return false;
	}
#define CUDA_LOOK_UP(name)                                                                                     \
	*(void **)&driver.name = dlsym(driver.library, #name);                                                 \
	if (!driver.name) {                                                                                    \
		error_set(&unusable, -ENOTSUP, MISSING_REMEDY, "the CUDA driver has no %s", #name);            \
		return false;                                                                                  \
	}
	CUDA_FUNCTIONS(CUDA_LOOK_UP)
#undef CUDA_LOOK_UP
	return true;
}

static void driver_open(void)
{
	CUresult result;

	opened_by = fork_generation();
	if (!driver_load())
		return;
	result = driver.cuInit(0);
	if (result == CUDA_SUCCESS)
		result = driver.cuDeviceGetCount(&driver.device_count);
	if (result == CUDA_ERROR_NO_DEVICE || (result == CUDA_SUCCESS && driver.device_count == 0))
		error_set(&unusable, -ENODEV, "see nvidia-smi, CUDA_VISIBLE_DEVICES",
			  "the CUDA driver shows this process no GPU");
	else if (result != CUDA_SUCCESS)
		cuda_fail(result, -ENOTSUP, &unusable, "cuInit");
}

int cuda_open(const struct cuda_driver **ret, struct error *error)
{
	pthread_once(&once, driver_open);
	if (unusable.code)
		return error_set(error, unusable.code, unusable.detail, "%s", unusable.message);
	if (opened_by != fork_generation())
		return error_set(error, -ENOTSUP, "start the child with exec, or \"spawn\" in Python",
				 "CUDA does not work in a forked child of a process that used it");
	*ret = &driver;
	return 0;
}

const struct cuda_driver *cuda_opened(void)
{
	const struct cuda_driver *cuda = NULL;

	return cuda_open(&cuda, NULL) < 0 ? NULL : cuda;
}

/* Returns whether a result says that the device itself fails, and not one context or one call: an uncorrectable error of
 * its memory or of NVLink, or a device that the driver gives to no process. A result that a program can cause in its own
 * context (an illegal address, a failed launch) is no such result, and neither is the driver's "unknown error". */
static bool result_is_loss(CUresult result)
{
	return result == CUDA_ERROR_ECC_UNCORRECTABLE || result == CUDA_ERROR_NVLINK_UNCORRECTABLE ||
	       result == CUDA_ERROR_DEVICE_UNAVAILABLE;
}

int cuda_fail(CUresult result, int code, struct error *error, const char *what)
{
	const char *name = NULL, *text = NULL;

	if (result_is_loss(result))
		code = -ENODEV;
	driver.cuGetErrorName(result, &name);
	driver.cuGetErrorString(result, &text);
	if (result == CUDA_ERROR_OUT_OF_MEMORY && code == -EIO)
		code = -ENOMEM;
	return error_set(error, code, text, "%s: %s (%d)", what, name ? name : "unknown error", (int)result);
}

static int device_id(CUdevice device, char ret_id[CUDA_ID_BYTES], struct error *error)
{
	CUuuid uuid;
	const unsigned char *b = (const unsigned char *)uuid.bytes;
	CUresult result = driver.cuDeviceGetUuid_v2(&uuid, device);

	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -EIO, error, "cuDeviceGetUuid");
	snprintf(ret_id, CUDA_ID_BYTES,
		 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2],
		 b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
	return 0;
}

int cuda_id(int ordinal, char ret_id[CUDA_ID_BYTES], struct error *error)
{
	const struct cuda_driver *cuda;
	CUdevice device;
	CUresult result;
	int r = cuda_open(&cuda, error);

	if (r < 0)
		return r;
	result = cuda->cuDeviceGet(&device, ordinal);
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -ENODEV, error, "cuDeviceGet");
	return device_id(device, ret_id, error);
}

int cuda_find(const char *id, int *ret_ordinal, struct error *error)
{
	const struct cuda_driver *cuda;
	char have[CUDA_ID_BYTES];
	int r = cuda_open(&cuda, error);

	for (int i = 0; r == 0 && i < cuda->device_count; i++) {
		r = cuda_id(i, have, error);
		if (r == 0 && device_same(have, id)) {
			*ret_ordinal = i;
			return 0;
		}
	}
	if (r < 0)
		return r;
	return error_set(error, -ENODEV, "see nvidia-smi -L and CUDA_VISIBLE_DEVICES",
			 "this process can't see the GPU %s", id);
}

int cuda_reaches(int reader, int owner, struct error *error)
{
	const struct cuda_driver *cuda;
	CUresult result;
	int can = 0, r = cuda_open(&cuda, error);

	if (r < 0)
		return r;
	result = cuda->cuDeviceCanAccessPeer(&can, reader, owner);
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -EIO, error, "cuDeviceCanAccessPeer");
	if (!can)
		return error_set(error, -ENOTSUP, "see nvidia-smi topo -p2p r",
				 "device %d of this process can't read the memory of device %d", reader, owner);
	return 0;
}

int cuda_current(char ret_id[DEVICE_BYTES_MAX + 1])
{
	void *library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
	const struct cuda_driver *cuda;
	char id[CUDA_ID_BYTES];
	CUcontext context = NULL;
	CUdevice device;
	int r = -ENOENT;

	if (!library)
		return r;
	if (cuda_open(&cuda, NULL) == 0 && cuda->cuCtxGetCurrent(&context) == CUDA_SUCCESS && context &&
	    cuda->cuCtxGetDevice(&device) == CUDA_SUCCESS && device_id(device, id, NULL) == 0) {
		strcpy(ret_id, id);
		r = 0;
	}
	dlclose(library);
	return r;
}

int cuda_pin(void *base, uint64_t bytes, struct error *error)
{
	const struct cuda_driver *cuda;
	CUresult result;
	int r = cuda_open(&cuda, error);

	if (r < 0)
		return r;
	result = cuda->cuMemHostRegister_v2(base, bytes, CU_MEMHOSTREGISTER_PORTABLE);
	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, -ENOMEM, error, "cuMemHostRegister");
}

void cuda_unpin(void *base)
{
	const struct cuda_driver *cuda = cuda_opened();

	if (cuda)
		cuda->cuMemHostUnregister(base);
}
