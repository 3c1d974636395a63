#include "route.h"

#include "../service/jansson_text.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static int by_address(const void *a, const void *b)
{
	return strcmp((*(const struct server *const *)a)->address, (*(const struct server *const *)b)->address);
}

/* A list that lacks a server would take that server its requests: without memory there is none. */
static json_t *list_append(json_t *all, json_t *one)
{
	if (!all || json_array_append_new(all, one) == 0)
		return all;
	json_decref(all);
	return NULL;
}

/* In the order of their addresses. */
static json_t *servers_of(const struct fleet *fleet)
{
	const struct server **sorted = malloc((fleet->count + 1) * sizeof(struct server *));
	json_t *all = sorted ? json_array() : NULL;

	if (!all) {
		free(sorted);
		return NULL;
	}
	for (size_t i = 0; i < fleet->count; i++)
		sorted[i] = &fleet->servers[i];
	qsort(sorted, fleet->count, sizeof(sorted[0]), by_address);
	for (size_t i = 0; all && i < fleet->count; i++)
		all = list_append(all, json_pack("{s:s, s:s}", "address", sorted[i]->address, "state",
						 server_state_name(sorted[i]->state)));
	free(sorted);
	return all;
}

static json_t *text_or_null(const char *text)
{
	return *text ? json_string(text) : json_null();
}

char *list_text(const struct route *routes, size_t count)
{
	json_t *all = json_array(), *list;
	char *text;

	for (size_t i = 0; all && i < count; i++) {
		const struct route *route = &routes[i];

		all = list_append(all, json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "model", route->model,
						 "name", route->name, "backend", route->backend, "version",
						 text_or_null(route->version), "tag", text_or_null(route->tag),
						 "servers", servers_of(&route->fleet)));
	}
	list = all ? json_pack("{s:o}", "backends", all) : NULL;
	text = list ? jansson_text(list) : NULL;
	json_decref(list);
	return text;
}
