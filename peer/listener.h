/* Peers that connect: the listening socket. */
#ifndef GPUWM_PEER_LISTENER_H
#define GPUWM_PEER_LISTENER_H

#include "places.h"
#include "serve.h"

/* The port of gpuwm-peer, and a thread for each connection. */

struct listener {
	struct server server;
	int fd;
	struct places places;
	pthread_mutex_t lock; /* guards the members below, which a reload changes */
	struct peer_keys *keys;
	struct peer_settings settings; /* `names` says which nodes may take */
	uint64_t sent; /* bytes of all takes that have ended */
};

/* Fills *listener, which owns settings and keys afterwards. */
void listener_begin(struct listener *listener, const struct server *server, int fd,
		    struct peer_settings *settings, struct peer_keys *keys);
/* New connections use these settings and keys from now on. The listener owns both afterwards. */
void listener_change(struct listener *listener, struct peer_settings *settings, struct peer_keys *keys);

/* Accepts the connections that wait, and starts a thread for each. */
void listener_accept(struct listener *listener);
/* Closes the port, and waits up to STOP_MS until all connections have ended. Then ends the others. */
void listener_end(struct listener *listener);

#endif
