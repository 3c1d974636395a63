#include "peer_take.h"

#include "../../base/clock.h"
#include "../../peer/exchange.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PROGRAM "gpuwm-loader " GPUWM_VERSION
#define NAP_MS 20 /* how soon it sees *stop, and new pieces of its origin */

/* Returns false if it was stopped meanwhile. */
static bool pause_for(const struct peer_fetch *fetch, int64_t ms)
{
	int64_t deadline = clock_deadline(ms);

	while (!atomic_load(fetch->stop) && clock_left(deadline) > 0)
		nanosleep(&(struct timespec){.tv_nsec = NAP_MS * 1000000}, NULL);
	return !atomic_load(fetch->stop);
}

/* ---- one connection -------------------------------------------------------- */

static int take_over(struct peer_fetch *fetch, struct link *link, const struct link_target *target, bool stay,
		     struct peer_elsewhere *ret, struct error *error)
{
	struct peer_found found;
	struct peer_taking taking = {
		.part = fetch->part,
		.version = &found.version,
		.serves = fetch->serves,
		.stay = stay,
		.threads = fetch->threads,
		.stall_ms = PEER_STALL_MS,
		.stop = fetch->stop,
		.wire = &fetch->wire,
		.keys = fetch->keys,
		.target = target,
		.lanes = fetch->lanes,
		.clear = fetch->clear,
	};
	struct peer_hello_result hello;
	struct peer_message message;
	int r = peer_greet(link, PROGRAM, &hello, &message, error);

	if (r < 0)
		return r;
	r = peer_offer_find(link, fetch->offer, fetch->places->ref, &found, error);
	if (r == 0)
		r = peer_way_choose(&fetch->way, &hello, found.devices[fetch->part->rank], fetch->part, error);
	peer_message_clear(&message);
	taking.ops = fetch->way.ops;
	return r < 0 ? r : peer_take(link, &taking, ret, error);
}

static int take_once(struct peer_fetch *fetch, const struct link_target *target, bool stay,
		     struct peer_elsewhere *ret, struct error *error)
{
	struct link *link;
	int r = link_connect(fetch->keys, target, LINK_HANDSHAKE_MS, &link, error);

	if (r < 0)
		return r;
	r = take_over(fetch, link, target, stay, ret, error);
	link_close(link);
	return r;
}

/* Takes by the best transport that joins the two. */
static int take_from(struct peer_fetch *fetch, const struct link_target *target, bool stay,
		     struct peer_elsewhere *ret, struct error *error)
{
	int r;

	do {
		fetch->part->times = (struct take_times){0};
		fetch->way.ops = NULL;
		r = take_once(fetch, target, stay, ret, error);
	} while (r < 0 && peer_way_next(&fetch->way, fetch->part->times.met > 0, error));
	return r;
}

/* ---- one connection after another ------------------------------------------ */

struct course {
	struct peer_fetch *fetch;
	unsigned tries;
	size_t place; /* whom it asks next */
	bool stay; /* it was sent on in vain */
	uint64_t bytes; /* that were here before this try */
};

/* Takes from a place, and from where that one sends us. */
static int try_place(struct course *course, struct error *error)
{
	struct peer_fetch *fetch = course->fetch;
	const struct memory_device *device = &fetch->part->device;
	const struct link_target target = peer_place_target(&fetch->places->items[course->place]);
	struct peer_elsewhere elsewhere = {0}, next;
	struct link_target there;
	unsigned redirects = 0;
	bool entered;
	int r = take_from(fetch, &target, course->stay, &elsewhere, error);

	while (r == 0 && elsewhere.there) {
		there = (struct link_target){elsewhere.host, elsewhere.port,
					     elsewhere.name[0] ? elsewhere.name : NULL};
		r = take_from(fetch, &there, ++redirects >= PEER_REDIRECTS_MAX, &next, error);
		elsewhere = next;
	}
	/* A take that was sent elsewhere in vain leaves the wire open. */
	entered = fetch->wire && device->ops->enter(device, NULL) == 0;
	fetch->wire = wire_close(fetch->wire);
	if (entered)
		device->ops->leave(device);
	/* The next one is to send itself then. */
	course->stay = r < 0 && redirects > 0;
	return r;
}

