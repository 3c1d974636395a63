/* Streams and events. What is queued on a stream happens as late as it may:
 * when something waits for it, or when a thread gets to it since another process may wait for it (words.c). So a buffer that is written again too early, or memory that is read
 * too early, has wrong bytes every time. */
#include "driver.h"

#include <stdlib.h>
#include <time.h>

#define STREAMS_MAX 256
#define EVENTS_MAX 1024

/* What a stream has still to do: work, or waiting for a place in another one. */
struct queued {
	struct queued *next;
	stream_work_fn *work; /* NULL: wait */
	struct stream_work data;
	CUstream other;
	unsigned long long place;
	int64_t due_ns; /* not before this time */
};

struct CUstream_st {
	bool alive, blocking;
	bool destroyed; /* nobody names it any more, but it is not done */
	unsigned long long context; /* its id */
	struct queued *first, **end;
	unsigned long long queued, done; /* how many in all */
	unsigned long long alone; /* so many happen without a call that waits */
};

struct CUevent_st {
	bool alive, recorded;
	unsigned long long context;
	CUstream stream; /* where it was recorded last; NULL: nothing to wait for */
	unsigned long long place; /* it has happened when so many are done */
	struct timespec time;
	struct event_word word; /* interprocess; happened NULL: it is not */
};

static struct CUstream_st streams[STREAMS_MAX];
static struct CUevent_st events[EVENTS_MAX];

