/* The driver, opened at run time: one binary runs with and without a GPU. Only
 * compiled where cuda.h is; loads libcuda.so.1 on the first cuda_open. */
#ifndef GPUWM_LIB_CUDA_H
#define GPUWM_LIB_CUDA_H

#include "../base/errors.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* Every function of the driver that gpuwm calls, by the name it is looked up by. */
#define CUDA_FUNCTIONS(F)                                                                                      \
	F(cuInit)                                                                                              \
	F(cuDriverGetVersion)                                                                                  \
	F(cuGetErrorName)                                                                                      \
	F(cuGetErrorString)                                                                                    \
	F(cuDeviceGetCount)                                                                                    \
	F(cuDeviceGet)                                                                                         \
	F(cuDeviceGetName)                                                                                     \
	F(cuDeviceGetUuid_v2)                                                                                  \
	F(cuDeviceTotalMem_v2)                                                                                 \
	F(cuDeviceGetAttribute)                                                                                \
	F(cuDeviceCanAccessPeer)                                                                               \
	F(cuDevicePrimaryCtxGetState)                                                                          \
	F(cuDevicePrimaryCtxRetain)                                                                            \
	F(cuDevicePrimaryCtxRelease_v2)                                                                        \
	F(cuCtxPushCurrent_v2)                                                                                 \
	F(cuCtxPopCurrent_v2)                                                                                  \
	F(cuCtxGetCurrent)                                                                                     \
	F(cuCtxGetDevice)                                                                                      \
	F(cuCtxGetId)                                                                                          \
	F(cuCtxSynchronize)                                                                                    \
	F(cuStreamSynchronize)                                                                                 \
	F(cuStreamCreate)                                                                                      \
	F(cuStreamDestroy_v2)                                                                                  \
	F(cuStreamIsCapturing)                                                                                 \
	F(cuStreamWriteValue64_v2)                                                                             \
	F(cuStreamWaitValue64_v2)                                                                              \
	F(cuLaunchHostFunc)                                                                                    \
	F(cuThreadExchangeStreamCaptureMode)                                                                   \
	F(cuStreamWaitEvent)                                                                                   \
	F(cuEventCreate)                                                                                       \
	F(cuEventDestroy_v2)                                                                                   \
	F(cuEventRecord)                                                                                       \
	F(cuEventQuery)                                                                                        \
	F(cuEventElapsedTime)                                                                                  \
	F(cuMemGetAllocationGranularity)                                                                       \
	F(cuMemCreate)                                                                                         \
	F(cuMemRelease)                                                                                        \
	F(cuMemExportToShareableHandle)                                                                        \
	F(cuMemImportFromShareableHandle)                                                                      \
	F(cuMemGetAllocationPropertiesFromHandle)                                                              \
	F(cuMemAddressReserve)                                                                                 \
	F(cuMemAddressFree)                                                                                    \
	F(cuMemMap)                                                                                            \
	F(cuMemUnmap)                                                                                          \
	F(cuMemSetAccess)                                                                                      \
	F(cuMemcpyHtoD_v2)                                                                                     \
	F(cuMemcpyDtoH_v2)                                                                                     \
	F(cuMemcpyHtoDAsync_v2)                                                                                \
	F(cuMemcpyDtoDAsync_v2)                                                                                \
	F(cuMemHostRegister_v2)                                                                                \
	F(cuMemHostUnregister)                                                                                 \
	F(cuMemHostGetDevicePointer_v2)                                                                        \
	F(cuMemsetD8_v2)                                                                                       \
	F(cuMemAlloc_v2)                                                                                       \
	F(cuMemFree_v2)                                                                                        \
	F(cuMemcpyDtoHAsync_v2)                                                                                \
	F(cuMemsetD8Async)                                                                                     \
	F(cuModuleLoadData)                                                                                    \
	F(cuModuleGetFunction)                                                                                 \
	F(cuLaunchKernel)

struct cuda_driver {
#define CUDA_MEMBER(name) __typeof__(name) *name;
	CUDA_FUNCTIONS(CUDA_MEMBER)
#undef CUDA_MEMBER
	void *library; /* for what else a caller looks up with dlsym */
	int device_count;
};

/* The driver, after cuInit. -ENOTSUP: no libcuda.so.1 here, one that lacks a
 * function, or a child of a process that used CUDA; -ENODEV: no GPU is visible. */
int cuda_open(const struct cuda_driver **ret, struct error *error);
/* The driver for who has opened it, like everybody with a memory_device. NULL in a forked child. */
const struct cuda_driver *cuda_opened(void);

/* "GPU-…" of device `ordinal`, as nvidia-smi prints it; "MIG-…" where only the
 * 16 bytes are known is found by cuda_find all the same. */
#define CUDA_ID_BYTES 41
int cuda_id(int ordinal, char ret_id[CUDA_ID_BYTES], struct error *error);

/* The ordinal of a UUID with either prefix. -ENODEV. */
int cuda_find(const char *id, int *ret_ordinal, struct error *error);

/* 0 when one device can read another's memory; -ENOTSUP. */
int cuda_reaches(int reader, int owner, struct error *error);

/* The rows `current`, `pin` and `unpin` of memory_ops. */
int cuda_current(char ret_id[DEVICE_BYTES_MAX + 1]);
int cuda_pin(void *base, uint64_t bytes, struct error *error);
void cuda_unpin(void *base);

/* Sets *error from a result that is not CUDA_SUCCESS: to `code`, to what the caller tried, and to the driver's words. If
 * the device is lost, the code is -ENODEV. If the driver is out of memory, -EIO becomes -ENOMEM. */
int cuda_fail(CUresult result, int code, struct error *error, const char *what);

#endif
