/* One connection of one peer: packets come in and go out in order.
 *
 * A session does everything in its user's share of the loop's time: packets, events, and its end. Finding out who the peer is costs
 * much, so that waits for the share's turn too. The session reads a packet only if nothing waits to be sent. A packet with
 * descriptors waits until the peer has read everything before it. A session ends in two steps: any code may mark it with
 * session_end; then net_settle gives back what the peer held, and frees the session. */
#ifndef GPUWM_DAEMON_SESSION_H
#define GPUWM_DAEMON_SESSION_H

#include "../../base/limits.h"
#include "fair.h"
#include "peer.h"
#include "../base/quota.h"

struct client;
struct error;
struct net;
struct outgoing;
struct unread_user;
struct user_times;

enum session_kind { SESSION_WORKER, SESSION_ADMIN, SESSION_LOADER };
/* Returns the name of its socket: "worker", "admin" or "loader". */
const char *session_kind_name(enum session_kind kind);

struct session {
	struct net *net;
	struct client *client; /* what the floors above know of the peer; this floor does not look inside */
	struct session *prev, *next;
	struct session *next_ended;
	uint64_t id;
	enum session_kind kind;
	struct peer peer;
	struct quota_charge charge;
	struct user_times *times; /* its user's; NULL: gpuwmd does not know the user yet */
	uint64_t since_ms;

	int sock;
	struct fair_share *share;
	struct fair_watch io, death; /* the socket; the pidfd */
	struct fair_task task; /* what it does next without an event: identify its peer, or try to send again */
	struct outgoing *out;
	unsigned fds_sent; /* descriptors since the socket was last seen to be empty; unread.h counts them */
	struct unread_user *unread_of; /* NULL: it has none */
	struct session *prev_unread, *next_unread;
	uint64_t crowded_since; /* steady ms: the kernel refuses more descriptors in flight; 0: no */
	struct session *prev_crowded, *next_crowded; /* unread.h; NULL: it is not in its list */
	bool finishing; /* it reads no more, and ends when everything is sent */
	bool ended; /* session_end was called */
	bool dead; /* its process has exited */
};

/* Makes a session of a socket, which it takes over in any case. Charges the connection of a worker or operator to its user; the
 * session identifies its peer further in its share's turn. Fails with -EDQUOT and others: it has then sent the error to the
 * peer, and closed the socket. */
int session_new(struct net *net, int sock, enum session_kind kind, struct session **ret_session);

/* A packet to send. */
struct parcel {
	const void *data;
	size_t bytes;
	const int *fds;
	size_t fd_count;
	bool close_fds; /* session_send takes the descriptors over, and closes them */
	/* Of a reply that grants a lease, which gpuwmd takes back if the kernel does not take the descriptors. */
	uint64_t lease, request;
};
/* Closes the descriptors of a parcel that is not sent, if it was to take them over. */
void parcel_close_fds(const struct parcel *parcel);
/* Sends a packet now, or keeps a copy and sends it later. Without close_fds the descriptors must stay open as long as the session
 * has the lease. If a packet can't be sent, the session ends. */
void session_send(struct session *session, const struct parcel *parcel);

/* Drops the reply that grants this lease, if the reply still waits to be sent. Returns true and the id of the request,
 * which the caller must answer; false if the reply was sent. */
bool session_withdraw(struct session *session, uint64_t lease, uint64_t *ret_request);

/* Sends an error as the answer to the request `id`, or to no request if `id` is NULL. Fails with -ENOMEM: nothing was sent. */
int session_refuse(struct session *session, const uint64_t *id, const struct error *error);

/* Ends the session as soon as the kernel has taken everything that was sent. */
void session_finish(struct session *session);
/* Ends the session. net_settle gives back what the peer holds, before the loop sleeps. */
void session_end(struct session *session);

/* For net_settle: gives back what the peer of an ended session held, and frees the session. */
void session_goodbye(struct session *session);
/* Sends a packet that nobody answers, such as an event, if the socket takes it now: true. False: it does not, or the
 * session ends; net_above.flushed is called once the socket takes more. */
bool session_offer(struct session *session, const void *data, size_t bytes);
/* The peer may have read: go on with what waits. */
void session_flush(struct session *session);

/* Tells an error to a connection that is no session, and closes it. */
void session_turn_away(int sock, const struct error *error);

#endif
