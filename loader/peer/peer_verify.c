#include "peer_part.h"

#include "../../peer/sums.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct arrival {
	struct peer_arrival told;
	struct arrival *next;
};

struct peer_verify {
	struct taken_part *part;
	struct sums_device *sums; /* the GPU hashes, and there is one thread; NULL: the CPU does */
	pthread_t threads[SUMS_THREADS_MAX];
	unsigned thread_count;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t added;
	struct arrival *first, **last; /* that nobody has taken yet */
	uint64_t pending, wrong;
	bool ending;
	struct error error; /* the first */
};

static void verify_fail(struct peer_verify *verify, int r, const struct error *error)
{
	pthread_mutex_lock(&verify->lock);
	if (!verify->error.code) {
		verify->error = *error;
		if (!error->code)
			error_set(&verify->error, r, NULL, "no memory to compare pieces with their sums");
	}
	pthread_mutex_unlock(&verify->lock);
}

/* Returns where the CPU reads the piece. A GPU's is copied back. */
static int piece_data(const struct taken_part *part, const struct peer_arrival *arrival,
		      const struct peer_run *piece, void *copy, const void **ret, struct error *error)
{
	const void *there = peer_part_address(part, piece);

	if (arrival->buffer) {
		*ret = (const uint8_t *)arrival->buffer +
		       (piece->first - arrival->run.first) * SUMS_PIECE_BYTES;
		return 0;
	}
	if (part->device.ops->cpu_addresses) {
		*ret = there;
		return 0;
	}
	*ret = copy;
	return part->device.ops->read(&part->device, copy, there, peer_run_bytes(part->offer, piece), error);
}

static const struct sum *expected_of(const struct taken_part *part, const struct peer_run *piece)
{
	return &part->offer->sums[part->offer->first[piece->segment] + piece->first];
}

/* Compares one piece. Returns 1 if it is right, 0 if not. */
static int verify_piece(const struct taken_part *part, const struct peer_arrival *arrival,
			const struct peer_run *piece, void *copy, struct error *error)
{
	uint64_t bytes = peer_run_bytes(part->offer, piece);
	const void *data;
	struct sum sum = {{0}};
	int r = piece_data(part, arrival, piece, copy, &data, error);

	if (r == 0)
		r = sums_piece(data, bytes, &sum);
	if (r < 0 || !sum_equal(&sum, expected_of(part, piece)))
		return r;
	if (arrival->buffer)
		r = part->device.ops->write(&part->device, peer_part_address(part, piece), data, bytes, error);
	return r < 0 ? r : 1;
}

/* What comparing a piece came to: 1, it is right; 0, it is not; or the error. */
static void verify_decide(struct peer_verify *verify, const struct peer_run *piece, int r,
			  const struct error *error)
{
	if (r > 0) {
		peer_pieces_here(verify->part->pieces, piece);
		return;
	}
	peer_pieces_missing(verify->part->pieces, piece);
	if (r < 0) {
		verify_fail(verify, r, error);
		return;
	}
	pthread_mutex_lock(&verify->lock);
	verify->wrong++;
	pthread_mutex_unlock(&verify->lock);
}

/* The lock is held, and there is one. */
static struct arrival *take_first(struct peer_verify *verify)
{
	struct arrival *arrival = verify->first;

	verify->first = arrival->next;
	if (!verify->first)
		verify->last = &verify->first;
	return arrival;
}

/* Waits for the next arrival. The lock is held. Returns false at the end. */
static bool wait_for_one(struct peer_verify *verify)
{
	while (!verify->first && !verify->ending)
		pthread_cond_wait(&verify->added, &verify->lock);
	return verify->first != NULL;
}

static void count_done(struct peer_verify *verify, uint64_t pieces)
{
	pthread_mutex_lock(&verify->lock);
	verify->pending -= pieces;
	pthread_mutex_unlock(&verify->lock);
}

/* Compares what arrives, until the end. Without `usable` nothing can be compared: everything is missing. */
static void judge_all(struct peer_verify *verify, bool usable, void *copy)
{
	for (;;) {
		struct arrival *arrival = NULL;
		const struct peer_run *run;

		pthread_mutex_lock(&verify->lock);
		if (wait_for_one(verify))
			arrival = take_first(verify);
		pthread_mutex_unlock(&verify->lock);
		if (!arrival)
			return;
		run = &arrival->told.run;
		for (uint32_t i = 0; i < run->count; i++) {
			struct peer_run piece = {run->segment, run->first + i, 1};
			struct error error = {0};
			int r = -EIO;

			if (usable)
				r = verify_piece(verify->part, &arrival->told, &piece, copy, &error);
			verify_decide(verify, &piece, r, &error);
		}
		if (arrival->told.busy)
			atomic_store(arrival->told.busy, false);
		count_done(verify, run->count);
		free(arrival);
	}
}

/* ---- by the GPU ------------------------------------------------------------ */

struct batch {
	struct peer_run pieces[SUMS_DEVICE_PIECES];
	struct memory_span spans[SUMS_DEVICE_PIECES];
	struct sum sums[SUMS_DEVICE_PIECES];
	size_t count;
};

