/* Streams and events. Everything has happened when a call returns, so that
 * there is never anything to wait for. */
#include "driver.h"

#include <time.h>

#define STREAMS_MAX 256
#define EVENTS_MAX 1024

struct CUstream_st {
	bool alive;
};

struct CUevent_st {
	bool alive, recorded;
	struct timespec time;
};

static struct CUstream_st streams[STREAMS_MAX];
static struct CUevent_st events[EVENTS_MAX];

static bool is_stream(CUstream stream)
{
	if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
		return true;
	return stream >= streams && stream < streams + STREAMS_MAX && stream->alive;
}

static bool is_event(CUevent event)
{
	return event >= events && event < events + EVENTS_MAX && event->alive;
}

static CUresult stream_check(CUstream stream)
{
	return is_stream(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult event_check(CUevent event)
{
	return is_event(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

DRIVER_CALL(cuStreamCreate, NEEDS_CONTEXT, (CUstream * ret, unsigned flags), (ret, flags))
{
	CUstream stream = streams;

	if (!ret || flags > CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	while (stream < streams + STREAMS_MAX && stream->alive)
		stream++;
	if (stream == streams + STREAMS_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stream->alive = true;
	*ret = stream;
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuStreamDestroy_v2, NEEDS_CONTEXT, (CUstream stream), (stream))
{
	if (stream < streams || stream >= streams + STREAMS_MAX || !stream->alive)
		return CUDA_ERROR_INVALID_HANDLE;
	stream->alive = false;
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuStreamSynchronize, NEEDS_CONTEXT, (CUstream stream), (stream))
{
	return stream_check(stream);
}

DRIVER_CALL(cuStreamQuery, NEEDS_CONTEXT, (CUstream stream), (stream))
{
	return stream_check(stream);
}

DRIVER_CALL(cuEventCreate, NEEDS_CONTEXT, (CUevent * ret, unsigned flags), (ret, flags))
{
	CUevent event = events;

	if (!ret || flags > 7)
		return CUDA_ERROR_INVALID_VALUE;
	while (event < events + EVENTS_MAX && event->alive)
		event++;
	if (event == events + EVENTS_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*event = (struct CUevent_st){.alive = true};
	*ret = event;
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuEventDestroy_v2, NEEDS_CONTEXT, (CUevent event), (event))
{
	CUresult result = event_check(event);

	if (result == CUDA_SUCCESS)
		event->alive = false;
	return result;
}

DRIVER_CALL(cuEventRecord, NEEDS_CONTEXT, (CUevent event, CUstream stream), (event, stream))
{
	if (!is_event(event) || !is_stream(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	event->recorded = true;
	clock_gettime(CLOCK_MONOTONIC, &event->time);
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuEventQuery, NEEDS_CONTEXT, (CUevent event), (event))
{
	return event_check(event);
}

DRIVER_CALL(cuEventSynchronize, NEEDS_CONTEXT, (CUevent event), (event))
{
	return event_check(event);
}

DRIVER_CALL(cuEventElapsedTime_v2, NEEDS_CONTEXT, (float *ms, CUevent start, CUevent end), (ms, start, end))
{
	if (!ms)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_event(start) || !is_event(end) || !start->recorded || !end->recorded)
		return CUDA_ERROR_INVALID_HANDLE;
	*ms = (float)(end->time.tv_sec - start->time.tv_sec) * 1e3f +
	      (float)(end->time.tv_nsec - start->time.tv_nsec) * 1e-6f;
	return CUDA_SUCCESS;
}

/* The name before CUDA 12.8. */
#undef cuEventElapsedTime
__attribute__((alias("cuEventElapsedTime_v2"), visibility("default"))) CUresult
cuEventElapsedTime(float *ms, CUevent start, CUevent end);
