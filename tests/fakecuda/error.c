/* What is neither counted, failed nor logged: words for results, and look-up. */
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define RESULTS(R)                                                                                             \
	R(CUDA_SUCCESS, "no error")                                                                            \
	R(CUDA_ERROR_INVALID_VALUE, "invalid argument")                                                        \
	R(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                                           \
	R(CUDA_ERROR_NOT_INITIALIZED, "initialization error")                                                  \
	R(CUDA_ERROR_DEINITIALIZED, "driver shutting down")                                                    \
	R(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library")                                            \
	R(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable")                  \
	R(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")                                          \
	R(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                                                 \
	R(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid")                                          \
	R(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device")            \
	R(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain.")  \
	R(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                                                \
	R(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered")                                 \
	R(CUDA_ERROR_NVLINK_UNCORRECTABLE, "uncorrectable NVLink error detected during the execution")         \
	R(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS")                 \
	R(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                                                \
	R(CUDA_ERROR_NOT_FOUND, "named symbol not found")                                                      \
	R(CUDA_ERROR_NOT_READY, "device not ready")                                                            \
	R(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")                              \
	R(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")                                             \
	R(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,                                                           \
	  "part or all of the requested memory range is already mapped")                                       \
	R(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region")  \
	R(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")                                              \
	R(CUDA_ERROR_NOT_PERMITTED, "operation not permitted")                                                 \
	R(CUDA_ERROR_NOT_SUPPORTED, "operation not supported")                                                 \
	R(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized")                                           \
	R(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing")           \
	R(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture")    \
	R(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,                                                                  \
	  "operation would make the legacy stream depend on a capturing blocking stream")                      \
	R(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,                                                              \
	  "attempt to terminate a thread-local capture sequence from another thread")                          \
	R(CUDA_ERROR_UNKNOWN, "unknown error")

static const struct {
	CUresult result;
	const char *name, *text;
} results[] = {
#define RESULT(result, text) {result, #result, text},
	RESULTS(RESULT)
#undef RESULT
};

CUresult cuGetErrorName(CUresult result, const char **ret)
{
	*ret = NULL;
	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++)
		if (results[i].result == result)
			*ret = results[i].name;
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult result, const char **ret)
{
	*ret = NULL;
	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++)
		if (results[i].result == result)
			*ret = results[i].text;
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The newest of the name's versions, whatever version is asked for. */
CUresult cuGetProcAddress_v2(const char *symbol, void **ret, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *ret_status)
{
	static const char *const suffixes[] = {"_v4", "_v2", ""};
	char name[128];
	Dl_info self;
	void *library;

	(void)version;
	(void)flags;
	if (!symbol || !ret || !dladdr((void *)cuGetErrorName, &self))
		return CUDA_ERROR_INVALID_VALUE;
	library = dlopen(self.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
	*ret = NULL;
	for (size_t i = 0; library && !*ret && i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		snprintf(name, sizeof(name), "%s%s", symbol, suffixes[i]);
		*ret = dlsym(library, name);
	}
	if (library)
		dlclose(library);
	if (ret_status)
		*ret_status = *ret ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
