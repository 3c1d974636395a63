/* The server's part of the lanes of wire_tls.c: a connection that asked to be one. */
#ifndef GPUWM_PEER_WIRE_TLS_H
#define GPUWM_PEER_WIRE_TLS_H

#include "wire.h"

struct tls_lane;

/* Finds the take whose secret this is, for a connection that asks to be one of its lanes. Returns NULL if there is none: it has ended, it has all the
 * lanes that it may have, or nobody had this secret. The caller passes what it got to tls_lane_run once. Any thread. */
struct tls_lane *tls_lane_enter(const char *secret, struct link *link);
/* With `answered`, sends the take's pieces over the link until the take has ended, or the link has. Afterwards the link is of no use. */
void tls_lane_run(struct tls_lane *lane, bool answered);

#endif
