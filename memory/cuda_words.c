/* Words of 8 bytes that a stream writes or waits for, and functions that it calls, in order with its other work. */
#include "memory_internal.h"

#include "cuda.h"

#include <errno.h>

/* ---- registering ----------------------------------------------------------- */

static int words_check_device(const struct cuda_driver *cuda, const struct memory_device *device,
			      struct error *error)
{
	int can = 0;
	CUresult result = cuda->cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
						     device->ordinal);

	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -EIO, error, "asking what streams of a GPU can do");
	if (!can)
		return error_set(error, -ENOTSUP,
				 "wait for the stream, then use the call that is not in stream order",
				 "streams of %s can't write and wait for words of 8 bytes", device->id);
	return 0;
}

/* A word has one address for the CPU and for all GPUs. The driver promises that if every GPU that this process sees can use host
 * pointers. Otherwise it maps the memory a second time, at another address. */
static int words_check_address(const struct cuda_driver *cuda, const struct memory_device *device, void *base,
			       struct error *error)
{
	CUdeviceptr address = 0;
	CUresult result = cuda->cuMemHostGetDevicePointer_v2(&address, base, 0);

	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -EIO, error, "cuMemHostGetDevicePointer");
	if (address != (CUdeviceptr)base)
		return error_set(error, -ENOTSUP, "set CUDA_VISIBLE_DEVICES to the GPUs that are used",
				 "the driver does not map host memory at its own address on %s", device->id);
	return 0;
}

int cuda_register_words(const struct memory_device *device, void *base, uint64_t bytes, struct error *error)
{
	const unsigned flags = CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE;
	const struct cuda_driver *cuda;
	CUresult result;
	int r = cuda_open(&cuda, error);

	if (r == 0)
		r = words_check_device(cuda, device, error);
	if (r < 0)
		return r;
	result = cuda->cuMemHostRegister_v2(base, bytes, flags);
	if (result == CUDA_ERROR_NOT_SUPPORTED)
		return cuda_fail(result, -ENOTSUP, error, "cuMemHostRegister");
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -ENOMEM, error, "cuMemHostRegister");
	r = words_check_address(cuda, device, base, error);
	if (r < 0)
		cuda->cuMemHostUnregister(base);
	return r;
}

void cuda_unregister_words(const struct memory_device *device, void *base)
{
	(void)device;
	cuda_unpin(base);
}

/* ---- streams --------------------------------------------------------------- */

static bool context_is_current(const struct cuda_driver *cuda, const struct memory_device *device)
{
	CUcontext context = NULL;
	CUdevice current;

	return cuda->cuCtxGetCurrent(&context) == CUDA_SUCCESS && context &&
	       cuda->cuCtxGetDevice(&current) == CUDA_SUCCESS && current == device->ordinal;
}

typedef CUresult word_fn(CUstream stream, CUdeviceptr word, cuuint64_t value, unsigned flags);

/* What is put into a stream. */
struct operation {
	const char *name;
	CUstream stream;
	word_fn *word_fn; /* NULL: a call */
	unsigned flags;
	CUdeviceptr word;
	uint64_t value;
	CUhostFn call;
	void *user_data;
};

static int operation_put(const struct cuda_driver *cuda, const struct operation *operation, struct error *error)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result = cuda->cuStreamIsCapturing(operation->stream, &status);

	/* The question loses no capture, also if the answer is IMPLICIT: that the stream is the default one, and waits for a stream that
	 * is being captured. */
	if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT || (result == CUDA_SUCCESS && status))
		return error_set(
			error, -EBUSY, "call it before or after the launch of the graph",
			"the stream is being captured: the graph would repeat one generation for ever");
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -EIO, error, "cuStreamIsCapturing");
	if (operation->word_fn)
		result = operation->word_fn(operation->stream, operation->word, operation->value,
					    operation->flags);
	else
		result = cuda->cuLaunchHostFunc(operation->stream, operation->call, operation->user_data);
	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, -EIO, error, operation->name);
}

static int operation_put_in_primary(const struct memory_device *device, const struct operation *operation,
				    struct error *error)
{
	int r = cuda_context_enter(device, error);

	if (r < 0)
		return r;
	r = operation_put(cuda_opened(), operation, error);
	cuda_context_leave(device);
	return r;
}

/* The driver puts a barrier before a store, so that who sees the word sees what the stream wrote before. */
static int put_word(const struct memory_device *device, bool waits, struct operation operation,
		    struct error *error)
{
	const struct cuda_driver *cuda;
	int r = cuda_open(&cuda, error);

	if (r < 0)
		return r;
	operation.name = waits ? "cuStreamWaitValue64" : "cuStreamWriteValue64";
	operation.word_fn = waits ? cuda->cuStreamWaitValue64_v2 : cuda->cuStreamWriteValue64_v2;
	operation.flags = waits ? CU_STREAM_WAIT_VALUE_GEQ : CU_STREAM_WRITE_VALUE_DEFAULT;
	/* Where the context is current already, as in most programs, nothing is switched. */
	if (context_is_current(cuda, device))
		return operation_put(cuda, &operation, error);
	return operation_put_in_primary(device, &operation, error);
}

int cuda_write_word(const struct memory_device *device, void *stream, void *word, uint64_t value,
		    struct error *error)
{
	return put_word(device, false,
			(struct operation){.stream = stream, .word = (CUdeviceptr)word, .value = value}, error);
}

int cuda_wait_word(const struct memory_device *device, void *stream, void *word, uint64_t value,
		   struct error *error)
{
	return put_word(device, true,
			(struct operation){.stream = stream, .word = (CUdeviceptr)word, .value = value}, error);
}

/* The stream may be one of another GPU, which reaches the memory. To enter a context of the device would make one there, which takes
 * 0.2 s each time. */
int cuda_call_in_stream(const struct memory_device *device, void *stream, void (*fn)(void *user_data),
			void *user_data, struct error *error)
{
	const struct operation operation = {
		.name = "cuLaunchHostFunc", .stream = stream, .call = fn, .user_data = user_data};
	const struct cuda_driver *cuda;
	CUcontext context = NULL;
	int r = cuda_open(&cuda, error);

	if (r < 0)
		return r;
	if (cuda->cuCtxGetCurrent(&context) == CUDA_SUCCESS && context)
		return operation_put(cuda, &operation, error);
	return operation_put_in_primary(device, &operation, error);
}

/* ---- contexts that are broken ------------------------------------------------- */

/* In a broken context every call fails that needs the device. This one waits for nothing that is queued, and no capture minds it. */
static bool refuses_streams(const struct cuda_driver *cuda)
{
	CUstream stream;
	CUresult result = cuda->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);

	if (result == CUDA_SUCCESS)
		cuda->cuStreamDestroy_v2(stream);
	return result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY;
}

/* Makes no context where there is none. */
bool cuda_is_broken(const struct memory_device *device)
{
	const struct cuda_driver *cuda = cuda_opened();
	unsigned flags;
	int active = 0;
	bool broken;

	if (!cuda)
		return false;
	if (context_is_current(cuda, device))
		return refuses_streams(cuda);
	if (cuda->cuDevicePrimaryCtxGetState(device->ordinal, &flags, &active) != CUDA_SUCCESS || !active)
		return false;
	if (cuda_context_enter(device, NULL) < 0)
		return true;
	broken = refuses_streams(cuda);
	cuda_context_leave(device);
	return broken;
}
