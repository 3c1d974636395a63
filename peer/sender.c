#include "sender.h"

#include "exchange.h"
#include "stage.h"
#include "sums.h"

#include "../base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct want {
	uint32_t segment;
	uint64_t first, count;
};

struct sender {
	struct link *link;
	struct wire *wire;
	const struct sender_part *part;
	struct inbox *inbox;
	struct stage *stage;
	uint64_t nonce;
	uint32_t number; /* of the next message */
	struct want wants[INBOX_MESSAGES_MAX]; /* a ring: what is to be sent next */
	unsigned first, want_count;
	struct wire_message messages[STAGE_PLACES_MAX];
	size_t bytes[STAGE_PLACES_MAX]; /* of each of them; 0: its place is free */
	int64_t deadline; /* when the taker has been silent for too long */
	bool ended; /* the taker has said `done` */
	struct sender_report report;
	struct error *error;
};

static void heard(struct sender *sender)
{
	sender->deadline = clock_deadline(SENDER_SILENCE_MS);
}

static int wrong_want(struct sender *sender, const struct peer_want_params *want, const char *why)
{
	return error_set(sender->error, -EPROTO, NULL, "%s wants pieces %llu to %llu of segment %llu: %s",
			 link_peer(sender->link), (unsigned long long)want->first,
			 (unsigned long long)(want->first + want->count), (unsigned long long)want->segment,
			 why);
}

static int take_want(struct sender *sender, const struct message *message)
{
	struct peer_want_params want;
	uint64_t pieces;
	int r = record_read(form_peer_want.params, message, &want, sender->error);

	if (r < 0)
		return r;
	if (want.segment >= sender->part->segment_count)
		return wrong_want(sender, &want, "there is no such segment");
	pieces = sums_piece_count(sender->part->segment_bytes[want.segment]);
	if (want.count == 0 || want.count > SENDER_WANT_PIECES_MAX || want.first >= pieces ||
	    want.count > pieces - want.first)
		return wrong_want(sender, &want, "there are no such pieces, or too many at once");
	sender->wants[(sender->first + sender->want_count++) % INBOX_MESSAGES_MAX] =
		(struct want){(uint32_t)want.segment, want.first, want.count};
	return 0;
}

static int take_message(struct sender *sender, const struct message *message)
{
	struct peer_done_params done;
	int r;

	if (strcmp(message->method, form_peer_want.name) == 0)
		return take_want(sender, message);
	if (strcmp(message->method, form_peer_done.name) != 0)
		return error_set(sender->error, -EPROTO, NULL, "%s said \"%.64s\" in the middle of a take",
				 link_peer(sender->link), message->method);
	r = record_read(form_peer_done.params, message, &done, sender->error);
	sender->ended = r == 0;
	sender->report.done = r == 0 && !done.error;
	return r;
}

/* Takes messages as long as there is room for wants. */
static int take_messages(struct sender *sender)
{
	struct peer_message message;
	int r = 1;

	while (r > 0 && sender->want_count < INBOX_MESSAGES_MAX && !sender->ended) {
		r = inbox_take(sender->inbox, &message, sender->error);
		if (r <= 0)
			break;
		heard(sender);
		if (take_message(sender, &message.message) < 0)
			r = sender->error->code;
		peer_message_clear(&message);
	}
	return r < 0 ? r : 0;
}

/* Gives the places of what was sent free. */
static int collect(struct sender *sender)
{
	int r = 0;

	for (unsigned i = 0; i < STAGE_PLACES_MAX; i++) {
		if (sender->bytes[i] == 0 || !sender->messages[i].done)
			continue;
		if (sender->messages[i].result < 0)
			r = error_set(sender->error, sender->messages[i].result, NULL,
				      "%s could not send to %s: %s", sender->wire->ops->title,
				      link_peer(sender->link), strerror(-sender->messages[i].result));
		else
			sender->report.bytes += sender->bytes[i];
		if (sender->messages[i].result == 0 && sender->part->sent)
			sender->part->sent(sender->part->user_data, sender->bytes[i]);
		sender->bytes[i] = 0;
		heard(sender);
	}
	return r;
}

/* Sends what the first want asks for. Returns 1 if it is not there yet. */
static int send_first(struct sender *sender, unsigned place)
{
	const struct want *want = &sender->wants[sender->first];
	uint64_t segment = sender->part->segment_bytes[want->segment];
	uint64_t end = (want->first + want->count) * SUMS_PIECE_BYTES;
	struct wire_piece piece = {
		.tag = wire_tag(sender->nonce, sender->number),
		.bytes = (end < segment ? end : segment) - want->first * SUMS_PIECE_BYTES,
		.memory = stage_memory(sender->stage),
	};
	const void *data;
	int r = sender->part->look(sender->part->user_data, want->segment, want->first, want->count, &data,
				   sender->error);

	if (r == 0)
		r = stage_put(sender->stage, place, data, piece.bytes, &piece.data, sender->error);
	if (r != 0)
		return r;
	sender->messages[place] = (struct wire_message){0};
	r = wire_send(sender->wire, &piece, &sender->messages[place], sender->error);
	if (r < 0)
		return r;
	sender->bytes[place] = piece.bytes;
	sender->number++;
	sender->first = (sender->first + 1) % INBOX_MESSAGES_MAX;
	sender->want_count--;
	return 0;
}

