/* From a packet to its method: one table says who may call what, and generic
 * code checks all that it says. */
#ifndef GPUWM_DAEMON_DISPATCH_H
#define GPUWM_DAEMON_DISPATCH_H

struct server;
struct session;
struct packet;

/* Handles one packet. Descriptors that no handler took stay the packet's. */
void dispatch_packet(struct server *server, struct session *session, struct packet *packet);

#endif
