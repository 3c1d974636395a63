#include "peer_take.h"

#include "peer_part.h"
#include "../copy/copy.h"

#include "../../base/bytes.h"
#include "../../base/clock.h"
#include "../../peer/exchange.h"
#include "../../peer/sender.h"
#include "../../peer/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define LOOK_MS 20 /* how soon it sees *stop */
#define FREE_MS 1 /* how soon it sees that a buffer is free */

struct want {
	bool active;
	struct peer_run run;
	struct wire_message message;
	atomic_bool busy; /* its buffer is still being compared */
};

struct take {
	struct link *link;
	const struct peer_taking *taking;
	struct taken_part *part;
	struct wire *wire;
	void *address; /* the peer's; owned */
	size_t address_bytes;
	struct inbox *inbox;
	struct peer_verify *verify;
	enum wire_memory memory; /* in which messages arrive */
	struct ring ring; /* of a device into which the wire can't write: a buffer for each want */
	uint32_t run; /* how many pieces one message has */
	uint64_t nonce;
	uint32_t number; /* of the next want */
	struct want wants[PEER_WANTS];
	int64_t deadline; /* when nothing has come for too long */
	uint64_t begin_ms, arrived; /* when the first want was sent, and the bytes that have come since */
	int64_t judged; /* when its pace is judged next */
	uint64_t wrong;
	bool asked; /* the peer has agreed to send */
	struct error *error;
};

static bool take_straight(const struct take *take)
{
	return take->ring.base == NULL;
}

/* ---- the beginning --------------------------------------------------------- */

/* Straight into the memory if the wire can, else through buffers. */
static int take_prepare(struct take *take)
{
	struct taken_part *part = take->part;
	const struct memory_ops *ops = part->device.ops;
	struct wire **wire = take->taking->wire;
	bool opened, into_gpu;
	int r = 0;

	/* The node that redirected may have had another transport. */
	if (*wire && (*wire)->ops != take->taking->ops)
		*wire = wire_close(*wire);
	opened = *wire;
	if (!opened)
		r = wire_open(take->taking->ops, false, wire, take->error);
	if (r < 0)
		return r;
	take->wire = *wire;
	into_gpu = !ops->cpu_addresses && wire_carries(take->wire, WIRE_CUDA);
	for (uint32_t i = 0; !opened && into_gpu && i < part->offer->segment_count; i++)
		if (part->segments[i].address) /* what the part shares is here already */
			wire_register(take->wire, part->segments[i].address, part->offer->segment_bytes[i],
				      WIRE_CUDA);
	take->memory = into_gpu ? WIRE_CUDA : WIRE_HOST;
	take->run = into_gpu ? SENDER_WANT_PIECES_MAX : 1;
	if (!ops->cpu_addresses && !into_gpu) {
		r = ring_make(SUMS_PIECE_BYTES, PEER_WANTS, &take->ring, take->error);
		if (r == 0 && ops->pin)
			ring_lock(&take->ring, &part->device);
	}
	if (r == 0)
		r = peer_verify_begin(take->part, take->taking->threads, take_straight(take), &take->verify,
				      take->error);
	if (r == 0 && getrandom(&take->nonce, sizeof(take->nonce), 0) != sizeof(take->nonce))
		r = error_set(take->error, -EIO, NULL, "the kernel gave no random number");
	take->nonce &= (UINT64_C(1) << WIRE_NONCE_BITS) - 1;
	return r;
}

static int call_take(struct take *take, const char *worker, struct peer_elsewhere *ret)
{
	const struct peer_taking *taking = take->taking;
	const struct peer_take_params params = {
		.version = taking->version,
		.rank = take->part->rank,
		.wire = take->wire->ops->name,
		.worker = worker,
		.nonce = take->nonce,
		.serves = taking->serves ? &taking->serves : NULL,
		.stay = taking->stay,
		.pace = taking->pace ? &taking->pace : NULL,
	};
	struct peer_take_result result;
	struct peer_message message;
	int r = peer_call(take->link, &form_peer_take, &params, &result, &message, take->error);

	if (r < 0)
		return r;
	if (result.redirect && taking->stay) {
		r = error_set(take->error, -EPROTO, NULL, "%s sends us elsewhere, although we can't go",
			      link_peer(take->link));
	} else if (result.redirect) {
		ret->there = true;
		ret->port = (unsigned)result.redirect->port;
		snprintf(ret->host, sizeof(ret->host), "%s", result.redirect->host);
		snprintf(ret->name, sizeof(ret->name), "%s", result.redirect->name);
	} else if (!result.worker) {
		r = error_set(take->error, -EPROTO, NULL, "%s sent no address of its %s", link_peer(take->link),
			      take->wire->ops->title);
	} else {
		/* This side connects there when the peer has. */
		r = wire_bytes(result.worker, &take->address, &take->address_bytes, take->error);
	}
	peer_message_clear(&message);
	return r;
}

