/* Captures of streams: what they forbid is here, what is captured is not. A graph can't be
 * launched on the stand-in, as no kernel runs on it (kernel.c); those functions are here for the
 * programs that are linked by their names. */
#include "driver.h"

#include <pthread.h>
#include <string.h>

#define CAPTURES_MAX 16

struct capture {
	CUstream stream; /* NULL: none */
	unsigned long long context; /* its id */
	CUstreamCaptureMode mode;
	pthread_t thread;
	bool blocking, spoilt;
};

static struct capture captures[CAPTURES_MAX];
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

#define FOR_CAPTURES(c)                                                                                        \
	for (struct capture *c = captures; c < captures + CAPTURES_MAX; c++)                                   \
		if (c->stream)

static struct capture *capture_of(CUstream stream)
{
	FOR_CAPTURES(c)
	{
		if (c->stream == stream)
			return c;
	}
	return NULL;
}

bool stream_is_captured(CUstream stream)
{
	return capture_of(stream);
}

CUresult capture_take(CUstream stream)
{
	return capture_of(stream)->spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult capture_spoil(CUstream stream)
{
	capture_of(stream)->spoilt = true;
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult captures_spoil(unsigned long long context, bool blocking)
{
	CUresult result = CUDA_SUCCESS;

	FOR_CAPTURES(c)
	{
		if (c->context != context || (blocking && !c->blocking))
			continue;
		c->spoilt = true;
		result = blocking ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return result;
}

void captures_end(unsigned long long context)
{
	FOR_CAPTURES(c)
	{
		if (c->context == context)
			c->stream = NULL;
	}
}

/* What is not queued on a stream, so that no graph would have it. */
static bool is_unsafe(const char *name)
{
	const size_t length = strlen(name);

	return strncmp(name, "cuMem", 5) == 0 && strncmp(name, "cuMemGet", 8) != 0 &&
	       !(length > 5 && strcmp(name + length - 5, "Async") == 0) && !strstr(name, "Async_v2");
}

static bool forbids(const struct capture *c)
{
	const bool own = pthread_equal(c->thread, pthread_self());

	if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	if (own)
		return c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
	return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult captures_check(const char *name)
{
	CUresult result = CUDA_SUCCESS;

	FOR_CAPTURES(c)
	{
		if (!is_unsafe(name) || !forbids(c))
			continue;
		c->spoilt = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return result;
}

DRIVER_CALL(cuThreadExchangeStreamCaptureMode, NEEDS_INIT, (CUstreamCaptureMode * mode), (mode))
{
	CUstreamCaptureMode before = thread_mode;

	if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuStreamBeginCapture_v2, NEEDS_CONTEXT, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
{
	struct capture *c = captures;
	bool blocking;

	if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (!stream_can_be_captured(stream, &blocking))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (capture_of(stream))
		return CUDA_ERROR_ILLEGAL_STATE;
	while (c < captures + CAPTURES_MAX && c->stream)
		c++;
	if (c == captures + CAPTURES_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*c = (struct capture){.stream = stream,
			      .context = context_id(),
			      .mode = mode,
			      .thread = pthread_self(),
			      .blocking = blocking};
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuStreamEndCapture, NEEDS_CONTEXT, (CUstream stream, CUgraph *ret), (stream, ret))
{
	struct capture *c = capture_of(stream);

	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	if (!c)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	c->stream = NULL;
	*ret = c->spoilt ? NULL : (CUgraph)captures;
	return c->spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

/* Asking spoils nothing. */
DRIVER_CALL(cuStreamIsCapturing, NEEDS_CONTEXT, (CUstream stream, CUstreamCaptureStatus *ret), (stream, ret))
{
	struct capture *c = capture_of(stream);
	bool blocking;

	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = c ? c->spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE
		 : CU_STREAM_CAPTURE_STATUS_NONE;
	if (c || stream_can_be_captured(stream, &blocking))
		return CUDA_SUCCESS;
	FOR_CAPTURES(other)
	{
		if (other->blocking && other->context == context_id())
			return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuGraphDestroy, NEEDS_INIT, (CUgraph graph), (graph))
{
	return graph == (CUgraph)captures ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

DRIVER_CALL(cuGraphInstantiateWithFlags, NEEDS_CONTEXT,
	    (CUgraphExec * ret, CUgraph graph, unsigned long long flags), (ret, graph, flags))
{
	(void)ret;
	(void)graph;
	(void)flags;
	return CUDA_ERROR_NOT_SUPPORTED;
}

DRIVER_CALL(cuGraphLaunch, NEEDS_CONTEXT, (CUgraphExec graph, CUstream stream), (graph, stream))
{
	(void)graph;
	(void)stream;
	return CUDA_ERROR_NOT_SUPPORTED;
}
