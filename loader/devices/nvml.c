#include "devices.h"

#include "../../base/limits.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Values of NVML's stable interface. */
enum nvml_result {
	NVML_SUCCESS = 0,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_RESET_REQUIRED = 16,
};

struct nvml_memory {
	unsigned long long total, free, used;
};

static struct {
	void *library;
	int (*nvmlInit_v2)(void);
	int (*nvmlDeviceGetHandleByUUID)(const char *uuid, void **device);
	int (*nvmlDeviceGetMemoryInfo)(void *device, struct nvml_memory *memory);
	/* NULL: an older NVML */
	int (*nvmlDeviceGetMigMode)(void *device, unsigned *now, unsigned *pending);
	int (*nvmlDeviceGetHandleByIndex_v2)(unsigned number, void **device);
	int (*nvmlDeviceGetUUID)(void *device, char *ret, unsigned size);
} nvml;

static bool nvml_open(void)
{
	static int state; /* 0: not tried yet, 1: NVML is there, -1: it is not */

	if (state)
		return state > 0;
	state = -1;
	nvml.library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!nvml.library)
		return false;
	*(void **)&nvml.nvmlInit_v2 = dlsym(nvml.library, "nvmlInit_v2");
	*(void **)&nvml.nvmlDeviceGetHandleByUUID = dlsym(nvml.library, "nvmlDeviceGetHandleByUUID");
	*(void **)&nvml.nvmlDeviceGetMemoryInfo = dlsym(nvml.library, "nvmlDeviceGetMemoryInfo");
	*(void **)&nvml.nvmlDeviceGetMigMode = dlsym(nvml.library, "nvmlDeviceGetMigMode");
	*(void **)&nvml.nvmlDeviceGetHandleByIndex_v2 = dlsym(nvml.library, "nvmlDeviceGetHandleByIndex_v2");
	*(void **)&nvml.nvmlDeviceGetUUID = dlsym(nvml.library, "nvmlDeviceGetUUID");
	if (nvml.nvmlInit_v2 && nvml.nvmlDeviceGetHandleByUUID && nvml.nvmlDeviceGetMemoryInfo &&
	    nvml.nvmlInit_v2() == 0)
		state = 1;
	return state > 0;
}

/* CUDA gives the same 16 bytes for a MIG device as for a GPU. Only NVML tells which of the two it
 * is. */
static int nvml_find(const char *id, void **ret_device, bool *ret_mig)
{
	char mig[DEVICE_BYTES_MAX + 1];
	int r = nvml.nvmlDeviceGetHandleByUUID(id, ret_device);

	*ret_mig = strncmp(id, "MIG-", 4) == 0;
	if (r != NVML_ERROR_NOT_FOUND || strncmp(id, "GPU-", 4) != 0)
		return r;
	*ret_mig = true;
	snprintf(mig, sizeof(mig), "MIG-%s", id + 4);
	return nvml.nvmlDeviceGetHandleByUUID(mig, ret_device);
}

static enum nvml_word nvml_judge(int result, struct error *why)
{
	switch (result) {
	case NVML_SUCCESS:
		return NVML_THERE;
	case NVML_ERROR_NOT_FOUND:
		error_set(why, -ENODEV, NULL, "the driver knows no such device any more");
		return NVML_ABSENT;
	case NVML_ERROR_GPU_IS_LOST:
		error_set(why, -ENODEV, NULL,
			  "NVML says that it has fallen off the bus (NVML_ERROR_GPU_IS_LOST)");
		return NVML_LOST;
	case NVML_ERROR_RESET_REQUIRED:
		error_set(why, -ENODEV, NULL, "NVML says that it needs a reset (NVML_ERROR_RESET_REQUIRED)");
		return NVML_LOST;
	default:
		return NVML_SILENT;
	}
}

static bool is_divided(void *device)
{
	unsigned now = 0, pending = 0;

	return nvml.nvmlDeviceGetMigMode && nvml.nvmlDeviceGetMigMode(device, &now, &pending) == 0 && now == 1;
}

enum nvml_word nvml_ask(const char *id, struct error *why)
{
	struct nvml_memory memory;
	enum nvml_word word;
	void *device = NULL;
	bool mig;

	if (!nvml_open())
		return NVML_SILENT;
	word = nvml_judge(nvml_find(id, &device, &mig), why);
	if (word == NVML_THERE)
		word = nvml_judge(nvml.nvmlDeviceGetMemoryInfo(device, &memory), why);
	if (word != NVML_THERE || mig || !is_divided(device))
		return word;
	error_set(why, -ENODEV, NULL, "it is divided into MIG devices now, which have UUIDs of their own");
	return NVML_DIVIDED;
}

bool nvml_free(const char *id, uint64_t *ret_bytes)
{
	struct nvml_memory memory;
	void *device;
	bool mig;

	if (!nvml_open() || nvml_find(id, &device, &mig) != 0 ||
	    nvml.nvmlDeviceGetMemoryInfo(device, &memory) != 0)
		return false;
	*ret_bytes = memory.free;
	return true;
}

bool nvml_gpu(unsigned number, char ret_id[DEVICE_BYTES_MAX + 1], bool *ret_divided)
{
	void *device;

	if (!nvml_open() || !nvml.nvmlDeviceGetHandleByIndex_v2 || !nvml.nvmlDeviceGetUUID ||
	    nvml.nvmlDeviceGetHandleByIndex_v2(number, &device) != NVML_SUCCESS ||
	    nvml.nvmlDeviceGetUUID(device, ret_id, DEVICE_BYTES_MAX + 1) != NVML_SUCCESS)
		return false;
	*ret_divided = is_divided(device);
	return true;
}
