#include "copy_internal.h"

#include "../../base/clock.h"
#include "../../base/bytes.h"
#include "../../service/process.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the crew ---------------------------------------------------------- */

static unsigned cpu_count(void)
{
	cpu_set_t cpus;

	return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? (unsigned)CPU_COUNT(&cpus) : 1;
}

unsigned copy_readers(unsigned gpus)
{
	unsigned count = cpu_count(), most = gpus > 1 ? COPY_READERS_APART : COPY_READERS_MAX;

	if (count < COPY_READERS_MIN)
		return COPY_READERS_MIN;
	return count < most ? count : most;
}

size_t copy_chunk(unsigned gpus)
{
	size_t bytes = gpus * COPY_CHUNK_EACH_BYTES;

	return gpus > 1 && bytes < COPY_CHUNK_BYTES ? bytes : COPY_CHUNK_BYTES;
}

size_t copy_buffer_bytes(size_t chunk)
{
	return (chunk + READER_ALIGN - 1) / READER_ALIGN * READER_ALIGN + 2 * READER_ALIGN;
}

static uint64_t crew_done(const struct crew *crew)
{
	return __atomic_load_n(&crew->done, __ATOMIC_RELAXED);
}

/* Starts the readers that are wanted. The caller holds the lock. */
static void crew_start(struct crew *crew)
{
	char limits[TEXT_BYTES_MAX + 1];

	while (crew->started < crew->wanted && !crew_stopped(crew)) {
		int r = pthread_create(&crew->threads[crew->started], NULL, copy_reader, crew);

		if (r != 0) {
			task_limits_explain(limits, sizeof(limits));
			error_set(&crew->error, -EAGAIN, limits, "starting a reader thread failed: %s",
				  strerror(r));
			crew_stop(crew);
			return;
		}
		crew->started++;
		crew->running++;
	}
}

/* Opens the lanes while readers fill the first buffers. */
static int crew_open(struct crew *crew, struct error *error)
{
	struct lanes *lanes = NULL;
	const struct copy *copy = crew->copy;
	size_t kept = 0;
	int r = copy->ring && !crew_stopped(crew) ? copy->open(&lanes, copy->open_data, error) : 0;

	crew->began = clock_steady_seconds();
	if (r != 0)
		crew_stop(crew);
	pthread_mutex_lock(&crew->lock);
	crew->lanes = lanes;
	crew->usable = copy->ring && r == 0 ? ring_usable(copy->ring) : 0;
	for (size_t i = 0; i < crew->slot_count; i++) {
		if (crew->slots[i] < crew->usable)
			crew->slots[kept++] = crew->slots[i];
	}
	crew->slot_count = kept;
	pthread_cond_broadcast(&crew->opened);
	pthread_mutex_unlock(&crew->lock);
	return r;
}

/* Somebody who opens a file of the source for writing waits until the loader lets go of it. */
static void crew_look_for_writers(struct crew *crew)
{
	struct error error;

	if (source_check_leases(crew->copy->source, &error) == 0)
		return;
	pthread_mutex_lock(&crew->lock);
	if (!crew->error.code)
		crew->error = error;
	pthread_mutex_unlock(&crew->lock);
	crew_stop(crew);
}

/* Calls progress until all readers have ended. Returns what progress or `open` returned. */
static int crew_watch(struct crew *crew, struct error *error)
{
	const struct copy *copy = crew->copy;
	uint64_t told = 0;
	int r = 0;

	pthread_mutex_lock(&crew->lock);
	crew_start(crew);
	pthread_mutex_unlock(&crew->lock);
	r = crew_open(crew, error);
	pthread_mutex_lock(&crew->lock);
	while (crew->running > 0) {
		uint64_t done;

		clock_wait(&crew->changed, &crew->lock, clock_deadline(COPY_LOOK_MS));
		crew_start(crew);
		if (r != 0 || !copy->progress)
			continue;
		pthread_mutex_unlock(&crew->lock);
		crew_look_for_writers(crew);
		done = crew_done(crew);
		r = copy->progress(done - told, copy->user_data);
		told = done;
		if (r != 0)
			crew_stop(crew);
		pthread_mutex_lock(&crew->lock);
	}
	pthread_mutex_unlock(&crew->lock);
	if (r == 0 && copy->progress && crew_done(crew) > told)
		r = copy->progress(crew_done(crew) - told, copy->user_data);
	return r;
}

static int crew_fill(struct crew *crew, struct error *error)
{
	const struct copy *copy = crew->copy;
	const struct source *source = copy->source;

	if (copy->cut && share_sums_make(copy->cut, &crew->shares, error) < 0)
		return error->code;
	if (!copy->cut)
		crew->sums = calloc(source->tensor_count + 1, sizeof(*crew->sums));
	if (copy->ring)
		crew->slots = calloc(copy->ring->count, sizeof(*crew->slots));
	if ((crew->sums || copy->cut) && (crew->slots || !copy->ring))
		crew->files = calloc(source->file_count + 1, sizeof(*crew->files));
	if (!crew->files)
		return error_set(error, -ENOMEM, NULL, "no room to plan the copy of %zu tensors",
				 source->tensor_count);
	while (copy->ring && crew->slot_count < copy->ring->count) {
		crew->slots[crew->slot_count] = crew->slot_count;
		crew->slot_count++;
	}
	for (size_t i = 0; i < source->file_count; i++)
		reader_open(&source->files[i], &crew->files[i]);
	return 0;
}

