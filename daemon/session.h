/* One connection of one peer: packets in, packets out, in order.
 *
 * A packet is read only while nothing waits to be sent. A packet with
 * descriptors waits until the peer has read all that came before it. The end comes in three
 * steps: session_end marks it from anywhere; the server's settling says goodbye, once, which
 * undoes what the peer held; the memory goes after the last libuv handle is closed. */
#ifndef GPUWM_DAEMON_SESSION_H
#define GPUWM_DAEMON_SESSION_H

#include "../proto/limits.h"
#include "peer.h"
#include "quota.h"

#include <uv.h>

struct server;
struct claim;
struct lease;
struct loader;
struct waiter;
struct outgoing;

enum session_kind { SESSION_WORKER, SESSION_ADMIN, SESSION_LOADER };

struct session {
	struct server *server;
	struct session *next, **link;
	struct session *next_ended;
	uint64_t id;
	enum session_kind kind;
	unsigned roles;
	struct peer peer;
	struct quota_charge charge;
	char name[NAME_BYTES_MAX + 1]; /* what hello said */
	bool greeted;
	uint64_t since_ms, requests;
	uint64_t heard_ms; /* steady: its last request */

	int sock;
	uv_poll_t poll, death; /* the socket; the pidfd */
	unsigned handles; /* of libuv, not closed yet */
	int watched; /* what poll watches now */
	struct outgoing *out, **out_end;
	bool unread_watched; /* waits for the peer to read */
	unsigned fds_sent; /* descriptors since the socket was last seen to be empty */
	uint64_t crowded_since; /* steady ms: the kernel refuses more descriptors in flight; 0: no */
	bool finishing; /* ends when all is sent; reads no more */
	bool ended, departed; /* session_end was called; goodbye is done */
	bool dead; /* its process is gone */

	bool subscribed;
	uint64_t event_seq; /* the last that was sent */

	struct lease *leases;
	struct waiter *waiters;
	unsigned waiter_count;
	struct claim *claims;
	struct loader *loader; /* of SESSION_LOADER */
};

/* Takes the socket over in any case. Workers and admins are identified, and
 * charged for; -EDQUOT and others: they were told, the socket is closed. */
int session_new(struct server *server, int sock, enum session_kind kind, struct session **ret_session);

/* What to send. */
struct parcel {
	const void *data;
	size_t bytes;
	const int *fds;
	size_t fd_count;
	bool close_fds; /* they are ours to close once sent, or not */
	/* A reply that grants a lease: taken back where the descriptors can't go. */
	uint64_t lease, request;
};
/* Sends, or keeps for later (a copy; descriptors that are not ours must stay
 * open while the session has a lease on them). What can't be sent ends the session. */
void session_send(struct session *session, const struct parcel *parcel);

/* Ends when all that was sent has been handed to the kernel. */
void session_finish(struct session *session);
/* Ends; what the peer holds is undone before the loop sleeps. */
void session_end(struct session *session);

/* For the server: goodbye, now. */
void session_goodbye(struct session *session);
/* Events that are due, as far as the socket takes them. */
void session_tell_events(struct session *session);
/* The peer may have read: go on with what waits. */
void session_flush(struct session *session);

/* Tells an error to a connection that is no session, and closes it. */
struct error;
void session_turn_away(int sock, const struct error *error);

#endif
