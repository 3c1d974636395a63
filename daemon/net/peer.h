/* Who is at the other end of a connection: asked of the kernel once, at accept. */
#ifndef GPUWM_DAEMON_PEER_H
#define GPUWM_DAEMON_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum role {
	ROLE_WORKER = 1 << 0,
	ROLE_PUBLISHER = 1 << 1,
	ROLE_OPERATOR = 1 << 2,
	ROLE_LOADER = 1 << 3,
	ROLE_OBSERVER = 1 << 4,
};
/* "worker"; one role only. */
const char *role_name(enum role role);

#define PEER_COMMAND_BYTES 16 /* TASK_COMM_LEN */

struct peer {
	pid_t pid; /* 0: of another PID namespace. Told to people, never a key */
	uid_t uid;
	gid_t gid;
	int pidfd; /* -1: this kernel has none (SO_PEERPIDFD, 6.5) or the peer is gone */
	char command[PEER_COMMAND_BYTES + 1];
};

/* Who connected: pid, uid and gid of the connected socket's peer, which is cheap. -errno. */
int peer_credentials(int sock, struct peer *ret);
/* Fills in the pidfd and the command. -EMFILE, -ENFILE. */
int peer_look(int sock, struct peer *peer);
/* Closes the pidfd. Twice is fine. */
void peer_clear(struct peer *peer);

/* All groups of the connected socket's peer but the primary one, by the kernel; malloced. -ENOMEM and others. */
int peer_groups(int sock, gid_t **ret_groups, size_t *ret_count);
/* Whether the group is the peer's primary or one of its supplementary groups. */
bool peer_in_group(int sock, const struct peer *peer, gid_t group);

#endif
