#include "limits.h"
#include "snapshot.h"

#include "../service/jansson_text.h"

#include <stdlib.h>
#include <string.h>

/* ---- the largest items --------------------------------------------------- */

struct ranked {
	uint64_t rank;
	size_t at;
};

static int ranks_compare(const void *a, const void *b)
{
	const struct ranked *one = a, *other = b;

	if (one->rank != other->rank)
		return one->rank < other->rank ? 1 : -1;
	return one->at < other->at ? -1 : one->at > other->at;
}

static int places_compare(const void *a, const void *b)
{
	const struct ranked *one = a, *other = b;

	return one->at < other->at ? -1 : one->at > other->at;
}

json_t *state_largest(const json_t *array, size_t most, uint64_t (*rank)(const json_t *item))
{
	size_t count = json_array_size(array), i;
	struct ranked *ranked = calloc(count + 1, sizeof(*ranked));
	json_t *largest = json_array();
	const json_t *item;
	bool whole = true;

	if (!ranked || !largest) {
		free(ranked);
		json_decref(largest);
		return NULL;
	}
	json_array_foreach(array, i, item)
		ranked[i] = (struct ranked){rank(item), i};
	qsort(ranked, count, sizeof(*ranked), ranks_compare);
	if (count > most)
		count = most;
	qsort(ranked, count, sizeof(*ranked), places_compare);
	for (i = 0; i < count; i++)
		whole = whole && json_array_append(largest, json_array_get(array, ranked[i].at)) == 0;
	free(ranked);
	if (whole)
		return largest;
	json_decref(largest);
	return NULL;
}

/* ---- the tables ---------------------------------------------------------- */

/* What is in use comes before what has failed. */
static uint64_t version_rank(const json_t *version)
{
	return (member_is(version, "state", "failed") ? 0 : UINT64_C(1) << 62) +
	       member_number(version, "bytes");
}

static uint64_t client_rank(const json_t *client)
{
	return json_array_size(json_object_get(client, "leases"));
}

/* Running jobs, then those that failed, then queued ones, then the last ones that ended otherwise. */
static uint64_t job_rank(const json_t *job)
{
	uint64_t weight = 0;

	if (member_is(job, "state", "running") || member_is(job, "state", "cancelling"))
		weight = 3;
	else if (member_is(job, "state", "failed"))
		weight = 2;
	else if (member_is(job, "state", "queued"))
		weight = 1;
	return (weight << 60) + member_number(job, "job");
}

static uint64_t bytes_rank(const json_t *item)
{
	return member_number(item, "bytes");
}

static uint64_t no_rank(const json_t *item)
{
	(void)item;
	return 0;
}

static const struct {
	const char *name;
	enum question question;
	const char *key;
	size_t most;
	uint64_t (*rank)(const json_t *item);
} tables[] = {
	{"versions", ASK_LIST, "versions", STATE_VERSIONS_MAX, version_rank},
	{"aliases", ASK_LIST, "aliases", STATE_ALIASES_MAX, no_rank},
	{"copies", ASK_LIST, "copies", STATE_COPIES_MAX, bytes_rank},
	{"clients", ASK_CLIENTS, "clients", STATE_CLIENTS_MAX, client_rank},
	{"users", ASK_CLIENTS, "users", STATE_USERS_MAX, bytes_rank},
	{"jobs", ASK_JOBS, "jobs", STATE_JOBS_MAX, job_rank},
	{"regions", ASK_REGIONS, "regions", STATE_REGIONS_MAX, bytes_rank},
};

/* Each client with its first leases only, and the number of all of them. Returns false if there is no memory. */
static bool clients_cut(json_t *clients)
{
	bool whole = true;
	size_t i;
	json_t *client;

	json_array_foreach(clients, i, client) {
		const json_t *leases = json_object_get(client, "leases");
		json_t *copy = json_copy(client);

		whole = whole &&
			json_object_set_new(copy, "lease_count",
					    json_integer((json_int_t)json_array_size(leases))) == 0 &&
			json_object_set_new(copy, "leases", state_largest(leases, STATE_LEASES_MAX, no_rank)) ==
				0;
		whole = json_array_set_new(clients, i, copy) == 0 && whole;
	}
	return whole;
}

