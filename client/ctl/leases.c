#include "version.h"

#include "exit.h"
#include "line.h"
#include "table.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

json_t *leases_collect(const json_t *clients, const char *version)
{
	static const char *const of_holder[] = {"session", "pid", "uid", "name", "command", "ended"};
	json_t *leases = json_array(), *row;
	const json_t *session, *lease;
	size_t i, j;

	json_array_foreach(json_object_get(clients, "clients"), i, session) {
		json_array_foreach(json_object_get(session, "leases"), j, lease) {
			if (version && strcmp(answer_text(lease, "version"), version) != 0)
				continue;
			row = json_copy((json_t *)lease);
			for (size_t k = 0; k < sizeof(of_holder) / sizeof(of_holder[0]); k++)
				if (json_object_get(session, of_holder[k]))
					json_object_set(row, of_holder[k],
							json_object_get(session, of_holder[k]));
			json_array_append_new(leases, row);
		}
	}
	return leases;
}

int leases_query(struct gpuwm_client *client, const char *version, json_t **ret_leases)
{
	json_t *clients;
	int r = answer_ask(client, "clients", NULL, &clients);

	/* Users who are neither operators nor observers see their own leases. */
	if (r == -EACCES)
		r = answer_ask(client, "own_clients", NULL, &clients);
	if (r < 0)
		return exit_with_error();
	*ret_leases = leases_collect(clients, version);
	json_decref(clients);
	return EXIT_DONE;
}

/* A revoked one is listed for as long as its process may still map the memory. */
static const char *lease_state(const json_t *lease, const char *key, char text[CELL_TEXT])
{
	(void)text;
	if (json_object_get(lease, "waiting_ms"))
		return "waiting";
	if (json_object_get(lease, "missing"))
		return "parked, may map it";
	if (json_is_true(json_object_get(lease, "parked")))
		return "parked";
	if (!json_object_get(lease, key))
		return json_object_get(lease, "transport") ? "held, copy" : "held";
	return json_is_true(json_object_get(lease, "ended")) ? "revoked, disconnected" : "revoked";
}

/* Where the holder serves requests. */
static const char *lease_address(const json_t *lease, const char *key, char text[CELL_TEXT])
{
	(void)text;
	return json_object_get(lease, key) ? answer_text(lease, key) : "-";
}

int leases_print(const json_t *leases)
{
	static const struct column columns[] = {
		{">LEASE", cell_lease, "lease"},        {"VERSION", cell_name, NULL},
		{"DEVICE", cell_device, "device"},      {"?>RANK", cell_number, "rank"},
		{">PID", cell_number, "pid"},           {"?>UID", cell_number, "uid"},
		{"?NAME", cell_text, "name"},           {">AGE", cell_age, "since_ms"},
		{"!STATE", lease_state, "revoked_ms"},  {"?>ROOM", cell_size, "room"},
		{"?ADDRESS", lease_address, "address"}, {"COMMAND", cell_text, "command"},
		{"+ID", cell_text, "version"},          {0},
	};

	return table_of(columns, leases);
}

/* ---- who holds a version ------------------------------------------------- */

/* More of them are for gpuwmctl ps. */
#define LEASES_SHOWN 10

json_t *holders_query(struct gpuwm_client *client, const char *id)
{
	json_t *clients, *leases;

	if (answer_ask(client, "clients", NULL, &clients) < 0)
		return NULL;
	leases = leases_collect(clients, id);
	json_decref(clients);
	return leases;
}

const char *holders_text(uint64_t leases, size_t pins, char ret_text[HOLDERS_TEXT])
{
	char lease_text[32] = "", pin_text[32] = "";

	if (leases > 0)
		snprintf(lease_text, sizeof(lease_text), "%llu lease%s", (unsigned long long)leases,
			 leases == 1 ? "" : "s");
	if (pins > 0)
		snprintf(pin_text, sizeof(pin_text), "%zu pin%s", pins, pins == 1 ? "" : "s");
	snprintf(ret_text, HOLDERS_TEXT, "%s%s%s hold%s it", lease_text, leases && pins ? " and " : "",
		 pin_text, leases + pins == 1 ? "s" : "");
	return ret_text;
}

static int leases_shown(const json_t *leases)
{
	json_t *shown = json_array();
	const json_t *lease;
	size_t i;
	int code;

	json_array_foreach(leases, i, lease) {
		if (i < LEASES_SHOWN)
			json_array_append(shown, (json_t *)lease);
	}
	code = leases_print(shown);
	json_decref(shown);
	if (json_array_size(leases) > LEASES_SHOWN)
		say("and %zu more: gpuwmctl ps lists them", json_array_size(leases) - LEASES_SHOWN);
	return code;
}

int holders_print(const char *ref, const json_t *pins, const json_t *leases)
{
	const json_t *pin;
	int code = EXIT_DONE;
	size_t i;

	if (json_array_size(leases) > 0)
		code = leases_shown(leases);
	json_array_foreach(pins, i, pin) {
		say("pinned as '%s': gpuwmctl unpin %s %s", json_string_value(pin), ref,
		    json_string_value(pin));
	}
	return code;
}
