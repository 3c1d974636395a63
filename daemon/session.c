#include "session.h"
#include "clock.h"
#include "dispatch.h"
#include "holdings.h"
#include "server.h"
#include "unread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* So long a reply with descriptors is tried again when peers of this user leave
 * too many unread: longer than 64 workers need to take 252 each, shorter than a client waits. */
#define CROWDED_MS 5000

/* A packet that waits; data lies behind the descriptors. */
struct outgoing {
	struct outgoing *next;
	struct parcel parcel;
	int fds[];
};

/* ---- what waits to be sent ---- */

static void close_fds(const struct parcel *parcel)
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

static void outgoing_pop(struct session *s)
{
	struct outgoing *o = s->out;

	s->out = o->next;
	if (!s->out)
		s->out_end = &s->out;
	close_fds(&o->parcel);
	free(o);
}

static void watch(struct session *s, int events);

/* 0: handed to the kernel; -EAGAIN, -EBUSY (the peer has not read), -ETOOMANYREFS; others are the end. */
static int try_send(struct session *s, const struct parcel *parcel)
{
	int r;

	if (parcel->fd_count > 0 && s->fds_sent + parcel->fd_count > UNREAD_FDS_MAX) {
		if (packet_unread(s->sock))
			return -EBUSY;
		s->fds_sent = 0;
	}
	r = packet_send(s->sock, parcel->data, parcel->bytes, parcel->fds, parcel->fd_count);
	if (r == 0)
		s->fds_sent += (unsigned)parcel->fd_count;
	return r;
}

/* Arranges to go on when what was in the way is gone. False: nothing is any more. */
static bool blocked(struct session *s, int reason)
{
	if (reason == -EAGAIN) {
		watch(s, UV_WRITABLE);
		return true;
	}
	watch(s, UV_DISCONNECT);
	if (reason == -ETOOMANYREFS) {
		if (s->crowded_since == 0)
			s->crowded_since = clock_steady_ms();
		unread_retry(s->server->unread);
		return true;
	}
	if (unread_watch(s->server->unread, s) < 0) {
		session_end(s);
		return true;
	}
	return packet_unread(s->sock); /* it may have read before the watch began */
}

/* The first packet's descriptors can't go for too long: an error goes instead. */
static void give_up_descriptors(struct session *s)
{
	struct parcel parcel = s->out->parcel;

	s->crowded_since = 0;
	outgoing_pop(s);
	log_warning(
		"session %llu: %zu descriptors could not be sent for %d ms: peers of gpuwmd leave too many unread",
		(unsigned long long)s->id, parcel.fd_count, CROWDED_MS);
	if (parcel.lease == 0)
		session_end(s);
	else
		holdings_refuse(s, parcel.lease, parcel.request);
}

static void sent_all(struct session *s)
{
	unread_forget(s->server->unread, s);
	if (s->finishing) {
		session_end(s);
		return;
	}
	watch(s, UV_READABLE);
	session_tell_events(s);
}

void session_flush(struct session *s)
{
	while (s->out && !s->ended) {
		int r = try_send(s, &s->out->parcel);

		if (r == 0) {
			s->crowded_since = 0;
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
	if (!s->ended)
		sent_all(s);
}

void session_send(struct session *s, const struct parcel *parcel)
{
	struct outgoing *o;
	int r = -EAGAIN;

	if (s->ended) {
		close_fds(parcel);
		return;
	}
	if (!s->out)
		r = try_send(s, parcel);
	if (r == 0) {
		close_fds(parcel);
		return;
	}
	o = r == -EAGAIN || r == -EBUSY || r == -ETOOMANYREFS ? outgoing_new(parcel) : NULL;
	if (!o) {
		close_fds(parcel);
		session_end(s);
		return;
	}
	*s->out_end = o;
	s->out_end = &o->next;
	if (s->out == o && !blocked(s, r))
		session_flush(s);
}

bool session_withdraw(struct session *s, uint64_t lease, uint64_t *ret_request)
{
	struct outgoing **link = &s->out, *o;

	while (*link && (*link)->parcel.lease != lease)
		link = &(*link)->next;
	o = *link;
	if (!o)
		return false;
	*ret_request = o->parcel.request;
	*link = o->next;
	if (!*link)
		s->out_end = link;
	close_fds(&o->parcel);
	free(o);
	if (link == &s->out) /* what is behind it may go now */
		session_flush(s);
	return true;
}

void session_tell_events(struct session *s)
{
	const void *data;
	size_t bytes;
	uint64_t seq;

	while (s->subscribed && !s->out && !s->ended &&
	       event_after(s->server->events, s->event_seq, &data, &bytes, &seq) == 1) {
		int r = packet_send(s->sock, data, bytes, NULL, 0);

		if (r == -EAGAIN) {
			watch(s, UV_READABLE | UV_WRITABLE);
			return;
		}
		if (r < 0)
			session_end(s);
		s->event_seq = seq;
	}
}

/* ---- the socket ---- */

static void receive(struct session *s)
{
	struct packet *packet = &s->server->packet;
	int r = packet_receive(s->sock, s->kind == SESSION_LOADER, packet);

	if (r == -EAGAIN)
		return;
	if (r <= 0) {
		session_end(s);
		return;
	}
	dispatch_packet(s, packet);
	packet_drop(packet);
}

/* A dead peer may come as UV_EBADF with polling stopped: every error is the end. */
static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct session *s = poll->data;

	if (s->ended)
		return;
	if (status < 0 || (events & UV_DISCONNECT && s->watched == UV_DISCONNECT)) {
		session_end(s);
		return;
	}
	if (events & UV_WRITABLE)
		session_flush(s);
	if (events & UV_READABLE && !s->out && !s->finishing && !s->ended)
		receive(s);
}

static void watch(struct session *s, int events)
{
	if (s->watched == events || s->ended)
		return;
	s->watched = events;
	uv_poll_start(&s->poll, events, on_poll);
}

/* The socket may be held open by a child of a peer that is gone. */
static void on_death(uv_poll_t *poll, int status, int events)
{
	struct session *s = poll->data;

	(void)status;
	(void)events;
	s->dead = true;
	uv_poll_stop(poll);
	session_end(s);
}

/* ---- beginning ---- */

/* With unread packets in our queue the peer would see ECONNRESET before the
 * last reply; so: no more, and what is there is thrown away. */
static void throw_away(int sock)
{
	char byte;

	shutdown(sock, SHUT_RD);
	while (recv(sock, &byte, sizeof(byte), MSG_DONTWAIT) > 0)
		;
}

void session_turn_away(int sock, const struct error *error)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_response_error(&w, NULL, error);
	if (message_finish(&w) == 0)
		packet_send(sock, w.buffer.data, w.buffer.size, NULL, 0);
	message_writer_clear(&w);
	throw_away(sock);
	close(sock);
}

