#include "copy.h"

#include "host_write.h"
#include "lanes.h"
#include "piece.h"

#include "../client/lib/clock.h"
#include "../proto/bytes.h"
#include "../service/task_limits.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* What is read and digested at once, so that the digest finds it in the CPU's own cache (1 MiB and more on
 * servers); and how often progress moves where reading is slow. */
#define STEP_BYTES KIB(512)

/* The readers of one copy and what they share. */
struct crew {
	const struct copy *copy;
	const struct copy_target *hosts; /* the targets, without lanes */
	size_t host_count;
	bool straight; /* into the memory of the only host */
	bool small_pages; /* of that memory: one reader at a time writes it by calls */
	size_t chunk;
	struct reader *files; /* of each file */
	struct digest_sum *sums; /* of each tensor; atomic */
	uint64_t done; /* bytes; atomic */
	bool stop; /* atomic */
	bool writing; /* atomic: a reader writes by calls */
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	pthread_cond_t opened; /* there are lanes, or there is a slot */
	struct lanes *lanes; /* NULL: not yet, or none are needed */
	double began; /* when they were open */
	pthread_t threads[COPY_READERS_MAX];
	unsigned started, wanted, most; /* readers */
	struct piece_cursor next;
	size_t *slots; /* of the ring that no reader has; the first was sent longest ago */
	size_t slot_count, usable; /* slots from `usable` on are sent once, and left alone then */
	unsigned running;
	struct read_counts counts;
	struct error error; /* the first reader's that failed */
};

/* A place in a piece. */
struct spot {
	uint32_t span;
	uint64_t offset; /* in the span */
};

/* One reader thread. */
struct hand {
	struct crew *crew;
	struct lanes *lanes; /* NULL: they are not open yet */
	struct reader *file; /* of the piece */
	char *buffer; /* a piece, and the pages around it; NULL: none yet */
	size_t slot; /* that it is, of the ring */
	bool writes; /* by calls, not through the mapping */
	struct read_counts counts;
	struct spot spot; /* how far it is with the piece */
	size_t done; /* the same in bytes */
	struct piece piece;
};

static bool crew_stopped(const struct crew *crew)
{
	return __atomic_load_n(&crew->stop, __ATOMIC_RELAXED);
}

static void crew_stop(struct crew *crew)
{
	__atomic_store_n(&crew->stop, true, __ATOMIC_RELAXED);
}

/* A piece, and a buffer of the ring where it goes there: there are as many as readers, unless the driver pinned fewer. */
static bool crew_take(struct crew *crew, struct hand *hand)
{
	bool taken = false;

	pthread_mutex_lock(&crew->lock);
	if (!crew_stopped(crew))
		taken = piece_next(crew->copy->source, crew->chunk, &crew->next, &hand->piece);
	while (taken && crew->slots && crew->slot_count == 0 && !crew_stopped(crew))
		clock_wait(&crew->opened, &crew->lock, clock_deadline(COPY_LOOK_MS));
	taken = taken && !crew_stopped(crew);
	if (taken && crew->slots) {
		hand->slot = crew->slots[0];
		memmove(crew->slots, crew->slots + 1, --crew->slot_count * sizeof(*crew->slots));
	}
	hand->lanes = crew->lanes;
	pthread_mutex_unlock(&crew->lock);
	if (!taken)
		return false;
	hand->file = &crew->files[hand->piece.file];
	hand->spot = (struct spot){0};
	hand->done = 0;
	return true;
}

static void crew_give_back(struct crew *crew, size_t slot)
{
	pthread_mutex_lock(&crew->lock);
	if (slot < crew->usable)
		crew->slots[crew->slot_count++] = slot;
	pthread_cond_signal(&crew->opened);
	pthread_mutex_unlock(&crew->lock);
}

/* The disk is read: it takes more readers than there are CPUs. */
static void crew_want_all(struct crew *crew)
{
	pthread_mutex_lock(&crew->lock);
	if (crew->wanted < crew->most) {
		crew->wanted = crew->most;
		pthread_cond_signal(&crew->changed);
	}
	pthread_mutex_unlock(&crew->lock);
}

