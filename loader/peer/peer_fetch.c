#include "peer_take.h"

#include "../../base/clock.h"
#include "../../peer/exchange.h"
#include "../../peer/serve.h"

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

/* How one connection is to be made, and what became of it. */
struct meeting {
	struct link_target target;
	const char *ref; /* the version's name there */
	uint64_t timeout_ms; /* of the handshake */
	bool stay; /* the peer is not to redirect */
	uint64_t pace; /* peer_taking.pace */
	uint64_t leave_below; /* peer_taking.leave_below */
	uint64_t rate; /* set: bytes a second, if the take was slow */
	bool offered; /* set: the peer has the version */
	struct peer_elsewhere elsewhere; /* set */
};

static int take_over(struct peer_fetch *fetch, struct link *link, struct meeting *meeting, struct error *error)
{
	struct peer_found found;
	struct peer_taking taking = {
		.part = fetch->part,
		.version = &found.version,
		.serves = fetch->serves,
		.stay = meeting->stay,
		.threads = fetch->threads,
		.stall_ms = PEER_STALL_MS,
		.pace = meeting->pace,
		.watch_ms = fetch->watch_ms,
		.slow_ms = fetch->slow_ms,
		.leave_below = meeting->leave_below,
		.ret_rate = &meeting->rate,
		.stop = fetch->stop,
		.wire = &fetch->wire,
		.keys = fetch->keys,
		.target = &meeting->target,
		.lanes = fetch->lanes,
		.clear = fetch->clear,
	};
	struct peer_hello_result hello;
	struct peer_message message;
	int r = peer_greet(link, PROGRAM, &hello, &message, error);

	if (r < 0)
		return r;
	r = peer_offer_find(link, fetch->offer, meeting->ref, &found, error);
	meeting->offered = r == 0;
	if (r == 0)
		r = peer_way_choose(&fetch->way, &hello, found.devices[fetch->part->rank], fetch->part, error);
	peer_message_clear(&message);
	taking.ops = fetch->way.ops;
	return r < 0 ? r : peer_take(link, &taking, &meeting->elsewhere, error);
}

static int take_once(struct peer_fetch *fetch, struct meeting *meeting, struct error *error)
{
	struct link *link;
	int r = link_connect(fetch->keys, &meeting->target, meeting->timeout_ms, &link, error);

	if (r < 0)
		return r;
	r = take_over(fetch, link, meeting, error);
	link_close(link);
	return r;
}

/* Takes by the best transport that joins the two. */
static int take_from(struct peer_fetch *fetch, struct meeting *meeting, struct error *error)
{
	int r;

	do {
		fetch->part->times = (struct take_times){0};
		fetch->way.ops = NULL;
		r = take_once(fetch, meeting, error);
	} while (r < 0 && peer_way_next(&fetch->way, fetch->part->times.met > 0, error));
	return r;
}

/* ---- one connection after another ------------------------------------------ */

/* A node, and what this fetch knows of it. */
struct standing {
	struct peer_place place;
	unsigned tries; /* connections in a row that brought nothing */
	int64_t due; /* when it may be asked again */
	bool stay; /* it redirected in vain: it is to send itself */
	/* Bytes a second of its last slow take: as it came, by a redirect or not; and by itself, when this side had asked for more. 0: not
	 * known; 1: it gives nothing more. */
	uint64_t rate, own_rate;
};

struct course {
	struct peer_fetch *fetch;
	struct standing *standings; /* one for each place, in the order of the list */
	size_t count;
	int64_t end; /* when it gives up; 0: nothing has failed since pieces came */
	uint64_t bytes; /* that were here before this try */
	struct standing *next; /* to take from next, because the last one was slow; NULL: whose turn it is */
	bool asks_more; /* next: it is told the pace of where it redirected */
};

/* A node that redirected has the version, whatever the other one said. */
static bool lacks(const struct standing *standing)
{
	return !standing->stay && peer_place_lacks(&standing->place);
}

/* Those that have the version come first, and those that said they do not have it come last. */
static int rank_of(const struct standing *standing)
{
	if (lacks(standing))
		return 2;
	return standing->place.offered ? 0 : 1;
}

/* Returns the node to ask next, or the one whose turn comes first if it is nobody's turn yet. */
static struct standing *next_standing(const struct course *course)
{
	struct standing *next = NULL;

