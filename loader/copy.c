#include "copy.h"

#include "ring.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct piece {
	uint32_t tensor;
	uint32_t bytes;
	uint64_t offset; /* in the tensor */
};

/* The readers of one copy and what they share. */
struct crew {
	const struct copy *copy;
	const struct copy_target *direct; /* whose memory is read into; NULL: the ring */
	struct piece *pieces;
	size_t piece_count;
	struct digest_sum *sums; /* of each tensor */
	struct ring ring;
	pthread_mutex_t lock; /* guards what follows, and sums */
	pthread_cond_t changed;
	size_t next; /* the piece that is taken next */
	uint64_t done; /* bytes */
	unsigned running, started;
	bool stop;
	struct error error; /* the first reader's that failed */
};

static bool crew_take(struct crew *crew, struct piece *ret)
{
	bool taken = false;

	pthread_mutex_lock(&crew->lock);
	if (!crew->stop && crew->next < crew->piece_count) {
		*ret = crew->pieces[crew->next++];
		taken = true;
	}
	pthread_mutex_unlock(&crew->lock);
	return taken;
}

static void crew_deliver(struct crew *crew, const struct piece *piece, const struct digest_sum *sum)
{
	pthread_mutex_lock(&crew->lock);
	digest_merge(&crew->sums[piece->tensor], sum);
	crew->done += piece->bytes;
	pthread_mutex_unlock(&crew->lock);
}

/* Where it ends now: another reader may have met the end at a later piece first. */
static int truncated(const struct source_file *file, struct error *error)
{
	struct stat now = {0};

	fstat(file->fd, &now);
	return error_set(error, -EIO, "load it again when nobody writes it",
			 "%s was truncated while it was read: it ended at byte %lld, it had %lld", file->path,
			 (long long)now.st_size, (long long)file->stat.st_size);
}

