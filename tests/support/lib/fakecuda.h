/* The stand-in driver and NVML, looked up as the library does it. */
#ifndef GPUWM_TESTS_LIB_FAKECUDA_H
#define GPUWM_TESTS_LIB_FAKECUDA_H

#ifdef GPUWM_CUDA
#include <criterion/criterion.h>
#include <cuda.h>
#include <errno.h>
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
	F(cuMemHostGetDevicePointer_v2)                                                                        \
	F(cuIpcGetMemHandle)                                                                                   \
	F(cuIpcOpenMemHandle_v2)                                                                               \
	F(cuIpcCloseMemHandle)                                                                                 \
	F(cuStreamCreate)                                                                                      \
	F(cuStreamDestroy_v2)                                                                                  \
	F(cuStreamSynchronize)                                                                                 \
	F(cuStreamQuery)                                                                                       \
	F(cuStreamWaitEvent)                                                                                   \
	F(cuStreamWriteValue64_v2)                                                                             \
	F(cuStreamWaitValue64_v2)                                                                              \
	F(cuStreamBeginCapture_v2)                                                                             \
	F(cuStreamEndCapture)                                                                                  \
	F(cuStreamIsCapturing)                                                                                 \
	F(cuLaunchHostFunc)                                                                                    \
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

struct driver_calls {
#define MEMBER(name) __typeof__(name) *name;
	FUNCTIONS(MEMBER)
#undef MEMBER
	CUresult (*cuCtxCreate_v2)(CUcontext *context, unsigned flags, CUdevice device);
};
extern struct driver_calls cu;

struct nvml_memory {
	unsigned long long total, free, used;
};

struct nvml_calls {
	int (*nvmlInit_v2)(void);
	int (*nvmlShutdown)(void);
	int (*nvmlDeviceGetCount_v2)(unsigned *count);
	int (*nvmlDeviceGetHandleByUUID)(const char *uuid, void **device);
	int (*nvmlDeviceGetMemoryInfo)(void *device, struct nvml_memory *memory);
};
extern struct nvml_calls nvml;

#define IS(expected, call)                                                                                     \
	do {                                                                                                   \
		CUresult is_ = (call);                                                                         \
		const char *is_name_ = NULL;                                                                   \
		cu.cuGetErrorName(is_, &is_name_);                                                             \
		cr_assert(is_ == (expected), "%s: %s (%d) instead of %s", #call, is_name_, is_, #expected);    \
	} while (0)
#define GOOD(call) IS(CUDA_SUCCESS, call)

/* A fixture for every test: devices of its own, and no cuInit yet. Skips the test if the backend is not fakecuda. */
void fakecuda_open(void);

/* Each is one call of the driver, on this device, and returns what that returns. */
CUmemAllocationProp properties(int device);
CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes, int device);
CUresult import(CUmemGenericAllocationHandle *handle, int fd);
CUresult export(CUmemGenericAllocationHandle handle, int *fd);
CUresult set_access(CUdeviceptr address, size_t bytes, int device, CUmemAccess_flags flags);

/* Reserves an address, maps and gives device 0 these rights; the other way round. */
CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t bytes, CUmemAccess_flags flags);
void unmap(CUdeviceptr address, size_t bytes);

/* Makes the device's primary context the thread's current one. */
CUcontext enter(int device);

/* Returns the bytes in use on device 0, as NVML tells them. */
unsigned long long used(void);

/* Whether a load from this address, or a store to it, is a SIGSEGV. */
bool faults(CUdeviceptr address, bool store);

#endif

#endif