static bool is_default(CUstream stream)
{
	return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

static bool is_stream(CUstream stream)
{
	return is_default(stream) ||
	       (stream >= streams && stream < streams + STREAMS_MAX && stream->alive && !stream->destroyed);
}

static bool is_event(CUevent event)
{
	return event >= events && event < events + EVENTS_MAX && event->alive;
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static CUresult run_to(CUstream stream, unsigned long long place);

static CUresult run_one(const struct queued *queued)
{
	if (queued->due_ns > now_ns())
		return CUDA_ERROR_NOT_READY;
	return queued->work ? queued->work(&queued->data) : run_to(queued->other, queued->place);
}

/* Until so many of the stream's are done, or one can't be done yet: CUDA_ERROR_NOT_READY. What fails breaks the context: whoever waits
 * hears of it. */
static CUresult run_to(CUstream stream, unsigned long long place)
{
	CUresult result = CUDA_SUCCESS;

	while (stream->first && stream->done < place) {
		struct queued *queued = stream->first;
		CUresult failed = run_one(queued);

		if (failed == CUDA_ERROR_NOT_READY)
			return result == CUDA_SUCCESS ? failed : result;
		if (failed != CUDA_SUCCESS) {
			context_break(CUDA_ERROR_ILLEGAL_ADDRESS);
			result = CUDA_ERROR_ILLEGAL_ADDRESS;
		}
		stream->first = queued->next;
		if (!stream->first)
			stream->end = &stream->first;
		stream->done++;
		free(queued);
	}
	return result;
}

/* The same, for a call that waits. Meanwhile other threads may make calls. */
static CUresult wait_to(CUstream stream, unsigned long long place)
{
	CUresult result;

	while ((result = run_to(stream, place)) == CUDA_ERROR_NOT_READY) {
		driver_nap();
		result = context_check(NULL);
		if (result != CUDA_SUCCESS)
			return result;
	}
	return result;
}

/* Work on the default stream comes behind that of all streams that were not made to stand apart. */
static CUresult run_blocking(void)
{
	CUresult result = captures_spoil(context_id(), true);

	if (result != CUDA_SUCCESS)
		return result;
	for (CUstream s = streams; s < streams + STREAMS_MAX; s++)
		if (s->alive && s->blocking && s->context == context_id() &&
		    wait_to(s, s->queued) != CUDA_SUCCESS)
			result = CUDA_ERROR_ILLEGAL_ADDRESS;
	return result;
}

CUresult streams_run(void)
{
	CUresult result = CUDA_SUCCESS;

	for (CUstream s = streams; s < streams + STREAMS_MAX; s++)
		if (s->alive && s->context == context_id() && wait_to(s, s->queued) != CUDA_SUCCESS)
			result = CUDA_ERROR_ILLEGAL_ADDRESS;
	return result;
}

static void stream_end(CUstream stream)
{
	struct queued *queued;

	while ((queued = stream->first)) {
		stream->first = queued->next;
		free(queued);
	}
	stream->alive = false;
}

void streams_end(unsigned long long context)
{
	for (CUstream s = streams; s < streams + STREAMS_MAX; s++)
		if (s->alive && s->context == context)
			stream_end(s);
	for (CUevent e = events; e < events + EVENTS_MAX; e++)
		if (e->alive && e->context == context) {
			e->alive = false;
			event_word_end(&e->word);
		}
}

bool stream_can_be_captured(CUstream stream, bool *ret_blocking)
{
	if (is_default(stream) || !is_stream(stream) || stream->context != context_id())
		return false;
	*ret_blocking = stream->blocking;
	return true;
}

bool streams_go_on(void)
{
	bool more = false;

	for (CUstream s = streams; s < streams + STREAMS_MAX; s++) {
		if (!s->alive)
			continue;
		run_to(s, s->alone);
		if (s->destroyed && !s->first)
			stream_end(s);
		more = more || (s->alive && s->done < s->alone);
	}
	return more;
}

static void append(CUstream stream, const struct queued *given)
{
	struct queued *queued = malloc(sizeof(*queued));

	if (!queued)
		abort();
	*queued = *given;
	queued->next = NULL;
	queued->due_ns = machine()->delay ? now_ns() + machine()->delay * 1000000LL : 0;
	*stream->end = queued;
	stream->end = &queued->next;
	stream->queued++;
}

CUresult stream_now(CUstream stream)
{
	if (!is_stream(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	if (is_default(stream))
		return run_blocking();
	if (stream->context != context_id())
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream_is_captured(stream))
		return capture_spoil(stream);
	return wait_to(stream, stream->queued);
}

/* On a default stream: within the call. */
static CUresult do_now(CUstream stream, stream_work_fn *work, const struct stream_work *data)
{
	CUresult result = stream_now(stream);

	while (result == CUDA_SUCCESS && (result = work(data)) == CUDA_ERROR_NOT_READY) {
		driver_nap();
		result = context_check(NULL);
	}
	return result;
}

CUresult stream_later(CUstream stream, stream_work_fn *work, const struct stream_work *data)
{
	if (is_default(stream) || !is_stream(stream) || stream->context != context_id())
		return do_now(stream, work, data);
	if (stream_is_captured(stream))
		return capture_take(stream);
	append(stream, &(struct queued){.work = work, .data = *data});
	return CUDA_SUCCESS;
}

CUresult stream_later_alone(CUstream stream, stream_work_fn *work, const struct stream_work *data)
{
	CUresult result = stream_later(stream, work, data);

	if (result == CUDA_SUCCESS && !is_default(stream) && !stream_is_captured(stream))
		stream->alone = stream->queued;
	return result;
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
	*stream = (struct CUstream_st){
		.alive = true, .blocking = flags == 0, .context = context_id(), .end = &stream->first};
	*ret = stream;
	return CUDA_SUCCESS;
}

/* What it still has to do is done, at once or when that can be. */
DRIVER_CALL(cuStreamDestroy_v2, NEEDS_CONTEXT, (CUstream stream), (stream))
{
	CUresult result;

	if (is_default(stream) || !is_stream(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	result = run_to(stream, stream->queued);
	if (result != CUDA_ERROR_NOT_READY) {
		stream_end(stream);
		return result;
	}
	stream->destroyed = true;
	stream->alone = stream->queued;
	words_go_on();
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuStreamSynchronize, NEEDS_CONTEXT, (CUstream stream), (stream))
{
	if (!is_stream(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream_is_captured(stream))
		return capture_spoil(stream);
	return is_default(stream) ? run_blocking() : wait_to(stream, stream->queued);
}

/* One piece of work is done between two looks. */
DRIVER_CALL(cuStreamQuery, NEEDS_CONTEXT, (CUstream stream), (stream))
{
	CUresult result;

	if (!is_stream(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream_is_captured(stream))
		return capture_spoil(stream);
	if (is_default(stream) || !stream->first)
		return CUDA_SUCCESS;
	result = run_to(stream, stream->done + 1);
	return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : result;
}

/* The event may be another context's. */
DRIVER_CALL(cuStreamWaitEvent, NEEDS_CONTEXT, (CUstream stream, CUevent event, unsigned flags),
	    (stream, event, flags))
{
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_stream(stream) || !is_event(event))
		return CUDA_ERROR_INVALID_HANDLE;
	if (event->word.opened && !*event->word.happened)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!event->stream || !event->stream->alive)
		return CUDA_SUCCESS;
	if (is_default(stream))
		return wait_to(event->stream, event->place);
	append(stream, &(struct queued){.other = event->stream, .place = event->place});
	return CUDA_SUCCESS;
}

CUresult event_new(const struct event_word *word, CUevent *ret)
{
	CUevent event = events;

	while (event < events + EVENTS_MAX && event->alive)
		event++;
	if (event == events + EVENTS_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*event = (struct CUevent_st){.alive = true, .context = context_id(), .word = *word};
	*ret = event;
	return CUDA_SUCCESS;
}

const struct event_word *event_word(CUevent event)
{
	return is_event(event) && event->word.happened ? &event->word : NULL;
}

DRIVER_CALL(cuEventCreate, NEEDS_CONTEXT, (CUevent * ret, unsigned flags), (ret, flags))
{
	struct event_word word = {.fd = -1};
	CUresult result = CUDA_SUCCESS;

	/* One that other processes open takes no times. */
	if (!ret || flags > 7 || (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING)))
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CU_EVENT_INTERPROCESS)
		result = event_word_new(&word);
	return result == CUDA_SUCCESS ? event_new(&word, ret) : result;
}

DRIVER_CALL(cuEventDestroy_v2, NEEDS_CONTEXT, (CUevent event), (event))
{
	if (!is_event(event))
		return CUDA_ERROR_INVALID_HANDLE;
	event->alive = false;
	event_word_end(&event->word);
	return CUDA_SUCCESS;
}

/* Event, stream and context belong together. */
DRIVER_CALL(cuEventRecord, NEEDS_CONTEXT, (CUevent event, CUstream stream), (event, stream))
{
	if (!is_event(event) || !is_stream(stream) || event->context != context_id() ||
	    (!is_default(stream) && stream->context != context_id()))
		return CUDA_ERROR_INVALID_HANDLE;
	if (event->word.happened && (event->word.opened || !is_default(stream)))
		return CUDA_ERROR_NOT_SUPPORTED;
	event->recorded = true;
	event->stream = is_default(stream) ? NULL : stream;
	event->place = is_default(stream) ? 0 : stream->queued;
	clock_gettime(CLOCK_MONOTONIC, &event->time);
	if (!is_default(stream))
		return CUDA_SUCCESS;
	if (event->word.happened)
		*event->word.happened = true;
	return run_blocking();
}

static bool event_happened(CUevent event)
{
	if (event->word.opened)
		return *event->word.happened;
	return !event->stream || !event->stream->alive || event->stream->done >= event->place;
}

DRIVER_CALL(cuEventQuery, NEEDS_CONTEXT, (CUevent event), (event))
{
	CUresult result;

	if (!is_event(event))
		return CUDA_ERROR_INVALID_HANDLE;
	if (event_happened(event))
		return CUDA_SUCCESS;
	if (event->word.opened)
		return CUDA_ERROR_NOT_READY;
	result = run_to(event->stream, event->stream->done + 1);
	return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : result;
}

DRIVER_CALL(cuEventSynchronize, NEEDS_CONTEXT, (CUevent event), (event))
{
	if (!is_event(event))
		return CUDA_ERROR_INVALID_HANDLE;
	if (event->word.opened && !event_happened(event))
		return CUDA_ERROR_NOT_SUPPORTED;
	return event_happened(event) ? CUDA_SUCCESS : wait_to(event->stream, event->place);
}

DRIVER_CALL(cuEventElapsedTime_v2, NEEDS_CONTEXT, (float *ms, CUevent start, CUevent end), (ms, start, end))
{
	if (!ms)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_event(start) || !is_event(end) || !start->recorded || !end->recorded)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!event_happened(start) || !event_happened(end))
		return CUDA_ERROR_NOT_READY;
	*ms = (float)(end->time.tv_sec - start->time.tv_sec) * 1e3f +
	      (float)(end->time.tv_nsec - start->time.tv_nsec) * 1e-6f;
	return CUDA_SUCCESS;
}

/* The name before CUDA 12.8. */
#undef cuEventElapsedTime
__attribute__((alias("cuEventElapsedTime_v2"), visibility("default"))) CUresult
cuEventElapsedTime(float *ms, CUevent start, CUevent end);
