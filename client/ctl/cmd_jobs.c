/* jobs, cancel. */
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

static const struct option_row jobs_options[] = {ROW_WATCH, {0}};

static int job_number(const char *text, uint64_t *ret_job)
{
	char *end;

	errno = 0;
	*ret_job = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end != '\0' || errno != 0)
		return exit_with(EXIT_USAGE, "gpuwmctl jobs lists the jobs", "'%s' is not the number of a job",
				 text);
	return EXIT_DONE;
}

static const char *job_kind(const json_t *job, const char *key, char text[CELL_TEXT])
{
	return json_is_true(json_object_get(job, "dry_run")) ? "dry run" : cell_text(job, key, text);
}

static const char *job_done(const json_t *job, const char *key, char text[CELL_TEXT])
{
	uint64_t done = answer_number(job, key), total = answer_number(job, "total");
	char size[SHORT_TEXT];

	if (total == 0)
		return "";
	snprintf(text, CELL_TEXT, "%.0f%% of %s", (double)done / (double)total * 100, size_text(total, size));
	return text;
}

static int jobs_print(const json_t *answer)
{
	static const struct column columns[] = {
		{">JOB", cell_number, "job"},
		{"KIND", job_kind, "kind"},
		{"!STATE", cell_text, "state"},
		{"PHASE", cell_text, "phase"},
		{"VERSION", cell_name, NULL},
		{"?DEVICES", cell_devices, "devices"},
		{">DONE", job_done, "done"},
		{">AGE", cell_age, "created_ms"},
		{"+ID", cell_text, "version"},
		{"+SOURCE", cell_text, "source"},
		{0},
	};
	const json_t *jobs = json_object_get(answer, "jobs"), *job;
	int code = table_or_say(columns, jobs, "no jobs in the last hour");
	char name[32];
	size_t i;

	json_array_foreach(jobs, i, job) {
		snprintf(name, sizeof(name), "job %" PRIu64, answer_number(job, "job"));
		answer_error_print(job, "error", name);
	}
	return code;
}

/* Of the only job in the answer. */
static int job_print(const json_t *answer)
{
	const json_t *job = json_array_get(json_object_get(answer, "jobs"), 0);
	int code = jobs_print(answer);

	if (code == EXIT_DONE)
		code = job_course_print(job);
	return code == EXIT_DONE && json_object_get(job, "plan") ? job_plan_print(job) : code;
}

static int jobs_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	static const struct view all = {jobs_print, cell_number, "job", "jobs"};
	static const struct view one = {job_print, cell_number, "job", "jobs"};
	const char *number = arguments->positional[0];
	uint64_t job;
	int code = number ? job_number(number, &job) : EXIT_DONE;

	return code == EXIT_DONE ? answer_show(client, "jobs", number, number ? &one : &all) : code;
}

const struct command command_jobs = {
	.name = "jobs",
	.words = {{"ID", WORD_JOB, true}},
	.summary = "list loads, checks and verifies: phases, progress, errors",
	.about = "With ID: that job, with each of its phases, and the loader's notes.",
	.options = jobs_options,
	.example = "gpuwmctl jobs 3",
	.run = jobs_run,
};

static int cancelled_print(const json_t *result)
{
	say("job %" PRIu64 " is cancelled", answer_number(result, "job"));
	return EXIT_DONE;
}

static int cancel_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	static const struct view view = {cancelled_print, cell_number, "job", NULL};
	uint64_t job;
	int code = job_number(arguments->positional[0], &job);

	if (code != EXIT_DONE)
		return code;
	if (gpuwm_job_cancel(client, job) < 0)
		return exit_with_error();
	return result_show(json_pack("{s:I, s:s}", "job", (json_int_t)job, "state", "cancelled"), &view);
}

const struct command command_cancel = {
	.name = "cancel",
	.words = {{"ID", WORD_JOB, false}},
	.summary = "end a queued or running job",
	.example = "gpuwmctl cancel 3",
	.run = cancel_run,
};
