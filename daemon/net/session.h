/* One connection of one peer: packets in, packets out, in order.
 *
 * All that a session does is done in its user's share of the loop's time: packets, events, its end. What costs much
 * when it begins (who the peer is) is left to the share's turn too. A packet is read only while nothing waits to be
 * sent. A packet with descriptors waits until the peer has read all that came before it. The end comes in two steps:
 * session_end marks it from anywhere; net_settle says goodbye, once, which undoes what the peer held and frees the
 * session. */
#ifndef GPUWM_DAEMON_SESSION_H
#define GPUWM_DAEMON_SESSION_H

#include "../../proto/limits.h"
#include "fair.h"
#include "peer.h"
#include "../base/quota.h"

struct client;
struct error;
struct net;
struct outgoing;
struct unread_user;

enum session_kind { SESSION_WORKER, SESSION_ADMIN, SESSION_LOADER };

struct session {
	struct net *net;
	struct client *client; /* what the floors above know of the peer; this one does not look inside */
	struct session *next, **link;
	struct session *next_ended;
	uint64_t id;
	enum session_kind kind;
	struct peer peer;
	struct quota_charge charge;
	uint64_t since_ms;

	int sock;
	struct fair_share *share;
	struct fair_watch io, death; /* the socket; the pidfd */
	struct fair_task task; /* what it does next without an event: find out its peer, or send again */
	struct outgoing *out, **out_end;
	unsigned fds_sent; /* descriptors since the socket was last seen to be empty; unread.h counts them */
	struct unread_user *unread_of; /* NULL: it has none */
	struct session *next_unread, **link_unread;
	uint64_t crowded_since; /* steady ms: the kernel refuses more descriptors in flight; 0: no */
	struct session *next_crowded, **link_crowded; /* crowded.h; NULL: it is not in its list */
	bool finishing; /* ends when all is sent; reads no more */
	bool ended; /* session_end was called: goodbye is due */
	bool dead; /* its process is gone */
};

/* Takes the socket over in any case. A worker's or an operator's connection is charged to its uid; the rest of the
 * peer's identity is asked for in its share's turn. -EDQUOT and others: the peer was told, the socket is closed. */
int session_new(struct net *net, int sock, enum session_kind kind, struct session **ret_session);

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

/* Drops the reply that grants this lease, if the reply still waits to be sent. Returns true and the id of the request,
 * which the caller must answer; false if the reply was sent. */
bool session_withdraw(struct session *session, uint64_t lease, uint64_t *ret_request);

/* Sends an error as the answer to the request `id`, or to no request if `id` is NULL. -ENOMEM: nothing was sent. */
int session_refuse(struct session *session, const uint64_t *id, const struct error *error);

/* Ends when all that was sent has been handed to the kernel. */
void session_finish(struct session *session);
/* Ends; what the peer holds is undone before the loop sleeps. */
void session_end(struct session *session);

/* For net_settle: goodbye to a session that has ended. Its pointer is dead. */
void session_goodbye(struct session *session);
/* Sends a packet that nobody answers, such as an event, if the socket takes it now: true. False: it does not, or the
 * session ends; net_above.flushed is called once the socket takes more. */
bool session_offer(struct session *session, const void *data, size_t bytes);
/* The peer may have read: go on with what waits. */
void session_flush(struct session *session);

/* Tells an error to a connection that is no session, and closes it. */
void session_turn_away(int sock, const struct error *error);

#endif
