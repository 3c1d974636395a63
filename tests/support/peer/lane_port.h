/* A port of this process at which lanes of TLS are served: hello and `lane`, and no version. */
#ifndef TESTS_SUPPORT_PEER_LANE_PORT_H
#define TESTS_SUPPORT_PEER_LANE_PORT_H

#include "peer/link.h"

#include <stdbool.h>

struct lane_port {
	struct peer_keys *keys; /* for both sides; owned by the port */
	struct link_target target;
	/* Serves a connection in the place of the port, which closes the link afterwards. number: 0 for the first one. NULL: the port serves. */
	void (*instead)(struct link *link, unsigned number);
	bool silent; /* connections are accepted, and nothing is said on them */
};

/* Sets keys and target, and begins to serve, with a secret of its own. clear: those that want it are not encrypted. */
void lane_port_begin(struct lane_port *port, bool clear);
/* Ends when the last lane has. */
void lane_port_end(struct lane_port *port);

#endif