static int crew_make(struct crew *crew, const struct copy *copy, struct error *error)
{
	uint64_t pieces;

	*crew = (struct crew){.copy = copy, .chunk = copy->chunk ? copy->chunk : copy_chunk(1)};
	pthread_mutex_init(&crew->lock, NULL);
	clock_condition(&crew->changed);
	clock_condition(&crew->opened);
	crew->usable = copy->ring ? copy->ring->count : 0;
	if (!copy->ring) {
		crew->hosts = copy->targets;
		crew->host_count = copy->target_count;
	}
	for (size_t i = 0; copy->cut && i < copy->target_count; i++)
		crew->ranks[copy->targets[i].rank] = true;
	crew->straight = crew->host_count == 1 && !copy->cut;
	crew->small_pages = (crew->straight || (copy->cut && crew->host_count > 0)) &&
			    crew->hosts[0].segment_count > 0 && !host_pages_are_huge();
	/* No more readers than buffers, or (roughly) than pieces. */
	crew->most = copy->readers ? copy->readers : copy_readers(1);
	if (crew->most > COPY_THREADS_MAX)
		crew->most = COPY_THREADS_MAX;
	if (copy->ring && copy->ring->count < crew->most)
		crew->most = (unsigned)copy->ring->count;
	pieces = copy->source->bytes / crew->chunk + 1;
	if (pieces < crew->most)
		crew->most = (unsigned)pieces;
	crew->wanted = crew->most;
	if (!copy->ring && !copy->readers && cpu_count() < crew->wanted)
		crew->wanted = cpu_count();
	return crew_fill(crew, error);
}

static void crew_free(struct crew *crew)
{
	for (size_t i = 0; crew->files && i < crew->copy->source->file_count; i++)
		reader_close(&crew->files[i]);
	free(crew->files);
	free(crew->slots);
	free(crew->sums);
	share_sums_clear(&crew->shares);
	pthread_cond_destroy(&crew->opened);
	pthread_cond_destroy(&crew->changed);
	pthread_mutex_destroy(&crew->lock);
}

/* ---- the copy ---------------------------------------------------------- */

static void crew_report(const struct crew *crew, struct copy_report *ret)
{
	*ret = (struct copy_report){
		.counts = crew->counts,
		.seconds = crew->began > 0 ? clock_steady_seconds() - crew->began : 0,
		.readers = crew->started,
	};
	/* The note of the first file that has one. */
	for (size_t i = 0; crew->files && !ret->note[0] && i < crew->copy->source->file_count; i++)
		snprintf(ret->note, sizeof(ret->note), "%s", reader_note(&crew->files[i]));
}

static void crew_digests(const struct crew *crew, struct digest *ret_digests)
{
	const struct source *source = crew->copy->source;

	if (crew->copy->cut) {
		copy_cut_digests(crew, ret_digests);
		return;
	}
	for (size_t i = 0; i < source->tensor_count; i++)
		ret_digests[i] = digest_final(&crew->sums[i], source->tensors[i].bytes);
}

int copy_run(const struct copy *copy, struct digest *ret_digests, struct copy_report *ret_report,
	     struct error *error)
{
	const struct source *source = copy->source;
	struct crew crew;
	int r = crew_make(&crew, copy, error);

	if (r == 0)
		r = crew_watch(&crew, error);
	for (unsigned i = 0; i < crew.started; i++)
		pthread_join(crew.threads[i], NULL);
	if (crew.error.code) {
		*error = crew.error;
		r = crew.error.code;
	}
	if (r == 0 && crew.lanes)
		r = lanes_drain(crew.lanes, error);
	crew_report(&crew, ret_report);
	for (size_t i = 0; r == 0 && i < source->file_count; i++)
		r = source_file_unchanged(&source->files[i], error);
	if (r == 0 && !copy->undigested)
		crew_digests(&crew, ret_digests);
	crew_free(&crew);
	return r;
}

void counts_add(struct read_counts *total, const struct read_counts *counts)
{
	total->warm += counts->warm;
	total->direct += counts->direct;
	total->buffered += counts->buffered;
}

void copy_report_add(struct copy_report *total, const struct copy_report *report)
{
	counts_add(&total->counts, &report->counts);
	total->seconds += report->seconds;
	if (report->readers > total->readers)
		total->readers = report->readers;
	if (!total->note[0])
		snprintf(total->note, sizeof(total->note), "%s", report->note);
}

void copy_report_text(const struct copy_report *report, char *text, size_t size)
{
	const struct read_counts *counts = &report->counts;
	uint64_t bytes = counts->warm + counts->direct + counts->buffered;
	uint64_t rate = report->seconds > 0 ? (uint64_t)((double)bytes / report->seconds) : 0;
	char all[BYTES_TEXT], second[BYTES_TEXT], warm[BYTES_TEXT], direct[BYTES_TEXT], buffered[BYTES_TEXT];

	snprintf(
		text, size,
		"read %s in %.2f s (%s/s, %u readers): %s were cached, %s came directly from the disk, %s through "
		"the page cache",
		bytes_format(bytes, all), report->seconds, bytes_format(rate, second), report->readers,
		bytes_format(counts->warm, warm), bytes_format(counts->direct, direct),
		bytes_format(counts->buffered, buffered));
}