/* ---- a piece's bytes --------------------------------------------------- */

/* Where a spot lies in host memory. */
static char *spot_place(const struct hand *hand, const struct spot *spot, const struct copy_target *host)
{
	const struct piece_span *span = &hand->piece.spans[spot->span];

	return (char *)host->addresses[span->tensor] + span->offset + spot->offset;
}

/* At most `bytes` further, within one span; how far. */
static size_t spot_advance(const struct piece *piece, struct spot *spot, size_t bytes)
{
	uint64_t left = piece->spans[spot->span].bytes - spot->offset;

	if (bytes < left) {
		spot->offset += bytes;
		return bytes;
	}
	*spot = (struct spot){.span = spot->span + 1};
	return (size_t)left;
}

/* The most of the next `bytes` of the piece that ends where a digest may be cut. */
static size_t hand_cut(const struct hand *hand, size_t bytes)
{
	uint64_t left = hand->piece.spans[hand->spot.span].bytes - hand->spot.offset;
	size_t whole = 0;

	for (uint32_t i = hand->spot.span; whole + left <= bytes; left = hand->piece.spans[i].bytes) {
		whole += left;
		if (++i == hand->piece.span_count)
			return whole;
	}
	return whole + (bytes - whole) / 8 * 8;
}

/* Where the hand's next byte goes in its buffer, as in a page of the file: where lanes take the whole piece behind the
 * one before, else to the beginning, which the CPU's cache still has. */
static char *hand_at(const struct hand *hand)
{
	if (hand->crew->copy->ring)
		return hand->buffer + hand->piece.offset % READER_ALIGN + hand->done;
	return hand->buffer + (hand->piece.offset + hand->done) % READER_ALIGN;
}

/* Whether it goes there, and not straight to where it belongs. */
static bool hand_buffers(const struct hand *hand)
{
	return !hand->crew->straight || hand->writes;
}

/* Where the next `bytes` of the piece go; the number of places. */
static int hand_places(const struct hand *hand, size_t bytes, struct iovec *places)
{
	struct spot spot = hand->spot;
	int count = 0;

	if (hand_buffers(hand)) {
		places[0] = (struct iovec){hand_at(hand), bytes};
		return 1;
	}
	while (bytes > 0) {
		char *place = spot_place(hand, &spot, &hand->crew->hosts[0]);
		size_t some = spot_advance(&hand->piece, &spot, bytes);

		places[count++] = (struct iovec){place, some};
		bytes -= some;
	}
	return count;
}

static void sum_add(struct digest_sum *total, const struct digest_sum *sum)
{
	__atomic_fetch_add(&total->a, sum->a, __ATOMIC_RELAXED);
	__atomic_fetch_add(&total->b, sum->b, __ATOMIC_RELAXED);
}

/* Where it pays, and no other does: see host_write.h. */
static void hand_begin_writing(struct hand *hand)
{
	hand->writes =
		hand->crew->small_pages && !__atomic_exchange_n(&hand->crew->writing, true, __ATOMIC_ACQUIRE);
}

static void hand_end_writing(struct hand *hand)
{
	if (hand->writes)
		__atomic_store_n(&hand->crew->writing, false, __ATOMIC_RELEASE);
	hand->writes = false;
}

static int hand_put(const struct hand *hand, const struct copy_target *host, char *to, const char *from,
		    size_t bytes, struct error *error)
{
	if (hand->writes)
		return host_write(host->segments, host->segment_count, to, from, bytes, error);
	memcpy(to, from, bytes);
	return 0;
}

/* Digests the next `bytes` of the piece, which lie at `from`, and puts them into host memory; NULL: they lie
 * there. */