	for (size_t i = 0; i < course->count; i++) {
		struct standing *at = &course->standings[i];
		int left = clock_left(at->due), least = next ? clock_left(next->due) : 0;

		if (!next || left < least || (left == 0 && least == 0 && rank_of(at) < rank_of(next)))
			next = at;
	}
	return next;
}

static bool any_offers(const struct course *course)
{
	for (size_t i = 0; i < course->count; i++) {
		if (rank_of(&course->standings[i]) == 0)
			return true;
	}
	return false;
}

/* ---- slow nodes ---- */

/* Returns whether there may be a node whose pace is not known yet, besides this one. */
static struct standing *find_unmeasured(const struct course *course, const struct standing *besides)
{
	for (size_t i = 0; i < course->count; i++) {
		struct standing *at = &course->standings[i];

		if (at != besides && at->rate == 0 && rank_of(at) < 2 && clock_left(at->due) == 0)
			return at;
	}
	return NULL;
}

static uint64_t best_rate(const struct standing *standing)
{
	return standing->rate > standing->own_rate ? standing->rate : standing->own_rate;
}

static struct standing *find_best(const struct course *course)
{
	struct standing *best = &course->standings[0];

	for (size_t i = 1; i < course->count; i++) {
		if (best_rate(&course->standings[i]) > best_rate(best))
			best = &course->standings[i];
	}
	return best;
}

/* The pace below which a take from this node is left: any, while another way is not known; or half of the best one that is. What the node
 * sends beside the one where it redirected has to be more than that one gave. */
static uint64_t leave_below(const struct course *course, const struct standing *standing, bool redirected)
{
	const struct standing *best = find_best(course);

	if (course->asks_more)
		return standing->rate;
	if ((redirected && standing->own_rate == 0) || find_unmeasured(course, standing))
		return UINT64_MAX;
	return best_rate(best) / TAKERS_FASTER;
}

/* Notes the pace of a take that was left, and finds where to go on. */
static void leave_slow(struct course *course, struct standing *standing, const struct meeting *last,
		       bool redirected)
{
	course->fetch->left++;
	course->fetch->watch_ms *= 2;
	course->bytes = peer_pieces_bytes(course->fetch->part->pieces);
	course->end = 0;
	if (course->asks_more || !redirected)
		standing->own_rate = last->rate + 1;
	if (!course->asks_more)
		standing->rate = last->rate + 1;
	course->asks_more = redirected && standing->own_rate == 0;
	course->next = course->asks_more ? standing : find_unmeasured(course, standing);
	if (course->next)
		return;
	course->next = find_best(course);
	course->asks_more = course->next->own_rate > course->next->rate;
}

/* Takes from a node, and from where that one redirects. */
static int try_standing(struct course *course, struct standing *standing, struct error *error)
{
	struct peer_fetch *fetch = course->fetch;
	const struct memory_device *device = &fetch->part->device;
	const bool probes = rank_of(standing) > 0 && any_offers(course);
	const char *ref = peer_place_ref(fetch->places, &standing->place);
	struct peer_elsewhere elsewhere;
	unsigned redirects = 0;
	bool entered;
	struct meeting meeting = {
		.target = peer_place_target(&standing->place),
		.ref = ref,
		.timeout_ms = probes ? PEER_PROBE_MS : LINK_HANDSHAKE_MS,
		.stay = standing->stay,
		.pace = course->asks_more ? standing->rate : 0,
		.leave_below = leave_below(course, standing, false),
	};
	int r = take_from(fetch, &meeting, error);

	standing->place.offered = standing->place.offered || meeting.offered;
	while (r == 0 && meeting.elsewhere.there) {
		elsewhere = meeting.elsewhere;
		meeting = (struct meeting){
			.target = {elsewhere.host, elsewhere.port, elsewhere.name[0] ? elsewhere.name : NULL},
			.ref = ref, /* whoever takes from this node calls the version as it does */
			.timeout_ms = LINK_HANDSHAKE_MS,
			.stay = ++redirects >= PEER_REDIRECTS_MAX,
			.leave_below = leave_below(course, standing, true),
		};
		r = take_from(fetch, &meeting, error);
	}
	/* A take that was redirected in vain leaves the wire open. */
	entered = fetch->wire && device->ops->enter(device, NULL) == 0;
	fetch->wire = wire_close(fetch->wire);
	if (entered)
		device->ops->leave(device);
	course->next = NULL;
	if (r == -ETIME)
		leave_slow(course, standing, &meeting, redirects > 0);
	else
		standing->stay = r < 0 && redirects > 0;
	return r;
}

