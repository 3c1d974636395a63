/* load. */
#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "line.h"
#include "load.h"
#include "table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool moves_current, from_peers, waits, verbose, with_companions;

static int take_from(const struct option_row *row, const char *text, void *data, struct error *error)
{
	(void)data;
	from_peers = strcmp(text, "peers") == 0;
	if (!from_peers)
		return error_set(error, -EINVAL, "peer://HOST/MODEL@TAG names one peer",
				 "--%s takes peers, not '%s'", row->name, text);
	return 0;
}

static int take_fingerprint(const struct option_row *row, const char *text, void *data, struct error *error)
{
	if (strlen(text) == FINGERPRINT_TEXT && strspn(text, "0123456789abcdefABCDEF") == FINGERPRINT_TEXT)
		return take_text(row, text, data, error);
	return error_set(error, -EINVAL, "gpuwmctl ls --peers prints it",
			 "--%s takes a fingerprint (64 hexadecimal digits), not '%s'", row->name, text);
}

static const struct option_row load_options[] = {
	ROW_LOAD_DEVICE(NULL, "make a replica on this device; if there are several ranks, the next rank"),
	{"alias", "then move this alias to the new version", "ALIAS", take_name,
	 .into = &load_given.options.alias},
	{"swap", "the same as --alias current", .into = &moves_current},
	ROWS_OF_A_LOAD("cut", "ranks", NULL),
	{"from", "SOURCE is MODEL@TAG of the first peer that has it", "peers", take_from, .into = NULL},
	{"expect", "take nothing if a peer's version has another fingerprint", "SHA256", take_fingerprint,
	 .into = &load_given.options.fingerprint},
	{"wait", "show the progress, and end when the version is ready", .into = &waits},
	{"verbose", "then show what each phase took", .into = &verbose, .letter = 'v', .needs = "wait"},
	{"companions", "then load what is beside the version: engines run these files as code",
	 .into = &with_companions, .needs = "wait"},
	{"dry-run", "load nothing: only say whether it fits", .into = &load_given.options.dry_run},
	{0},
};

static int outlived_print(const json_t *result)
{
	say("job %" PRIu64 ": %s is ready", answer_number(result, "job"), answer_text(result, "ref"));
	return EXIT_DONE;
}

/* Its gpuwmd went away, and nobody tells of the job any more: only that its version is ready. */
static int outlived_show(struct gpuwm_client *client, const struct gpuwm_load_options *options,
			 const struct load_result *result)
{
	static const struct view view = {outlived_print, cell_text, "ref", NULL};
	char ref[600];
	json_t *list;
	bool moved;
	int code = answer_get(client, "list", NULL, &list);

	if (code != EXIT_DONE)
		return code;
	snprintf(ref, sizeof(ref), "%.*s@%s", (int)strcspn(options->name, "@"), options->name,
		 options->alias ? options->alias : "");
	moved = !options->alias || strcmp(answer_ref(list, ref), result->version) == 0;
	json_decref(list);
	if (!moved)
		return exit_with(
			EXIT_FAILED, "move the alias with gpuwmctl swap",
			"%s is ready, but gpuwmd went away, and the alias %s does not name the version",
			options->name, options->alias);
	return result_show(json_pack("{s:I, s:s, s:s, s:s}", "job", (json_int_t)result->job, "state", "done",
				     "version", result->version, "ref", options->name),
			   &view);
}

static void ready_say(const json_t *job)
{
	char name[CELL_TEXT];

	if (!json_object_get(job, "error"))
		say("job %" PRIu64 ": %s is ready", answer_number(job, "job"), cell_name(job, NULL, name));
}

static void companions_say(const json_t *job)
{
	const json_t *name;
	size_t i;

	json_array_foreach(json_object_get(job, "companions"), i, name)
		say("its companion %s is ready", json_string_value(name));
}

static int loaded_print(const json_t *job)
{
	ready_say(job);
	companions_say(job);
	job_notes_print(job);
	return EXIT_DONE;
}

static int loaded_print_all(const json_t *job)
{
	ready_say(job);
	companions_say(job);
	return job_course_print(job);
}

static int load_beside(struct gpuwm_client *client, const struct gpuwm_load_options *options,
		       const struct load_result *result)
{
	json_t *names = json_array();
	int code = EXIT_DONE;

	if (with_companions)
		code = companions_load(client, options->source, options->name, result->version, names);
	if (with_companions && result->told)
		json_object_set(result->told, "companions", names);
	json_decref(names);
	return code;
}

