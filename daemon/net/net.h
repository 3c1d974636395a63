/* What all connections share. Bytes and descriptors go in and out on this floor; what they mean is for the floors above,
 * which the functions of struct net_above belong to. */
#ifndef GPUWM_DAEMON_NET_H
#define GPUWM_DAEMON_NET_H

#include "../../proto/errors.h"
#include "../../proto/message.h"
#include "../../proto/packet.h"

#include <uv.h>

struct net;
struct complaints;
struct config;
struct crowded;
struct discard;
struct fair;
struct pace;
struct quota;
struct session;
struct unread;

/* What happens to a session. All are called on the loop, in the session's share of its time. */
struct net_above {
	/* It begins. Sets session->client, which `ended` frees. -ENOMEM: it is refused. */
	int (*begun)(struct net *net, struct session *session);
	/* Its peer is known now. */
	void (*identified)(struct session *session);
	/* A packet came. Descriptors that are not taken out of it stay the packet's. */
	void (*received)(struct session *session, struct packet *packet);
	/* All that was sent has been handed to the kernel. */
	void (*flushed)(struct session *session);
	/* The reply to the request `request`, which grants a lease, could not be sent with its descriptors. */
	void (*unsendable)(struct session *session, uint64_t lease, uint64_t request);
	/* It has ended: what its peer held is undone. Called once for each session whose `begun` succeeded. */
	void (*ended)(struct session *session);
};

struct net {
	uv_loop_t *loop;
	const struct config *config;
	struct quota *quota;
	const struct net_above *above;
	void *data; /* of the floors above */

	struct session *sessions;
	struct session *ended_sessions; /* goodbye is due */
	uint64_t session_count; /* without loaders */
	uint64_t last_session;
	bool stopping; /* gpuwmd ends: no new sessions */

	struct fair *fair; /* the loop's time, by user */
	struct crowded *crowded;
	struct discard *discard;
	struct unread *unread;
	struct complaints *complaints;
	struct pace *connects; /* new connections, by user */

	struct message_memory answer; /* for answers up to a packet's size, so that they need no memory later */
	char answer_data[PACKET_BYTES_MAX];
	struct packet packet; /* one for all sessions */
	uint8_t packet_data[PACKET_BYTES_MAX + 1];
};

/* The caller has set the first members, up to `data`. -ENOMEM: too little memory, or too few descriptors; net_close and
 * net_clear are called all the same. */
int net_init(struct net *net);
/* Closes the loop's handles, once all sessions have gone. */
void net_close(struct net *net);
/* Frees the rest, after the loop. */
void net_clear(struct net *net);

/* Says goodbye to the sessions that have ended. */
void net_settle(struct net *net);
/* Ends all sessions but loaders' when what was sent to them has been handed to the kernel. */
void net_finish(struct net *net);
/* Ends all sessions now. */
void net_end(struct net *net);
/* What a gpuwmd that stops says to whatever comes or waits: -ECONNRESET. */
int net_refuse_stopping(struct error *error);

#endif
