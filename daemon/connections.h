/* What the floors above net do with what happens on a connection. */
#ifndef GPUWM_DAEMON_CONNECTIONS_H
#define GPUWM_DAEMON_CONNECTIONS_H

#include "net/net.h"

/* For a net whose data is the server. */
extern const struct net_above connections;

#endif
