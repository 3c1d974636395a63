#include "session_internal.h"
#include "../../base/clock.h"
#include "../base/metrics.h"
#include "unread.h"
#include "../config/config.h"
#include "../base/loop.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

const char *session_kind_name(enum session_kind kind)
{
	static const char *const names[] = {
		[SESSION_WORKER] = "worker", [SESSION_ADMIN] = "admin", [SESSION_LOADER] = "loader"};

	return names[kind];
}

/* ---- the socket ---- */

static void session_receive(struct session *s)
{
	struct packet *packet = &s->net->packet;
	int r;

	s->net->received_ns = clock_steady_ns();
	r = packet_receive(s->sock, s->kind == SESSION_LOADER, packet);
	if (r == -EAGAIN)
		return;
	if (r <= 0) {
		session_end(s);
		return;
	}
	s->net->above->received(s, packet);
	packet_drop(packet);
}

static void on_socket(struct fair_watch *watch, uint32_t events)
{
	struct session *s = fair_owner(watch, struct session, io);
	bool reads = watch->events & WATCH_READ;

	if (s->ended)
		return;
	if (!reads && events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
		session_end(s);
		return;
	}
	if (events & EPOLLOUT)
		session_flush(s);
	if (reads && events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !s->out && !s->finishing && !s->ended)
		session_receive(s);
}

void session_watch(struct session *s, uint32_t events)
{
	if (!s->ended && fair_watch(s->share, &s->io, events) < 0)
		session_end(s);
}

/* The socket may be held open by a child of a peer that is gone. */
static void on_death(struct fair_watch *watch, uint32_t events)
{
	struct session *s = fair_owner(watch, struct session, death);

	(void)events;
	s->dead = true;
	fair_forget(watch);
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

static bool try_again(struct fair_task *task)
{
	session_flush(fair_owner(task, struct session, task));
	return false;
}

static int watch_peer(struct session *s, struct error *error)
{
	int r = fair_watch(s->share, &s->io, WATCH_READ);

	if (r < 0)
		return watching_failed(r, "the connection", error);
	s->death.fd = s->peer.pidfd;
	if (s->peer.pidfd < 0) /* the socket's end has to do */
		return 0;
	r = fair_watch(s->share, &s->death, EPOLLIN);
	return r < 0 ? watching_failed(r, "the peer's process", error) : 0;
}

/* In its share's turn: who the peer is costs more than all that a connection has cost so far. */
static bool session_arrive(struct fair_task *task)
{
	struct session *s = fair_owner(task, struct session, task);
	struct error error;
	int r = peer_look(s->sock, &s->peer);

	task->call = try_again;
	if (s->ended)
		return false;
	if (r < 0)
		error_set(&error, r, NULL, "gpuwmd could not identify the peer: %s", strerror(-r));
	else
		r = watch_peer(s, &error);
	if (r < 0) {
		metrics_refused(s->net->metrics, refused_connect, r);
		session_refuse(s, NULL, &error);
		session_finish(s);
		return false;
	}
	s->net->above->identified(s);
	return false;
}

/* Takes the peer's uid alone, whose share and limits count from here on. session_arrive() looks up the rest. */
static int admit(struct session *s, struct error *error)
{
	struct net *net = s->net;
	int r = peer_credentials(s->sock, &s->peer);

	if (r < 0)
		return error_set(error, r, NULL, "gpuwmd could not identify the peer: %s", strerror(-r));
	if (net->stopping)
		return net_refuse_stopping(error);
	/* Who operates gets in, to see whose workers have taken all that there is. */
	if (net->session_count + unread_leftovers(net->unread) >=
	    net->config->sessions + (s->kind == SESSION_ADMIN ? ADMIN_SESSIONS_MORE : 0))
		return error_set(error, -EDQUOT, "sessions in [limits] of gpuwmd's configuration changes it",
				 "gpuwmd has all %llu connections that it may have",
				 (unsigned long long)net->config->sessions);
	if (s->kind == SESSION_WORKER)
		r = quota_charge(net->quota, s->peer.uid, QUOTA_SESSIONS, &s->charge, error);
	if (r < 0)
		return r;
	s->times = metrics_user(net->metrics, s->peer.uid);
	s->share = s->kind == SESSION_WORKER ? fair_join(net->fair, s->peer.uid) : fair_join_first(net->fair);
	return s->share ? 0 : error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory or descriptors");
}

/* A socketpair, or a service's: the peer that the kernel names is not the loader. */
static int admit_loader(struct session *s, struct error *error)
{
	int r;

	s->times = &s->net->metrics->operators;
	s->share = fair_join_first(s->net->fair);
	s->net->above->identified(s);
	r = fair_watch(s->share, &s->io, WATCH_READ);
	return r < 0 ? watching_failed(r, "the connection", error) : 0;
}

static void session_free(struct session *s)
{
	if (s->client)
		s->net->above->ended(s);
	fair_undue(&s->task);
	fair_forget(&s->io);
	fair_forget(&s->death);
	fair_leave(s->share);
	quota_release(&s->charge);
	peer_clear(&s->peer);
	free(s);
}

int session_new(struct net *net, int sock, enum session_kind kind, struct session **ret_session)
{
	struct session *s = calloc(1, sizeof(*s));
	struct error error = {.code = -ENOMEM, .message = "gpuwmd is out of memory"};
	int r = -ENOMEM;

	if (!s) {
		session_turn_away(sock, &error);
		return r;
	}
	s->net = net;
	s->kind = kind;
	s->sock = s->io.fd = sock;
	s->io.call = on_socket;
	s->death.call = on_death;
	s->task.call = session_arrive;
	s->peer.pidfd = -1;
	r = net->above->begun(net, s);
	if (r == 0)
		r = kind == SESSION_LOADER ? admit_loader(s, &error) : admit(s, &error);
	if (r < 0) {
		session_turn_away(sock, &error);
		session_free(s);
		return r;
	}
	s->id = ++net->last_session;
	s->since_ms = clock_wall_ms();
	DL_PREPEND(net->sessions, s);
	net->session_count += kind != SESSION_LOADER;
	if (kind != SESSION_LOADER)
		fair_due(s->share, &s->task);
	*ret_session = s;
	return 0;
}

/* ---- ending ---- */

void session_end(struct session *s)
{
	if (s->ended)
		return;
	s->ended = true;
	s->next_ended = s->net->ended_sessions;
	s->net->ended_sessions = s;
}

void session_finish(struct session *s)
{
	s->finishing = true;
	if (!s->out)
		session_end(s);
}

void session_goodbye(struct session *s)
{
	struct net *net = s->net;

	fair_undue(&s->task);
	fair_forget(&s->io);
	fair_forget(&s->death);
	crowded_remove(s);
	s->net->above->ended(s);
	s->client = NULL;
	while (s->out)
		outgoing_pop(s);
	if (s->finishing)
		throw_away(s->sock);
	if (!unread_take_over(s))
		close(s->sock);
	DL_DELETE(net->sessions, s);
	net->session_count -= s->kind != SESSION_LOADER;
	session_free(s);
}
