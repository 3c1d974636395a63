/* The servers of one route: which ones get requests, and which ones drain. Plain data, by these rules:
 *
 *   - A server of the current version, the one that the route's name means, gets requests.
 *   - A server of another version drains if it got requests, as soon as some server has the current version. Until then it goes on
 *     to get requests, so that there is no gap.
 *   - If no server is left that gets requests, those that drain get them again.
 *   - Workers of other versions that never got requests stay outside: they belong to another route.
 *   - A server that has no address any more is removed. After a restart of gpuwmd, and after its own start, gpuwm-follow first waits
 *     some time for servers that gpuwmd does not tell of yet. */
#ifndef GPUWM_FOLLOW_FLEET_H
#define GPUWM_FOLLOW_FLEET_H

#include "../base/limits.h"
#include "../proto/names.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum server_state { SERVER_READY, SERVER_DRAIN };
const char *server_state_name(enum server_state state);

struct server {
	char address[ADDRESS_BYTES_MAX + 1];
	enum server_state state;
	uint64_t
		keep_until_ms; /* in doubt: gpuwmd has not told of it yet, and may until this time. 0: gpuwmd has */
	bool is_told, is_current; /* during fleet_update */
};

struct fleet {
	struct server *servers; /* malloced */
	size_t count, room;
};

/* A worker's address, as gpuwmd tells it. */
struct sighting {
	char address[ADDRESS_BYTES_MAX + 1];
	bool is_current; /* it serves the current version */
	uint64_t lease;
};

enum fleet_change { CHANGE_SERVES, CHANGE_DRAINS, CHANGE_RETURNS, CHANGE_REMOVED, CHANGE_MISSED };
typedef void fleet_told_fn(void *data, const char *address, enum fleet_change change);

/* Frees what the fleet has; it is empty then. */
void fleet_clear(struct fleet *fleet);

/* Adds a server that the load balancer has, of which gpuwmd has until keep_until_ms to tell. Does nothing if it is there. Fails with
 * -ENOMEM. */
int fleet_adopt(struct fleet *fleet, const char *address, enum server_state state, uint64_t keep_until_ms);

/* gpuwmd was restarted: it has until this time to tell of each server again. */
void fleet_doubt(struct fleet *fleet, uint64_t keep_until_ms);

/* Returns whether a server is in doubt: call fleet_update again later. */
bool fleet_is_in_doubt(const struct fleet *fleet);

/* Applies the rules to what gpuwmd tells, in which each address stands once. Calls `told`, which may be NULL, for each change. Fails with
 * -ENOMEM; the fleet is then as it was. */
int fleet_update(struct fleet *fleet, const struct sighting *sightings, size_t count, uint64_t now_ms,
		 fleet_told_fn *told, void *data);

/* Returns how many servers have this state. */
size_t fleet_count(const struct fleet *fleet, enum server_state state);

/* ---- what gpuwmd tells of the workers of a model, in its answers to list and clients ---- */

struct sightings {
	char version[VERSION_ID_TEXT]; /* that the name stands for; "": none */
	char tag[NAME_BYTES_MAX + 1]; /* of this version */
	struct sighting *items; /* malloced: each address once, by its newest lease */
	size_t count;
};

/* Sets *ret, which the caller clears. name: an alias or a tag of the model. Fails with -ENOMEM. */
int sightings_read(const json_t *list, const json_t *clients, const char *model, const char *name,
		   struct sightings *ret);
void sightings_clear(struct sightings *sightings);

#endif