static unsigned roles_of(const struct session *s)
{
	const struct server *server = s->server;
	unsigned roles = ROLE_WORKER;

	if (s->kind == SESSION_LOADER)
		return ROLE_LOADER;
	if (s->kind == SESSION_ADMIN)
		return ROLE_WORKER | ROLE_PUBLISHER | ROLE_OPERATOR;
	if (s->peer.uid == 0 || s->peer.uid == geteuid() ||
	    (server->has_publish_group && peer_in_group(s->sock, &s->peer, server->publish_group)))
		roles |= ROLE_PUBLISHER;
	return roles;
}

static int admit(struct session *s, struct error *error)
{
	struct server *server = s->server;
	int r;

	if (s->kind == SESSION_LOADER) {
		s->peer.pidfd = -1; /* a socketpair: the peer that the kernel names is this process */
		return 0;
	}
	r = peer_identify(s->sock, &s->peer);
	if (r < 0)
		return error_set(error, r, NULL, "gpuwmd could not identify the peer: %s", strerror(-r));
	if (server->stopping)
		return server_refuse_stopping(error);
	if (server->session_count >= server->config->sessions)
		return error_set(error, -EDQUOT, "sessions in [limits] of gpuwmd's configuration changes it",
				 "gpuwmd has all %llu connections that it may have",
				 (unsigned long long)server->config->sessions);
	/* Who operates gets in to see which of the user's workers have taken all that the user may have. */
	if (s->kind == SESSION_ADMIN)
		return 0;
	return quota_charge(server->quota, s->peer.uid, QUOTA_SESSIONS, &s->charge, error);
}

static int open_handles(struct session *s)
{
	uv_loop_t *loop = &s->server->loop;
	int r = uv_poll_init(loop, &s->poll, s->sock);

	if (r < 0)
		return r;
	s->poll.data = s;
	s->handles = 1;
	watch(s, UV_READABLE);
	if (s->peer.pidfd < 0 || uv_poll_init(loop, &s->death, s->peer.pidfd) < 0)
		return 0;
	s->death.data = s;
	s->handles = 2;
	uv_poll_start(&s->death, UV_READABLE, on_death);
	return 0;
}

static void list_session(struct session *s)
{
	struct server *server = s->server;

	s->id = ++server->last_session;
	s->since_ms = clock_wall_ms();
	s->next = server->sessions;
	s->link = &server->sessions;
	if (s->next)
		s->next->link = &s->next;
	server->sessions = s;
	server->session_count += s->kind != SESSION_LOADER;
}

int session_new(struct server *server, int sock, enum session_kind kind, struct session **ret_session)
{
	struct session *s = calloc(1, sizeof(*s));
	struct error error = {.code = -ENOMEM, .message = "gpuwmd is out of memory"};
	int r = -ENOMEM;

	if (!s) {
		session_turn_away(sock, &error);
		return r;
	}
	s->server = server;
	s->kind = kind;
	s->sock = sock;
	s->out_end = &s->out;
	s->peer.pidfd = -1;
	r = admit(s, &error);
	if (r == 0) {
		s->roles = roles_of(s);
		r = open_handles(s);
	}
	if (r < 0) {
		if (!error.code)
			error_set(&error, r, NULL, "gpuwmd could not watch the connection: %s", strerror(-r));
		session_turn_away(sock, &error);
		quota_release(&s->charge);
		peer_clear(&s->peer);
		free(s);
		return r;
	}
	list_session(s);
	*ret_session = s;
	return 0;
}

/* ---- ending ---- */

void session_end(struct session *s)
{
	if (s->ended)
		return;
	s->ended = true;
	s->next_ended = s->server->ended_sessions;
	s->server->ended_sessions = s;
}

void session_finish(struct session *s)
{
	s->finishing = true;
	if (!s->out)
		session_end(s);
}

static void on_closed(uv_handle_t *handle)
{
	struct session *s = handle->data;

	if (--s->handles > 0)
		return;
	peer_clear(&s->peer);
	free(s);
}

void session_goodbye(struct session *s)
{
	struct server *server = s->server;

	if (s->departed)
		return;
	s->departed = true;
	unread_forget(server->unread, s);
	uv_close((uv_handle_t *)&s->poll, on_closed);
	if (s->handles > 1)
		uv_close((uv_handle_t *)&s->death, on_closed);
	holdings_drop(s); /* may take the pidfd: after its watcher is closed */
	while (s->out)
		outgoing_pop(s);
	if (s->finishing)
		throw_away(s->sock);
	close(s->sock);
	quota_release(&s->charge);
	*s->link = s->next;
	if (s->next)
		s->next->link = s->link;
	server->session_count -= s->kind != SESSION_LOADER;
}
