/* Publishers that died before their commit: what they were granted returns when
 * the process is really gone, which its pidfd tells after its socket. */
#ifndef GPUWM_DAEMON_MOURNING_H
#define GPUWM_DAEMON_MOURNING_H

#include "segment.h"

struct server;

/* Drops one use of the grant when the process behind pidfd has exited. The
 * pidfd stays the caller's. -1, or out of memory: at once. */
void mourn(struct server *server, int pidfd, struct grant *grant);

/* At the end of the server: all of them, at once. */
void mourning_end(struct server *server);

#endif
