#include "memory_ipc.h"

#include <errno.h>

#ifdef GPUWM_CUDA

#include "cuda.h"

#include <string.h>

/* In the context, with the functions. */
static int ipc_begin(const struct memory_device *device, struct cuda_ipc *ret, struct error *error)
{
	int r;

	if (device->ops != &memory_cuda)
		return error_set(error, -ENOTSUP, "attach by descriptors",
				 "%s is no GPU: CUDA IPC is of GPUs only", device->id);
	r = cuda_ipc_calls(ret, error);
	return r < 0 ? r : device->ops->enter(device, error);
}

static int ipc_fail(CUresult result, const struct memory_copy *copy, struct error *error, const char *what)
{
	struct error driver;

	cuda_fail(result, -EIO, &driver, what);
	if (result == CUDA_ERROR_NOT_SUPPORTED)
		driver.code = -ENOTSUP;
	return error_set(
		error, driver.code,
		"attach again if the holder is gone (gpuwmctl ls names it); a copy is opened by processes that "
		"see the GPU, on its own host",
		"the copy that process %llu holds can't be opened: %s", (unsigned long long)copy->holder,
		driver.message);
}

int memory_ipc_open(const struct memory_device *device, const struct memory_copy *copy, uint32_t segment,
		    struct memory_segment *ret, struct error *error)
{
	CUipcMemHandle handle;
	struct cuda_ipc ipc;
	CUdeviceptr address;
	CUresult result;
	int r = ipc_begin(device, &ipc, error);

	if (r < 0)
		return r;
	memcpy(&handle, copy->segments[segment].handle.bytes, sizeof(handle));
	result = ipc.open_memory(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	device->ops->leave(device);
	if (result != CUDA_SUCCESS)
		return ipc_fail(result, copy, error, "cuIpcOpenMemHandle");
	*ret = (struct memory_segment){
		.fd = -1, .bytes = copy->segments[segment].bytes, .address = (void *)address};
	return 0;
}

void memory_ipc_close(const struct memory_device *device, struct memory_segment *segments, uint32_t count)
{
	struct error unused;
	struct cuda_ipc ipc;
	bool entered = count > 0 && ipc_begin(device, &ipc, &unused) == 0;

	for (uint32_t i = 0; i < count; i++) {
		if (entered && segments[i].address)
			ipc.close_memory((CUdeviceptr)segments[i].address);
		segments[i].address = NULL;
	}
	if (entered)
		device->ops->leave(device);
}

#else

int memory_ipc_open(const struct memory_device *device, const struct memory_copy *copy, uint32_t segment,
		    struct memory_segment *ret, struct error *error)
{
	(void)copy;
	(void)segment;
	(void)ret;
	return error_set(error, -ENOTSUP, "build it where CUDA_HOME/include/cuda.h is",
			 "this libgpuwm-client was built without cuda.h: it can't open a copy on %s",
			 device->id);
}

void memory_ipc_close(const struct memory_device *device, struct memory_segment *segments, uint32_t count)
{
	(void)device;
	(void)segments;
	(void)count;
}

#endif
