/* Packets over SOCK_SEQPACKET with descriptors: the only place in the tree
 * that calls sendmsg and recvmsg. */
#ifndef GPUWM_PROTO_PACKET_H
#define GPUWM_PROTO_PACKET_H

#include "../../base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for one packet. The caller owns `data`, which has PACKET_BYTES_MAX + 1 bytes: one more, so
 * that an oversized packet shows. A daemon needs one packet for all sessions. The descriptors
 * belong to the packet until packet_take_fd. */
struct packet {
	uint8_t *data;
	size_t bytes;
	int fds[PACKET_FDS_MAX];
	size_t fd_count;
	bool cut; /* the packet was larger than PACKET_BYTES_MAX */
	bool fds_cut; /* descriptors came where none are accepted, or more than fit */
};

/* Connects a socket to the process that listens at `path`. If a signal interrupts connect(2), the
 * function calls it again, since an AF_UNIX socket has done nothing then. Returns 0. Fails with
 * -ENAMETOOLONG if the path is longer than the 107 bytes that the kernel takes, and with any other
 * errno of connect(2). */
int packet_connect(int sock, const char *path);

/* Sends one packet, whole or not at all. It never blocks and raises no SIGPIPE. The caller keeps
 * the descriptors.
 *
 * Returns 0. Fails with -EMSGSIZE above the limits, -EAGAIN, -EPIPE, -ETOOMANYREFS (the peers of
 * this user leave too many descriptors unread), or another errno. */
int packet_send(int sock, const void *data, size_t bytes, const int *fds, size_t fd_count);

/* Receives one packet without blocking. If take_fds is false, there is no room for descriptors and
 * the kernel drops them. All descriptors that arrive are close-on-exec.
 *
 * Returns 1 for a packet; then look at `cut` and `fds_cut`. If fds_cut is set, the descriptors that
 * did arrive are closed already. Returns 0 at the end of the connection; ECONNRESET counts as that,
 * and so does an empty packet, which reads the same. Fails with -EAGAIN or another errno. */
int packet_receive(int sock, bool take_fds, struct packet *packet);

/* Hands the descriptor at `position` over to the caller. Returns 0 and sets *ret_fd. Fails with
 * -EBADMSG if the packet has no such descriptor, or if it was taken already. */
int packet_take_fd(struct packet *packet, uint64_t position, int *ret_fd);

/* Closes the descriptors that were not taken. It may be called twice. */
void packet_drop(struct packet *packet);

/* Returns whether the peer has not read everything yet that was sent (SIOCOUTQ). A reply with
 * descriptors waits for that. */
bool packet_unread(int sock);

#endif
