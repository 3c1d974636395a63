#include "holders.h"

#include "table.h"
#include "exit.h"
#include "leases.h"
#include "line.h"

#include <stdio.h>

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