static int take_ask(struct take *take, struct peer_elsewhere *ret)
{
	size_t bytes;
	const void *address = wire_address(take->wire, &bytes);
	char *worker = wire_text(address, bytes);
	int r = worker ? call_take(take, worker, ret)
		       : error_set(take->error, -ENOMEM, NULL, "gpuwm-loader is out of memory");

	free(worker);
	if (r == 0 && !ret->there)
		r = inbox_open(take->link, &take->inbox, take->error);
	take->asked = r == 0 && !ret->there;
	return r;
}

/* ---- wants ----------------------------------------------------------------- */

static void *place_of(const struct take *take, const struct want *want)
{
	return take_straight(take) ? peer_part_address(take->part, &want->run)
				   : ring_buffer(&take->ring, (size_t)(want - take->wants));
}

static int begin_want(struct take *take, struct want *want)
{
	const struct wire_piece piece = {
		.tag = wire_tag(take->nonce, take->number++),
		.data = place_of(take, want),
		.bytes = peer_run_bytes(take->part->offer, &want->run),
		.memory = take->memory,
	};
	const struct peer_want_params params = {want->run.segment, want->run.first, want->run.count};
	struct message_writer w;
	int r;

	want->message = (struct wire_message){0};
	r = wire_receive(take->wire, &piece, &want->message, take->error);
	want->active = r == 0;
	if (r < 0) {
		peer_pieces_missing(take->part->pieces, &want->run);
		return r;
	}
	message_write_notification(&w, &form_peer_want, &params);
	return peer_send(take->link, &w, take->error);
}

/* Wants what is missing, as long as there is a place for it. */
static int want_more(struct take *take)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < PEER_WANTS; i++) {
		struct want *want = &take->wants[i];

		if (want->active || atomic_load(&want->busy))
			continue;
		if (!peer_pieces_claim(take->part->pieces, take->run, &want->run))
			break;
		r = begin_want(take, want);
	}
	return r;
}

/* Passes on what came: each piece by itself, so that several threads compare. */
static int arrived(struct take *take, struct want *want)
{
	struct peer_arrival arrival = {.run = want->run};
	uint32_t count = want->run.count;
	int r = 0;

	arrival.run.count = 1;
	if (!take_straight(take)) {
		arrival.buffer = place_of(take, want);
		arrival.busy = &want->busy;
		atomic_store(&want->busy, true);
	}
	for (; r == 0 && count > 0; count--) {
		r = peer_verify_add(take->verify, &arrival, take->error);
		if (r == 0)
			arrival.run.first++;
	}
	/* What was not passed on is to come again. */
	arrival.run.count = count;
	if (r < 0)
		peer_pieces_missing(take->part->pieces, &arrival.run);
	return r;
}

/* Whether the transport is what it was chosen for. */
static int judge_rate(struct take *take)
{
	const struct wire_ops *ops = take->wire->ops;
	const struct take_times *times = &take->part->times;
	double seconds = times->last - times->first;

	if (ops->rate_min == 0 || times->bytes < ops->judged_bytes ||
	    (double)times->bytes >= seconds * (double)ops->rate_min)
		return 0;
	return error_set(take->error, -EHOSTUNREACH, NULL, "it brought %.2f GB/s only",
			 (double)times->bytes / seconds / 1e9);
}

static int take_collect(struct take *take)
{
	struct take_times *times = &take->part->times;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < PEER_WANTS; i++) {
		struct want *want = &take->wants[i];

		if (!want->active || !want->message.done)
			continue;
		want->active = false;
		take->deadline = clock_deadline(take->taking->stall_ms);
		if (want->message.result == 0) {
			times->last = clock_steady_seconds();
			take->arrived += peer_run_bytes(take->part->offer, &want->run);
			if (times->first > 0)
				times->bytes += peer_run_bytes(take->part->offer, &want->run);
			else
				times->first = times->last;
			r = arrived(take, want);
			if (r == 0)
				r = judge_rate(take);
			continue;
		}
		peer_pieces_missing(take->part->pieces, &want->run);
		r = error_set(take->error, want->message.result, NULL, "%s could not receive what %s sent: %s",
			      take->wire->ops->title, link_peer(take->link), strerror(-want->message.result));
	}
	return r;
}

