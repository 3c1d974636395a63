/* jobs, cancel. */
#include "ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int job_number(const char *text, uint64_t *ret_job)
{
	char *end;

	errno = 0;
	*ret_job = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end != '\0' || errno != 0)
		return exit_with(EXIT_USAGE, "gpuwmctl jobs lists them", "'%s' is no job's number", text);
	return EXIT_DONE;
}

static void job_row(struct table *table, const json_t *job)
{
	uint64_t done = answer_number(job, "done"), total = answer_number(job, "total");
	char devices[512], age[SHORT_TEXT], size[SHORT_TEXT];

	table_cellf(table, "%" PRIu64, answer_number(job, "job"));
	table_cell(table, answer_text(job, "kind"));
	table_cell(table, answer_text(job, "state"));
	table_cell(table, answer_text(job, "phase"));
	answer_name_cell(table, job);
	device_short_join(json_object_get(job, "devices"), devices, sizeof(devices));
	table_cell(table, devices);
	if (total)
		table_cellf(table, "%.0f%% of %s", (double)done / (double)total * 100, size_text(total, size));
	else
		table_cell(table, "");
	table_cell(table, age_text(answer_number(job, "created_ms"), age));
}

/* ---- one job ----------------------------------------------------------- */

static void phase_row(struct table *table, const json_t *phase)
{
	uint64_t ms = answer_number(phase, "ms"), bytes = answer_number(phase, "bytes");
	char text[SHORT_TEXT], name[64];

	text_printable(answer_text(phase, "phase"), name, sizeof(name));
	table_cell(table, name);
	table_cell(table, time_text(ms, text));
	table_cell(table, bytes ? size_text(bytes, text) : "");
	table_cell(table, rate_text(bytes, ms, text));
}

/* From the request on, the wait for a loader included. */
static void total_row(struct table *table, const json_t *phases, uint64_t bytes)
{
	const json_t *phase;
	char text[SHORT_TEXT];
	uint64_t ms = 0;
	size_t i;

	json_array_foreach(phases, i, phase) {
		ms += answer_number(phase, "ms");
	}
	table_cell(table, "total");
	table_cell(table, time_text(ms, text));
	table_cell(table, bytes ? size_text(bytes, text) : "");
	table_cell(table, rate_text(bytes, ms, text));
}

int job_course_print(const json_t *job)
{
	const json_t *phases = json_object_get(job, "phases"), *phase, *note;
	struct table *table = table_new("PHASE|>TIME|>BYTES|>RATE");
	char text[1100];
	size_t i;
	int code;

	json_array_foreach(phases, i, phase) {
		phase_row(table, phase);
	}
	total_row(table, phases, answer_number(job, "done"));
	code = table_print(table);
	json_array_foreach(json_object_get(job, "notes"), i, note) {
		text_printable(json_string_value(note), text, sizeof(text));
		printf("note: %s\n", text);
	}
	return code;
}

/* ---- jobs -------------------------------------------------------------- */

static int jobs_print(const json_t *jobs)
{
	struct table *table = table_new(">JOB|KIND|STATE|PHASE|VERSION|DEVICES|>DONE|>AGE");
	const json_t *job;
	char name[32];
	size_t i;
	int code;

	json_array_foreach(jobs, i, job) {
		job_row(table, job);
	}
	code = table_print(table);
	json_array_foreach(jobs, i, job) {
		snprintf(name, sizeof(name), "job %" PRIu64, answer_number(job, "job"));
		answer_error_print(job, name);
	}
	return code;
}

int command_jobs(struct gpuwm_client *client, const struct arguments *arguments)
{
	uint64_t job;
	json_t *jobs;
	int code = EXIT_DONE;

	if (arguments->positional[0])
		code = job_number(arguments->positional[0], &job);
	if (code == EXIT_DONE)
		code = answer_query(client, arguments, "jobs", arguments->positional[0], &jobs);
	if (code != EXIT_DONE)
		return code;
	if (!arguments->json)
		code = jobs_print(json_object_get(jobs, "jobs"));
	if (!arguments->json && arguments->positional[0] && code == EXIT_DONE)
		code = job_course_print(json_array_get(json_object_get(jobs, "jobs"), 0));
	json_decref(jobs);
	return code;
}

int command_cancel(struct gpuwm_client *client, const struct arguments *arguments)
{
	uint64_t job;
	int code = job_number(arguments->positional[0], &job);

	if (code != EXIT_DONE)
		return code;
	if (gpuwm_job_cancel(client, job) < 0)
		return exit_with_error();
	if (arguments->json)
		return answer_print(json_pack("{s:I}", "job", (json_int_t)job));
	printf("job %" PRIu64 " is cancelled\n", job);
	return EXIT_DONE;
}
