#include "fleet.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST 16

const char *server_state_name(enum server_state state)
{
	return state == SERVER_READY ? "ready" : "drain";
}

void fleet_clear(struct fleet *fleet)
{
	free(fleet->servers);
	*fleet = (struct fleet){0};
}

static int fleet_make_room(struct fleet *fleet, size_t more)
{
	size_t room = fleet->room ? fleet->room : ROOM_FIRST;
	struct server *servers;

	while (room < fleet->count + more)
		room *= 2;
	if (room == fleet->room)
		return 0;
	servers = realloc(fleet->servers, room * sizeof(*servers));
	if (!servers)
		return -ENOMEM;
	fleet->servers = servers;
	fleet->room = room;
	return 0;
}

static struct server *fleet_find(const struct fleet *fleet, const char *address)
{
	for (size_t i = 0; i < fleet->count; i++) {
		if (strcmp(fleet->servers[i].address, address) == 0)
			return &fleet->servers[i];
	}
	return NULL;
}

/* There is room for it. */
static struct server *fleet_add(struct fleet *fleet, const char *address, enum server_state state)
{
	struct server *server = &fleet->servers[fleet->count++];

	*server = (struct server){.state = state};
	snprintf(server->address, sizeof(server->address), "%s", address);
	return server;
}

int fleet_adopt(struct fleet *fleet, const char *address, enum server_state state, uint64_t keep_until_ms)
{
	if (fleet_find(fleet, address))
		return 0;
	if (fleet_make_room(fleet, 1) < 0)
		return -ENOMEM;
	fleet_add(fleet, address, state)->keep_until_ms = keep_until_ms;
	return 0;
}

void fleet_doubt(struct fleet *fleet, uint64_t keep_until_ms)
{
	for (size_t i = 0; i < fleet->count; i++)
		fleet->servers[i].keep_until_ms = keep_until_ms;
}

bool fleet_is_in_doubt(const struct fleet *fleet)
{
	for (size_t i = 0; i < fleet->count; i++) {
		if (fleet->servers[i].keep_until_ms)
			return true;
	}
	return false;
}

size_t fleet_count(const struct fleet *fleet, enum server_state state)
{
	size_t count = 0;

	for (size_t i = 0; i < fleet->count; i++)
		count += fleet->servers[i].state == state;
	return count;
}

/* ---- updating ---- */

struct update {
	struct fleet *fleet;
	uint64_t now_ms;
	fleet_told_fn *told;
	void *data;
};

static void fleet_tell(const struct update *u, const struct server *server, enum fleet_change change)
{
	if (u->told)
		u->told(u->data, server->address, change);
}

/* Notes which servers gpuwmd tells of, and adds the new ones that serve the current version. */
static void take_in(const struct update *u, const struct sighting *sightings, size_t count)
{
	for (size_t i = 0; i < u->fleet->count; i++)
		u->fleet->servers[i].is_told = u->fleet->servers[i].is_current = false;
	for (size_t i = 0; i < count; i++) {
		struct server *server = fleet_find(u->fleet, sightings[i].address);

		if (!server && !sightings[i].is_current)
			continue;
		if (!server) {
			server = fleet_add(u->fleet, sightings[i].address, SERVER_READY);
			fleet_tell(u, server, CHANGE_SERVES);
		}
		server->is_told = true;
		server->is_current = sightings[i].is_current;
		server->keep_until_ms = 0;
	}
}

static void remove_gone(const struct update *u)
{
	struct fleet *fleet = u->fleet;
	size_t kept = 0;

	for (size_t i = 0; i < fleet->count; i++) {
		struct server *server = &fleet->servers[i];

		if (!server->is_told && server->keep_until_ms <= u->now_ms)
			fleet_tell(u, server, server->keep_until_ms ? CHANGE_MISSED : CHANGE_REMOVED);
		else
			fleet->servers[kept++] = *server;
	}
	fleet->count = kept;
}

static void move(const struct update *u, struct server *server, enum server_state state,
		 enum fleet_change change)
{
	if (server->state == state)
		return;
	server->state = state;
	fleet_tell(u, server, change);
}

/* Those in doubt stay as they are. */
static void settle_states(const struct update *u)
{
	struct fleet *fleet = u->fleet;
	bool any_current = false;

	for (size_t i = 0; i < fleet->count; i++)
		any_current = any_current || fleet->servers[i].is_current;
	for (size_t i = 0; i < fleet->count; i++) {
		struct server *server = &fleet->servers[i];

		if (server->is_current)
			move(u, server, SERVER_READY, CHANGE_SERVES);
		else if (server->is_told && any_current)
			move(u, server, SERVER_DRAIN, CHANGE_DRAINS);
	}
}

static void close_gap(const struct update *u)
{
	if (fleet_count(u->fleet, SERVER_READY) > 0)
		return;
	for (size_t i = 0; i < u->fleet->count; i++)
		move(u, &u->fleet->servers[i], SERVER_READY, CHANGE_RETURNS);
}

int fleet_update(struct fleet *fleet, const struct sighting *sightings, size_t count, uint64_t now_ms,
		 fleet_told_fn *told, void *data)
{
	const struct update u = {fleet, now_ms, told, data};

	if (fleet_make_room(fleet, count) < 0)
		return -ENOMEM;
	take_in(&u, sightings, count);
	remove_gone(&u);
	settle_states(&u);
	close_gap(&u);
	return 0;
}
