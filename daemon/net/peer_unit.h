/* Which systemd unit or container a peer belongs to, by its control group. */
#ifndef GPUWM_DAEMON_PEER_UNIT_H
#define GPUWM_DAEMON_PEER_UNIT_H

#include "../../base/limits.h"
#include "peer.h"

/* Sets `unit` to the outermost unit that the peer's control group names ("train.service", "docker-….scope"), which is the one that the
 * host's service manager made. If there is none, sets it to the last part of the path, as of a container that has no unit. "": the
 * peer has exited, is of another PID namespace, or is in no group.
 *
 * Reads one file of /proc, which waits for no disk and no other process. */
void peer_unit(const struct peer *peer, char unit[NAME_BYTES_MAX + 1]);

/* The same for the text of /proc/PID/cgroup, which is changed. */
void peer_unit_of(char *text, char unit[NAME_BYTES_MAX + 1]);

#endif
