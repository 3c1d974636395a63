/* The stand-in driver and NVML, looked up as the library does it. */
#ifndef GPUWM_TESTS_FAKECUDA_H
#define GPUWM_TESTS_FAKECUDA_H

#include <criterion/criterion.h>
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB2 ((size_t)2 << 20)

#define FUNCTIONS(F)                                                                                           \
	F(cuInit)                                                                                              \
	F(cuDriverGetVersion)                                                                                  \
	F(cuDeviceGetCount)                                                                                    \
	F(cuDeviceGet)                                                                                         \
	F(cuDeviceGetUuid_v2)                                                                                  \
	F(cuDeviceGetName)                                                                                     \
	F(cuDeviceTotalMem_v2)                                                                                 \
	F(cuDeviceGetAttribute)                                                                                \
	F(cuDeviceCanAccessPeer)                                                                               \
	F(cuDevicePrimaryCtxRetain)                                                                            \
	F(cuDevicePrimaryCtxRelease_v2)                                                                        \
	F(cuDevicePrimaryCtxGetState)                                                                          \
	F(cuCtxPushCurrent_v2)                                                                                 \
	F(cuCtxPopCurrent_v2)                                                                                  \
	F(cuCtxGetCurrent)                                                                                     \
	F(cuCtxSetCurrent)                                                                                     \
	F(cuCtxGetDevice)                                                                                      \
	F(cuCtxSynchronize)                                                                                    \
	F(cuCtxDestroy_v2)                                                                                     \
	F(cuMemGetInfo_v2)                                                                                     \
	F(cuMemGetAllocationGranularity)                                                                       \
	F(cuMemCreate)                                                                                         \
	F(cuMemRelease)                                                                                        \
	F(cuMemExportToShareableHandle)                                                                        \
	F(cuMemImportFromShareableHandle)                                                                      \
	F(cuMemAddressReserve)                                                                                 \
	F(cuMemAddressFree)                                                                                    \
	F(cuMemMap)                                                                                            \
	F(cuMemUnmap)                                                                                          \
	F(cuMemSetAccess)                                                                                      \
	F(cuMemGetAccess)                                                                                      \
	F(cuMemcpyHtoD_v2)                                                                                     \
	F(cuMemcpyDtoH_v2)                                                                                     \
	F(cuMemcpyHtoDAsync_v2)                                                                                \
	F(cuMemcpyDtoD_v2)                                                                                     \
	F(cuMemcpyDtoDAsync_v2)                                                                                \
	F(cuMemsetD8_v2)                                                                                       \
	F(cuMemsetD32_v2)                                                                                      \
	F(cuMemAlloc_v2)                                                                                       \
	F(cuMemFree_v2)                                                                                        \
	F(cuMemHostAlloc)                                                                                      \
	F(cuMemFreeHost)                                                                                       \
	F(cuMemHostRegister_v2)                                                                                \
	F(cuMemHostUnregister)                                                                                 \
	F(cuStreamCreate)                                                                                      \
	F(cuStreamDestroy_v2)                                                                                  \
	F(cuStreamSynchronize)                                                                                 \
	F(cuStreamQuery)                                                                                       \
	F(cuStreamWaitEvent)                                                                                   \
	F(cuStreamBeginCapture_v2)                                                                             \
	F(cuStreamEndCapture)                                                                                  \
	F(cuStreamIsCapturing)                                                                                 \
	F(cuThreadExchangeStreamCaptureMode)                                                                   \
	F(cuEventCreate)                                                                                       \
	F(cuEventRecord)                                                                                       \
	F(cuEventSynchronize)                                                                                  \
	F(cuEventElapsedTime_v2)                                                                               \
	F(cuModuleLoadData)                                                                                    \
	F(cuModuleGetFunction)                                                                                 \
	F(cuLaunchKernel)                                                                                      \
	F(cuGetErrorName)                                                                                      \
	F(cuGetProcAddress_v2)

static struct {
#define MEMBER(name) __typeof__(name) *name;
	FUNCTIONS(MEMBER)
#undef MEMBER
	CUresult (*cuCtxCreate_v2)(CUcontext *context, unsigned flags, CUdevice device);
} cu;

struct nvml_memory {
	unsigned long long total, free, used;
};

static struct {
	int (*nvmlInit_v2)(void);
	int (*nvmlShutdown)(void);
	int (*nvmlDeviceGetCount_v2)(unsigned *count);
	int (*nvmlDeviceGetHandleByUUID)(const char *uuid, void **device);
	int (*nvmlDeviceGetMemoryInfo)(void *device, struct nvml_memory *memory);
} nvml;

#define LOOK_UP(table, library, name)                                                                          \
	cr_assert((*(void **)&table.name = dlsym(library, #name)) != NULL, "no " #name)

#define IS(expected, call)                                                                                     \
	do {                                                                                                   \
		CUresult is_ = (call);                                                                         \
		const char *is_name_ = NULL;                                                                   \
		cu.cuGetErrorName(is_, &is_name_);                                                             \
		cr_assert(is_ == (expected), "%s: %s (%d) instead of %s", #call, is_name_, is_, #expected);    \
	} while (0)
#define GOOD(call) IS(CUDA_SUCCESS, call)

/* Before every test: devices of its own, and no cuInit yet. */
static void fakecuda_open(void)
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

static inline CUmemAllocationProp properties(int device)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
}

static inline CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes, int device)
{
	CUmemAllocationProp prop = properties(device);

	return cu.cuMemCreate(handle, bytes, &prop, 0);
}

static inline CUresult import(CUmemGenericAllocationHandle *handle, int fd)
{
	return cu.cuMemImportFromShareableHandle(handle, (void *)(intptr_t)fd,
						 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

static inline CUresult export(CUmemGenericAllocationHandle handle, int *fd)
{
	return cu.cuMemExportToShareableHandle(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static inline CUresult set_access(CUdeviceptr address, size_t bytes, int device, CUmemAccess_flags flags)
{
	CUmemAccessDesc rights = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
				  .flags = flags};

	return cu.cuMemSetAccess(address, bytes, &rights, 1);
}

/* Reserves, maps and gives device 0 these rights. */
static inline CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t bytes, CUmemAccess_flags flags)
{
	CUdeviceptr address;

	GOOD(cu.cuMemAddressReserve(&address, bytes, 0, 0, 0));
	GOOD(cu.cuMemMap(address, bytes, 0, handle, 0));
	GOOD(set_access(address, bytes, 0, flags));
	return address;
}

static inline void unmap(CUdeviceptr address, size_t bytes)
{
	GOOD(cu.cuMemUnmap(address, bytes));
	GOOD(cu.cuMemAddressFree(address, bytes));
}

static inline CUcontext enter(int device)
{
	CUcontext context;

	GOOD(cu.cuDevicePrimaryCtxRetain(&context, device));
	GOOD(cu.cuCtxSetCurrent(context));
	return context;
}

/* Bytes in use on device 0, as NVML tells them. */
static inline unsigned long long used(void)
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

static inline void on_fault(int signal)
{
	(void)signal;
	siglongjmp(fault_jump, 1);
}

/* True when touching the address is a SIGSEGV. Not instrumented: the sanitizer need not judge it. */
__attribute__((no_sanitize("address"))) static inline bool faults(CUdeviceptr address, bool store)
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