/* Another try has no chance if it is this node that is in the way. If the wire is open here, it is the peer that lacks something,
 * which another one may have. */
static bool is_hopeless(const struct peer_fetch *fetch, int code)
{
	return code == -ECANCELED || code == -ENOMEM || code == -EMFILE || code == -ENOTRECOVERABLE ||
	       (code == -ENOTSUP && fetch->part->times.opened == 0);
}

/* Returns whether every node has said that it lacks the version. */
static bool nobody_has_it(const struct course *course)
{
	for (size_t i = 0; i < course->count; i++) {
		if (!lacks(&course->standings[i]))
			return false;
	}
	return true;
}

/* Notes why a node gave nothing more, and when it may be asked again. */
static void note_failure(struct course *course, struct standing *standing, const struct error *error)
{
	struct peer_fetch *fetch = course->fetch;
	uint64_t bytes = peer_pieces_bytes(fetch->part->pieces);
	int64_t pauses;

	/* It was asked for more than it gives to the one where it redirected. */
	if (course->asks_more) {
		course->asks_more = false;
		standing->own_rate = standing->own_rate ? standing->own_rate : 1;
		if (error->code == -EALREADY)
			return;
	}
	fetch->failures++;
	fetch->last = *error;
	standing->place.why = *error;
	if (bytes > course->bytes) {
		standing->tries = 0;
		course->end = 0;
	}
	course->bytes = bytes;
	if (course->end == 0)
		course->end = clock_deadline(fetch->patience_ms);
	pauses = lacks(standing) ? PEER_PAUSES_MAX : INT64_C(1) << (standing->tries < 6 ? standing->tries : 6);
	standing->tries++;
	standing->due = clock_deadline(fetch->pause_ms * (pauses < PEER_PAUSES_MAX ? pauses : PEER_PAUSES_MAX));
}

/* Waits for the next node's turn. Returns whether to go on. */
static bool try_again(const struct course *course, int code)
{
	const bool in_time = course->end == 0 || clock_left(course->end) > 0;

	return !is_hopeless(course->fetch, code) && !nobody_has_it(course) && in_time &&
	       pause_for(course->fetch, clock_left(next_standing(course)->due));
}

static int course_begin(struct course *course, struct error *error)
{
	const struct peer_places *places = course->fetch->places;

	course->standings = calloc(places->count, sizeof(*course->standings));
	if (!course->standings)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	course->count = places->count;
	for (size_t i = 0; i < places->count; i++) {
		course->standings[i].place = places->items[i];
		/* Its turn comes when those that may have the version have failed. */
		if (peer_place_lacks(&places->items[i]))
			course->standings[i].due = clock_deadline(course->fetch->pause_ms * PEER_PAUSES_MAX);
	}
	return 0;
}

/* Says how far it came, and why no node gave more. */
static int course_explain(const struct course *course, int code, struct error *error)
{
	const struct peer_fetch *fetch = course->fetch;
	struct peer_place *places;
	struct error why = *error;

	if (!is_hopeless(fetch, code) && (places = calloc(course->count, sizeof(*places)))) {
		for (size_t i = 0; i < course->count; i++)
			places[i] = course->standings[i].place;
		peer_places_explain(places, course->count, fetch->places->ref, &why);
		free(places);
	}
	return error_set(error, why.code, why.detail, "of rank %u %" PRIu64 " of %" PRIu64 " bytes came: %s",
			 fetch->part->rank, peer_pieces_bytes(fetch->part->pieces), fetch->part->offer->bytes,
			 why.message);
}

static int fetch_all(struct peer_fetch *fetch, struct error *error)
{
	struct course course = {.fetch = fetch};
	struct standing *standing;
	int r = course_begin(&course, error);

	if (r < 0)
		return r;
	do {
		standing = course.next ? course.next : next_standing(&course);
		r = try_standing(&course, standing, error);
		if (r < 0 && r != -ETIME)
			note_failure(&course, standing, error);
	} while (r == -ETIME || (r < 0 && try_again(&course, r)));
	if (r < 0 && r != -ECANCELED)
		r = course_explain(&course, r, error);
	free(course.standings);
	return r;
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
