#include "prepare.h"

#include "copy/copy.h"

#include "../base/clock.h"
#include "../service/process.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BUFFERS_EACH 2 /* a reader fills one while another is on its way */

struct gpu {
	struct prepare *prepare;
	struct memory_device device;
	bool held; /* its context is held */
};

struct prepare {
	struct gpu gpus[PARTS_PER_VERSION_MAX];
	size_t gpu_count;
	pthread_t threads[PARTS_PER_VERSION_MAX + 1];
	size_t thread_count;
	unsigned apart; /* how many GPUs get different bytes */
	size_t slots;
	bool whole; /* the buffers are enough for a source of any size */
	bool kept; /* every context of the job was there already */
	struct ring ring;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	bool buffered; /* readers may read into the buffers */
	unsigned running;
	struct error error; /* the first error */
};

static void prepare_ended(struct prepare *prepare, int r, const struct error *error)
{
	pthread_mutex_lock(&prepare->lock);
	if (r < 0 && !prepare->error.code)
		prepare->error = *error;
	prepare->running--;
	pthread_cond_signal(&prepare->changed);
	pthread_mutex_unlock(&prepare->lock);
}

static void *make_context(void *user_data)
{
	struct gpu *gpu = user_data;
	const struct memory_device *device = &gpu->device;
	struct error error = {0};
	int r = device->ops->hold(device, &error);

	gpu->held = r == 0;
	if (r == 0)
		r = device->ops->enter(device, &error);
	if (r == 0) {
		device->ops->digests_prepare(device);
		device->ops->leave(device);
	}
	prepare_ended(gpu->prepare, r, &error);
	return NULL;
}

/* The caller knows that nothing is on its way from the buffers. */
static void drop_ring(struct prepare *prepare)
{
	const struct memory_device *device = &prepare->gpus[0].device;
	bool entered;

	if (!prepare->ring.base)
		return;
	entered = device->ops->enter(device, NULL) == 0;
	ring_free(&prepare->ring);
	if (entered)
		device->ops->leave(device);
}

/* Two threads need the first device's context. The first of them makes it, and the other waits. */
static void *make_ring(void *user_data)
{
	struct prepare *prepare = user_data;
	const struct memory_device *device = &prepare->gpus[0].device;
	struct error error = {0};
	int r;

	drop_ring(prepare);
	r = ring_make(copy_buffer_bytes(prepare_chunk(prepare)), prepare->slots, &prepare->ring, &error);
	if (r == 0) {
		pthread_mutex_lock(&prepare->lock);
		prepare->buffered = true;
		pthread_cond_signal(&prepare->changed);
		pthread_mutex_unlock(&prepare->lock);
	}
	if (r == 0)
		r = device->ops->enter(device, &error);
	if (r == 0) {
		ring_lock(&prepare->ring, device);
		device->ops->leave(device);
	}
	prepare_ended(prepare, r, &error);
	return NULL;
}

static int prepare_begin(struct prepare *prepare, void *(*fn)(void *), void *user_data, struct error *error)
{
	char limits[TEXT_BYTES_MAX + 1];
	int r;

	pthread_mutex_lock(&prepare->lock);
	prepare->running++;
	pthread_mutex_unlock(&prepare->lock);
	r = -pthread_create(&prepare->threads[prepare->thread_count], NULL, fn, user_data);
	if (r == 0) {
		prepare->thread_count++;
		return 0;
	}
	task_limits_explain(limits, sizeof(limits));
	error_set(error, -EAGAIN, limits, "starting a thread failed: %s", strerror(-r));
	prepare_ended(prepare, -EAGAIN, error);
	return -EAGAIN;
}

/* A device that is named twice has one context. */
static int add_gpu(struct prepare *prepare, const char *id, struct error *error)
{
	struct gpu *gpu = &prepare->gpus[prepare->gpu_count];
	int r = memory_device_open(id, &gpu->device, error);

	if (r < 0 || !gpu->device.ops->kind->context_bytes)
		return r;
	for (size_t i = 0; i < prepare->gpu_count; i++)
		if (device_same(prepare->gpus[i].device.id, gpu->device.id))
			return 0;
	gpu->prepare = prepare;
	prepare->gpu_count++;
	prepare->kept = false;
	return prepare_begin(prepare, make_context, gpu, error);
}

/* Returns how many different devices the job has. */
static unsigned gpus_of(const struct prepare_for *job)
{
	unsigned count = 0;

	for (size_t i = 0; i < job->count; i++) {
		size_t k = 0;

		while (!device_same(job->devices[k], job->devices[i]))
			k++;
		count += k == i;
	}
	return count;
}