static int hand_deliver(struct hand *hand, const char *from, size_t bytes, struct error *error)
{
	struct crew *crew = hand->crew;
	int r = 0;

	hand->done += bytes;
	__atomic_fetch_add(&crew->done, bytes, __ATOMIC_RELAXED);
	while (r == 0 && bytes > 0) {
		const struct piece_span *span = &hand->piece.spans[hand->spot.span];
		struct spot spot = hand->spot;
		size_t some = spot_advance(&hand->piece, &hand->spot, bytes);
		struct digest_sum sum = {0};

		digest_update(&sum, span->offset + spot.offset,
			      from ? from : spot_place(hand, &spot, &crew->hosts[0]), some);
		sum_add(&crew->sums[span->tensor], &sum);
		for (size_t i = 0; r == 0 && from && i < crew->host_count; i++)
			r = hand_put(hand, &crew->hosts[i], spot_place(hand, &spot, &crew->hosts[i]), from,
				     some, error);
		if (from)
			from += some;
		bytes -= some;
	}
	return r;
}

/* ---- reading ----------------------------------------------------------- */

/* A step of what is cached; how many bytes, 0: nothing is. */
static ssize_t hand_step(struct hand *hand, struct error *error)
{
	struct iovec places[PIECE_SPANS_MAX];
	size_t left = hand->piece.bytes - hand->done, bytes = left < STEP_BYTES ? left : STEP_BYTES;
	int count = hand_places(hand, bytes, places);
	ssize_t n = reader_cached(hand->file, places, count, hand->piece.offset + hand->done);

	if (n < 0)
		return error_set(error, -ENOMEM, "see free -m; retire what nobody needs",
				 "no room in host memory for what is read from %s", hand->file->file->path);
	bytes = n > 0 ? hand_cut(hand, (size_t)n) : 0;
	hand->counts.warm += bytes;
	n = hand_deliver(hand, hand_buffers(hand) ? hand_at(hand) : NULL, bytes, error);
	return n < 0 ? n : (ssize_t)bytes;
}

/* Straight copies into huge pages need one only for what is not cached. */
static int hand_make_buffer(struct hand *hand, struct error *error)
{
	size_t bytes = copy_buffer_bytes(hand->crew->chunk);

	if (!hand->buffer)
		hand->buffer = ring_map(bytes);
	return hand->buffer ? 0 : error_set(error, -ENOMEM, NULL, "no room for a buffer of %zu bytes", bytes);
}

/* Up to where the cache has the piece's bytes again, or where fetching may take long a step. */
static int hand_fetch(struct hand *hand, struct error *error)
{
	uint64_t offset = hand->piece.offset + hand->done;
	size_t left = hand->piece.bytes - hand->done, bytes = left;
	struct reader_hole hole;
	int r = hand_make_buffer(hand, error);

	if (r < 0)
		return r;
	crew_want_all(hand->crew);
	reader_hole(hand->file, offset, left, &hole);
	if (!reader_is_direct(hand->file))
		bytes = hand_cut(hand, left < STEP_BYTES ? left : STEP_BYTES);
	else if (hole.bytes < left)
		bytes = hand_cut(hand, hole.bytes + 7); /* the whole of its last word */
	r = reader_fetch(hand->file, hand_at(hand), offset, bytes, &hand->counts, error);
	reader_hole_forget(hand->file, &hole);
	if (r < 0)
		return r;
	hand_begin_writing(hand);
	r = hand_deliver(hand, hand_at(hand), bytes, error);
	hand_end_writing(hand);
	return r;
}

/* Its buffer, free to be written. */
static int hand_begin(struct hand *hand, struct error *error)
{
	const struct copy *copy = hand->crew->copy;

	if (!copy->ring)
		return hand->crew->straight && !hand->crew->small_pages ? 0 : hand_make_buffer(hand, error);
	hand->buffer = ring_buffer(copy->ring, hand->slot);
	/* Before there are lanes nothing was sent from it. */
	return hand->lanes ? lanes_wait(hand->lanes, hand->slot, error) : 0;
}

static int hand_read(struct hand *hand, struct error *error)
{
	int r = hand_begin(hand, error);

	while (r == 0 && hand->done < hand->piece.bytes && !crew_stopped(hand->crew)) {
		ssize_t n;

		hand_begin_writing(hand);
		n = hand_step(hand, error);
		hand_end_writing(hand);
		if (n < 0)
			return (int)n;
		if (n == 0)
			r = hand_fetch(hand, error);
	}
	return r;
}

