#include "store.h"

#include "sums.h"

#include "../base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Sums become known in blocks of so many pieces: 2 GiB, which a GPU hashes in some ten milliseconds. */
#define BLOCK_PIECES SUMS_DEVICE_PIECES
/* Where the CPU hashes: 256 MiB, a tenth of a second with a few cores. Smaller ones would leave threads idle. */
#define BLOCK_PIECES_CPU 64

struct hashing {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned threads;
	uint32_t segment_count;
	struct sum **sums; /* of each segment */
	uint64_t *known; /* of each segment */
	pthread_t thread;
	bool runs; /* the thread exists, and was not joined */
	bool is_over; /* it has nothing more to do */
	atomic_bool stop;
	const struct served_part *part; /* the thread's */
	struct error failed; /* code 0: not */
};

/* ---- room ---- */

struct hashing *hashing_free(struct hashing *hashing)
{
	if (!hashing)
		return NULL;
	for (uint32_t i = 0; hashing->sums && i < hashing->segment_count; i++)
		free(hashing->sums[i]);
	free(hashing->sums);
	free(hashing->known);
	pthread_cond_destroy(&hashing->changed);
	pthread_mutex_destroy(&hashing->lock);
	free(hashing);
	return NULL;
}

static bool hashing_make_room(struct hashing *hashing, const struct served_part *part)
{
	hashing->sums = calloc(part->segment_count + 1, sizeof(*hashing->sums));
	hashing->known = calloc(part->segment_count + 1, sizeof(*hashing->known));
	if (!hashing->sums || !hashing->known)
		return false;
	hashing->segment_count = part->segment_count;
	for (uint32_t i = 0; i < part->segment_count; i++) {
		hashing->sums[i] = calloc(sums_piece_count(part->segments[i].bytes), sizeof(struct sum));
		if (!hashing->sums[i])
			return false;
	}
	return true;
}

struct hashing *hashing_new(const struct served_part *part, unsigned threads)
{
	struct hashing *hashing = calloc(1, sizeof(*hashing));

	if (!hashing)
		return NULL;
	hashing->threads = threads;
	pthread_mutex_init(&hashing->lock, NULL);
	clock_condition(&hashing->changed);
	return hashing_make_room(hashing, part) ? hashing : hashing_free(hashing);
}

/* ---- computing ---- */

static int on_progress(uint64_t bytes, void *user_data)
{
	const struct hashing *hashing = user_data;

	(void)bytes;
	return atomic_load(&hashing->stop);
}

static int hash_block(struct hashing *hashing, uint32_t segment, uint64_t first, uint64_t count,
		      struct error *error)
{
	const struct served_part *part = hashing->part;
	const struct served_segment *at = &part->segments[segment];
	uint64_t begin = first * SUMS_PIECE_BYTES, bytes = count * SUMS_PIECE_BYTES;

	if (bytes > at->bytes - begin)
		bytes = at->bytes - begin;
	return sums_memory(&part->device, &(struct memory_span){(const char *)at->data + begin, bytes},
			   &(struct sums_options){hashing->threads, on_progress, hashing},
			   hashing->sums[segment] + first, error);
}

static int hash_segment(struct hashing *hashing, uint32_t segment, struct error *error)
{
	uint64_t pieces = sums_piece_count(hashing->part->segments[segment].bytes), count;
	uint64_t most = hashing->part->device.ops->hasher_open ? BLOCK_PIECES : BLOCK_PIECES_CPU;
	int r = 0;

	/* Only this thread changes `known`. */
	while (r == 0 && hashing->known[segment] < pieces) {
		count = pieces - hashing->known[segment];
		if (count > most)
			count = most;
		r = hash_block(hashing, segment, hashing->known[segment], count, error);
		pthread_mutex_lock(&hashing->lock);
		hashing->known[segment] += r == 0 ? count : 0;
		pthread_cond_broadcast(&hashing->changed);
		pthread_mutex_unlock(&hashing->lock);
	}
	return r;
}

static void *hash(void *user)
{
	struct hashing *hashing = user;
	const struct memory_device *device = &hashing->part->device;
	struct error error = {0};
	int r = device->ops->enter(device, &error);

	if (r == 0) {
		for (uint32_t i = 0; r == 0 && i < hashing->segment_count; i++)
			r = hash_segment(hashing, i, &error);
		device->ops->leave(device);
	}
	pthread_mutex_lock(&hashing->lock);
	if (r < 0)
		hashing->failed = error;
	hashing->is_over = true;
	pthread_cond_broadcast(&hashing->changed);
	pthread_mutex_unlock(&hashing->lock);
	return NULL;
}

/* The lock is held. */
static int hashing_begin(struct hashing *hashing, const struct served_part *part, struct error *error)
{
	int r;

	if (hashing->runs)
		return 0;
	hashing->part = part;
	hashing->is_over = false;
	hashing->failed = (struct error){0};
	atomic_store(&hashing->stop, false);
	r = -pthread_create(&hashing->thread, NULL, hash, hashing);
	if (r < 0)
		return error_set(error, r, "raise the limit of threads (TasksMax=)",
				 "no thread can be made that computes sums: %s", strerror(-r));
	hashing->runs = true;
	return 0;
}

/* ---- waiting ---- */

/* The lock is held. */
static int64_t hashing_wait_held(struct hashing *hashing, const struct served_pieces *pieces, uint64_t wait_ms,
				 struct error *error)
{
	const uint64_t *known = &hashing->known[pieces->segment];
	const int64_t deadline = clock_deadline((int64_t)wait_ms);

	while (*known <= pieces->first) {
		if (hashing->is_over && hashing->failed.code < 0) {
			*error = hashing->failed;
			return error->code;
		}
		if (clock_left(deadline) == 0)
			return error_set(error, -ETIMEDOUT, NULL, "computing sums takes too long");
		clock_wait(&hashing->changed, &hashing->lock, deadline);
	}
	return (int64_t)(*known - pieces->first);
}

int64_t hashing_wait(struct hashing *hashing, const struct served_part *part,
		     const struct served_pieces *pieces, uint64_t wait_ms, const struct sum **ret_sums,
		     struct error *error)
{
	int64_t r = 0;

	pthread_mutex_lock(&hashing->lock);
	if (hashing->known[pieces->segment] <= pieces->first)
		r = hashing_begin(hashing, part, error);
	if (r == 0)
		r = hashing_wait_held(hashing, pieces, wait_ms, error);
	pthread_mutex_unlock(&hashing->lock);
	*ret_sums = hashing->sums[pieces->segment] + pieces->first;
	return r;
}

int hashing_part(struct hashing *hashing, const struct served_part *part, struct sum *ret)
{
	struct sum segments[PART_SEGMENTS_MAX], index;
	bool is_whole = true;
	int r;

	pthread_mutex_lock(&hashing->lock);
	for (uint32_t i = 0; is_whole && i < hashing->segment_count; i++)
		is_whole = hashing->known[i] == sums_piece_count(part->segments[i].bytes);
	pthread_mutex_unlock(&hashing->lock);
	if (!is_whole)
		return -EAGAIN;
	r = sums_plain(part->index, part->index_bytes, &index);
	for (uint32_t i = 0; r == 0 && i < part->segment_count; i++)
		r = sums_segment(hashing->sums[i], hashing->known[i], &segments[i]);
	return r < 0 ? r : sums_part(&index, segments, part->segment_count, ret);
}

void hashing_stop(struct hashing *hashing)
{
	if (!hashing || !hashing->runs)
		return;
	atomic_store(&hashing->stop, true);
	pthread_join(hashing->thread, NULL);
	hashing->runs = false;
}
