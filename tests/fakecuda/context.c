#include "driver.h"

#include <errno.h>
#include <unistd.h>

#define CONTEXTS_MAX 64
#define STACK_MAX 64

struct CUctx_st {
	int ordinal;
	unsigned uses; /* retains of a primary one; 1 for another; 0: destroyed */
	unsigned flags;
	unsigned long long id;
	int file; /* the device memory that it takes; -1: none */
	CUresult lost; /* its device was; it stays broken when the device is back */
};

static struct CUctx_st primaries[DEVICES_MAX], created[CONTEXTS_MAX];
static unsigned long long last_id;
static CUresult broken; /* the sticky error of this process's contexts */

static _Thread_local CUcontext stack[STACK_MAX];
static _Thread_local unsigned depth;

static bool is_context(CUcontext context)
{
	return (context >= primaries && context < primaries + DEVICES_MAX) ||
	       (context >= created && context < created + CONTEXTS_MAX);
}

static CUcontext current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

CUresult context_check(int *ret_ordinal)
{
	CUcontext context = current();

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!context->uses)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (broken != CUDA_SUCCESS)
		return broken;
	if (context->lost == CUDA_SUCCESS)
		context->lost = device_loss(context->ordinal);
	if (context->lost != CUDA_SUCCESS)
		return context->lost;
	if (ret_ordinal)
		*ret_ordinal = context->ordinal;
	return CUDA_SUCCESS;
}

void context_break(CUresult result)
{
	broken = result;
}

bool context_is_broken(void)
{
	return broken != CUDA_SUCCESS;
}

unsigned long long context_id(void)
{
	return current()->id;
}

static CUresult context_start(CUcontext context, int ordinal, unsigned flags)
{
	CUresult lost = device_loss(ordinal);
	int file = -1;

	/* A context is made where a device has an ECC error, and breaks. */
	if (lost != CUDA_SUCCESS && lost != CUDA_ERROR_ECC_UNCORRECTABLE)
		return lost;
	if (machine()->context) {
		file = memory_file_create(device_physical(ordinal), machine()->context);
		if (file < 0)
			return file == -ENOSPC ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_OPERATING_SYSTEM;
	}
	*context =
		(struct CUctx_st){.ordinal = ordinal, .uses = 1, .flags = flags, .id = ++last_id, .file = file};
	return CUDA_SUCCESS;
}

static void context_end(CUcontext context)
{
	context->uses = 0;
	streams_end(context->id);
	captures_end(context->id);
	modules_end(context->id);
	if (context->file >= 0)
		close(context->file);
}

DRIVER_CALL(cuDevicePrimaryCtxRetain, NEEDS_INIT, (CUcontext * ret, CUdevice device), (ret, device))
{
	CUcontext context = &primaries[device >= 0 && device < DEVICES_MAX ? device : 0];
	CUresult result = CUDA_SUCCESS;

	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_physical(device) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	if (context->uses)
		context->uses++;
	else
		result = context_start(context, device, context->flags);
	if (result == CUDA_SUCCESS)
		*ret = context;
	return result;
}

DRIVER_CALL(cuDevicePrimaryCtxRelease_v2, NEEDS_INIT, (CUdevice device), (device))
{
	if (device_physical(device) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!primaries[device].uses)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (primaries[device].uses == 1)
		context_end(&primaries[device]);
	else
		primaries[device].uses--;
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuDevicePrimaryCtxGetState, NEEDS_INIT, (CUdevice device, unsigned *flags, int *active),
	    (device, flags, active))
{
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_physical(device) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = primaries[device].flags;
	*active = primaries[device].uses > 0;
	return CUDA_SUCCESS;
}

static CUresult context_new(CUcontext *ret, unsigned flags, CUdevice device)
{
	CUcontext context = created;
	CUresult result;

	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_physical(device) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	while (context < created + CONTEXTS_MAX && context->id)
		context++;
	/* None is used twice: a destroyed one stays known as such. */
	if (context == created + CONTEXTS_MAX || depth == STACK_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = context_start(context, device, flags);
	if (result == CUDA_SUCCESS)
		*ret = stack[depth++] = context;
	return result;
}

CUresult cuCtxCreate_v2(CUcontext *ret, unsigned flags, CUdevice device) __attribute__((visibility("default")));
DRIVER_CALL(cuCtxCreate_v2, NEEDS_INIT, (CUcontext * ret, unsigned flags, CUdevice device),
	    (ret, flags, device))
{
	return context_new(ret, flags, device);
}

DRIVER_CALL(cuCtxCreate_v4, NEEDS_INIT,
	    (CUcontext * ret, CUctxCreateParams *parameters, unsigned flags, CUdevice device),
	    (ret, parameters, flags, device))
{
	return parameters ? CUDA_ERROR_NOT_SUPPORTED : context_new(ret, flags, device);
}

DRIVER_CALL(cuCtxDestroy_v2, NEEDS_INIT, (CUcontext context), (context))
{
	if (!context || context < created || context >= created + CONTEXTS_MAX || !context->uses)
		return CUDA_ERROR_INVALID_CONTEXT;
	context_end(context);
	if (current() == context)
		depth--;
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuCtxPushCurrent_v2, NEEDS_INIT, (CUcontext context), (context))
{
	if (!context || !is_context(context) || depth == STACK_MAX)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack[depth++] = context;
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuCtxPopCurrent_v2, NEEDS_INIT, (CUcontext * ret), (ret))
{
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (ret)
		*ret = stack[depth];
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuCtxGetCurrent, NEEDS_INIT, (CUcontext * ret), (ret))
{
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = current();
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuCtxSetCurrent, NEEDS_INIT, (CUcontext context), (context))
{
	if (context && !is_context(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (depth)
		depth--;
	if (context)
		stack[depth++] = context;
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuCtxGetDevice, NEEDS_INIT, (CUdevice * device), (device))
{
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!current())
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = current()->ordinal;
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuCtxGetId, NEEDS_INIT, (CUcontext context, unsigned long long *id), (context, id))
{
	context = context ? context : current();
	if (!context || !is_context(context) || !context->uses)
		return CUDA_ERROR_INVALID_CONTEXT;
	*id = context->id;
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuCtxSynchronize, NEEDS_CONTEXT, (void), ())
{
	CUresult result = captures_spoil(context_id(), false);

	return result == CUDA_SUCCESS ? streams_run() : result;
}
