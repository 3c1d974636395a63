/* swap, rollback, pin, unpin, retire, rm, drain: which versions stay, and under which alias. */
#include "commands.h"

#include "answer.h"
#include "cells.h"
#include "device.h"
#include "exit.h"
#include "version.h"

#include "../../proto/names.h"

#include <stdio.h>

/* ---- swap -------------------------------------------------------------- */

static int swap_print(struct gpuwm_client *client, const struct arguments *arguments,
		      const struct gpuwm_swap_options *options, const json_t *before,
		      const struct swap_outcome *outcome)
{
	const char *alias = options->alias ? options->alias : "current", *old = outcome->old;
	json_t *list;
	int code;

	if (arguments->json)
		return answer_print(json_pack("{s:s, s:s, s:s?, s:s?, s:o?}", "model", options->model, "alias",
					      alias, "to", options->to, "old", *old ? old : NULL,
					      "retire_error", swap_kept_json(outcome)));
	code = answer_get(client, "list", options->model, &list);
	if (code != EXIT_DONE)
		return code;
	swap_tell(before, list, options->model, alias, outcome);
	json_decref(list);
	return EXIT_DONE;
}

static int swap_run(struct gpuwm_client *client, const struct arguments *arguments,
		    const struct gpuwm_swap_options *options)
{
	struct swap_outcome outcome;
	json_t *before = NULL; /* for people */
	int code = EXIT_DONE;

	if (!arguments->json)
		code = answer_get(client, "list", options->model, &before);
	if (code != EXIT_DONE)
		return code;
	if (version_swap(client, options, &outcome) < 0)
		code = exit_with_error();
	else
		code = swap_print(client, arguments, options, before, &outcome);
	if (code == EXIT_DONE)
		code = swap_judge(arguments, &outcome);
	json_decref(before);
	return code;
}

int command_swap(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);
	char model[ALIAS_TEXT];
	int code;

	if (arguments->given & OPTION_LOAD)
		return command_replace(client, arguments);
	if (arguments->given &
	    (OPTION_DEVICE | OPTION_KEY | OPTION_KEEP_OLD | OPTION_SHARE_WITH | OPTION_SEGMENT_BYTES))
		return exit_with(EXIT_USAGE, NULL,
				 "--device, --key, --share-with, --segment-bytes and --keep-old need --load");
	code = arguments_alias(arguments, model, &options.alias);
	if (code != EXIT_DONE)
		return code;
	options.model = model;
	options.to = arguments->positional[1];
	options.expect = arguments->expect;
	options.retire_old = arguments->given & OPTION_RETIRE_OLD;
	if ((arguments->given & OPTION_REMOVE) && options.to)
		return exit_with(EXIT_USAGE, NULL, "--remove takes no TO");
	/* An empty TO comes of an empty variable in a script: no wish to remove. */
	if (!(arguments->given & OPTION_REMOVE) && (!options.to || !options.to[0]))
		return exit_with(EXIT_USAGE,
				 "TO is a tag, an alias or a version id; --remove removes the alias",
				 "swap needs TO");
	return swap_run(client, arguments, &options);
}

int command_rollback(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);

	options.model = arguments->positional[0];
	options.to = "previous";
	return swap_run(client, arguments, &options);
}

static int pin_print(const struct arguments *arguments, const char *what)
{
	if (arguments->json)
		return answer_print(json_pack("{s:s, s:s, s:s}", "action", what, "ref",
					      arguments->positional[0], "pin", arguments->positional[1]));
	printf("%s: %s as '%s'\n", what, arguments->positional[0], arguments->positional[1]);
	return EXIT_DONE;
}

int command_pin(struct gpuwm_client *client, const struct arguments *arguments)
{
	if (gpuwm_pin(client, arguments->positional[0], arguments->positional[1]) < 0)
		return exit_with_error();
	return pin_print(arguments, "pinned");
}

int command_unpin(struct gpuwm_client *client, const struct arguments *arguments)
{
	if (gpuwm_unpin(client, arguments->positional[0], arguments->positional[1]) < 0)
		return exit_with_error();
	return pin_print(arguments, "unpinned");
}

/* ---- retire ------------------------------------------------------------ */

/* The version is not listed, and is there: it has no name. Only those who hold it know more. */
static int retire_print_nameless(const struct arguments *arguments, const char *id)
{
	if (arguments->json)
		return answer_print(json_pack("{s:s, s:s, s:n, s:n}", "version", id, "state", "retiring",
					      "leases", "pins"));
	printf("%s is retiring: it is freed when its last lease and pin are gone\n", id);
	return EXIT_DONE;
}

