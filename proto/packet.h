/* Packets over SOCK_SEQPACKET with descriptors: the only place in the tree
 * that calls sendmsg and recvmsg. */
#ifndef GPUWM_PROTO_PACKET_H
#define GPUWM_PROTO_PACKET_H

#include "limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for one packet. `data` is the caller's, of PACKET_BYTES_MAX + 1 bytes
 * (one more, so that an oversized packet shows); a daemon needs one for all
 * sessions. The descriptors belong to the packet until packet_take_fd. */
struct packet {
	uint8_t *data;
	size_t bytes;
	int fds[PACKET_FDS_MAX];
	size_t fd_count;
	bool cut; /* the packet was larger than PACKET_BYTES_MAX */
	bool fds_cut; /* descriptors came where none are taken, or more than fit */
};

/* Connects a socket to the process that listens at `path`. If a signal interrupts connect(2), calls it again: an AF_UNIX
 * socket has done nothing then. -ENAMETOOLONG: the path is longer than the 107 bytes that the kernel takes; any other
 * -errno of connect(2). */
int packet_connect(int sock, const char *path);

/* Sends one packet, never partly, never blocking (MSG_DONTWAIT, no SIGPIPE).
 * The caller keeps the descriptors. 0, -EAGAIN, -EPIPE, -ETOOMANYREFS (the
 * peers of this user leave too many descriptors unread), other -errno;
 * -EMSGSIZE above the limits. */
int packet_send(int sock, const void *data, size_t bytes, const int *fds, size_t fd_count);

/* Receives one packet without blocking. With take_fds false there is no room
 * for descriptors and the kernel drops them. All that arrive are
 * close-on-exec. 1: a packet (check cut and fds_cut; where fds_cut is set the
 * descriptors that did arrive are closed already); 0: end of the connection
 * (an empty packet reads the same and is treated so); -EAGAIN; -errno.
 * ECONNRESET is reported as the end of the connection. */
int packet_receive(int sock, bool take_fds, struct packet *packet);

/* Hands descriptor `position` over to the caller, once. -EBADMSG when the
 * packet has no such descriptor or it was taken. */
int packet_take_fd(struct packet *packet, uint64_t position, int *ret_fd);

/* Closes what was not taken. Twice is fine. */
void packet_drop(struct packet *packet);

/* True while the peer has not read everything that was sent (SIOCOUTQ): a
 * reply with descriptors waits for that. */
bool packet_unread(int sock);

#endif