/* Counts a failure, and waits. Returns whether to go on. */
static bool try_again(struct course *course, int r, const struct error *error)
{
	struct peer_fetch *fetch = course->fetch;
	uint64_t bytes = peer_pieces_bytes(fetch->part->pieces);
	int64_t pauses = INT64_C(1) << (course->tries < 6 ? course->tries : 6);
	/* Another try has no chance if it is this node that is in the way. If the wire is open here, it is the peer that lacks
	 * something, which another one may have; as if both have no transport in common. */
	bool hopeless = r == -ECANCELED || r == -ENOMEM || r == -EMFILE || r == -ENOTRECOVERABLE ||
			(r == -ENOTSUP && (fetch->part->times.opened == 0 || fetch->places->count == 1)) ||
			(r == -EPROTONOSUPPORT && fetch->places->count == 1);

	fetch->failures++;
	fetch->last = *error;
	if (bytes > course->bytes)
		course->tries = 0;
	course->bytes = bytes;
	course->tries++;
	course->place = (course->place + 1) % fetch->places->count;
	return !hopeless && course->tries < PEER_TRIES_MAX &&
	       pause_for(fetch, fetch->pause_ms * (pauses < PEER_PAUSES_MAX ? pauses : PEER_PAUSES_MAX));
}

static int fetch_all(struct peer_fetch *fetch, struct error *error)
{
	struct course course = {.fetch = fetch};
	struct error why;
	int r = try_place(&course, error);

	while (r < 0 && try_again(&course, r, error))
		r = try_place(&course, error);
	if (r == 0 || r == -ECANCELED)
		return r;
	why = *error;
	return error_set(error, why.code, why.detail,
			 "of rank %u %" PRIu64 " of %" PRIu64 " bytes came; after %u tries: %s",
			 fetch->part->rank, peer_pieces_bytes(fetch->part->pieces), fetch->part->offer->bytes,
			 course.tries, why.message);
}

/* ---- replicas -------------------------------------------------------------- */

static int copy_piece(const struct taken_part *part, const struct peer_run *piece, void *buffer,
		      struct error *error)
{
	const struct taken_part *origin = part->origin;
	uint64_t bytes = peer_run_bytes(part->offer, piece);
	int r = origin->device.ops->enter(&origin->device, error);

	if (r < 0)
		return r;
	r = origin->device.ops->read(&origin->device, buffer, peer_part_address(origin, piece), bytes, error);
	origin->device.ops->leave(&origin->device);
	if (r == 0)
		r = part->device.ops->enter(&part->device, error);
	if (r < 0)
		return r;
	r = part->device.ops->write(&part->device, peer_part_address(part, piece), buffer, bytes, error);
	part->device.ops->leave(&part->device);
	return r;
}

static int copy_origin(struct peer_fetch *fetch, struct error *error)
{
	struct taken_part *part = fetch->part;
	void *buffer = malloc(SUMS_PIECE_BYTES);
	struct peer_run piece;
	int r = 0;

	if (!buffer)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	while (r == 0 && peer_pieces_claim(part->pieces, 1, &piece)) {
		while (r == 0 && !peer_pieces_are_here(part->origin->pieces, &piece)) {
			if (!pause_for(fetch, NAP_MS))
				r = error_set(error, -ECANCELED, NULL, "the load was cancelled");
		}
		if (r == 0)
			r = copy_piece(part, &piece, buffer, error);
		if (r == 0)
			peer_pieces_here(part->pieces, &piece);
	}
	free(buffer);
	return r;
}

void *peer_fetch_run(void *user_data)
{
	struct peer_fetch *fetch = user_data;
	struct error error = {0};
	int r = fetch->part->origin ? copy_origin(fetch, &error) : fetch_all(fetch, &error);

	if (r < 0)
		fetch->error = error;
	atomic_store(&fetch->ended, true);
	return NULL;
}
