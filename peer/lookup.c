#include "link.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

struct lookups {
	struct lookup items[PEER_LIST_MAX];
	size_t count;
};

static void *look_up(void *user_data)
{
	const struct addrinfo wish = {.ai_socktype = SOCK_STREAM};
	struct lookup *lookup = user_data;

	lookup->why = getaddrinfo(lookup->host, NULL, &wish, &lookup->list);
	return NULL;
}

static struct lookups *lookups_new(const struct peer_list *names)
{
	struct lookups *lookups = calloc(1, sizeof(*lookups));

	for (size_t i = 0; lookups && i < names->count && lookups->count < PEER_LIST_MAX; i++) {
		struct lookup *lookup = &lookups->items[lookups->count];

		if (peer_address_parse(names->items[i], lookup->host, &lookup->port) < 0)
			continue;
		lookups->count++;
		lookup->runs = pthread_create(&lookup->thread, NULL, look_up, lookup) == 0;
		if (!lookup->runs)
			look_up(lookup);
	}
	for (size_t i = 0; lookups && i < lookups->count; i++) {
		if (lookups->items[i].runs)
			pthread_join(lookups->items[i].thread, NULL);
	}
	return lookups;
}

static void tell_found(const struct lookup *lookup,
		       void (*found)(void *user, const struct lookup *lookup, const char *address), void *user)
{
	char address[NI_MAXHOST];

	if (lookup->why != 0)
		found(user, lookup, NULL);
	for (const struct addrinfo *at = lookup->why == 0 ? lookup->list : NULL; at; at = at->ai_next) {
		if (getnameinfo(at->ai_addr, at->ai_addrlen, address, sizeof(address), NULL, 0,
				NI_NUMERICHOST) == 0)
			found(user, lookup, address);
	}
}

int lookup_all(const struct peer_list *names,
	       void (*found)(void *user, const struct lookup *lookup, const char *address), void *user)
{
	struct lookups *lookups = lookups_new(names);

	if (!lookups)
		return -ENOMEM;
	for (size_t i = 0; i < lookups->count; i++) {
		tell_found(&lookups->items[i], found, user);
		if (lookups->items[i].why == 0)
			freeaddrinfo(lookups->items[i].list);
	}
	free(lookups);
	return 0;
}
