/* swap --load: one request of gpuwmd, which loads beside, moves the alias and retires the old one, or leaves all as it was. */
#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "load.h"
#include "table.h"
#include "version.h"

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
	struct swap_outcome outcome;
};

static const char no_version[] = "00000000000000000000000000000000";

static int list_get(const struct replacement *r, json_t **ret_list)
{
	return answer_get(r->client, "list", r->model, ret_list);
}

/* ---- before ------------------------------------------------------------ */

/* What would fail after minutes of loading fails now. */
static int alias_check(const struct replacement *r, const json_t *list)
{
	const char *expect = r->arguments->expect, *before = *r->before ? r->before : no_version;
	const json_t *version;
	size_t i;

	if (strcmp(r->alias, "previous") == 0)
		return exit_with(EXIT_USAGE, "move current instead",
				 "the alias previous can't be moved: gpuwmd moves it when current moves");
	if (strcmp(r->alias, r->arguments->positional[1]) == 0)
		return exit_with(EXIT_IN_USE, "tags and aliases share one name space; take another tag",
				 "'%s' is given both as the alias and as the new tag", r->alias);
	json_array_foreach(json_object_get(list, "versions"), i, version) {
		if (strcmp(answer_text(version, "tag"), r->alias) == 0 &&
		    strcmp(answer_text(version, "state"), "failed") != 0)
			return exit_with(EXIT_IN_USE,
					 "tags and aliases share one name space; take another name",
					 "'%s' is a tag of %s", r->alias, r->model);
	}
	if (expect && strcmp(expect, before) != 0)
		return exit_with(EXIT_IN_USE, "nothing was loaded", "%s@%s names %s, not %s", r->model,
				 r->alias, *r->before ? r->before : "nothing", expect);
	return EXIT_DONE;
}

static int load_and_swap(const struct replacement *r, struct load_result *ret_result)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	const char *devices[DEVICES_MAX];
	struct load_from from;
	char *cut = NULL;
	int code = device_resolve_all(r->client, r->arguments, devices);

	if (code == EXIT_DONE && r->arguments->cut)
		code = cut_read(r->arguments->cut, &cut);
	if (code == EXIT_DONE)
		code = load_from_find(r->client, r->arguments->load, r->name, &from);
	if (code != EXIT_DONE) {
		free(cut);
		return code;
	}
	load_from_put(&from, &options);
	options.name = r->name;
	options.devices = r->arguments->device_count ? devices : NULL;
	options.device_count = r->arguments->device_count;
	options.key = r->arguments->key;
	options.key_count = r->arguments->key_count;
	options.share_with = r->arguments->share_with;
	options.segment_bytes = r->arguments->segment_bytes;
	options.ranks = r->arguments->ranks;
	options.cut = cut;
	options.alias = r->alias;
	options.expect = *r->before ? r->before : no_version;
	options.retire_old = r->retire_old;
	code = load_watch(r->client, &options, LOAD_CANCELLED, ret_result);
	free(cut);
	load_from_clear(&from);
	return code;
}

/* ---- after ------------------------------------------------------------- */

static int replaced_print(const json_t *result)
{
	const json_t *job = json_object_get(result, "job");
	int code = swap_print(result);

	return code == EXIT_DONE && json_is_object(job) ? job_course_print(job) : code;
}

static int replacement_show(struct replacement *r, const struct load_result *loaded)
{
	static const struct view view = {replaced_print, cell_text, "name", NULL};
	json_t *list, *result;
	int code = list_get(r, &list);

	if (code != EXIT_DONE)
		return code;
	result = swap_result(r->list, list, r->model, r->alias, &r->outcome);
	json_decref(list);
	json_object_set_new(result, "retire_old", json_boolean(r->retire_old));
	json_object_set_new(result, "job", loaded->told ? json_incref(loaded->told) : json_null());
	return result_show(result, &view);
}

static int replacement_run(struct replacement *r)
{
	struct load_result result;
	const json_t *kept;
	int code = list_get(r, &r->list);

	if (code != EXIT_DONE)
		return code;
	snprintf(r->before, sizeof(r->before), "%s", answer_alias(r->list, r->model, r->alias));
	code = alias_check(r, r->list);
	if (code != EXIT_DONE)
		return code;
	code = load_and_swap(r, &result);
	if (code != EXIT_DONE) {
		exit_note(NULL, "the alias %s@%s was not moved", r->model, r->alias);
		return code;
	}
	r->outcome.retire_old = r->retire_old;
	snprintf(r->outcome.old, sizeof(r->outcome.old), "%s", r->before);
	kept = json_object_get(result.told, "error"); /* why the old version was not retired */
	if (kept)
		error_set(&r->outcome.kept, error_code(answer_text(kept, "code")), answer_text(kept, "detail"),
			  "%s", answer_text(kept, "message"));
	code = replacement_show(r, &result);
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
	if (arguments->given[OPTION_REMOVE])
		return exit_with(EXIT_USAGE, NULL, "--load and --remove can't be given together");
	if (arguments->given[OPTION_RETIRE_OLD] && arguments->given[OPTION_KEEP_OLD])
		return exit_with(EXIT_USAGE, "without both, the old version is retired",
				 "--retire-old and --keep-old can't be given together");
	r.alias = alias ? alias : "current";
	r.retire_old = !arguments->given[OPTION_KEEP_OLD];
	snprintf(r.name, sizeof(r.name), "%s@%s", r.model, tag);
	code = replacement_run(&r);
	json_decref(r.list);
	return code;
}