/* Waits for the lanes. False: the copy is stopped, and there may be none. */
static bool hand_await_lanes(struct hand *hand)
{
	struct crew *crew = hand->crew;

	pthread_mutex_lock(&crew->lock);
	while (!crew->lanes && !crew_stopped(crew))
		clock_wait(&crew->opened, &crew->lock, clock_deadline(COPY_LOOK_MS));
	hand->lanes = crew->lanes;
	pthread_mutex_unlock(&crew->lock);
	return hand->lanes;
}

static int hand_send(struct hand *hand, struct error *error)
{
	struct lane_span spans[PIECE_SPANS_MAX];
	const char *from = hand->buffer + hand->piece.offset % READER_ALIGN;
	int r;

	for (uint32_t i = 0; i < hand->piece.span_count; i++) {
		const struct piece_span *span = &hand->piece.spans[i];

		spans[i] = (struct lane_span){from, span->tensor, span->offset, span->bytes};
		from += span->bytes;
	}
	r = lanes_send(hand->lanes, hand->slot, spans, hand->piece.span_count, error);
	if (r == 0)
		crew_give_back(hand->crew, hand->slot);
	return r;
}

static void counts_add(struct read_counts *total, const struct read_counts *counts)
{
	total->warm += counts->warm;
	total->direct += counts->direct;
	total->buffered += counts->buffered;
}

static void hand_end(struct hand *hand, int r, const struct error *error)
{
	struct crew *crew = hand->crew;

	if (!crew->copy->ring && hand->buffer)
		munmap(hand->buffer, copy_buffer_bytes(crew->chunk));
	pthread_mutex_lock(&crew->lock);
	if (r < 0 && !crew->error.code)
		crew->error = *error;
	if (r < 0)
		crew_stop(crew);
	counts_add(&crew->counts, &hand->counts);
	crew->running--;
	pthread_cond_signal(&crew->changed);
	pthread_mutex_unlock(&crew->lock);
}

static void *reader(void *user_data)
{
	struct hand hand = {.crew = user_data};
	struct error error = {0};
	int r = 0;

	while (r == 0 && crew_take(hand.crew, &hand)) {
		r = hand_read(&hand, &error);
		/* A piece that was stopped half-way stays unsent. */
		if (r == 0 && hand.crew->copy->ring && hand.done == hand.piece.bytes && hand_await_lanes(&hand))
			r = hand_send(&hand, &error);
	}
	hand_end(&hand, r, &error);
	return NULL;
}

/* ---- the crew ---------------------------------------------------------- */

static unsigned cpu_count(void)
{
	cpu_set_t cpus;

	return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? (unsigned)CPU_COUNT(&cpus) : 1;
}

unsigned copy_readers(void)
{
	unsigned count = cpu_count();

	if (count < COPY_READERS_MIN)
		return COPY_READERS_MIN;
	return count < COPY_READERS_MAX ? count : COPY_READERS_MAX;
}

size_t copy_buffer_bytes(size_t chunk)
{
	return (chunk + READER_ALIGN - 1) / READER_ALIGN * READER_ALIGN + 2 * READER_ALIGN;
}

/* No more than there are buffers, or (more or less) pieces. */
static unsigned readers_of(const struct copy *copy, size_t chunk)
{
	unsigned readers = copy->readers ? copy->readers : copy_readers();
	uint64_t pieces = copy->source->bytes / chunk + 1;

	if (readers > COPY_READERS_MAX)
		readers = COPY_READERS_MAX;
	if (copy->ring && copy->ring->count < readers)
		readers = (unsigned)copy->ring->count;
	return pieces < readers ? (unsigned)pieces : readers;
}

static uint64_t crew_done(const struct crew *crew)
{
	return __atomic_load_n(&crew->done, __ATOMIC_RELAXED);
}

