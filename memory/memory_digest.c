/* Digests of mapped memory: by threads of the CPU, or by the GPU's kernel where it can be had. */
#include "memory_internal.h"

#include "../base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define THREADS_MAX 16 /* memory is not read faster by more */
#define THREAD_BYTES_MIN MIB(64) /* for each thread: starting one for less costs more than it brings */

/* Adds bytes that the CPU can read to their span's tally. */
static void tally_add(struct digesting *work, const struct digest_part *part, const void *data)
{
	struct tally *tally = &work->tallies[part->span];

	digest_update_shared(&tally->sum, part->offset, data, part->bytes);
	if (!__atomic_load_n(&tally->bits, __ATOMIC_RELAXED) &&
	    (*(const uint8_t *)data != 0 || memcmp(data, (const uint8_t *)data + 1, part->bytes - 1) != 0))
		__atomic_store_n(&tally->bits, 1, __ATOMIC_RELAXED);
}

static const void *part_address(const struct digesting *work, const struct digest_part *part)
{
	return (const uint8_t *)work->spans[part->span].address + part->offset;
}

/* ---- one thread: with pauses, or memory that is read back ---------------- */

/* Up to `most` bytes; *ret_bytes 0: none were left. `buffer` NULL: the memory can be read where it is. */
static int digest_burst(struct digesting *work, uint64_t most, void *buffer, uint64_t *ret_bytes)
{
	const struct memory_device *device = work->device;
	struct digest_part part;
	uint64_t done = 0;
	int r = 0;

	while (r == 0 && most - done >= 16) {
		uint64_t room = most - done < MEMORY_CHUNK_BYTES ? most - done : MEMORY_CHUNK_BYTES;
		const void *data;

		if (!digest_take(work, room, &part))
			break;
		data = part_address(work, &part);
		if (buffer) {
			r = device->ops->read(device, buffer, data, part.bytes, work->error);
			data = buffer;
		}
		if (r < 0)
			return r;
		tally_add(work, &part, data);
		done += part.bytes;
	}
	*ret_bytes = done;
	return 0;
}

static int digest_alone(struct digesting *work, void *buffer)
{
	uint64_t most = work->pace ? work->pace->chunk : MEMORY_CHUNK_BYTES, bytes = 1;
	int r = 0;

	while (r == 0) {
		double begun = clock_steady_seconds(), busy;

		r = digest_burst(work, most, buffer, &bytes);
		if (r < 0 || bytes == 0)
			return r;
		busy = clock_steady_seconds() - begun;
		work->report.seconds += busy;
		r = digest_tell(work, bytes);
		if (r == 0)
			r = digest_rest(work, busy);
	}
	return r;
}

/* ---- several threads ------------------------------------------------------ */

struct crew {
	struct digesting *work;
	pthread_mutex_t lock; /* of what digest_take moves */
	uint64_t done; /* bytes, by all threads */
	bool stop;
};

/* Takes and digests some bytes. False: none are left, or it was told to stop. */
static bool crew_step(struct crew *crew)
{
	struct digest_part part;
	uint64_t bytes = 0;
	bool more = true;

	/* Small spans go together: telling of each would take longer than its digest. */
	while (more && bytes < MEMORY_CHUNK_BYTES && !__atomic_load_n(&crew->stop, __ATOMIC_RELAXED)) {
		pthread_mutex_lock(&crew->lock);
		more = digest_take(crew->work, MEMORY_CHUNK_BYTES, &part);
		pthread_mutex_unlock(&crew->lock);
		if (more) {
			tally_add(crew->work, &part, part_address(crew->work, &part));
			bytes += part.bytes;
		}
	}
	__atomic_fetch_add(&crew->done, bytes, __ATOMIC_RELAXED);
	return bytes > 0;
}

static void *crew_member(void *data)
{
	while (crew_step(data))
		;
	return NULL;
}

static int crew_tell(struct crew *crew, uint64_t *told)
{
	uint64_t done = __atomic_load_n(&crew->done, __ATOMIC_RELAXED), more = done - *told;

	*told = done;
	return more > 0 ? digest_tell(crew->work, more) : 0;
}

/* Starts helpers besides the calling thread; the signals of the process are not for them. Where none can
 * be had the calling thread does it all. */
static unsigned crew_start(struct crew *crew, pthread_t *threads, unsigned wanted)
{
	sigset_t all, before;
	unsigned count = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (count < wanted && pthread_create(&threads[count], NULL, crew_member, crew) == 0)
		count++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return count;
}