/* ---- the middle ------------------------------------------------------------ */

static int judge_message(struct take *take, const struct message *message)
{
	struct peer_gone_params gone;

	if (strcmp(message->method, form_peer_gone.name) != 0)
		return error_set(take->error, -EPROTO, NULL, "%s said \"%.64s\" in the middle of a take",
				 link_peer(take->link), message->method);
	if (record_read(form_peer_gone.params, message, &gone, take->error) < 0)
		return take->error->code;
	return error_set(take->error, peer_told_code(gone.error->code), gone.error->detail,
			 "%s sends no more: %s", link_peer(take->link), gone.error->message);
}

/* A server says nothing in a take but that it ends. */
static int take_hear(struct take *take)
{
	struct peer_message message;
	int r = inbox_take(take->inbox, &message, take->error);

	if (r == -ENOLINK)
		return error_set(take->error, -ECONNRESET, NULL, "%s ended the connection",
				 link_peer(take->link));
	if (r <= 0)
		return r;
	r = judge_message(take, &message.message);
	peer_message_clear(&message);
	return r;
}

static int take_look(struct take *take)
{
	int r = atomic_load(take->taking->stop)
			? error_set(take->error, -ECANCELED, NULL, "the load was cancelled")
			: peer_verify_failed(take->verify, take->error);
	bool expects = false; /* if nothing is still to come, only threads work */

	if (r < 0)
		return r;
	take->wrong += peer_verify_wrong(take->verify);
	if (take->wrong > PEER_WRONG_MAX)
		return error_set(take->error, -EBADMSG, "nothing of it is used",
				 "%s sent other bytes than it offered: %llu pieces did not have their SHA-256",
				 link_peer(take->link), (unsigned long long)take->wrong);
	r = take_hear(take);
	for (unsigned i = 0; i < PEER_WANTS; i++)
		expects = expects || take->wants[i].active;
	if (r == 0 && expects && clock_left(take->deadline) == 0)
		r = error_set(take->error, -ETIMEDOUT, NULL, "%s sent nothing for %lld ms",
			      link_peer(take->link), (long long)take->taking->stall_ms);
	return r;
}

/* Ends a take that is slower than another one would be. */
static int take_judge(struct take *take)
{
	const struct peer_taking *taking = take->taking;
	const uint64_t left = take->part->offer->bytes - peer_pieces_bytes(take->part->pieces);
	char rate_text[BYTES_TEXT];
	uint64_t rate;

	if (taking->leave_below == 0 || clock_left(take->judged) > 0)
		return 0;
	take->judged = clock_deadline(taking->watch_ms);
	rate = take->arrived * 1000 / (clock_steady_ms() - take->begin_ms + 1);
	if (rate >= taking->leave_below || left / (rate + 1) * 1000 < (uint64_t)taking->slow_ms)
		return 0;
	*taking->ret_rate = rate;
	return error_set(take->error, -ETIME, NULL, "%s sends %s a second, and another node may be faster",
			 link_peer(take->link), bytes_format(rate, rate_text));
}

static int take_pieces(struct take *take)
{
	int r = 0;

	take->begin_ms = clock_steady_ms();
	take->judged = clock_deadline(take->taking->watch_ms);
	take->deadline = clock_deadline(take->taking->stall_ms);
	while (r >= 0 && !peer_pieces_complete(take->part->pieces)) {
		bool pending = peer_verify_pending(take->verify) > 0;

		r = want_more(take);
		if (r == 0)
			r = wire_progress(take->wire, inbox_fd(take->inbox),
					  clock_deadline(pending ? FREE_MS : LOOK_MS), take->error);
		if (r >= 0)
			r = take_collect(take);
		if (r >= 0)
			r = take_look(take);
		if (r >= 0)
			r = take_judge(take);
	}
	return r < 0 ? r : 0;
}

/* The address that the take's own link reached: a name may stand for several nodes. link_peer_address has no scope, as in fe80::1%eth0, and a host
 * with one is an address already. */