/* Starts the readers that are wanted, with the lock held. */
static void crew_start(struct crew *crew)
{
	char limits[TEXT_BYTES_MAX + 1];

	while (crew->started < crew->wanted && !crew_stopped(crew)) {
		int r = pthread_create(&crew->threads[crew->started], NULL, reader, crew);

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

/* While readers fill the first buffers. */
static int crew_open(struct crew *crew, struct error *error)
{
	struct lanes *lanes = NULL;
	const struct copy *copy = crew->copy;
	size_t kept = 0;
	int r = copy->ring && !crew_stopped(crew) ? copy->open(&lanes, copy->open_data, error) : 0;

	crew->began = clock_seconds();
	if (r != 0)
		crew_stop(crew);
	pthread_mutex_lock(&crew->lock);
	crew->lanes = lanes;
	crew->usable = copy->ring ? ring_usable(copy->ring) : 0;
	for (size_t i = 0; i < crew->slot_count; i++) {
		if (crew->slots[i] < crew->usable)
			crew->slots[kept++] = crew->slots[i];
	}
	crew->slot_count = kept;
	pthread_cond_broadcast(&crew->opened);
	pthread_mutex_unlock(&crew->lock);
	return r;
}

/* Tells the progress until all readers have ended; what progress or `open` returned. */
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

static int crew_run(struct crew *crew, struct error *error)
{
	int stopped = crew_watch(crew, error);

	for (unsigned i = 0; i < crew->started; i++)
		pthread_join(crew->threads[i], NULL);
	if (crew->error.code)
		*error = crew->error;
	return crew->error.code ? crew->error.code : stopped;
}

static int crew_fill(struct crew *crew, struct error *error)
{
	const struct copy *copy = crew->copy;
	const struct source *source = copy->source;

	crew->sums = calloc(source->tensor_count + 1, sizeof(*crew->sums));
	if (copy->ring)
		crew->slots = calloc(copy->ring->count, sizeof(*crew->slots));
	if (crew->sums && (crew->slots || !copy->ring))
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
	*crew = (struct crew){.copy = copy, .chunk = copy->chunk ? copy->chunk : COPY_CHUNK_BYTES};
	pthread_mutex_init(&crew->lock, NULL);
	clock_condition(&crew->changed);
	clock_condition(&crew->opened);
	crew->usable = copy->ring ? copy->ring->count : 0;
	if (!copy->ring) {
		crew->hosts = copy->targets;
		crew->host_count = copy->target_count;
	}
	crew->straight = crew->host_count == 1;
	crew->small_pages = crew->straight && crew->hosts[0].segment_count > 0 && host_write_pays();
	crew->most = crew->wanted = readers_of(copy, crew->chunk);
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
	pthread_cond_destroy(&crew->opened);
	pthread_cond_destroy(&crew->changed);
	pthread_mutex_destroy(&crew->lock);
}

/* ---- the copy ---------------------------------------------------------- */

static void crew_report(const struct crew *crew, struct copy_report *ret)
{
	*ret = (struct copy_report){
		.counts = crew->counts,
		.seconds = crew->began > 0 ? clock_seconds() - crew->began : 0,
		.readers = crew->started,
	};
	for (size_t i = 0; crew->files && !ret->note[0] && i < crew->copy->source->file_count; i++)
		snprintf(ret->note, sizeof(ret->note), "%s", reader_note(&crew->files[i]));
}

int copy_run(const struct copy *copy, struct digest *ret_digests, struct copy_report *ret_report,
	     struct error *error)
{
	const struct source *source = copy->source;
	struct crew crew;
	int r = crew_make(&crew, copy, error);

	if (r == 0)
		r = crew_run(&crew, error);
	if (r == 0 && crew.lanes)
		r = lanes_drain(crew.lanes, error);
	crew_report(&crew, ret_report);
	for (size_t i = 0; r == 0 && i < source->file_count; i++)
		r = source_file_unchanged(&source->files[i], error);
	for (size_t i = 0; r == 0 && i < source->tensor_count; i++)
		ret_digests[i] = digest_final(&crew.sums[i], source->tensors[i].bytes);
	crew_free(&crew);
	return r;
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