static int digest_together(struct digesting *work)
{
	struct crew crew = {.work = work, .lock = PTHREAD_MUTEX_INITIALIZER};
	const uint64_t most = work->bytes / THREAD_BYTES_MIN + 1; /* threads that are worth it */
	unsigned cpus = 1, helpers;
	pthread_t threads[THREADS_MAX];
	cpu_set_t allowed;
	uint64_t told = 0;
	double begun;
	int r = 0;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
		cpus = (unsigned)CPU_COUNT(&allowed);
	cpus = cpus < THREADS_MAX ? cpus : THREADS_MAX;
	helpers = crew_start(&crew, threads, (cpus < most ? cpus : (unsigned)most) - 1);
	begun = clock_steady_seconds();
	while (r == 0 && crew_step(&crew))
		r = crew_tell(&crew, &told);
	__atomic_store_n(&crew.stop, r < 0, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < helpers; i++)
		pthread_join(threads[i], NULL);
	work->report.seconds = clock_steady_seconds() - begun;
	return r == 0 ? crew_tell(&crew, &told) : r;
}

/* ---- what is called ------------------------------------------------------- */

static int digest_read_back(struct digesting *work)
{
	void *buffer = malloc(MEMORY_CHUNK_BYTES);
	int r;

	if (!buffer)
		return error_set(work->error, -ENOMEM, NULL, "no room to read %llu bytes back",
				 (unsigned long long)MEMORY_CHUNK_BYTES);
	r = digest_alone(work, buffer);
	free(buffer);
	return r;
}

int memory_digests(const struct memory_device *device, const struct memory_span *spans, size_t count,
		   const struct memory_digest_options *options, struct memory_sum *ret_sums,
		   struct error *error)
{
	const struct memory_digest_options none = {0}, *how = options ? options : &none;
	struct digesting work = {
		.device = device,
		.spans = spans,
		.count = count,
		.pace = how->pace,
		.progress = how->progress,
		.user_data = how->user_data,
		.tallies = calloc(count + 1, sizeof(*work.tallies)),
		.error = error,
	};
	int r = 0;

	if (!work.tallies)
		return error_set(error, -ENOMEM, NULL, "no room for the digests of %zu pieces", count);
	for (size_t i = 0; i < count; i++)
		work.bytes += spans[i].bytes;
	/* A load has the digests of all tensors already: it must not be made to wait for a kernel. */
	if (work.bytes > 0 && device->ops->cpu_addresses) {
		r = work.pace ? digest_alone(&work, NULL) : digest_together(&work);
	} else if (work.bytes > 0) {
		r = device->ops->digests(&work);
		if (r == 1)
			r = digest_read_back(&work);
	}
	for (size_t i = 0; r == 0 && i < count; i++)
		ret_sums[i] = (struct memory_sum){digest_final(&work.tallies[i].sum, spans[i].bytes),
						  work.tallies[i].bits == 0};
	free(work.tallies);
	if (r == 0 && how->ret_report)
		*how->ret_report = work.report;
	return r;
}

#define REST_STEP_MS 100 /* between looks whether to stop; a cancel is not felt to wait */

bool digest_take(struct digesting *work, uint64_t most, struct digest_part *ret)
{
	uint64_t left;

	while (work->span < work->count && work->offset == work->spans[work->span].bytes) {
		work->span++;
		work->offset = 0;
	}
	if (work->span == work->count)
		return false;
	left = work->spans[work->span].bytes - work->offset;
	*ret = (struct digest_part){work->span, work->offset, left <= most ? left : most / 16 * 16};
	work->offset += ret->bytes;
	return true;
}

int digest_tell(struct digesting *work, uint64_t bytes)
{
	if (work->progress && work->progress(bytes, work->user_data))
		return error_set(work->error, -ECANCELED, NULL, "the digest was stopped");
	return 0;
}

int digest_rest(struct digesting *work, double busy)
{
	double end;
	int r = 0;

	if (!work->pace || work->pace->permille >= 1000)
		return 0;
	end = clock_steady_seconds() + busy * (1000 - work->pace->permille) / work->pace->permille;
	for (double left; r == 0 && (left = end - clock_steady_seconds()) > 0; r = digest_tell(work, 0)) {
		long ns = (long)((left < REST_STEP_MS / 1e3 ? left : REST_STEP_MS / 1e3) * 1e9);

		nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
	}
	return r;
}