static const char *server_address(const struct take *take)
{
	const char *host = take->taking->target->host;

	return strchr(host, '%') ? host : link_peer_address(take->link);
}

/* Both sides have all their connections then. */
static int take_meet(struct take *take)
{
	const struct peer_taking *taking = take->taking;
	const struct link_target *found = taking->target;
	const struct link_target target = {server_address(take), found->port,
					   found->name ? found->name : found->host};
	const struct wire_meeting meeting = {
		.address = take->address,
		.bytes = take->address_bytes,
		.nonce = take->nonce,
		.keys = taking->keys,
		.target = &target,
		.lanes = taking->lanes,
		.clear = taking->clear,
	};
	int64_t deadline = clock_deadline(WIRE_MEET_MS);
	int r;

	take->deadline = deadline;
	do {
		r = take_look(take);
		if (r == 0)
			r = wire_meet(take->wire, &meeting, clock_deadline(LOOK_MS), take->error);
	} while (r == 1 && clock_left(deadline) > 0);
	return r == 1 ? error_set(take->error, -ETIMEDOUT, take->wire->ops->remedy,
				  "%s of %s did not answer for %d s", take->wire->ops->title,
				  link_peer(take->link), WIRE_MEET_MS / 1000)
		      : r;
}

/* ---- the end --------------------------------------------------------------- */

/* Afterwards nothing writes into the part's memory. Returns false if the transport hangs, so that it may. */
static bool take_settle(struct take *take)
{
	const struct memory_device *device = &take->part->device;
	bool settled = !take->wire || wire_settle(take->wire);

	*take->taking->wire = wire_close(take->wire);
	device->ops->idle(device, NULL);
	for (unsigned i = 0; i < PEER_WANTS; i++) {
		if (take->wants[i].active)
			peer_pieces_missing(take->part->pieces, &take->wants[i].run);
		take->wants[i].active = false;
	}
	take->verify = peer_verify_end(take->verify);
	if (settled)
		ring_free(&take->ring);
	return settled;
}

/* Returns whether the step went well. Notes when. */
static bool take_passed(int r, double *ret_when)
{
	*ret_when = r == 0 ? clock_steady_seconds() : 0;
	return r == 0;
}

/* Says that all is here, or what was wrong. Whether the peer still listens does not matter. */
static void take_say_done(struct take *take, int r)
{
	const struct peer_done_params params = {
		.bytes = peer_pieces_bytes(take->part->pieces),
		.error = r < 0 ? take->error : NULL,
	};
	struct message_writer w;
	struct error unused;

	message_write_notification(&w, &form_peer_done, &params);
	peer_send(take->link, &w, &unused);
}

static int take_inside(struct take *take, struct peer_elsewhere *ret)
{
	struct take_times *times = &take->part->times;
	int r;

	*times = (struct take_times){.wire = take->taking->ops->title};
	r = take_prepare(take);
	if (take_passed(r, &times->opened))
		r = take_ask(take, ret);
	if (take->asked && take_passed(r, &times->agreed))
		r = take_meet(take);
	if (take->asked && take_passed(r, &times->met))
		r = take_pieces(take);
	if (take->asked)
		take_say_done(take, r);
	if (r == 0 && ret->there) {
		take->verify = peer_verify_end(take->verify);
		ring_free(&take->ring);
	} else if (!take_settle(take)) {
		r = error_set(take->error, -ENOTRECOVERABLE, "load again",
			      "%s did not end what %s had begun to send", take->taking->ops->title,
			      link_peer(take->link));
	}
	inbox_close(take->inbox);
	free(take->address);
	return r;
}

int peer_take(struct link *link, const struct peer_taking *taking, struct peer_elsewhere *ret_elsewhere,
	      struct error *error)
{
	const struct memory_device *device = &taking->part->device;
	struct take *take = calloc(1, sizeof(*take));
	int r = take ? device->ops->enter(device, error)
		     : error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");

	*ret_elsewhere = (struct peer_elsewhere){0};
	if (r == 0) {
		take->link = link;
		take->taking = taking;
		take->part = taking->part;
		take->error = error;
		r = take_inside(take, ret_elsewhere);
		device->ops->leave(device);
	}
	/* If the transport hangs, it still has the messages. */
	if (r != -ENOTRECOVERABLE)
		free(take);
	return r;
}
