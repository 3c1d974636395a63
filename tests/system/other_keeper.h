/* The other keeper of --take-over, which the test itself plays, packet by packet. */
#ifndef GPUWM_TESTS_OTHER_KEEPER_H
#define GPUWM_TESTS_OTHER_KEEPER_H

#include "keeper_run.h"

#include "../../proto/wire/packet.h"

struct other {
	int listener; /* as the old keeper; -1: none */
	int sock;
	char path[96];
	struct packet packet; /* the last one */
	char text[PACKET_BYTES_MAX + 1];
};

/* The path of the take-over socket in the keeper's folder. */
void other_prepare(struct other *o, const struct keeper *k);
/* As the new keeper: connects, once somebody listens. */
void other_connect(struct other *o);
/* As the old keeper: listens; waits for the new one. */
void other_listen(struct other *o);
void other_accept(struct other *o);

void other_say(const struct other *o, const char *text);
void other_send(const struct other *o, const char *text, const int *fds, size_t count);
/* Waits for a packet, whose text begins so. */
void other_expect(struct other *o, const char *beginning);
/* Waits for the end of the connection. */
void other_expect_end(struct other *o);
/* Closes the connection. */
void other_close(struct other *o);

/* A memfd of one byte. */
int other_memfd(char byte);
/* As the old keeper: sends socket, lock, and two descriptors, "a" with the byte 1 and "b" with 2. */
void other_send_store(const struct other *o);

#endif
