#include "driver.h"

#ifdef GPUWM_CUDA

#include "../bench.h"

#include <dlfcn.h>

struct driver driver;

static void look_up(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		DIE("%s", dlerror());
#define LOOK_UP_ANY(name) *(void **)&driver.name = dlsym(library, #name);
#define LOOK_UP(name)                                                                                          \
	LOOK_UP_ANY(name)                                                                                      \
	if (!driver.name)                                                                                      \
		DIE("the driver has no " #name);
	DRIVER_FUNCTIONS(LOOK_UP)
	DRIVER_GRAPH_FUNCTIONS(LOOK_UP_ANY)
#undef LOOK_UP
#undef LOOK_UP_ANY
}

static CUdevice find(const char *device)
{
	char hex[33] = "";
	size_t n = 0;
	int count;

	for (const char *c = device + 4; *c && n < 32; c++)
		if (*c != '-')
			hex[n++] = *c;
	CU(driver.cuDeviceGetCount(&count));
	for (int i = 0; i < count; i++) {
		char text[33];
		CUuuid uuid;

		CU(driver.cuDeviceGetUuid_v2(&uuid, i));
		for (int b = 0; b < 16; b++)
			snprintf(text + 2 * b, 3, "%02x", (unsigned char)uuid.bytes[b]);
		if (strcmp(text, hex) == 0)
			return i;
	}
	DIE("this process can't see %s", device);
}

void driver_open(const char *device)
{
	if (!driver.cuInit)
		look_up();
	CU(driver.cuInit(0));
	driver.device = device ? find(device) : 0;
}

void driver_context(void)
{
	CUcontext context;

	CU(driver.cuDevicePrimaryCtxRetain(&context, driver.device));
	CU(driver.cuCtxSetCurrent(context));
}

bool driver_has_kernels(void)
{
	return getenv("GPUWM_KERNELS") != NULL;
}

CUfunction driver_kernel(const char *name)
{
	static char text[65536];
	static CUmodule module;
	const char *path = getenv("GPUWM_KERNELS");
	CUfunction function;
	FILE *file;

	if (!module) {
		file = path ? fopen(path, "re") : NULL;
		if (!file)
			DIE("GPUWM_KERNELS names no readable file");
		text[fread(text, 1, sizeof text - 1, file)] = 0;
		fclose(file);
		CU(driver.cuModuleLoadData(&module, text));
	}
	CU(driver.cuModuleGetFunction(&function, module, name));
	return function;
}

struct first_kernel driver_first_kernel_make(void)
{
	struct first_kernel first = {0};

	if (driver_has_kernels()) {
		CU(driver.cuMemAlloc_v2(&first.total, sizeof(uint64_t)));
		first.sum = driver_kernel("sum");
	}
	return first;
}

void driver_first_kernel_run(struct first_kernel *first, CUdeviceptr words, uint64_t bytes)
{
	uint64_t count = bytes / 8, word;
	void *arguments[] = {&words, &count, &first->total};

	if (first->sum) {
		CU(driver.cuLaunchKernel(first->sum, 512, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL));
		CU(driver.cuCtxSynchronize());
	} else {
		CU(driver.cuMemcpyDtoH_v2(&word, words, sizeof word));
	}
}

CUmemAllocationProp driver_properties(void)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = driver.device},
	};
}

CUmemAccessDesc driver_access(CUmemAccess_flags flags)
{
	return (CUmemAccessDesc){
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = driver.device},
		.flags = flags,
	};
}

#endif
