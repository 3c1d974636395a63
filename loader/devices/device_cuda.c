/* GPUs as devices: CUDA lists them, NVML tells what is free and which is lost. */
#include "devices.h"

#include "lanes.h"
#include "probe.h"
#include "../../service/log.h"

#include "../../memory/cuda.h"

#include <dlfcn.h>
#include <errno.h>

/* ---- listing ------------------------------------------------------------- */

static int total_of(const struct cuda_driver *cuda, int ordinal, uint64_t *ret_bytes, struct error *error)
{
	CUdevice number;
	size_t bytes;
	CUresult result = cuda->cuDeviceGet(&number, ordinal);

	if (result == CUDA_SUCCESS)
		result = cuda->cuDeviceTotalMem_v2(&bytes, number);
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -EIO, error, "asking for a GPU's memory");
	*ret_bytes = bytes;
	return 0;
}

static int device_cuda_total(const char *id, uint64_t *ret_bytes, struct error *error)
{
	const struct cuda_driver *cuda;
	int ordinal = 0, r = cuda_open(&cuda, error);

	if (r == 0)
		r = cuda_find(id, &ordinal, error);
	return r < 0 ? r : total_of(cuda, ordinal, ret_bytes, error);
}

static int device_cuda_describe(const struct cuda_driver *cuda, int ordinal, struct device *ret,
				struct error *error)
{
	struct device device = {.kind = &kind_cuda};
	struct memory_device memory;
	CUdevice number;
	CUresult result;
	int r = cuda_id(ordinal, device.id, error);

	if (r < 0)
		return r;
	result = cuda->cuDeviceGet(&number, ordinal);
	if (result == CUDA_SUCCESS)
		result = cuda->cuDeviceGetName(device.name, sizeof(device.name), number);
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -EIO, error, "asking for a GPU's name");
	r = total_of(cuda, ordinal, &device.total, error);
	if (r == 0)
		r = memory_device_open(device.id, &memory, error);
	if (r == 0)
		r = memory.ops->granularity(&memory, &device.granularity, error);
	if (r < 0)
		return r;
	device.free_known = nvml_free(device.id, &device.free);
	*ret = device;
	return 0;
}

static int device_cuda_list(struct device_list *list, struct error *error)
{
	const struct cuda_driver *cuda;
	struct device device;
	struct error why;
	int r = 0;

	if (cuda_open(&cuda, &why) < 0) {
		/* A machine without a driver is not worth a line. One whose driver fails is. */
		void *library = why.code == -ENODEV ? NULL : dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);

		if (library) {
			dlclose(library);
			log_plain("no GPU is used: %s (%s)", why.message, why.detail);
		}
		return 0;
	}
	for (int i = 0; r == 0 && i < cuda->device_count; i++) {
		if (device_cuda_describe(cuda, i, &device, &why) == 0)
			r = device_list_add(list, &device, error);
		else
			log_plain("GPU %d is not used: %s (%s)", i, why.message, why.detail);
	}
	return r;
}

/* ---- losses -------------------------------------------------------------- */

/* If the driver shows no GPU at all, it may still work: the last GPU may be the one that is
 * lost. */
static bool is_missing_in_cuda(const char *id)
{
	const struct cuda_driver *cuda;
	int ordinal, r = cuda_open(&cuda, NULL);

	if (r == 0)
		r = cuda_find(id, &ordinal, NULL);
	return r == -ENODEV;
}

static bool is_lost(const char *id, struct error *why)
{
	enum nvml_word word = nvml_ask(id, why);

	if (word == NVML_LOST)
		return true;
	return (word == NVML_ABSENT || word == NVML_DIVIDED) && is_missing_in_cuda(id);
}

/* In any but the default compute mode a GPU may have one process only. */
static bool is_exclusive(const struct memory_device *device)
{
	const struct cuda_driver *cuda;
	int mode = CU_COMPUTEMODE_DEFAULT;

	return cuda_open(&cuda, NULL) < 0 ||
	       cuda->cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device->ordinal) !=
		       CUDA_SUCCESS ||
	       mode != CU_COMPUTEMODE_DEFAULT;
}

const struct device_kind device_cuda = {
	.kind = &kind_cuda,
	.list = device_cuda_list,
	.total = device_cuda_total,
	.is_lost = is_lost,
	.is_exclusive = is_exclusive,
	.lanes = &lane_cuda,
	.probe = probe_cuda,
};
