/* The versions of gpuwmd that gpuwm-peer may attach: gpuwmd's answer to `list`, without versions that can't be taken. */
#ifndef GPUWM_PEER_LISTING_H
#define GPUWM_PEER_LISTING_H

#include "messages.h"

#include <jansson.h>

struct listing {
	json_t *answer;
	json_t **versions; /* those that are ready and have a name */
	size_t count;
};

/* Reads the JSON of gpuwm_query. Returns 0 and sets *ret, for listing_clear. Fails with -ENOMEM, and with -EPROTO. */
int listing_read(const char *json, struct listing *ret, struct error *error);
void listing_clear(struct listing *listing);

/* Sets *ret to the version at `position`, whose texts belong to the listing. aliases: room for PEER_ALIASES_MAX. */
struct listed {
	struct version_id id;
	struct digest content;
	const char *aliases[PEER_ALIASES_MAX];
	struct peer_version version; /* its pointers lead to the members above, and into the listing */
};
void listing_at(const struct listing *listing, size_t position, struct listed *ret);

/* Returns the position of the version that `ref` names. Fails with -ENOENT, and with -EINVAL if `ref` is no reference. */
int64_t listing_find(const struct listing *listing, const char *ref, struct error *error);

/* Returns the device that has a ready part of this rank of the version at `position`. Returns NULL if no device has one. */
const char *listing_device(const struct listing *listing, size_t position, uint64_t rank);

#endif