/* The version is ready; an error tells that the alias was not moved. */
static int loaded_show(const struct load_result *result)
{
	static const struct view view = {loaded_print, cell_name, NULL, NULL};
	static const struct view all = {loaded_print_all, cell_name, NULL, NULL};
	const json_t *error = json_object_get(result->told, "error");
	int code = result_show(json_incref(result->told), verbose ? &all : &view);

	if (error && code == EXIT_DONE)
		code = answer_error_tell(error, EXIT_FAILED, "");
	return code;
}

static int plan_print(const json_t *job)
{
	int code = job_plan_print(job);

	job_notes_print(job);
	return code;
}

static int begun_print(const json_t *result)
{
	const uint64_t job = answer_number(result, "job");

	say("job %" PRIu64 " loads %s; gpuwmctl jobs %" PRIu64 " shows its progress", job,
	    answer_text(result, "ref"), job);
	return EXIT_DONE;
}

/* Begins the load, and with --wait or --dry-run waits for its end. */
static int load_begin(struct gpuwm_client *client, const struct gpuwm_load_options *options)
{
	static const struct view begun_view = {begun_print, cell_number, "job", NULL};
	static const struct view plan_view = {plan_print, cell_number, "job", NULL};
	struct load_result result;
	uint64_t job;
	int code, beside = EXIT_DONE;

	if (!waits && !options->dry_run) {
		if (gpuwm_load(client, options, &job) < 0)
			return exit_with_error();
		return result_show(json_pack("{s:I, s:s}", "job", (json_int_t)job, "ref", options->name),
				   &begun_view);
	}
	code = load_watch(client, options, options->dry_run ? LOAD_CANCELLED : LOAD_GOES_ON, &result);
	if (code != EXIT_DONE)
		return code;
	if (!options->dry_run)
		beside = load_beside(client, options, &result);
	if (!result.told) {
		code = outlived_show(client, options, &result);
	} else if (options->dry_run) {
		code = result_show(json_incref(result.told), &plan_view);
		if (code == EXIT_DONE)
			code = job_plan_judge(result.told);
	} else {
		code = loaded_show(&result);
	}
	load_result_clear(&result);
	return code == EXIT_DONE ? beside : code;
}

static int load_find_source(struct gpuwm_client *client, const struct arguments *arguments,
			    struct load_from *ret_from)
{
	const char *source = arguments->positional[0], *ref = arguments->positional[1];

	if (!ref && !hub_is_source(source))
		return exit_with(EXIT_USAGE,
				 "write it behind the source; only a model of the hub has a name of its own",
				 "load needs MODEL@TAG");
	if (!from_peers)
		return load_from_find(client, source, ref, ret_from);
	*ret_from = (struct load_from){0};
	if (asprintf(&ret_from->source, "peer:///%s", source) < 0)
		return exit_with(EXIT_FAILED, NULL, "out of memory");
	return EXIT_DONE;
}

static int load_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct gpuwm_load_options *options = &load_given.options;
	struct load_from from;
	int code;

	/* It comes of an empty variable in a script, and would be the working directory. */
	if (!arguments->positional[0][0])
		return exit_with(EXIT_USAGE, NULL, "the source is empty");
	if (moves_current && options->alias)
		return exit_with(EXIT_USAGE, "--swap means --alias current",
				 "--swap and --alias can't be given together");
	code = load_given_finish(client);
	if (code == EXIT_DONE)
		code = load_find_source(client, arguments, &from);
	if (code != EXIT_DONE)
		return code;
	load_from_put(&from, options);
	options->name = arguments->positional[1] ? arguments->positional[1] : from.ref;
	if (moves_current)
		options->alias = "current";
	code = load_begin(client, options);
	load_from_clear(&from);
	return code;
}

const struct command command_load = {
	.name = "load",
	.words = {{"SOURCE", WORD_SOURCE, false}, {"MODEL@TAG", WORD_NEW, true}},
	.summary = "load a checkpoint as a new version",
	.about =
		"The first version of a model that becomes ready becomes current. A later one becomes current with --swap. "
		"SOURCE is a path, or hf:ORG/NAME[@REVISION] for a model that the hub's cache has; then MODEL@TAG may be "
		"left out.",
	.options = load_options,
	.example = "gpuwmctl load --wait hf:Qwen/Qwen3-8B\n"
		   "gpuwmctl load --wait --swap /models/llama-v2 llama@v2\n"
		   "gpuwmctl load --dry-run /models/llama-v3 llama@v3\n"
		   "gpuwmctl load --ranks 2 --cut llama /models/llama-v3 llama@v3\n"
		   "gpuwmctl load --wait peer://node7/llama@v2 llama@v2",
	.run = load_run,
};
