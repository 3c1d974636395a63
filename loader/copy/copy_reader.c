#include "copy_internal.h"

#include "../../base/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* What a reader reads and digests at once, so that the digest finds it in the CPU's own cache (1
 * MiB and more on servers). If reading is slow, progress moves in these steps. */
#define STEP_BYTES KIB(512)

/* Takes a piece and, if there is a ring, a buffer for it. There is a buffer for each reader, unless
 * the driver pinned fewer. */
static bool crew_take(struct crew *crew, struct hand *hand)
{
	const struct copy *copy = crew->copy;
	bool taken = false;

	pthread_mutex_lock(&crew->lock);
	if (!crew_stopped(crew))
		taken = copy->cut
				? piece_next_cut(copy->cut, crew->ranks, crew->chunk, &crew->next, &hand->piece)
				: piece_next(copy->source, crew->chunk, &crew->next, &hand->piece);
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

/* ---- a piece's bytes --------------------------------------------------- */

/* Returns the address of a spot in host memory. */
static char *spot_place(const struct hand *hand, const struct spot *spot, const struct copy_target *host)
{
	const struct piece_span *span = &hand->piece.spans[spot->span];

	return (char *)host->addresses[span->tensor] + span->offset + spot->offset;
}

/* Returns how many of the next `bytes` of the piece can be taken, so that they end where a digest
 * may be cut. */
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

/* Whether bytes go into the buffer first, and not straight to their place. */
static bool hand_buffers(const struct hand *hand)
{
	return !hand->crew->straight || hand->by_calls;
}

/* Returns how much of a reader's own memory lies before its buffer. */
static size_t own_lead(const struct crew *crew)
{
	return crew->copy->cut ? COPY_CUT_STEP_BYTES : 0;
}

static size_t own_bytes(const struct crew *crew)
{
	return own_lead(crew) + copy_buffer_bytes(crew->chunk);
}

static size_t hand_step_bytes(const struct hand *hand)
{
	size_t left = hand->piece.bytes - hand->done,
	       step = hand->crew->copy->cut ? COPY_CUT_STEP_BYTES : STEP_BYTES;

	return left < step ? left : step;
}

/* Finds the place in a buffer for the next `bytes` of the piece, whose offset in a page is the same
 * as in the file. If lanes take the piece as it is, its bytes lie one behind the other in the ring's. Otherwise
 * each step goes to the beginning of the reader's own, which the CPU's cache still holds. */
static int hand_aim(struct hand *hand, size_t bytes, struct error *error)
{
	const struct copy *copy = hand->crew->copy;

	if (copy->ring && !(copy->cut && copy_cut_gathers(hand, bytes))) {
		hand->at = hand_in_slot(hand, hand->done);
		return 0;
	}
	if (!hand->own)
		hand->own = ring_map(own_bytes(hand->crew));
	if (!hand->own)
		return error_set(error, -ENOMEM, NULL, "no room for a buffer of %zu bytes",
				 own_bytes(hand->crew));
	hand->at = hand->own + own_lead(hand->crew) + (hand->piece.offset + hand->done) % READER_ALIGN;
	return 0;
}

/* Sets `places` to where the next `bytes` of the piece go. Returns the number of places. */
static int hand_places(const struct hand *hand, size_t bytes, struct iovec *places)
{
	struct spot spot = hand->spot;
	int count = 0;

	if (hand_buffers(hand)) {
		places[0] = (struct iovec){hand->at, bytes};
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

/* Begins to write by calls if that pays and no other reader does: see host_write. */
static void hand_begin_writing(struct hand *hand)
{
	hand->by_calls = hand->crew->small_pages &&
			 !__atomic_exchange_n(&hand->crew->calls_in_use, true, __ATOMIC_ACQUIRE);
}

static void hand_end_writing(struct hand *hand)
{
	if (hand->by_calls)
		__atomic_store_n(&hand->crew->calls_in_use, false, __ATOMIC_RELEASE);
	hand->by_calls = false;
}

int hand_put(const struct hand *hand, const struct copy_target *host, char *to, const char *from, size_t bytes,
	     struct error *error)
{
	if (hand->by_calls)
		return host_write(host->segments, host->segment_count, to, from, bytes, error);
	memcpy(to, from, bytes);
	return 0;
}

/* Digests the next `bytes` of the piece, which lie at `from`, and copies them into host memory. If
 * `from` is NULL, they lie in host memory already. */
static int hand_deliver(struct hand *hand, const char *from, size_t bytes, struct error *error)
{
	struct crew *crew = hand->crew;
	int r = 0;

	if (crew->copy->cut)
		return copy_cut_deliver(hand, from, bytes, error);
	hand->done += bytes;
	__atomic_fetch_add(&crew->done, bytes, __ATOMIC_RELAXED);
	while (r == 0 && bytes > 0) {
		struct spot spot = hand->spot;
		const struct piece_span *span = &hand->piece.spans[spot.span];
		size_t some = spot_advance(&hand->piece, &hand->spot, bytes);

		if (!crew->copy->undigested)
			digest_update_shared(&crew->sums[span->tensor], span->offset + spot.offset,
					     from ? from : spot_place(hand, &spot, &crew->hosts[0]), some);
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

/* Copies one step of what is cached. Returns the number of bytes, or 0 if nothing is cached
 * there. */
static ssize_t hand_step(struct hand *hand, struct error *error)
{
	struct iovec places[PIECE_SPANS_MAX];
	size_t bytes = hand_step_bytes(hand);
	ssize_t n = hand_buffers(hand) ? hand_aim(hand, bytes, error) : 0;
	int count;

	if (n < 0)
		return n;
	count = hand_places(hand, bytes, places);
	n = reader_cached(hand->file, places, count, hand->piece.offset + hand->done);
	if (n < 0)
		return error_set(error, -ENOMEM, "see free -m; retire what nobody needs",
				 "no room in host memory for what is read from %s", hand->file->file->path);
	bytes = n > 0 ? hand_cut(hand, (size_t)n) : 0;
	hand->counts.warm += bytes;
	n = hand_deliver(hand, hand_buffers(hand) ? hand->at : NULL, bytes, error);
	return n < 0 ? n : (ssize_t)bytes;
}

/* Reads from the disk, up to where the cache has the piece's bytes again. If one read may take
 * long, it reads only a step. */
static int hand_fetch(struct hand *hand, struct error *error)
{
	struct crew *crew = hand->crew;
	uint64_t offset = hand->piece.offset + hand->done;
	size_t left = hand->piece.bytes - hand->done, bytes = left;
	struct reader_hole hole;
	int r;

	/* The disk is being read, so more readers than CPUs pay. */
	pthread_mutex_lock(&crew->lock);
	if (crew->wanted < crew->most) {
		crew->wanted = crew->most;
		pthread_cond_signal(&crew->changed);
	}
	pthread_mutex_unlock(&crew->lock);
	reader_hole(hand->file, offset, left, &hole);
	if (!reader_is_direct(hand->file))
		bytes = hand_cut(hand, hand_step_bytes(hand));
	else if (hole.bytes < left)
		bytes = hand_cut(hand, hole.bytes + 7); /* up to the end of its last word */
	r = hand_aim(hand, bytes, error);
	if (r == 0)
		r = reader_fetch(hand->file, hand->at, offset, bytes, &hand->counts, error);
	reader_hole_forget(hand->file, &hole);
	if (r < 0)
		return r;
	hand_begin_writing(hand);
	r = hand_deliver(hand, hand->at, bytes, error);
	hand_end_writing(hand);
	return r;
}

static int hand_read(struct hand *hand, struct error *error)
{
	const struct copy *copy = hand->crew->copy;
	int r = 0;

	if (copy->ring) {
		hand->slot_buffer = ring_buffer(copy->ring, hand->slot);
		/* Without lanes nothing was sent from the buffer yet. */
		if (hand->lanes)
			r = lanes_wait(hand->lanes, hand->slot, error);
	}
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

/* Waits until the lanes are open. Returns false if the copy is stopped: then there may be none. */
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

static int hand_send_whole(const struct hand *hand, struct error *error)
{
	struct lane_span spans[PIECE_SPANS_MAX];
	const char *from = hand_in_slot(hand, 0);

	for (uint32_t i = 0; i < hand->piece.span_count; i++) {
		const struct piece_span *span = &hand->piece.spans[i];

		spans[i] = (struct lane_span){from, span->tensor, span->offset, span->bytes};
		from += span->bytes;
	}
	return lanes_send(hand->lanes, hand->slot, spans, hand->piece.span_count, error);
}

static void hand_end(struct hand *hand, int r, const struct error *error)
{
	struct crew *crew = hand->crew;

	if (hand->own)
		munmap(hand->own, own_bytes(crew));
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

void *copy_reader(void *crew)
{
	struct hand hand = {.crew = crew};
	const struct copy *copy = hand.crew->copy;
	struct error error = {0};
	int r = 0;

	while (r == 0 && crew_take(hand.crew, &hand)) {
		r = hand_read(&hand, &error);
		/* If the copy was stopped, the rest of the piece is missing, and it is not sent. */
		if (r < 0 || !copy->ring || hand.done < hand.piece.bytes || !hand_await_lanes(&hand))
			continue;
		r = copy->cut ? copy_cut_send(&hand, &error) : hand_send_whole(&hand, &error);
		if (r == 0)
			crew_give_back(hand.crew, hand.slot);
	}
	hand_end(&hand, r, &error);
	return NULL;
}
