/* What a session sends, and what waits to be sent. */
#include "session_internal.h"
#include "../../base/clock.h"
#include "../base/complaint.h"
#include "unread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

/* While peers of this user leave too many descriptors unread, gpuwmd tries a reply with descriptors again for this time:
 * 64 workers take 252 descriptors each in less, and a client waits for longer. */
#define CROWDED_MS 5000

/* A packet that waits; data lies behind the descriptors. */
struct outgoing {
	struct outgoing *prev, *next;
	struct parcel parcel;
	int fds[];
};

/* ---- what waits to be sent ---- */

void parcel_close_fds(const struct parcel *parcel)
{
	for (size_t i = 0; parcel->close_fds && i < parcel->fd_count; i++)
		close(parcel->fds[i]);
}

static struct outgoing *outgoing_new(const struct parcel *parcel)
{
	size_t fds = parcel->fd_count * sizeof(int);
	struct outgoing *o = malloc(sizeof(*o) + fds + parcel->bytes);

	if (!o)
		return NULL;
	*o = (struct outgoing){.parcel = *parcel};
	if (fds)
		memcpy(o->fds, parcel->fds, fds);
	o->parcel.fds = o->fds;
	o->parcel.data = memcpy((char *)o->fds + fds, parcel->data, parcel->bytes);
	return o;
}

void outgoing_pop(struct session *s)
{
	struct outgoing *o = s->out;

	DL_DELETE(s->out, o);
	parcel_close_fds(&o->parcel);
	free(o);
}

/* 0: handed to the kernel; -EAGAIN, -EBUSY (the peer has not read), -ETOOMANYREFS; others are the end. */
static int try_send(struct session *s, const struct parcel *parcel)
{
	int r;

	if (parcel->fd_count > 0 && s->fds_sent + parcel->fd_count > UNREAD_FDS_MAX) {
		if (packet_unread(s->sock))
			return -EBUSY;
		unread_clear(s);
	}
	if (parcel->fd_count > 0 && !unread_has_room(s, parcel->fd_count))
		return -ETOOMANYREFS;
	r = packet_send(s->sock, parcel->data, parcel->bytes, parcel->fds, parcel->fd_count);
	if (r == 0)
		unread_add(s, parcel->fd_count);
	return r;
}

/* Arranges to go on when what was in the way is gone. False: nothing is any more. */
static bool blocked(struct session *s, int reason)
{
	if (reason == -EAGAIN) {
		session_watch(s, WATCH_WRITE);
		return true;
	}
	if (reason == -ETOOMANYREFS) {
		session_watch(s, WATCH_GONE);
		if (s->crowded_since == 0)
			s->crowded_since = clock_steady_ms();
		crowded_add(s->net->crowded, s);
		return true;
	}
	session_watch(s, WATCH_UNREAD);
	return packet_unread(s->sock); /* it may have read before the watch began */
}

/* The first packet is gone: the next one has its own time. */
static void forget_crowd(struct session *s)
{
	s->crowded_since = 0;
	crowded_remove(s);
}

/* The first packet's descriptors can't go for too long: an error goes instead. */
static void give_up_descriptors(struct session *s)
{
	struct parcel parcel = s->out->parcel;

	forget_crowd(s);
	outgoing_pop(s);
	complain(
		s->net->complaints, s->peer.uid, COMPLAINT_CROWDED,
		"session %llu: %zu descriptors could not be sent for %d ms: peers of gpuwmd leave too many unread",
		(unsigned long long)s->id, parcel.fd_count, CROWDED_MS);
	if (parcel.lease == 0)
		session_end(s);
	else
		s->net->above->unsendable(s, parcel.lease, parcel.request);
}

void session_flush(struct session *s)
{
	while (s->out && !s->ended) {
		int r = try_send(s, &s->out->parcel);

		if (r == 0) {
			forget_crowd(s);
			outgoing_pop(s);
		} else if (r == -ETOOMANYREFS && s->crowded_since != 0 &&
			   clock_steady_ms() - s->crowded_since > CROWDED_MS) {
			give_up_descriptors(s);
		} else if (r == -EAGAIN || r == -EBUSY || r == -ETOOMANYREFS) {
			if (blocked(s, r))
				return;
		} else {
			session_end(s);
		}
	}
	if (s->ended)
		return;
	if (s->finishing) {
		session_end(s);
		return;
	}
	session_watch(s, WATCH_READ);
	s->net->above->flushed(s);
}

void session_send(struct session *s, const struct parcel *parcel)
{
	struct outgoing *o;
	int r = -EAGAIN;

	if (s->ended) {
		parcel_close_fds(parcel);
		return;
	}
	if (!s->out)
		r = try_send(s, parcel);
	if (r == 0) {
		parcel_close_fds(parcel);
		return;
	}
	o = r == -EAGAIN || r == -EBUSY || r == -ETOOMANYREFS ? outgoing_new(parcel) : NULL;
	if (!o) {
		parcel_close_fds(parcel);
		session_end(s);
		return;
	}
	DL_APPEND(s->out, o);
	if (s->out == o && !blocked(s, r))
		session_flush(s);
}

int session_refuse(struct session *s, const uint64_t *id, const struct error *error)
{
	struct parcel parcel = {0};
	struct message_writer w;
	int r;

	message_writer_borrow(&w, PACKET_BYTES_MAX, &s->net->answer);
	message_response_error(&w, id, error);
	r = message_finish(&w);
	if (r == 0) {
		parcel.data = w.buffer.data;
		parcel.bytes = w.buffer.size;
		session_send(s, &parcel);
	}
	message_writer_clear(&w);
	return r;
}

bool session_withdraw(struct session *s, uint64_t lease, uint64_t *ret_request)
{
	struct outgoing *o;
	bool first;

	DL_SEARCH_SCALAR(s->out, o, parcel.lease, lease);
	if (!o)
		return false;
	first = o == s->out;
	*ret_request = o->parcel.request;
	DL_DELETE(s->out, o);
	parcel_close_fds(&o->parcel);
	free(o);
	if (first) { /* what is behind it may go now */
		forget_crowd(s);
		session_flush(s);
	}
	return true;
}

bool session_offer(struct session *s, const void *data, size_t bytes)
{
	int r;

	if (s->out || s->ended)
		return false;
	r = packet_send(s->sock, data, bytes, NULL, 0);
	if (r == -EAGAIN)
		session_watch(s, WATCH_READ | WATCH_WRITE);
	else if (r < 0)
		session_end(s);
	return r == 0;
}
