/* The driver's functions that measuring programs call, looked up at run time, and what most of them begin
 * with. Only where the driver's header was there at build time; all end the program when something fails. */
#ifndef GPUWM_BENCH_DRIVER_H
#define GPUWM_BENCH_DRIVER_H

#ifdef GPUWM_CUDA

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define DRIVER_FUNCTIONS(F)                                                                                    \
	F(cuInit)                                                                                              \
	F(cuDeviceGetCount)                                                                                    \
	F(cuDeviceGetUuid_v2)                                                                                  \
	F(cuDeviceGetAttribute)                                                                                \
	F(cuDevicePrimaryCtxRetain)                                                                            \
	F(cuCtxSetCurrent)                                                                                     \
	F(cuCtxSynchronize)                                                                                    \
	F(cuMemCreate)                                                                                         \
	F(cuMemRelease)                                                                                        \
	F(cuMemExportToShareableHandle)                                                                        \
	F(cuMemImportFromShareableHandle)                                                                      \
	F(cuMemAddressReserve)                                                                                 \
	F(cuMemAddressFree)                                                                                    \
	F(cuMemMap)                                                                                            \
	F(cuMemUnmap)                                                                                          \
	F(cuMemSetAccess)                                                                                      \
	F(cuMemAlloc_v2)                                                                                       \
	F(cuMemFree_v2)                                                                                        \
	F(cuMemHostRegister_v2)                                                                                \
	F(cuMemHostGetDevicePointer_v2)                                                                        \
	F(cuMemHostUnregister)                                                                                 \
	F(cuMemcpyHtoDAsync_v2)                                                                                \
	F(cuMemcpyHtoD_v2)                                                                                     \
	F(cuMemcpyDtoH_v2)                                                                                     \
	F(cuMemcpyDtoDAsync_v2)                                                                                \
	F(cuMemsetD8_v2)                                                                                       \
	F(cuMemsetD32_v2)                                                                                      \
	F(cuStreamCreate)                                                                                      \
	F(cuStreamSynchronize)                                                                                 \
	F(cuStreamQuery)                                                                                       \
	F(cuStreamWriteValue64_v2)                                                                             \
	F(cuStreamWaitValue64_v2)                                                                              \
	F(cuStreamDestroy_v2)                                                                                  \
	F(cuEventCreate)                                                                                       \
	F(cuEventRecord)                                                                                       \
	F(cuEventSynchronize)                                                                                  \
	F(cuEventElapsedTime)                                                                                  \
	F(cuEventDestroy_v2)                                                                                   \
	F(cuModuleLoadData)                                                                                    \
	F(cuModuleGetFunction)                                                                                 \
	F(cuLaunchKernel)

/* What the stand-in driver lacks: NULL there. */
#define DRIVER_GRAPH_FUNCTIONS(F)                                                                              \
	F(cuStreamBeginCapture_v2)                                                                             \
	F(cuStreamEndCapture)                                                                                  \
	F(cuGraphInstantiateWithFlags)                                                                         \
	F(cuGraphLaunch)

struct driver {
#define DRIVER_MEMBER(name) __typeof__(name) *name;
	DRIVER_FUNCTIONS(DRIVER_MEMBER)
	DRIVER_GRAPH_FUNCTIONS(DRIVER_MEMBER)
#undef DRIVER_MEMBER
	CUdevice device; /* what driver_open was asked for */
};
extern struct driver driver;

#define CU(call)                                                                                               \
	do {                                                                                                   \
		int cu_ = (int)(call);                                                                         \
		if (cu_)                                                                                       \
			DIE("%s: CUDA error %d", #call, cu_);                                                  \
	} while (0)

/* Looks the functions up, cuInit, and finds the device: a UUID as gpuwm writes it, or NULL for the first.
 * No context. */
void driver_open(const char *device);
/* The device's primary context, current in this thread. */
void driver_context(void);

/* A kernel of tests/gpu/kernels.cu, out of the file that GPUWM_KERNELS names. */
CUfunction driver_kernel(const char *name);
/* False where GPUWM_KERNELS is not set: on the stand-in driver, which runs none. */
bool driver_has_kernels(void);
/* The first kernel of a process: what it needs besides what it reads, and then a kernel that reads the bytes (a
 * multiple of 8) and is waited for. Without kernels a word is copied back. */
struct first_kernel {
	CUfunction sum;
	CUdeviceptr total;
};
struct first_kernel driver_first_kernel_make(void);
void driver_first_kernel_run(struct first_kernel *first, CUdeviceptr words, uint64_t bytes);

CUmemAllocationProp driver_properties(void);
CUmemAccessDesc driver_access(CUmemAccess_flags flags);

#endif

#endif
