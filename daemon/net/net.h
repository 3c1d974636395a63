/* What all connections share. This floor receives and sends bytes and descriptors. The floors above know what they mean, and give
 * this floor the functions of struct net_above. */
#ifndef GPUWM_DAEMON_NET_H
#define GPUWM_DAEMON_NET_H

#include "../../base/errors.h"
#include "../../proto/wire/message.h"
#include "../../proto/wire/packet.h"
#include "../../base/limits.h"

#include <uv.h>

struct net;
struct complaints;
struct config;
struct crowded;
struct discard;
struct fair;
struct metrics;
struct pace;
struct quota;
struct session;
struct unread;

/* What happens on a connection. The loop calls these functions in the time of the session's share. */
struct net_above {
	/* A session begins. Sets session->client, which `ended` frees. Fails with -ENOMEM: the connection is refused. */
	int (*begun)(struct net *net, struct session *session);
	/* session->peer is set now. */
	void (*identified)(struct session *session);
	/* A packet has come. It still owns the descriptors that this function does not take. */
	void (*received)(struct session *session, struct packet *packet);
	/* The kernel has taken everything that was sent. */
	void (*flushed)(struct session *session);
	/* The reply to the request `request`, which grants a lease, could not be sent with its descriptors. */
	void (*unsendable)(struct session *session, uint64_t lease, uint64_t request);
	/* The session has ended. Gives back what its peer held. Called once for each session whose `begun` succeeded. */
	void (*ended)(struct session *session);
};

struct net {
	uv_loop_t *loop;
	const struct config *config;
	struct quota *quota;
	const struct net_above *above;
	void *data; /* of the floors above */

	struct session *sessions;
	struct session *ended_sessions; /* `ended` is due for them */
	uint64_t session_count; /* leaves out loaders */
	uint64_t last_session;
	bool stopping; /* gpuwmd ends, and takes no new sessions */

	struct fair *fair; /* the loop's time, by user */
	struct crowded *crowded;
	struct discard *discard;
	struct unread *unread;
	struct complaints *complaints;
	struct pace *connects; /* new connections, by user */
	struct metrics *metrics;
	uint64_t received_ns; /* steady: when gpuwmd began to receive the packet */

	/* Its memory is allocated at start, so that an answer of up to a packet's size needs no memory later. */
	struct message_memory answer;
	char answer_data[PACKET_BYTES_MAX];
	struct packet packet; /* one for all sessions */
	uint8_t packet_data[PACKET_BYTES_MAX + 1];
};

/* Makes the other members; the caller has set those up to `data`. Fails with -ENOMEM if memory or descriptors are short; the caller
 * calls net_close and net_clear all the same. */
int net_init(struct net *net);
/* Closes the handles of the loop. Call it when all sessions have gone. */
void net_close(struct net *net);
/* Frees the rest. Call it after the loop has ended. */
void net_clear(struct net *net);

/* Calls `ended` for the sessions that have ended, and frees them. */
void net_settle(struct net *net);
/* Ends each session but loaders' as soon as the kernel has taken what was sent to it. */
void net_finish(struct net *net);
/* Ends all sessions now. */
void net_end(struct net *net);
/* Sets the error for requests that come or wait while gpuwmd stops. Returns -ECONNRESET. */
int net_refuse_stopping(struct error *error);

/* ---- refused connections: discard.c ----
 * Closes sockets of refused connections on the thread pool. Closing a socket frees everything that its peer has sent, and a peer
 * can make that take up to 0.1 ms. */

/* Returns NULL if there is no memory. */
struct discard *discard_new(uv_loop_t *loop);
/* Closes the sockets that wait. The memory is freed when the thread pool has ended its work. Returns NULL; NULL is fine. */
struct discard *discard_free(struct discard *discard);

/* Takes the socket over and closes it later. */
void discard_socket(struct discard *discard, int sock);

#endif
