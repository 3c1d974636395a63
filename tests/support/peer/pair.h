/* Two ends of a link in one process: a listening socket whose connections a thread accepts. */
#ifndef TESTS_SUPPORT_PEER_PAIR_H
#define TESTS_SUPPORT_PEER_PAIR_H

#include "peer/link.h"

#include <pthread.h>

/* The side that accepts. */
struct accepting {
	int fd; /* the listening socket */
	unsigned port;
	struct peer_keys *keys;
	uint64_t timeout_ms;
	pthread_t thread;
	struct link *link; /* NULL: it refused */
	int result;
	struct error error;
};

/* Begins to wait for one connection. */
void accepting_begin(struct accepting *accepting, struct peer_keys *keys, uint64_t timeout_ms);
/* Waits until the connection was accepted or refused. */
void accepting_wait(struct accepting *accepting);
/* Closes everything but the keys. */
void accepting_end(struct accepting *accepting);

/* Connects over TCP only. */
int plain_connect(unsigned port);

/* Connects as a node to 127.0.0.1, whose certificate must have `name`. Returns what link_connect returned. */
int pair_connect(const struct accepting *accepting, struct peer_keys *keys, const char *name, struct link **ret,
		 struct error *error);

/* Makes the folder of certificates, and a link between two sides that have the same secret. Sets *ret_keys, for
 * peer_keys_release, and *ret to the side that connected. */
void pair_by_secret(struct accepting *accepting, struct peer_keys **ret_keys, struct link **ret);

#endif
