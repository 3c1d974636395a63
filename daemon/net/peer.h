/* The process at the other end of a connection, as the kernel names it. gpuwmd asks once. */
#ifndef GPUWM_DAEMON_PEER_H
#define GPUWM_DAEMON_PEER_H

#include "../../base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum role {
	ROLE_WORKER = 1 << 0,
	ROLE_PUBLISHER = 1 << 1,
	ROLE_OPERATOR = 1 << 2,
	ROLE_LOADER = 1 << 3,
	ROLE_OBSERVER = 1 << 4,
};
/* Returns the name of one role, as "worker". */
const char *role_name(enum role role);

#define PEER_COMMAND_BYTES 16 /* TASK_COMM_LEN */

struct peer {
	pid_t pid; /* 0: of another PID namespace. It is for people, and identifies a process only with `started` */
	uint64_t started; /* base/pids.h; 0: nobody has asked yet, or nobody knows */
	uid_t uid;
	gid_t gid;
	int pidfd; /* -1: this kernel has none (SO_PEERPIDFD, 6.5) or the peer is gone */
	char command[PEER_COMMAND_BYTES + 1];
};

/* Returns its pid as messages tell it: 0 where it has none here. */
uint64_t peer_pid(const struct peer *peer);
/* Sets pid, uid and gid of the process that connected, which is cheap. Fails with -errno. */
int peer_credentials(int sock, struct peer *ret);
/* Sets the pidfd and the command. Fails with -EMFILE and -ENFILE. */
int peer_look(int sock, struct peer *peer);
/* Returns a new pidfd of the process that connected, which the caller closes. A copy of peer->pidfd would be the same open file, of
 * which the service manager keeps one descriptor only. Fails with -errno. */
int peer_pidfd(int sock);
/* Closes the pidfd. A second call does nothing. */
void peer_clear(struct peer *peer);

/* Sets *ret_groups to the supplementary groups of the peer, which the caller frees. Fails with -ENOMEM and other -errno. */
int peer_groups(int sock, gid_t **ret_groups, size_t *ret_count);
/* Returns whether the group is the peer's primary group or one of its supplementary groups. */
bool peer_in_group(int sock, const struct peer *peer, gid_t group);

/* ---- its unit ----
 * Which systemd unit or container a peer belongs to, by its control group. */

/* Sets `unit` to the outermost unit that the peer's control group names ("train.service", "docker-….scope"), which is the one that the
 * host's service manager made. If there is none, sets it to the last part of the path, as of a container that has no unit. "": the
 * peer has exited, is of another PID namespace, or is in no group.
 *
 * Reads one file of /proc, which waits for no disk and no other process. */
void peer_unit(const struct peer *peer, char unit[NAME_BYTES_MAX + 1]);

/* The same for the text of /proc/PID/cgroup, which is changed. */
void peer_unit_of(char *text, char unit[NAME_BYTES_MAX + 1]);

#endif
