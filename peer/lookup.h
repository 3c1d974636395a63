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

struct lookups {
	struct lookup items[PEER_LIST_MAX];
	size_t count;
};

/* Looks up all names of a list of HOST[:PORT], each in a thread of its own. Returns what was found, in the order of the list, for
 * lookups_free; NULL if there is no memory. */
struct lookups *lookups_new(const struct peer_list *names);
struct lookups *lookups_free(struct lookups *lookups);

/* Calls `found` for each address of a name, in digits. */
void lookup_each(const struct lookup *lookup, void (*found)(void *user, const char *address), void *user);

#endif
