/* swap --load: loads beside, flips, retires the old one; or leaves all as it was. */
#include "commands.h"

#include "answer.h"
#include "device.h"
#include "exit.h"
#include "job_print.h"
#include "load_watch.h"
#include "version.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct replacement {
	struct gpuwm_client *client;
	const struct arguments *arguments;
	char model[ALIAS_TEXT], name[2 * ALIAS_TEXT]; /* of the new version */
	const char *alias;
	bool retire_old;
	json_t *list; /* when this began */
	char before[33]; /* what the alias named then; "": it was not there */
	struct swap_outcome outcome; /* of the flip */
};

static const char no_version[] = "00000000000000000000000000000000";

static int list_get(const struct replacement *r, json_t **ret_list)
{
	return answer_get(r->client, "list", r->model, ret_list);
}

/* ---- before ------------------------------------------------------------ */

static bool is_tag(const json_t *list, const char *name)
{
	const json_t *version;
	size_t i;

	json_array_foreach(json_object_get(list, "versions"), i, version) {
		if (strcmp(answer_text(version, "tag"), name) == 0 &&
		    strcmp(answer_text(version, "state"), "failed") != 0)
			return true;
	}
	return false;
}

/* What would fail after minutes of loading fails now. */
static int alias_check(const struct replacement *r, const json_t *list)
{
	const char *expect = r->arguments->expect, *before = *r->before ? r->before : no_version;

	if (strcmp(r->alias, "previous") == 0)
		return exit_with(EXIT_USAGE, "move current instead",
				 "the alias previous can't be moved: gpuwmd moves it when current moves");
	if (strcmp(r->alias, r->arguments->positional[1]) == 0)
		return exit_with(EXIT_IN_USE, "tags and aliases share one name space; take another tag",
				 "'%s' is given both as the alias and as the new tag", r->alias);
	if (is_tag(list, r->alias))
		return exit_with(EXIT_IN_USE, "tags and aliases share one name space; take another name",
				 "'%s' is a tag of %s", r->alias, r->model);
	if (expect && strcmp(expect, before) != 0)
		return exit_with(EXIT_IN_USE, "nothing was loaded", "%s@%s names %s, not %s", r->model,
				 r->alias, *r->before ? r->before : "nothing", expect);
	return EXIT_DONE;
}

static int replacement_begin(struct replacement *r)
{
	int code = list_get(r, &r->list);

	if (code != EXIT_DONE)
		return code;
	snprintf(r->before, sizeof(r->before), "%s", answer_alias(r->list, r->model, r->alias));
	return alias_check(r, r->list);
}

static int load_beside(const struct replacement *r, struct load_result *ret_result)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	const char *devices[DEVICES_MAX];
	int code = device_resolve_all(r->client, r->arguments, devices);
	char *source = code == EXIT_DONE ? load_source(r->arguments->load) : NULL;

	if (!source)
		return code == EXIT_DONE ? EXIT_FAILED : code;
	options.source = source;
	options.name = r->name;
	options.devices = r->arguments->device_count ? devices : NULL;
	options.device_count = r->arguments->device_count;
	options.key = r->arguments->key;
	options.key_count = r->arguments->key_count;
	code = load_watch(r->client, &options, LOAD_CANCELLED, ret_result);
	free(source);
	return code;
}

/* ---- the flip ---------------------------------------------------------- */

/* One that gpuwmd took and did not answer is there or not: then it is asked for again. The first version of a
 * model took current when it became ready. Who was told that the load is cancelled finds no alias moved, also where
 * that was too late for the load itself. */
static int flip(struct replacement *r, const char *version)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);
	json_t *list;
	bool moved;
	int code, error;

	options.model = r->model;
	options.alias = r->alias;
	options.to = version;
	options.expect = *r->before ? r->before : no_version;
	options.retire_old = r->outcome.retire_old = r->retire_old;
	do {
		code = list_get(r, &list);
		if (code != EXIT_DONE)
			return code;
		moved = strcmp(answer_alias(list, r->model, r->alias), version) == 0;
		json_decref(list);
		if (moved)
			return EXIT_DONE;
		if (load_interrupted())
			return exit_with(EXIT_FAILED, NULL, "cancelled after %s had become ready", r->name);
		error = version_swap(r->client, &options, &r->outcome);
	} while (error == -ECONNABORTED);
	return error < 0 ? (int)exit_with_error() : EXIT_DONE;
}

/* There was no flip, and why was told: the new version goes again. */
static void undo(const struct replacement *r, const char *version)
{
	if (version_retire(r->client, version, version, NULL, 0) == 0)
		fprintf(stderr, "gpuwmctl: %s was retired again; nothing has changed\n", r->name);
	else
		exit_with(EXIT_FAILED, gpuwm_error()->message,
			  "%s is ready and stays, since it could not be retired again", r->name);
}

/* ---- after ------------------------------------------------------------- */

static int replacement_print(struct replacement *r, const struct load_result *result)
{
	json_t *list;
	int code;

	if (r->arguments->json)
		return answer_print(json_pack(
			"{s:s, s:s, s:s, s:s?, s:b, s:o?, s:O?}", "model", r->model, "alias", r->alias,
			"version", result->version, "old", *r->before ? r->before : NULL, "retire_old",
			r->retire_old, "retire_error", swap_kept_json(&r->outcome), "job", result->told));
	code = list_get(r, &list);
	if (code != EXIT_DONE)
		return code;
	/* After a flip whose answer was lost, or that the load made, it tells nothing. */
	snprintf(r->outcome.old, sizeof(r->outcome.old), "%s", r->before);
	swap_tell(r->list, list, r->model, r->alias, &r->outcome);
	json_decref(list);
	return result->told ? job_course_print(result->told) : EXIT_DONE;
}

static int replacement_run(struct replacement *r)
{
	struct load_result result;
	int code = replacement_begin(r);

	if (code != EXIT_DONE)
		return code;
	code = load_beside(r, &result);
	if (code != EXIT_DONE) {
		fprintf(stderr, "gpuwmctl: the alias %s@%s was not moved\n", r->model, r->alias);
		return code;
	}
	code = flip(r, result.version);
	if (code == EXIT_DONE)
		code = replacement_print(r, &result);
	else
		undo(r, result.version);
	if (code == EXIT_DONE)
		code = swap_judge(r->arguments, &r->outcome);
	load_result_clear(&result);
	return code;
}

int command_replace(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct replacement r = {.client = client, .arguments = arguments};
	const char *tag = arguments->positional[1], *alias;
	int code = arguments_alias(arguments, r.model, &alias);

	if (code != EXIT_DONE)
		return code;
	if (!tag || !tag[0] || strlen(tag) >= ALIAS_TEXT)
		return exit_with(EXIT_USAGE, "gpuwmctl swap MODEL TAG --load SOURCE",
				 "swap --load needs the new version's tag");
	if (!arguments->load[0])
		return exit_with(EXIT_USAGE, NULL, "the source of --load is empty");
	if (arguments->given & OPTION_REMOVE)
		return exit_with(EXIT_USAGE, NULL, "--load and --remove can't be given together");
	if ((arguments->given & OPTION_RETIRE_OLD) && (arguments->given & OPTION_KEEP_OLD))
		return exit_with(EXIT_USAGE, "without both, the old version is retired",
				 "--retire-old and --keep-old can't be given together");
	r.alias = alias ? alias : "current";
	r.retire_old = !(arguments->given & OPTION_KEEP_OLD);
	snprintf(r.name, sizeof(r.name), "%s@%s", r.model, tag);
	code = replacement_run(&r);
	json_decref(r.list);
	return code;
}
