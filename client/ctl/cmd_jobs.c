/* jobs, cancel. */
#include "ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void job_row(struct table *table, const json_t *job)
{
	uint64_t done = answer_number(job, "done"), total = answer_number(job, "total");
	char devices[512], age[SHORT_TEXT], size[SHORT_TEXT];

	table_cellf(table, "%" PRIu64, answer_number(job, "job"));
	table_cell(table, json_is_true(json_object_get(job, "dry_run")) ? "dry run" : answer_text(job, "kind"));
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
	char text[SHORT_TEXT];

	table_cell(table, answer_text(phase, "phase"));
	table_cell(table, time_text(ms, text));
	table_cell(table, bytes ? size_text(bytes, text) : "");
	table_cell(table, rate_text(bytes, ms, text));
}

/* What was copied, or else what the last phase that counts has done. */
static uint64_t bytes_of(const json_t *job)
{
	const json_t *phase;
	size_t i;

	json_array_foreach(json_object_get(job, "phases"), i, phase) {
		if (strcmp(answer_text(phase, "phase"), "copying") == 0)
			return answer_number(phase, "bytes");
	}
	return answer_number(job, "done");
}

/* From the request on, the wait for a loader included. */
static void total_row(struct table *table, const json_t *job)
{
	uint64_t ms = 0, bytes = bytes_of(job);
	const json_t *phase;
	char text[SHORT_TEXT];
	size_t i;

	json_array_foreach(json_object_get(job, "phases"), i, phase) {
		ms += answer_number(phase, "ms");
	}
	table_cell(table, "total");
	table_cell(table, time_text(ms, text));
	table_cell(table, bytes ? size_text(bytes, text) : "");
	table_cell(table, rate_text(bytes, ms, text));
}

void job_notes_print(const json_t *job)
{
	char text[UTF8_SHOWN_MAX(TEXT_BYTES_MAX)];
	const json_t *note;
	size_t i;

	json_array_foreach(json_object_get(job, "notes"), i, note) {
		utf8_show(json_string_value(note), text, sizeof(text));
		printf("note: %s\n", text);
	}
}

int job_course_print(const json_t *job)
{
	const json_t *phase;
	struct table *table = table_new("PHASE|>TIME|>BYTES|>RATE");
	size_t i;
	int code;

	json_array_foreach(json_object_get(job, "phases"), i, phase) {
		phase_row(table, phase);
	}
	total_row(table, job);
	code = table_print(table);
	job_notes_print(job);
	return code;
}

/* ---- the plan of a dry run -------------------------------------------- */

/* Bytes, or "" where they are not known. */
static void known_size(struct table *table, const json_t *object, const char *key)
{
	if (json_object_get(object, key))
		table_size(table, answer_number(object, key));
	else
		table_cell(table, "");
}

/* "yes", "no", "short of free" */
static const char *fits_text(const json_t *device)
{
	if (!json_is_true(json_object_get(device, "fits")))
		return "no";
	return json_is_true(json_object_get(device, "short_of_free")) ? "short of free" : "yes";
}

static int plan_table(const json_t *devices)
{
	struct table *table = table_new("DEVICE|>BYTES|>SEGMENTS|>CONTEXT|>FREE|>BUDGET LEFT|FITS");
	const json_t *device;
	char name[16];
	size_t i;

	json_array_foreach(devices, i, device) {
		device_short(answer_text(device, "device"), name);
		table_cell(table, name);
		table_size(table, answer_number(device, "bytes"));
		table_cellf(table, "%" PRIu64, answer_number(device, "segments"));
		table_size(table, answer_number(device, "context"));
		known_size(table, device, "free");
		table_size(table, answer_number(device, "budget_left"));
		table_cell(table, fits_text(device));
	}
	return table_print(table);
}

/* gpuwmd would refuse the load, in these words. */
static int no_room(const json_t *device)
{
	const json_t *refusal = json_object_get(device, "refusal");

	fflush(stdout); /* the table comes first */
	return exit_with(EXIT_NO_ROOM, answer_text(refusal, "detail"), "%s", answer_text(refusal, "message"));
}

/* gpuwmd would start the load. */
static int short_of_free(const json_t *device)
{
	uint64_t needed = answer_number(device, "bytes") + answer_number(device, "context");
	char needed_size[SHORT_TEXT], free_size[SHORT_TEXT];

	fflush(stdout);
	return exit_with(
		EXIT_NO_ROOM,
		"something other than gpuwm uses the memory: nvidia-smi shows it for a GPU, free for the host",
		"%s: the load needs %s, and %s are free: it would start, since the budget allows it, and would "
		"fail unless more is free by then",
		answer_text(device, "device"), size_text(needed, needed_size),
		size_text(answer_number(device, "free"), free_size));
}

/* The files are a little more than their tensors. */
static unsigned cached_percent(const json_t *plan)
{
	double share = (double)answer_number(plan, "cached") / (double)answer_number(plan, "bytes");

	return answer_number(plan, "bytes") == 0 || share > 1 ? 100 : (unsigned)(share * 100);
}

int job_plan_print(const json_t *job)
{
	const json_t *plan = json_object_get(job, "plan");
	uint64_t files = answer_number(plan, "files"), tensors = answer_number(plan, "tensors");
	char size[SHORT_TEXT];

	printf("%s: %" PRIu64 " file%s, %" PRIu64 " tensor%s, %s, %u%% of it cached\n",
	       answer_text(job, "source"), files, files == 1 ? "" : "s", tensors, tensors == 1 ? "" : "s",
	       size_text(answer_number(plan, "bytes"), size), cached_percent(plan));
	return plan_table(json_object_get(plan, "devices"));
}

int job_plan_judge(const json_t *job)
{
	const json_t *devices = json_object_get(json_object_get(job, "plan"), "devices"), *device;
	int code = EXIT_DONE;
	size_t i;

	json_array_foreach(devices, i, device) {
		if (!json_is_true(json_object_get(device, "fits")))
			code = no_room(device);
		else if (json_is_true(json_object_get(device, "short_of_free")))
			code = short_of_free(device);
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
		answer_error_print(job, "error", name);
	}
	return code;
}

static int job_print(const json_t *job)
{
	int code = job_course_print(job);

	return code == EXIT_DONE && json_object_get(job, "plan") ? job_plan_print(job) : code;
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
		code = job_print(json_array_get(json_object_get(jobs, "jobs"), 0));
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
		return answer_print(json_pack("{s:I, s:s}", "job", (json_int_t)job, "state", "cancelled"));
	printf("job %" PRIu64 " is cancelled\n", job);
	return EXIT_DONE;
}
