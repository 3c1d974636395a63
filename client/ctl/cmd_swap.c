/* swap: which version an alias names. */
#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "load.h"
#include "table.h"
#include "version.h"

#include <stdio.h>
#include <string.h>

static const char *expect, *load;
static bool retire_old, remove_it, keep_old;
static const struct option_row swap_options[] = {
	{"expect", "only if the alias names this version id now (32 zeros: nothing)", "ID", take_version_id,
	 .into = &expect, .kind = WORD_ID},
	{"retire-old", "retire the version that the alias named before", .into = &retire_old},
	{"remove", "remove the alias, in place of TO", .into = &remove_it},
	{"load", "load SOURCE as the new version TO, move the alias, and retire the old one", "SOURCE",
	 take_text, .into = &load, .kind = WORD_SOURCE},
	ROW_LOAD_DEVICE("load", "as for load"),
	ROWS_OF_A_LOAD("load", "load", "load"),
	{"keep-old", "don't retire the old version", .into = &keep_old, .needs = "load"},
	{0},
};

/* ---- --load ------------------------------------------------------------
 * One request of gpuwmd, which loads beside, moves the alias and retires the old one, or leaves all as it was. */

struct replacement {
	struct gpuwm_client *client;
	const char *tag; /* of the new version */
	char model[ALIAS_TEXT], name[2 * ALIAS_TEXT]; /* MODEL@TAG */
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

/* ---- before it ---- */

/* What would fail after minutes of loading fails now. */
static int alias_check(const struct replacement *r, const json_t *list)
{
	const char *before = *r->before ? r->before : no_version;
	const json_t *version;
	size_t i;

	if (strcmp(r->alias, "previous") == 0)
		return exit_with(EXIT_USAGE, "move current instead",
				 "the alias previous can't be moved: gpuwmd moves it when current moves");
	if (strcmp(r->alias, r->tag) == 0)
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
	struct gpuwm_load_options *options = &load_given.options;
	struct load_from from;
	int code = load_given_finish(r->client);

	if (code == EXIT_DONE)
		code = load_from_find(r->client, load, r->name, &from);
	if (code != EXIT_DONE)
		return code;
	load_from_put(&from, options);
	options->name = r->name;
	options->alias = r->alias;
	options->expect = *r->before ? r->before : no_version;
	options->retire_old = r->retire_old;
	code = load_watch(r->client, options, LOAD_CANCELLED, ret_result);
	load_from_clear(&from);
	return code;
}

/* ---- after it ---- */

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
		code = swap_judge(&r->outcome, retire_old);
	load_result_clear(&result);
	return code;
}

static int replace_run(struct gpuwm_client *client, const char *model, const char *alias, const char *tag)
{
	struct replacement r = {
		.client = client, .alias = alias ? alias : "current", .tag = tag, .retire_old = !keep_old};
	int code;

	if (!tag || !tag[0] || strlen(tag) >= ALIAS_TEXT)
		return exit_with(EXIT_USAGE, "gpuwmctl swap MODEL TAG --load SOURCE",
				 "swap --load needs the new version's tag");
	if (!load[0])
		return exit_with(EXIT_USAGE, NULL, "the source of --load is empty");
	if (remove_it)
		return exit_with(EXIT_USAGE, NULL, "--load and --remove can't be given together");
	if (retire_old && keep_old)
		return exit_with(EXIT_USAGE, "without both, the old version is retired",
				 "--retire-old and --keep-old can't be given together");
	snprintf(r.model, sizeof(r.model), "%s", model);
	snprintf(r.name, sizeof(r.name), "%s@%s", model, tag);
	code = replacement_run(&r);
	json_decref(r.list);
	return code;
}

/* ---- swap -------------------------------------------------------------- */

static int swap_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);
	char model[ALIAS_TEXT];
	int code;

	code = arguments_alias(arguments, model, &options.alias);
	if (code != EXIT_DONE)
		return code;
	if (load)
		return replace_run(client, model, options.alias, arguments->positional[1]);
	options.model = model;
	options.to = arguments->positional[1];
	options.expect = expect;
	options.retire_old = retire_old;
	if (remove_it && options.to)
		return exit_with(EXIT_USAGE, NULL, "--remove takes no TO");
	/* An empty TO comes of an empty variable in a script: no wish to remove. */
	if (!remove_it && (!options.to || !options.to[0]))
		return exit_with(EXIT_USAGE,
				 "TO is a tag, an alias or a version id; --remove removes the alias",
				 "swap needs TO");
	return alias_move(client, &options);
}

const struct command command_swap = {
	.name = "swap",
	.words = {{"MODEL[@ALIAS]", WORD_ALIAS_OF, false}, {"TO", WORD_TARGET, true}},
	.summary = "move an alias (default: current) to another version",
	.about =
		"TO is a tag, an alias or a version id of the model; with --load, a new tag. Attached workers keep the version "
		"that they have.",
	.options = swap_options,
	.example = "gpuwmctl swap llama v3\n"
		   "gpuwmctl swap llama v4 --load /models/llama-v4",
	.run = swap_run,
};
