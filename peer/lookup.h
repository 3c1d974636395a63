/* Addresses of several names at once. The resolver may take its time for each name: 10 seconds if no server answers. */
#ifndef GPUWM_PEER_LOOKUP_H
#define GPUWM_PEER_LOOKUP_H

#include "../service/peer_settings.h"

#include <netdb.h>
#include <pthread.h>

struct lookup {
	char host[PEER_HOST_BYTES_MAX + 1];
	unsigned port;
	int why; /* for gai_strerror; 0: `list` has addresses */
	struct addrinfo *list;
	pthread_t thread;
	bool runs; /* the thread is to be joined */
};

/* Looks up all names of a list of HOST[:PORT], each in a thread of its own. Then calls `found` for each address, in digits, in the order
 * of the list. For a name without an address, calls it once with NULL, and lookup->why says why. Returns 0. Fails with -ENOMEM. */
int lookup_all(const struct peer_list *names,
	       void (*found)(void *user, const struct lookup *lookup, const char *address), void *user);

#endif
