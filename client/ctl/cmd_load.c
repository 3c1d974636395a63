/* load. */
#include "commands.h"

#include "answer.h"
#include "device.h"
#include "exit.h"
#include "job_print.h"
#include "load_watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the alias that was asked for names the version. */
static bool alias_moved(const json_t *list, const struct gpuwm_load_options *options, const char *id)
{
	char ref[600];

	snprintf(ref, sizeof(ref), "%.*s@%s", (int)strcspn(options->name, "@"), options->name,
		 options->alias ? options->alias : "");
	return !options->alias || strcmp(answer_ref(list, ref), id) == 0;
}

/* Its gpuwmd went away, and nobody tells of the job any more: only that its version is ready. */
static int outlived_print(struct gpuwm_client *client, const struct arguments *arguments,
			  const struct gpuwm_load_options *options, const struct load_result *result)
{
	json_t *list;
	int code;
	bool moved;

	code = answer_get(client, "list", NULL, &list);
	if (code != EXIT_DONE)
		return code;
	moved = alias_moved(list, options, result->version);
	json_decref(list);
	if (!moved)
		return exit_with(
			EXIT_FAILED, "move the alias with gpuwmctl swap",
			"%s is ready, but gpuwmd went away, and the alias %s does not name the version",
			options->name, options->alias);
	if (arguments->json)
		return answer_print(json_pack("{s:I, s:s, s:s}", "job", (json_int_t)result->job, "state",
					      "done", "version", result->version));
	printf("job %" PRIu64 ": %s is ready\n", result->job, options->name);
	return EXIT_DONE;
}

/* The version is ready; an error tells that the alias was not moved. */
static int result_print(const struct arguments *arguments, const struct load_result *result)
{
	const json_t *error = json_object_get(result->told, "error");
	int code;

	if (!arguments->json && !error)
		printf("job %" PRIu64 ": %s is ready\n", result->job, arguments->positional[1]);
	if (arguments->json)
		code = answer_print(json_incref(result->told));
	else
		code = job_course_print(result->told);
	if (error && code == EXIT_DONE)
		code = exit_with(EXIT_FAILED, answer_text(error, "detail"), "%s",
				 answer_text(error, "message"));
	return code;
}

/* Nothing was loaded. */
static int plan_result_print(const struct arguments *arguments, const struct load_result *result)
{
	int code = arguments->json ? answer_print(json_incref(result->told)) : job_plan_print(result->told);

	if (!arguments->json)
		job_notes_print(result->told);
	return code == EXIT_DONE ? job_plan_judge(result->told) : code;
}

static int load_watched(struct gpuwm_client *client, const struct arguments *arguments,
			const struct gpuwm_load_options *options)
{
	struct load_result result;
	int code = load_watch(client, options, options->dry_run ? LOAD_CANCELLED : LOAD_GOES_ON, &result);

	if (code != EXIT_DONE)
		return code;
	if (!result.told)
		code = outlived_print(client, arguments, options, &result);
	else
		code = options->dry_run ? plan_result_print(arguments, &result)
					: result_print(arguments, &result);
	load_result_clear(&result);
	return code;
}

static int load_unwatched(struct gpuwm_client *client, const struct arguments *arguments,
			  const struct gpuwm_load_options *options)
{
	uint64_t job;

	if (gpuwm_load(client, options, &job) < 0)
		return exit_with_error();
	if (arguments->json)
		return answer_print(json_pack("{s:I}", "job", (json_int_t)job));
	printf("job %" PRIu64 " loads %s; gpuwmctl jobs %" PRIu64 " shows its progress\n", job, options->name,
	       job);
	return EXIT_DONE;
}

int command_load(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	const char *devices[DEVICES_MAX];
	char *source;
	int code;

	/* It comes of an empty variable in a script, and would be the working directory. */
	if (!arguments->positional[0][0])
		return exit_with(EXIT_USAGE, NULL, "the source is empty");
	if ((arguments->given & OPTION_SWAP) && arguments->alias)
		return exit_with(EXIT_USAGE, "--swap means --alias current",
				 "--swap and --alias can't be given together");
	code = device_resolve_all(client, arguments, devices);
	if (code != EXIT_DONE)
		return code;
	source = load_source(arguments->positional[0]);
	if (!source)
		return EXIT_FAILED;
	options.source = source;
	options.name = arguments->positional[1];
	options.devices = arguments->device_count ? devices : NULL;
	options.device_count = arguments->device_count;
	options.alias = arguments->given & OPTION_SWAP ? "current" : arguments->alias;
	options.dry_run = arguments->given & OPTION_DRY_RUN;
	options.key = arguments->key;
	options.key_count = arguments->key_count;
	options.share_with = arguments->share_with;
	options.segment_bytes = arguments->segment_bytes;
	code = arguments->given & (OPTION_WAIT | OPTION_DRY_RUN) ? load_watched(client, arguments, &options)
								 : load_unwatched(client, arguments, &options);
	free(source);
	return code;
}
