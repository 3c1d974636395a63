/* ls: the versions. */
#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "line.h"
#include "table.h"
#include "version.h"

#include <stdio.h>
#include <string.h>

static bool peers;
static const char *config;
static const struct option_row ls_options[] = {
	{"peers", "the versions of other nodes: those of [peers] in gpuwmd.conf", .into = &peers},
	{"config", "gpuwmd.conf (default: that of the gpuwmd that runs)", "FILE", take_filled, .into = &config,
	 .needs = "peers", .kind = WORD_FILE},
	ROW_WATCH,
	{0},
};

static const char *version_state(const json_t *version, const char *key, char text[CELL_TEXT])
{
	char tier[CELL_TEXT];

	snprintf(text, CELL_TEXT, "%s%s%s%s", answer_text(version, key),
		 json_is_true(json_object_get(version, "cached")) ? ", cached" : "",
		 json_object_get(version, "tainted") ? ", tainted" : "", tier_text(version, tier));
	return text;
}

/* Where its memory lies: on both at once if it has a host copy. */
static const char *version_places(const json_t *version, const char *key, char text[CELL_TEXT])
{
	snprintf(text, CELL_TEXT, "%s%s", tier_of(version), json_object_get(version, key) ? "+host" : "");
	return text;
}

/* Each device once, whatever the ranks. */
static const char *version_devices(const json_t *version, const char *key, char text[CELL_TEXT])
{
	json_t *seen = json_object(), *devices = json_array();
	const json_t *part;
	size_t i;

	json_array_foreach(json_object_get(version, key), i, part) {
		const char *device = answer_text(part, "device");

		if (json_object_get(seen, device))
			continue;
		json_object_set_new(seen, device, json_true());
		json_array_append_new(devices, json_string(device));
	}
	device_short_join(devices, text, CELL_TEXT);
	json_decref(seen);
	json_decref(devices);
	return text;
}

/* What attach() and its sisters take as `owner`. */
static const char *version_owner(const json_t *version, const char *key, char text[CELL_TEXT])
{
	return json_is_true(json_object_get(version, "by_operator")) ? "operator"
								     : cell_number(version, key, text);
}

/* Who is to build what is not there. */
static void claims_print(const json_t *list)
{
	const json_t *claim;
	char age[SHORT_TEXT];
	size_t i;

	json_array_foreach(json_object_get(list, "claims"), i, claim) {
		const char *model = answer_text(claim, "model"), *tag = answer_text(claim, "tag");
		unsigned long long uid = answer_number(claim, "uid");

		if (json_object_get(claim, "session"))
			say("%s@%s is claimed by session %llu (%s, pid %llu, uid %llu) for %s; the session %s",
			    model, tag, (unsigned long long)answer_number(claim, "session"),
			    answer_text(claim, "command"), (unsigned long long)answer_number(claim, "pid"), uid,
			    age_text(answer_number(claim, "since_ms"), age),
			    json_is_true(json_object_get(claim, "begun")) ? "builds it"
									  : "has not begun to build it");
		else
			say("%s@%s is claimed by uid %llu: gpuwmd keeps the claim for this user for a time after a "
			    "restart",
			    model, tag, uid);
	}
}

/* What programs without descriptors have: memory besides the versions'. */
static void copies_print(const json_t *list)
{
	const json_t *copy;
	char size[SHORT_TEXT], device[DEVICE_TEXT];
	size_t i;

	json_array_foreach(json_object_get(list, "copies"), i, copy) {
		struct line line = {0};

		device_short(answer_text(copy, "device"), device);
		line_add(&line, "%s@%s has a copy of %s on %s by CUDA IPC for uid %llu (leases: %llu)",
			 answer_text(copy, "model"), answer_text(copy, "tag"),
			 size_text(answer_number(copy, "bytes"), size), device,
			 (unsigned long long)answer_number(copy, "uid"),
			 (unsigned long long)answer_number(copy, "leases"));
		if (json_object_get(copy, "pid"))
			line_add(&line, "; it dies with gpuwm-loader (pid %llu), which holds it",
				 (unsigned long long)answer_number(copy, "pid"));
		else
			line_add(&line, "; it is being made");
		line_say(&line);
	}
}

static int list_print(const json_t *list)
{
	static const struct column columns[] = {
		{"VERSION", cell_name, NULL},
		{"ALIASES", cell_join, "aliases"},
		{"!STATE", version_state, "state"},
		{"?DEVICES", version_devices, "parts"},
		{"+PLACES", version_places, "host_copy_bytes"},
		{">SIZE", cell_size, "bytes"},
		{"+>SHARED", cell_size_known, "shared_bytes"},
		{"+>TENSORS", cell_number, "tensors"},
		{">LEASES", cell_number, "leases"},
		{"?PINS", cell_join, "pins"},
		{"?>OWNER", version_owner, "owner_uid"},
		{">AGE", cell_age, "created_ms"},
		{"+ID", cell_text, "version"},
		{0},
	};
	const json_t *versions = json_object_get(list, "versions");
	json_t *version;
	char name[320];
	size_t i;
	int code;

	json_array_foreach(versions, i, version)
		json_object_set_new(version, "aliases", answer_aliases(list, version));
	code = table_or_say(columns, versions, "no versions");
	json_array_foreach(versions, i, version) {
		snprintf(name, sizeof(name), "%s@%s", answer_text(version, "model"),
			 answer_text(version, "tag"));
		answer_error_print(version, "error", name);
		strcat(name, " is tainted");
		answer_error_print(version, "tainted", name);
	}
	claims_print(list);
	copies_print(list);
	return code;
}

static int ls_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	static const struct view view = {list_print, cell_ref, NULL, "versions"};
	const char *model = arguments->positional[0];
	json_t *list;
	int code;

	if (peers)
		return peers_run(client, config, model);
	code = answer_get(client, "list", model, &list);
	if (code != EXIT_DONE)
		return code;
	if (!model || json_array_size(json_object_get(list, "versions")) > 0 ||
	    json_array_size(json_object_get(list, "aliases")) > 0 ||
	    json_array_size(json_object_get(list, "claims")) > 0)
		return result_show(list, &view);
	/* gpuwmd tells of a model that is unknown, or that this user may not attach to, as of one that has nothing. */
	json_decref(list);
	return exit_with(EXIT_NOT_FOUND, "gpuwmctl ls lists all versions that this user may see",
			 "model %s has no versions", model);
}

const struct command command_ls = {
	.name = "ls",
	.also = "list",
	.words = {{"MODEL", WORD_MODEL, true}},
	.summary = "list versions, or those of one model",
	.about = "For each version: aliases, state, devices, size, leases, pins, owner and age.",
	.options = ls_options,
	.example = "gpuwmctl ls llama\ngpuwmctl ls --peers",
	.run = ls_run,
};
