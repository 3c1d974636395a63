/* The connection between two keepers, the one that hands over and the one that takes over: packets of text and
 * descriptors. hand_over.h and take_over.h say which packets there are. */
#ifndef GPUWM_KEEPER_LINK_H
#define GPUWM_KEEPER_LINK_H

#include "../proto/wire/packet.h"

/* The new keeper says: */
#define LINK_ASK "TAKE-OVER" /* and the protocol's number, its --store-max, its --generation */
#define LINK_TAKEN "TAKEN" /* the new keeper's program has adopted the store */
#define LINK_BACK                                                                                              \
	"BACK" /* and why: the new keeper's program has ended, and the store belongs to the old keeper */
/* The old keeper says: */
#define LINK_NO "NO" /* and why: the store belongs to the old keeper */
#define LINK_BEGIN "BEGIN" /* with the take-over socket and its lock */
#define LINK_STORE "STORE" /* and a line with a name for each descriptor that comes with the packet */
#define LINK_END "END" /* and the number of all descriptors */
#define LINK_YOURS "YOURS" /* the answer to TAKEN: the store belongs to the new keeper */
#define LINK_MINE "MINE" /* and why: the answer to BACK */

/* A keeper of another protocol is refused, and named. */
#define LINK_PROTOCOL 1

struct link {
	int sock; /* -1: none */
	struct packet packet; /* the last one that was received */
	char text[PACKET_BYTES_MAX + 1]; /* its text, with a terminating zero */
};

void link_open(struct link *link, int sock);
void link_close(struct link *link);

/* Sends a word and a text behind it, without waiting. Returns 0. Fails with -errno, as packet_send. */
int link_say(const struct link *link, const char *word, const char *text);

/* The same for the last word, which must arrive also if the other keeper has not read for long and the socket's buffer is full:
 * it makes the buffer larger first. */
int link_say_last(const struct link *link, const char *word, const char *text);

/* Receives a packet, without waiting. Returns 1 for a packet, whose descriptors the caller takes with packet_take_fd;
 * the rest is closed with packet_drop. Returns 0 if the other keeper has closed the connection, or has ended, and
 * everything that it sent before was received. Fails with -EAGAIN if nothing is there, and with another -errno. */
int link_receive(struct link *link);

/* Returns the text behind this word if the last packet begins with it, or NULL. */
const char *link_text(const struct link *link, const char *word);

#endif