/* The aliases of the versions that are told: none of these misses a name because others have many. Returns NULL if there is no memory. */
static json_t *aliases_of(const json_t *aliases, const json_t *versions)
{
	json_t *ids = json_object(), *found = json_array();
	const json_t *item;
	bool whole = found != NULL;
	size_t i;

	json_array_foreach(versions, i, item)
		whole = whole && json_object_set_new(ids, member_text(item, "version"), json_true()) == 0;
	json_array_foreach(aliases, i, item) {
		if (json_object_get(ids, member_text(item, "version")))
			whole = whole && json_array_append(found, (json_t *)item) == 0;
	}
	json_decref(ids);
	if (whole)
		return found;
	json_decref(found);
	return NULL;
}

/* The rows of the table, as many as a page shows. state: with the tables before this one. Returns NULL if there is no memory. */
static json_t *rows_told(const json_t *state, size_t table, const json_t *all)
{
	json_t *of_told, *told = NULL;

	if (strcmp(tables[table].name, "aliases") != 0) {
		told = state_largest(all, tables[table].most, tables[table].rank);
	} else {
		of_told = aliases_of(all, json_object_get(state, "versions"));
		if (of_told)
			told = state_largest(of_told, tables[table].most, tables[table].rank);
		json_decref(of_told);
	}
	if (!told || strcmp(tables[table].name, "clients") != 0 || clients_cut(told))
		return told;
	json_decref(told);
	return NULL;
}

/* Returns false if there is no memory: a page must not show a table as empty that is not. */
static bool tables_put(json_t *state, const struct snapshot *snapshot)
{
	json_t *left_out = json_object();
	bool whole = left_out != NULL;

	for (size_t i = 0; whole && i < sizeof(tables) / sizeof(*tables); i++) {
		const json_t *all = json_object_get(snapshot->answers[tables[i].question], tables[i].key);
		json_t *told = rows_told(state, i, all);

		whole = json_object_set_new(
				left_out, tables[i].name,
				json_integer((json_int_t)(json_array_size(all) - json_array_size(told)))) == 0;
		whole = json_object_set_new(state, tables[i].name, told) == 0 && whole;
	}
	return json_object_set_new(state, "left_out", left_out) == 0 && whole;
}

char *state_make(const struct snapshot *snapshot, size_t *ret_bytes)
{
	json_t *totals = snapshot->totals ? json_incref(snapshot->totals) : totals_make(snapshot);
	json_t *sees = json_object(), *state;
	char *text;

	for (size_t i = 0; i < QUESTIONS; i++)
		json_object_set_new(sees, question_names[i], json_boolean(snapshot->sees[i]));
	state = json_pack("{s:b, s:s, s:I, s:I, s:b, s:s, s:i, s:o, s:o*, s:O*, s:O*, s:O*, s:O*}", "up",
			  snapshot->up, "why", snapshot->why, "time_ms", (json_int_t)snapshot->wall_ms,
			  "seen_ms", (json_int_t)snapshot->seen_ms, "restricted", snapshot->restricted,
			  "exporter", GPUWM_VERSION, "snapshot_ms", SNAPSHOT_MS, "sees", sees, "totals", totals,
			  "status", snapshot->answers[ASK_STATUS], "counted", snapshot->answers[ASK_METRICS],
			  "swaps", snapshot->swaps, "events", snapshot->events);
	if (!state)
		return NULL;
	text = tables_put(state, snapshot) ? jansson_text(state) : NULL;
	json_decref(state);
	*ret_bytes = text ? strlen(text) : 0;
	return text;
}