/* What still holds the version, for the reader: it may be freed a moment later. */
static int retire_print(const struct arguments *arguments, const char *id, const json_t *version)
{
	const bool forced = arguments->given & OPTION_FORCE;
	unsigned long long leases = answer_number(version, "leases");
	size_t pins = json_array_size(json_object_get(version, "pins"));

	if (arguments->json)
		return answer_print(json_pack("{s:s, s:s, s:I, s:I}", "version", id, "state",
					      version ? "retiring" : "freed", "leases", (json_int_t)leases,
					      "pins", (json_int_t)pins));
	if (version && forced && arguments->after_ms > 0)
		printf("%s is retiring: %llu leases hold it, and gpuwmd revokes them in %llu ms\n",
		       arguments->positional[0], leases, (unsigned long long)arguments->after_ms);
	else if (version && (forced || (leases == 0 && pins == 0)))
		printf("%s is being freed\n", arguments->positional[0]);
	else if (version)
		printf("%s is retiring: %llu leases and %zu pins hold it\n", arguments->positional[0], leases,
		       pins);
	else
		printf("%s is freed\n", arguments->positional[0]);
	return EXIT_DONE;
}

/* A second retire succeeds only while gpuwmd still has the version. */
static bool is_unlisted(struct gpuwm_client *client, const json_t *list, const char *id)
{
	return !answer_version(list, id) && gpuwm_retire(client, id, 0) == 0;
}

/* An id stands for itself: `list` may not have it. */
static void id_of_ref(const json_t *list, const char *ref, char ret_id[VERSION_ID_TEXT])
{
	uint8_t id[16];

	snprintf(ret_id, VERSION_ID_TEXT, "%s", hex128_parse(ref, id) == 0 ? ref : answer_ref(list, ref));
}

int command_retire(struct gpuwm_client *client, const struct arguments *arguments)
{
	int64_t wait_ms = arguments->given & OPTION_WAIT ? arguments->wait_ms : 0;
	const uint64_t *after_ms = arguments->given & OPTION_FORCE ? &arguments->after_ms : NULL;
	json_t *list;
	char id[VERSION_ID_TEXT];
	int code;

	if ((arguments->given & OPTION_AFTER) && !after_ms)
		return exit_with(EXIT_USAGE, NULL, "--after needs --force");
	code = answer_get(client, "list", NULL, &list);
	if (code != EXIT_DONE)
		return code;
	id_of_ref(list, arguments->positional[0], id);
	json_decref(list);
	if (version_retire(client, arguments->positional[0], id, after_ms, wait_ms) < 0)
		return exit_with_error();
	code = answer_get(client, "list", NULL, &list);
	if (code != EXIT_DONE)
		return code;
	code = is_unlisted(client, list, id) ? retire_print_nameless(arguments, id)
					     : retire_print(arguments, id, answer_version(list, id));
	json_decref(list);
	return code;
}

/* ---- rm ---------------------------------------------------------------- */

int command_rm(struct gpuwm_client *client, const struct arguments *arguments)
{
	const char *ref = arguments->positional[0];

	if (gpuwm_remove(client, ref) < 0)
		return exit_with_error();
	if (arguments->json)
		return answer_print(json_pack("{s:s, s:s}", "ref", ref, "state", "removed"));
	printf("%s is removed\n", ref);
	return EXIT_DONE;
}

/* ---- drain ------------------------------------------------------------- */

static int left_print(const json_t *answer)
{
	static const struct column columns[] = {
		{"STILL HELD", cell_name, NULL},
		{">LEASES", cell_number, "leases"},
		{"PINS", cell_number, "pins"},
		{0},
	};

	const json_t *left = json_object_get(answer, "left");

	if (json_array_size(left) > 0)
		return table_of(columns, left);
	puts("no version is left");
	return EXIT_DONE;
}

int command_drain(struct gpuwm_client *client, const struct arguments *arguments)
{
	const char *device = NULL;
	int code = EXIT_DONE;

	if (arguments->device_count > 1)
		return exit_with(EXIT_USAGE, "drain the GPUs one after the other",
				 "drain takes at most one --device");
	if (arguments->device_count == 1)
		code = device_resolve(client, arguments->devices[0], &device);
	return code == EXIT_DONE ? answer_show(client, arguments, "drain", device, left_print) : code;
}
