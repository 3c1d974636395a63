/* The nodes that a load may take from. */
#ifndef GPUWM_LOADER_PEER_PLACE_H
#define GPUWM_LOADER_PEER_PLACE_H

#include "../../peer/link.h"
#include "../../proto/wire/reference.h"
#include "../../service/peer_settings.h"

/* As many as gpuwmctl ls --peers asks: a service may have an address for each node of a site. */
#define PEER_PLACES_MAX 256

struct peer_place {
	char host[PEER_HOST_BYTES_MAX + 1];
	unsigned port;
	char name[PEER_HOST_BYTES_MAX + 1]; /* that its certificate has; "": `host` */
};

struct peer_places {
	struct peer_place items[PEER_PLACES_MAX];
	size_t count;
	size_t more; /* how many are left out */
	char unknown[TEXT_BYTES_MAX + 1]; /* which name of `dns` has no address, and why; "": all have */
	char ref[REF_BYTES_MAX + 1]; /* the version's name on these nodes */
};

/* Returns the place as a target, which points into it. */
struct link_target peer_place_target(const struct peer_place *place);

/* Finds the nodes that a source names: one, or all peers of the settings. Returns 0 and sets *ret, which has one at least. Fails with
 * -EINVAL if the source is malformed, -ENOENT if no peer is configured or
 * found, and -ENOMEM. */
int peer_places_find(const char *source, const struct peer_settings *settings, struct peer_places *ret,
		     struct error *error);

#endif