/* Sends wants as long as there are free places. */
static int send_wanted(struct sender *sender, bool *ret_waits)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && sender->want_count > 0 && i < stage_places(sender->stage); i++) {
		if (sender->bytes[i] == 0)
			r = send_first(sender, i);
	}
	*ret_waits = r == 1;
	return r < 0 ? r : 0;
}

/* A taker that has everything says `done` and closes its wire. The transport may tell of the second before the first is read. Returns 0 if the taker
 * has said it, else `code`. */
static int last_word(struct sender *sender, int code)
{
	struct pollfd wait = {.fd = inbox_fd(sender->inbox), .events = POLLIN};
	int64_t deadline = clock_deadline(SENDER_LAST_WORD_MS);
	struct error why = *sender->error;
	int r = 0;

	sender->want_count = 0; /* nothing is sent any more */
	while (r >= 0 && !sender->ended && clock_left(deadline) > 0) {
		poll(&wait, 1, (int)clock_left(deadline));
		r = take_messages(sender);
	}
	if (r >= 0 && sender->ended)
		return 0;
	*sender->error = why;
	return code;
}

/* Works until the taker says `done`. While a source has not got the bytes, the taker's silence does not count. It looks at the wants before it
 * waits: some were heard while the transport connected. */
static int send_until_done(struct sender *sender)
{
	bool waits = false;
	int r = 0;

	heard(sender);
	while (r >= 0 && !sender->ended) {
		r = take_messages(sender);
		if (r >= 0)
			r = send_wanted(sender, &waits);
		if (waits)
			heard(sender);
		else if (r >= 0 && clock_left(sender->deadline) == 0)
			r = error_set(sender->error, -ETIMEDOUT, NULL, "%s took nothing for %d s",
				      link_peer(sender->link), SENDER_SILENCE_MS / 1000);
		if (r < 0 || sender->ended)
			break;
		r = wire_progress(sender->wire, inbox_fd(sender->inbox),
				  waits ? clock_deadline(SENDER_LOOK_MS) : sender->deadline, sender->error);
		if (r >= 0)
			r = collect(sender);
		if (r < 0)
			return last_word(sender, r);
	}
	return r < 0 ? r : 0;
}

/* Waits until the taker has ended the connection. If this side ended it while wants are unread, the kernel would take back what it has not
 * delivered yet. */
static void wait_for_end(struct sender *sender)
{
	int64_t deadline = clock_deadline(SENDER_END_MS);
	struct peer_message message;
	struct error unused;
	int r = 0;

	while (r >= 0 && clock_left(deadline) > 0) {
		struct pollfd wait = {.fd = inbox_fd(sender->inbox), .events = POLLIN};

		poll(&wait, 1, clock_left(deadline));
		r = inbox_take(sender->inbox, &message, &unused);
		if (r > 0)
			peer_message_clear(&message);
	}
}

/* Both sides have all their connections then. If the taker goes meanwhile, its link ends, or it says `done`. */
static int meet_taker(struct sender *sender, const char *worker)
{
	struct wire_meeting meeting = {.nonce = sender->nonce};
	int64_t deadline = clock_deadline(WIRE_MEET_MS);
	void *address;
	int r = wire_bytes(worker, &address, &meeting.bytes, sender->error);

	if (r < 0)
		return r;
	meeting.address = address;
	do {
		r = take_messages(sender);
		if (r == 0)
			r = wire_meet(sender->wire, &meeting, clock_deadline(SENDER_LOOK_MS), sender->error);
	} while (r == 1 && !sender->ended && clock_left(deadline) > 0);
	free(address);
	if (sender->ended)
		return 0;
	return r == 1 ? error_set(sender->error, -ETIMEDOUT, sender->wire->ops->remedy,
				  "%s of %s did not answer for %d s", sender->wire->ops->title,
				  link_peer(sender->link), WIRE_MEET_MS / 1000)
		      : r;
}

static int run_all(struct sender *sender, const char *worker)
{
	struct message_writer w;
	struct error unused;
	int r = inbox_open(sender->link, &sender->inbox, sender->error);

	if (r == 0)
		r = meet_taker(sender, worker);
	if (r == 0)
		r = send_until_done(sender);
	if (r < 0 && sender->inbox) {
		/* Tells the taker why nothing more comes. Whether it still listens does not matter. */
		message_write_notification(&w, &form_peer_gone, &(struct peer_gone_params){sender->error});
		peer_send(sender->link, &w, &unused);
		wait_for_end(sender);
	}
	inbox_close(sender->inbox);
	return r;
}

static void free_sender(void *user_data)
{
	struct sender *sender = user_data;

	stage_free(sender->stage);
	free(sender);
}

/* What is on its way when the taker has gone still needs its place: both end with the wire. */
int sender_run(struct link *link, struct wire *wire, const struct sender_part *part,
	       const struct sender_taker *taker, struct sender_report *ret, struct error *error)
{
	struct sender *sender = calloc(1, sizeof(*sender));
	int r;

	if (!sender)
		return error_set(error, -ENOMEM, NULL, "no memory to send to %s", link_peer(link));
	*sender = (struct sender){
		.link = link, .wire = wire, .part = part, .nonce = taker->nonce, .error = error};
	wire_keep(wire, free_sender, sender);
	r = stage_new(part->device, wire, SENDER_WANT_PIECES_MAX * SUMS_PIECE_BYTES, &sender->stage, error);
	if (r == 0)
		r = run_all(sender, taker->worker);
	*ret = sender->report;
	return r;
}
