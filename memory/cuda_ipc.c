/* Memory of cuMemAlloc, and legacy CUDA IPC. */
#include "memory_internal.h"

#include "cuda.h"
#include "memory_ipc.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

/* The driver's functions. They are no rows of CUDA_FUNCTIONS: gpuwm works with a driver that lacks them. */
struct cuda_ipc {
	__typeof__(cuIpcGetMemHandle) *get_memory;
	__typeof__(cuIpcOpenMemHandle) *open_memory;
	__typeof__(cuIpcCloseMemHandle) *close_memory;
	__typeof__(cuIpcGetEventHandle) *get_event;
};

static int cuda_ipc_calls(struct cuda_ipc *ret, struct error *error)
{
	const struct cuda_driver *cuda = cuda_opened();
	void *library = cuda ? cuda->library : NULL;

	*ret = (struct cuda_ipc){0};
	if (library) {
		*(void **)&ret->get_memory = dlsym(library, "cuIpcGetMemHandle");
		*(void **)&ret->open_memory = dlsym(library, "cuIpcOpenMemHandle_v2");
		*(void **)&ret->close_memory = dlsym(library, "cuIpcCloseMemHandle");
		*(void **)&ret->get_event = dlsym(library, "cuIpcGetEventHandle");
	}
	if (ret->get_memory && ret->open_memory && ret->close_memory && ret->get_event)
		return 0;
	return error_set(error, -ENOTSUP, "attach by descriptors",
			 "the CUDA driver lacks functions of legacy IPC (cuIpcGetMemHandle and others)");
}

static int ipc_check(struct error *error)
{
	struct cuda_ipc ipc;

	return cuda_ipc_calls(&ipc, error);
}

static int ipc_result(CUresult result, struct error *error, const char *what)
{
	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, -EIO, error, what);
}

/* ---- plain memory ---- */

static int ipc_alloc(uint64_t bytes, void **ret, struct error *error)
{
	CUdeviceptr address = 0;
	int r = ipc_result(cuda_opened()->cuMemAlloc_v2(&address, bytes), error, "cuMemAlloc");

	*ret = (void *)address;
	return r;
}

static void ipc_free(void *address)
{
	if (address)
		cuda_opened()->cuMemFree_v2((CUdeviceptr)address);
}

static int ipc_stream_open(void **ret, struct error *error)
{
	CUstream stream = NULL;
	int r = ipc_result(cuda_opened()->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), error,
			   "cuStreamCreate");

	*ret = stream;
	return r;
}

static void ipc_stream_close(void *stream)
{
	if (stream)
		cuda_opened()->cuStreamDestroy_v2(stream);
}

static int ipc_copy(void *stream, void *to, const void *from, uint64_t bytes, struct error *error)
{
	const struct cuda_driver *cuda = cuda_opened();
	CUresult result = cuda->cuMemcpyDtoDAsync_v2((CUdeviceptr)to, (CUdeviceptr)from, bytes, stream);

	if (result == CUDA_SUCCESS)
		result = cuda->cuStreamSynchronize(stream);
	return ipc_result(result, error, "copying within a GPU");
}

/* ---- handles ---- */

/* What a device without legacy IPC says to who makes a handle, besides CUDA_ERROR_NOT_SUPPORTED. */
static int ipc_made(CUresult result, struct error *error, const char *what)
{
	const bool lacks = result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE;

	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, lacks ? -ENOTSUP : -EIO, error, what);
}

static int ipc_handle_make(const void *address, struct ipc_handle *ret, struct error *error)
{
	CUipcMemHandle handle;
	struct cuda_ipc ipc;
	int r = cuda_ipc_calls(&ipc, error);

	_Static_assert(sizeof(handle) == sizeof(ret->bytes), "a handle is as long as in messages");
	if (r == 0)
		r = ipc_made(ipc.get_memory(&handle, (CUdeviceptr)address), error, "cuIpcGetMemHandle");
	if (r == 0)
		memcpy(ret->bytes, &handle, sizeof(handle));
	return r;
}

static int ipc_open(const struct ipc_handle *handle, void **ret, struct error *error)
{
	CUipcMemHandle copy;
	CUdeviceptr address;
	struct cuda_ipc ipc;
	CUresult result;
	int r = cuda_ipc_calls(&ipc, error);

	if (r < 0)
		return r;
	memcpy(&copy, handle->bytes, sizeof(copy));
	result = ipc.open_memory(&address, copy, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, result == CUDA_ERROR_NOT_SUPPORTED ? -ENOTSUP : -EIO, error,
				 "cuIpcOpenMemHandle");
	*ret = (void *)address;
	return 0;
}

static void ipc_close(void *address)
{
	struct cuda_ipc ipc;

	if (cuda_ipc_calls(&ipc, NULL) == 0)
		ipc.close_memory((CUdeviceptr)address);
}

/* ---- events ---- */

static void ipc_event_close(void *event)
{
	if (event)
		cuda_opened()->cuEventDestroy_v2(event);
}

static int ipc_event_open(void **ret, struct ipc_handle *ret_handle, struct error *error)
{
	CUipcEventHandle handle;
	CUevent event = NULL;
	struct cuda_ipc ipc;
	CUresult result;
	int r = cuda_ipc_calls(&ipc, error);

	_Static_assert(sizeof(handle) == sizeof(ret_handle->bytes), "a handle is as long as in messages");
	if (r < 0)
		return r;
	result = cuda_opened()->cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
	if (result == CUDA_SUCCESS)
		result = ipc.get_event(&handle, event);
	r = ipc_made(result, error, "cuIpcGetEventHandle");
	if (r < 0) {
		ipc_event_close(event);
		return r;
	}
	memcpy(ret_handle->bytes, &handle, sizeof(handle));
	*ret = event;
	return 0;
}

static int ipc_event_record(void *event, struct error *error)
{
	CUresult result = cuda_opened()->cuEventRecord(event, NULL);

	if (result == CUDA_SUCCESS)
		result = cuda_opened()->cuStreamSynchronize(NULL);
	return ipc_result(result, error, "recording the copy's event");
}

static int ipc_event_check(void *event, struct error *error)
{
	return ipc_result(cuda_opened()->cuEventQuery(event), error, "asking for the copy's event");
}

const struct memory_ipc_ops ipc_cuda = {
	.check = ipc_check,
	.alloc = ipc_alloc,
	.free = ipc_free,
	.stream_open = ipc_stream_open,
	.stream_close = ipc_stream_close,
	.copy = ipc_copy,
	.handle = ipc_handle_make,
	.open = ipc_open,
	.close = ipc_close,
	.event_open = ipc_event_open,
	.event_record = ipc_event_record,
	.event_check = ipc_event_check,
	.event_close = ipc_event_close,
};