int prepare_start(const struct prepare_for *job, struct prepare **prepare, struct error *error)
{
	struct prepare *own = *prepare ? *prepare : calloc(1, sizeof(*own));
	int r = 0;

	if (!own)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	if (!*prepare) {
		pthread_mutex_init(&own->lock, NULL);
		clock_condition(&own->changed);
	}
	own->whole = job->keeps;
	own->kept = true;
	own->apart = job->apart ? gpus_of(job) : 1;
	for (size_t i = 0; r == 0 && i < job->count; i++)
		r = add_gpu(own, job->devices[i], error);
	if (!*prepare)
		*prepare = r < 0 || !own->gpu_count ? prepare_end(own) : own;
	return r;
}

bool prepare_was_kept(const struct prepare *prepare)
{
	return prepare && prepare->kept;
}

unsigned prepare_readers(const struct prepare *prepare)
{
	return copy_readers(prepare->apart);
}

size_t prepare_chunk(const struct prepare *prepare)
{
	return copy_chunk(prepare->apart);
}

int prepare_buffers(struct prepare *prepare, uint64_t bytes, struct error *error)
{
	size_t buffer, most, wanted;
	uint64_t pieces;

	if (!prepare)
		return 0;
	buffer = copy_buffer_bytes(prepare_chunk(prepare));
	pieces = bytes / prepare_chunk(prepare) + 1;
	most = RING_BYTES_MAX / buffer;
	wanted = BUFFERS_EACH * prepare_readers(prepare);
	prepare->slots = wanted < most ? wanted : most;
	if (pieces < prepare->slots && !prepare->whole)
		prepare->slots = pieces;
	prepare->buffered = prepare->ring.chunk == buffer && prepare->ring.count >= prepare->slots;
	return prepare->buffered ? 0 : prepare_begin(prepare, make_ring, prepare, error);
}

/* all: wait for everything; otherwise only for the buffers. */
static int prepare_wait_for(struct prepare *prepare, bool all, memory_progress_fn *progress, void *user_data,
			    struct error *error)
{
	int r = 0;

	if (!prepare)
		return 0;
	pthread_mutex_lock(&prepare->lock);
	while (r == 0 && (all ? prepare->running > 0 : !prepare->buffered) && !prepare->error.code) {
		clock_wait(&prepare->changed, &prepare->lock, clock_deadline(PREPARE_LOOK_MS));
		pthread_mutex_unlock(&prepare->lock);
		r = progress(0, user_data);
		pthread_mutex_lock(&prepare->lock);
	}
	if (r == 0 && prepare->error.code) {
		*error = prepare->error;
		r = error->code;
	}
	pthread_mutex_unlock(&prepare->lock);
	return r;
}

int prepare_wait_buffers(struct prepare *prepare, memory_progress_fn *progress, void *user_data,
			 struct error *error)
{
	return prepare_wait_for(prepare, false, progress, user_data, error);
}

int prepare_wait(struct prepare *prepare, memory_progress_fn *progress, void *user_data, struct error *error)
{
	return prepare_wait_for(prepare, true, progress, user_data, error);
}

struct ring *prepare_ring(struct prepare *prepare)
{
	return prepare ? &prepare->ring : NULL;
}

bool prepare_busy(struct prepare *prepare)
{
	int64_t deadline = clock_deadline(PREPARE_END_MS);
	bool busy;

	if (!prepare)
		return false;
	pthread_mutex_lock(&prepare->lock);
	while (prepare->running > 0 && clock_left(deadline) > 0)
		clock_wait(&prepare->changed, &prepare->lock, deadline);
	busy = prepare->running > 0;
	pthread_mutex_unlock(&prepare->lock);
	return busy;
}

static void join_threads(struct prepare *prepare)
{
	while (prepare->thread_count > 0)
		pthread_join(prepare->threads[--prepare->thread_count], NULL);
}

int prepare_keep(struct prepare *prepare, struct error *error)
{
	join_threads(prepare);
	if (prepare->ring.pinned < prepare->slots)
		drop_ring(prepare);
	return prepare_check(prepare, error);
}

int prepare_check(const struct prepare *prepare, struct error *error)
{
	int r = 0;

	for (size_t i = 0; prepare && r == 0 && i < prepare->gpu_count; i++) {
		const struct memory_device *device = &prepare->gpus[i].device;

		r = device->ops->enter(device, error);
		if (r < 0)
			return r;
		r = device->ops->idle(device, error);
		device->ops->leave(device);
	}
	return r;
}

static struct prepare *volatile left; /* a leak checker finds it here */

struct prepare *prepare_leave(struct prepare *prepare)
{
	left = prepare;
	return NULL;
}

struct prepare *prepare_end(struct prepare *prepare)
{
	if (!prepare)
		return NULL;
	join_threads(prepare);
	drop_ring(prepare);
	for (size_t i = 0; i < prepare->gpu_count; i++)
		if (prepare->gpus[i].held)
			prepare->gpus[i].device.ops->unhold(&prepare->gpus[i].device);
	pthread_cond_destroy(&prepare->changed);
	pthread_mutex_destroy(&prepare->lock);
	free(prepare);
	return NULL;
}