/* Waits for the next arrival, and takes what has arrived, as much as there is room for. Returns false at the end. */
static bool take_batch(struct peer_verify *verify, struct batch *batch)
{
	batch->count = 0;
	pthread_mutex_lock(&verify->lock);
	wait_for_one(verify);
	while (verify->first && batch->count + verify->first->told.run.count <= SUMS_DEVICE_PIECES) {
		struct arrival *arrival = take_first(verify);
		const struct peer_run *run = &arrival->told.run;

		for (uint32_t i = 0; i < run->count; i++) {
			struct peer_run piece = {run->segment, run->first + i, 1};

			batch->pieces[batch->count] = piece;
			batch->spans[batch->count++] =
				(struct memory_span){peer_part_address(verify->part, &piece),
						     peer_run_bytes(verify->part->offer, &piece)};
		}
		free(arrival);
	}
	pthread_mutex_unlock(&verify->lock);
	return batch->count > 0;
}

/* Without `usable` everything is missing. */
static void judge_batches(struct peer_verify *verify, bool usable, struct batch *batch)
{
	while (take_batch(verify, batch)) {
		struct error error = {0};
		int r = usable ? sums_device_run(verify->sums, batch->spans, batch->count, batch->sums, &error)
			       : -EIO;

		for (size_t i = 0; i < batch->count; i++) {
			const struct sum *expected = expected_of(verify->part, &batch->pieces[i]);

			verify_decide(verify, &batch->pieces[i],
				      r < 0 ? r : sum_equal(&batch->sums[i], expected), &error);
		}
		count_done(verify, batch->count);
	}
}

static void *verify_on_gpu(void *user_data)
{
	struct peer_verify *verify = user_data;
	const struct memory_device *device = &verify->part->device;
	struct error error = {0};
	struct batch batch;
	int r = device->ops->enter(device, &error);

	if (r < 0)
		verify_fail(verify, r, &error);
	judge_batches(verify, r == 0, &batch);
	if (r == 0)
		device->ops->leave(device);
	return NULL;
}

/* ---- threads ---------------------------------------------------------------- */

static void *verify_on_cpu(void *user_data)
{
	struct peer_verify *verify = user_data;
	const struct memory_device *device = &verify->part->device;
	struct error error = {0};
	int r = device->ops->enter(device, &error);
	void *copy = r == 0 ? sums_buffer_new(device) : NULL;
	bool usable = r == 0 && (copy || device->ops->cpu_addresses);

	/* Otherwise every piece fails, with this error. */
	if (!usable)
		verify_fail(verify, r < 0 ? r : -ENOMEM, &error);
	judge_all(verify, usable, copy);
	if (r == 0) {
		sums_buffer_free(device, copy);
		device->ops->leave(device);
	}
	return NULL;
}

/* Returns 0 if there is at least one. */
static int make_threads(struct peer_verify *verify, unsigned count, struct error *error)
{
	int r = 0;

	if (count > SUMS_THREADS_MAX)
		count = SUMS_THREADS_MAX;
	while (r == 0 && verify->thread_count < count) {
		r = -pthread_create(&verify->threads[verify->thread_count], NULL,
				    verify->sums ? verify_on_gpu : verify_on_cpu, verify);
		if (r == 0)
			verify->thread_count++;
	}
	return verify->thread_count > 0
		       ? 0
		       : error_set(error, -EAGAIN, NULL, "no thread can be made to compare pieces: %s",
				   strerror(-r));
}

int peer_verify_begin(struct taken_part *part, unsigned threads, bool in_place, struct peer_verify **ret,
		      struct error *error)
{
	struct peer_verify *verify = calloc(1, sizeof(*verify));
	int r;

	if (!verify)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	verify->part = part;
	verify->last = &verify->first;
	pthread_mutex_init(&verify->lock, NULL);
	pthread_cond_init(&verify->added, NULL);
	r = in_place ? sums_device_open(&part->device, &verify->sums, error) : 1;
	if (r >= 0)
		r = make_threads(verify, r == 0 ? 1 : threads, error);
	if (r < 0)
		peer_verify_end(verify);
	else
		*ret = verify;
	return r;
}

int peer_verify_add(struct peer_verify *verify, const struct peer_arrival *told, struct error *error)
{
	struct arrival *arrival = malloc(sizeof(*arrival));

	if (!arrival)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	*arrival = (struct arrival){.told = *told};
	pthread_mutex_lock(&verify->lock);
	*verify->last = arrival;
	verify->last = &arrival->next;
	verify->pending += told->run.count;
	pthread_cond_signal(&verify->added);
	pthread_mutex_unlock(&verify->lock);
	return 0;
}

uint64_t peer_verify_pending(struct peer_verify *verify)
{
	uint64_t pending;

	pthread_mutex_lock(&verify->lock);
	pending = verify->pending;
	pthread_mutex_unlock(&verify->lock);
	return pending;
}

uint64_t peer_verify_wrong(struct peer_verify *verify)
{
	uint64_t wrong;

	pthread_mutex_lock(&verify->lock);
	wrong = verify->wrong;
	verify->wrong = 0;
	pthread_mutex_unlock(&verify->lock);
	return wrong;
}

int peer_verify_failed(struct peer_verify *verify, struct error *error)
{
	int code;

	pthread_mutex_lock(&verify->lock);
	code = verify->error.code;
	if (code)
		*error = verify->error;
	pthread_mutex_unlock(&verify->lock);
	return code;
}

struct peer_verify *peer_verify_end(struct peer_verify *verify)
{
	if (!verify)
		return NULL;
	pthread_mutex_lock(&verify->lock);
	verify->ending = true;
	pthread_cond_broadcast(&verify->added);
	pthread_mutex_unlock(&verify->lock);
	while (verify->thread_count > 0)
		pthread_join(verify->threads[--verify->thread_count], NULL);
	sums_device_close(verify->sums);
	pthread_cond_destroy(&verify->added);
	pthread_mutex_destroy(&verify->lock);
	free(verify);
	return NULL;
}
