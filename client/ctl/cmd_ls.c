/* ls: the versions. */
#include "ctl.h"

#include <stdio.h>
#include <string.h>

static void aliases_cell(struct table *table, const json_t *list, const char *version)
{
	json_t *names = json_array();
	const json_t *alias;
	char text[512];
	size_t i;

	json_array_foreach(json_object_get(list, "aliases"), i, alias) {
		if (strcmp(answer_text(alias, "version"), version) == 0)
			json_array_append(names, json_object_get(alias, "alias"));
	}
	answer_join(names, text, sizeof(text));
	table_cell(table, text);
	json_decref(names);
}

/* Each device once, whatever the ranks. */
static void parts_cell(struct table *table, const json_t *version)
{
	json_t *seen = json_object(), *devices = json_array();
	const json_t *part;
	char text[512];
	size_t i;

	json_array_foreach(json_object_get(version, "parts"), i, part) {
		const char *device = answer_text(part, "device");

		if (json_object_get(seen, device))
			continue;
		json_object_set_new(seen, device, json_true());
		json_array_append_new(devices, json_string(device));
	}
	device_short_join(devices, text, sizeof(text));
	table_cell(table, text);
	json_decref(seen);
	json_decref(devices);
}

/* What attach() and its sisters take as `owner`. */
static void owner_cell(struct table *table, const json_t *version)
{
	if (json_is_true(json_object_get(version, "by_operator")))
		table_cell(table, "operator");
	else
		table_cellf(table, "%llu", (unsigned long long)answer_number(version, "owner_uid"));
}

static void version_row(struct table *table, const json_t *list, const json_t *version)
{
	char text[512], age[SHORT_TEXT];

	answer_name_cell(table, version);
	aliases_cell(table, list, answer_text(version, "version"));
	table_cellf(table, "%s%s", answer_text(version, "state"),
		    json_object_get(version, "tainted") ? ", tainted" : "");
	parts_cell(table, version);
	table_size(table, answer_number(version, "bytes"));
	table_cellf(table, "%llu", (unsigned long long)answer_number(version, "leases"));
	answer_join(json_object_get(version, "pins"), text, sizeof(text));
	table_cell(table, text);
	owner_cell(table, version);
	table_cell(table, age_text(answer_number(version, "created_ms"), age));
}

/* Who is to build what is not there. */
static void claims_print(const json_t *list)
{
	char command[UTF8_SHOWN_MAX(64)], age[SHORT_TEXT];
	const json_t *claim;
	size_t i;

	json_array_foreach(json_object_get(list, "claims"), i, claim) {
		printf("%s@%s is claimed by ", answer_text(claim, "model"), answer_text(claim, "tag"));
		if (!json_object_get(claim, "session")) {
			printf("uid %llu: gpuwmd keeps the claim for this user for a time after a restart\n",
			       (unsigned long long)answer_number(claim, "uid"));
			continue;
		}
		utf8_show(answer_text(claim, "command"), command, sizeof(command));
		printf("session %llu (%s, pid %llu, uid %llu) for %s; the session %s\n",
		       (unsigned long long)answer_number(claim, "session"), command,
		       (unsigned long long)answer_number(claim, "pid"),
		       (unsigned long long)answer_number(claim, "uid"),
		       age_text(answer_number(claim, "since_ms"), age),
		       json_is_true(json_object_get(claim, "begun")) ? "builds it"
								     : "has not begun to build it");
	}
}

static int list_print(const json_t *list)
{
	struct table *table = table_new("VERSION|ALIASES|STATE|DEVICES|>SIZE|>LEASES|PINS|>OWNER|>AGE");
	const json_t *version;
	char name[320];
	size_t i;
	int code;

	json_array_foreach(json_object_get(list, "versions"), i, version) {
		version_row(table, list, version);
	}
	code = table_print(table);
	json_array_foreach(json_object_get(list, "versions"), i, version) {
		snprintf(name, sizeof(name), "%s@%s", answer_text(version, "model"),
			 answer_text(version, "tag"));
		answer_error_print(version, "error", name);
		strcat(name, " is tainted");
		answer_error_print(version, "tainted", name);
	}
	claims_print(list);
	return code;
}

int command_ls(struct gpuwm_client *client, const struct arguments *arguments)
{
	json_t *list;
	int code = answer_query(client, arguments, "list", arguments->positional[0], &list);

	if (code != EXIT_DONE)
		return code;
	if (!arguments->json)
		code = list_print(list);
	json_decref(list);
	return code;
}