static int piece_read(const struct crew *crew, const struct piece *piece, void *buffer, struct error *error)
{
	const struct source_tensor *tensor = &crew->copy->source->tensors[piece->tensor];
	const struct source_file *file = &crew->copy->source->files[tensor->file];
	uint64_t at = tensor->offset + piece->offset;
	size_t done = 0;

	while (done < piece->bytes) {
		ssize_t n = pread(file->fd, (char *)buffer + done, piece->bytes - done, (off_t)(at + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_set(error, -EIO, NULL, "%s: reading at byte %" PRIu64 " failed: %s",
					 file->path, at + done, strerror(errno));
		if (n == 0)
			return truncated(file, error);
		done += (size_t)n;
	}
	return 0;
}

static int piece_write(const struct copy_target *target, const struct piece *piece, const void *from,
		       struct error *error)
{
	const struct memory_device *device = target->device;
	void *to = (char *)target->addresses[piece->tensor] + piece->offset;
	int r = device->ops->enter(device, error);

	if (r < 0)
		return r;
	r = device->ops->write(device, to, from, piece->bytes, error);
	device->ops->leave(device);
	return r;
}

static int piece_copy(struct crew *crew, const struct piece *piece, void *buffer, struct error *error)
{
	const struct copy *copy = crew->copy;
	struct digest_sum sum = {0};
	int r;

	if (crew->direct)
		buffer = (char *)crew->direct->addresses[piece->tensor] + piece->offset;
	r = piece_read(crew, piece, buffer, error);
	if (r < 0)
		return r;
	digest_update(&sum, piece->offset, buffer, piece->bytes);
	for (size_t i = 0; r == 0 && i < copy->target_count; i++)
		if (&copy->targets[i] != crew->direct)
			r = piece_write(&copy->targets[i], piece, buffer, error);
	if (r == 0)
		crew_deliver(crew, piece, &sum);
	return r;
}

static void *reader(void *user_data)
{
	struct crew *crew = user_data;
	struct error error = {0};
	struct piece piece;
	void *buffer = NULL;
	int r = 0;

	pthread_mutex_lock(&crew->lock);
	if (!crew->direct)
		buffer = ring_buffer(&crew->ring, crew->started);
	crew->started++;
	pthread_mutex_unlock(&crew->lock);
	while (r == 0 && crew_take(crew, &piece))
		r = piece_copy(crew, &piece, buffer, &error);
	pthread_mutex_lock(&crew->lock);
	if (r < 0 && !crew->error.code)
		crew->error = error;
	if (r < 0)
		crew->stop = true;
	crew->running--;
	pthread_cond_signal(&crew->changed);
	pthread_mutex_unlock(&crew->lock);
	return NULL;
}

static int crew_pieces(struct crew *crew, size_t chunk)
{
	const struct source *source = crew->copy->source;
	size_t count = 0;

	for (size_t i = 0; i < source->tensor_count; i++)
		count += (source->tensors[i].bytes + chunk - 1) / chunk;
	crew->pieces = calloc(count + 1, sizeof(*crew->pieces));
	crew->sums = calloc(source->tensor_count + 1, sizeof(*crew->sums));
	if (!crew->pieces || !crew->sums)
		return -ENOMEM;
	for (size_t i = 0; i < source->tensor_count; i++)
		for (uint64_t at = 0; at < source->tensors[i].bytes; at += chunk) {
			uint64_t left = source->tensors[i].bytes - at;

			crew->pieces[crew->piece_count++] = (struct piece){
				.tensor = (uint32_t)i,
				.bytes = (uint32_t)(left < chunk ? left : chunk),
				.offset = at,
			};
		}
	return 0;
}

static unsigned readers_of(const struct copy *copy)
{
	cpu_set_t cpus;
	int count;

	if (copy->readers)
		return copy->readers < COPY_READERS_MAX ? copy->readers : COPY_READERS_MAX;
	count = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 2;
	return count < COPY_READERS_MAX ? (unsigned)count : COPY_READERS_MAX;
}

static struct timespec look_time(void)
{
	struct timespec when;

	clock_gettime(CLOCK_MONOTONIC, &when);
	when.tv_nsec += COPY_LOOK_MS * 1000000L;
	if (when.tv_nsec >= 1000000000L) {
		when.tv_nsec -= 1000000000L;
		when.tv_sec++;
	}
	return when;
}

/* Tells the progress until all readers have ended; what progress returned. */
static int crew_watch(struct crew *crew)
{
	const struct copy *copy = crew->copy;
	uint64_t told = 0;
	int r = 0;

	pthread_mutex_lock(&crew->lock);
	while (crew->running > 0) {
		struct timespec when = look_time();
		uint64_t done;

		pthread_cond_timedwait(&crew->changed, &crew->lock, &when);
		done = crew->done;
		if (r != 0 || !copy->progress)
			continue;
		pthread_mutex_unlock(&crew->lock);
		r = copy->progress(done - told, copy->user_data);
		told = done;
		pthread_mutex_lock(&crew->lock);
		if (r != 0)
			crew->stop = true;
	}
	pthread_mutex_unlock(&crew->lock);
	if (r == 0 && copy->progress && crew->done > told)
		r = copy->progress(crew->done - told, copy->user_data);
	return r;
}

static int crew_run(struct crew *crew, unsigned readers, struct error *error)
{
	pthread_t threads[COPY_READERS_MAX];
	unsigned count = 0;
	int r = 0, stopped;

	while (r == 0 && count < readers) {
		pthread_mutex_lock(&crew->lock);
		crew->running++;
		pthread_mutex_unlock(&crew->lock);
		r = -pthread_create(&threads[count], NULL, reader, crew);
		if (r == 0)
			count++;
	}
	if (r < 0) {
		pthread_mutex_lock(&crew->lock);
		crew->running--;
		crew->stop = true;
		pthread_mutex_unlock(&crew->lock);
	}
	stopped = crew_watch(crew);
	while (count > 0)
		pthread_join(threads[--count], NULL);
	if (r < 0)
		return error_set(error, -EAGAIN, "see RLIMIT_NPROC", "starting a reader thread failed: %s",
				 strerror(-r));
	if (crew->error.code)
		*error = crew->error;
	return crew->error.code ? crew->error.code : stopped;
}

static int crew_make(struct crew *crew, unsigned readers, struct error *error)
{
	const struct copy *copy = crew->copy;
	size_t chunk = copy->chunk ? copy->chunk : COPY_CHUNK_BYTES;
	pthread_condattr_t attributes;
	int r;

	pthread_mutex_init(&crew->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&crew->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	for (size_t i = 0; i < copy->target_count && !crew->direct; i++)
		if (copy->targets[i].device->ops == &memory_host)
			crew->direct = &copy->targets[i];
	if (crew_pieces(crew, chunk) < 0)
		return error_set(error, -ENOMEM, NULL, "no room to plan the copy of %zu tensors",
				 copy->source->tensor_count);
	if (crew->direct)
		return 0;
	r = ring_make((chunk + 4095) / 4096 * 4096, readers, &crew->ring, error);
	if (r == 0)
		ring_lock(&crew->ring);
	return r;
}

static void crew_free(struct crew *crew)
{
	ring_free(&crew->ring);
	free(crew->pieces);
	free(crew->sums);
	pthread_cond_destroy(&crew->changed);
	pthread_mutex_destroy(&crew->lock);
}

/* Holds the devices' contexts, so that entering one for each piece is cheap.
 * *ret_held devices are to be let go, also on errors. */
static int copy_hold(const struct copy *copy, size_t *ret_held, struct error *error)
{
	for (*ret_held = 0; *ret_held < copy->target_count; (*ret_held)++) {
		const struct memory_device *device = copy->targets[*ret_held].device;
		int r = device->ops->hold(device, error);

		if (r < 0)
			return r;
	}
	return 0;
}

static int copy_held(const struct copy *copy, struct digest *ret_digests, struct error *error)
{
	const struct source *source = copy->source;
	struct crew crew = {.copy = copy};
	unsigned readers = readers_of(copy);
	int r = crew_make(&crew, readers, error);

	if (r == 0 && !crew.direct && crew.ring.count < readers)
		readers = (unsigned)crew.ring.count;
	if (r == 0)
		r = crew_run(&crew, readers, error);
	for (size_t i = 0; r == 0 && i < source->file_count; i++)
		r = source_file_unchanged(&source->files[i], error);
	for (size_t i = 0; r == 0 && i < source->tensor_count; i++)
		ret_digests[i] = digest_final(&crew.sums[i], source->tensors[i].bytes);
	crew_free(&crew);
	return r;
}

int copy_run(const struct copy *copy, struct digest *ret_digests, struct error *error)
{
	const struct memory_device *first = copy->targets[0].device;
	size_t held;
	int r = copy_hold(copy, &held, error);

	/* Registering the ring needs a context; any will do. */
	if (r == 0)
		r = first->ops->enter(first, error);
	if (r == 0) {
		r = copy_held(copy, ret_digests, error);
		first->ops->leave(first);
	}
	while (held > 0) {
		const struct memory_device *device = copy->targets[--held].device;

		device->ops->unhold(device);
	}
	return r;
}
