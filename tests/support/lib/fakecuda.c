#include "fakecuda.h"

#ifdef GPUWM_CUDA

#include <dlfcn.h>
#include <setjmp.h>

struct driver_calls cu;

struct nvml_calls nvml;

#define LOOK_UP(table, library, name)                                                                          \
	cr_assert((*(void **)&table.name = dlsym(library, #name)) != NULL, "no " #name)

void fakecuda_open(void)
{
	const char *backend = getenv("GPUWM_TEST_BACKEND");
	void *driver, *management;
	char run[32];

	if (!backend || strcmp(backend, "fakecuda") != 0)
		cr_skip_test("needs GPUWM_TEST_BACKEND=fakecuda and LD_LIBRARY_PATH");
	snprintf(run, sizeof run, "unit%d", getpid());
	setenv("FAKECUDA_RUN", run, 1);
	driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	management = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	cr_assert(driver && management, "%s", dlerror());
#define LOOK_UP_DRIVER(name) LOOK_UP(cu, driver, name);
	FUNCTIONS(LOOK_UP_DRIVER)
#undef LOOK_UP_DRIVER
	LOOK_UP(cu, driver, cuCtxCreate_v2);
	LOOK_UP(nvml, management, nvmlInit_v2);
	LOOK_UP(nvml, management, nvmlShutdown);
	LOOK_UP(nvml, management, nvmlDeviceGetCount_v2);
	LOOK_UP(nvml, management, nvmlDeviceGetHandleByUUID);
	LOOK_UP(nvml, management, nvmlDeviceGetMemoryInfo);
}

CUmemAllocationProp properties(int device)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
}

CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes, int device)
{
	CUmemAllocationProp prop = properties(device);

	return cu.cuMemCreate(handle, bytes, &prop, 0);
}

CUresult import(CUmemGenericAllocationHandle *handle, int fd)
{
	return cu.cuMemImportFromShareableHandle(handle, (void *)(intptr_t)fd,
						 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

CUresult export(CUmemGenericAllocationHandle handle, int *fd)
{
	return cu.cuMemExportToShareableHandle(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

CUresult set_access(CUdeviceptr address, size_t bytes, int device, CUmemAccess_flags flags)
{
	CUmemAccessDesc rights = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
				  .flags = flags};

	return cu.cuMemSetAccess(address, bytes, &rights, 1);
}

CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t bytes, CUmemAccess_flags flags)
{
	CUdeviceptr address;

	GOOD(cu.cuMemAddressReserve(&address, bytes, 0, 0, 0));
	GOOD(cu.cuMemMap(address, bytes, 0, handle, 0));
	GOOD(set_access(address, bytes, 0, flags));
	return address;
}

void unmap(CUdeviceptr address, size_t bytes)
{
	GOOD(cu.cuMemUnmap(address, bytes));
	GOOD(cu.cuMemAddressFree(address, bytes));
}

CUcontext enter(int device)
{
	CUcontext context;

	GOOD(cu.cuDevicePrimaryCtxRetain(&context, device));
	GOOD(cu.cuCtxSetCurrent(context));
	return context;
}

unsigned long long used(void)
{
	struct nvml_memory memory;
	void *device;

	cr_assert(nvml.nvmlInit_v2() == 0);
	cr_assert(nvml.nvmlDeviceGetHandleByUUID("GPU-fa4e0000-0000-4000-8000-000000000000", &device) == 0);
	cr_assert(nvml.nvmlDeviceGetMemoryInfo(device, &memory) == 0);
	cr_assert(memory.free + memory.used == memory.total);
	cr_assert(nvml.nvmlShutdown() == 0);
	return memory.used;
}

static sigjmp_buf fault_jump;

static void on_fault(int signal)
{
	(void)signal;
	siglongjmp(fault_jump, 1);
}

__attribute__((no_sanitize("address"))) bool faults(CUdeviceptr address, bool store)
{
	volatile unsigned char *byte = (volatile unsigned char *)address;
	struct sigaction action = {.sa_handler = on_fault}, before;
	volatile bool faulted = true;

	sigaction(SIGSEGV, &action, &before);
	if (sigsetjmp(fault_jump, 1) == 0) {
		if (store)
			*byte = 1;
		else
			(void)*byte;
		faulted = false;
	}
	sigaction(SIGSEGV, &before, NULL);
	return faulted;
}

#endif
