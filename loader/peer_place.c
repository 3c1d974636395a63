#include "peer_place.h"

#include "../service/peer_source.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

struct link_target peer_place_target(const struct peer_place *place)
{
	return (struct link_target){place->host, place->port, place->name[0] ? place->name : NULL};
}

static void add(struct peer_places *places, const char *host, unsigned port, const char *name)
{
	struct peer_place *place = &places->items[places->count];

	for (size_t i = 0; i < places->count; i++) {
		if (places->items[i].port == port && strcmp(places->items[i].host, host) == 0)
			return;
	}
	if (places->count == PEER_PLACES_MAX) {
		places->more++;
		return;
	}
	places->count++;
	snprintf(place->host, sizeof(place->host), "%.*s", PEER_HOST_BYTES_MAX, host);
	snprintf(place->name, sizeof(place->name), "%s", name);
	place->port = port;
}

/* Each address of a name is a peer, whose certificate has the name. A name that leads nowhere now is none. */
static void add_addresses(struct peer_places *places, const char *name, unsigned port)
{
	const struct addrinfo wish = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *found, *each;
	char address[PEER_HOST_BYTES_MAX + 1];

	if (getaddrinfo(name, NULL, &wish, &found) != 0)
		return;
	for (each = found; each; each = each->ai_next) {
		if (getnameinfo(each->ai_addr, each->ai_addrlen, address, sizeof(address), NULL, 0,
				NI_NUMERICHOST) == 0)
			add(places, address, port, name);
	}
	freeaddrinfo(found);
}

static void add_all(struct peer_places *places, const struct peer_settings *settings)
{
	char host[PEER_HOST_BYTES_MAX + 1];
	unsigned port;

	for (size_t i = 0; i < settings->peers.count; i++) {
		if (peer_address_parse(settings->peers.items[i], host, &port) == 0)
			add(places, host, port, "");
	}
	for (size_t i = 0; i < settings->dns.count; i++) {
		if (peer_address_parse(settings->dns.items[i], host, &port) == 0)
			add_addresses(places, host, port);
	}
}

int peer_places_find(const char *source, const struct peer_settings *settings, struct peer_places *ret,
		     struct error *error)
{
	struct peer_source parsed;
	int r = peer_source_parse(source, &parsed, error);

	if (r < 0)
		return r;
	*ret = (struct peer_places){0};
	strcpy(ret->ref, parsed.ref);
	if (parsed.host[0])
		add(ret, parsed.host, parsed.port, "");
	else
		add_all(ret, settings);
	if (ret->count == 0)
		return error_set(error, -ENOENT, "peer and dns in [peers] of gpuwmd's configuration name them",
				 "no peer is known that could have %s", ret->ref);
	return 0;
}
