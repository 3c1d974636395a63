#include "peer_dial.h"

#include "../../peer/link.h"
#include "../../service/peers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct link_target peer_place_target(const struct peer_place *place)
{
	return (struct link_target){place->host, place->port, place->name[0] ? place->name : NULL};
}

static void places_add(struct peer_places *places, const char *host, unsigned port, const char *name)
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
static void add_name(void *user, const struct lookup *lookup, const char *address)
{
	struct peer_places *places = user;

	if (address)
		places_add(places, address, lookup->port, lookup->host);
	else
		snprintf(places->unknown, sizeof(places->unknown), "the name %s has no address: %s",
			 lookup->host, gai_strerror(lookup->why));
}

const char *peer_place_ref(const struct peer_places *places, const struct peer_place *place)
{
	return place->ref[0] ? place->ref : places->ref;
}

int peer_places_find(const char *source, const struct peer_settings *settings, bool others,
		     struct peer_places *ret, struct error *error)
{
	struct peer_source parsed;
	char host[PEER_HOST_BYTES_MAX + 1];
	unsigned port;
	int r = peer_source_parse(source, &parsed, error);

	if (r < 0)
		return r;
	memset(ret, 0, sizeof(*ret)); /* too large for a copy on the stack */
	strcpy(ret->ref, parsed.ref);
	if (parsed.host[0])
		places_add(ret, parsed.host, parsed.port, "");
	others = others || !parsed.host[0];
	for (size_t i = 0; others && i < settings->peers.count; i++) {
		if (peer_address_parse(settings->peers.items[i], host, &port) == 0)
			places_add(ret, host, port, "");
	}
	if (others && lookup_all(&settings->dns, add_name, ret) < 0)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	if (ret->count == 0)
		return error_set(error, -ENOENT, "peer and dns in [peers] of gpuwmd's configuration name them",
				 "no peer is known that could have %s%s%s", ret->ref,
				 ret->unknown[0] ? ": " : "", ret->unknown);
	return 0;
}
