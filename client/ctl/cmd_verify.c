/* verify: is what lies in memory still what was checked? */
#include "commands.h"

#include "answer.h"
#include "cells.h"
#include "device.h"
#include "exit.h"
#include "leases.h"

#include "../../proto/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* One a replica. */
struct verify {
	uint64_t jobs[GPUWM_VERIFY_JOBS_MAX];
	size_t count;
	json_t *told; /* the jobs as gpuwmd told them at their end */
	enum exit_code code; /* damage counts more than what else failed */
};

static int jobs_begin(struct gpuwm_client *client, const struct arguments *arguments, struct verify *verify)
{
	const char *device = NULL;
	int code = EXIT_DONE;

	if (arguments->device_count > 1)
		return exit_with(EXIT_USAGE, "without --device, verify reads all replicas",
				 "verify takes at most one --device");
	if (arguments->device_count == 1)
		code = device_resolve(client, arguments->devices[0], &device);
	if (code != EXIT_DONE)
		return code;
	if (gpuwm_verify(client, arguments->positional[0], device, verify->jobs, &verify->count) < 0)
		return exit_with_error();
	return EXIT_DONE;
}

static json_t *jobs_numbers(const struct verify *verify)
{
	json_t *numbers = json_array();

	for (size_t i = 0; i < verify->count; i++)
		json_array_append_new(numbers, json_integer((json_int_t)verify->jobs[i]));
	return numbers;
}

static int unwatched_print(const struct arguments *arguments, const struct verify *verify)
{
	if (arguments->json)
		return answer_print(json_pack("{s:o}", "jobs", jobs_numbers(verify)));
	for (size_t i = 0; i < verify->count; i++)
		printf("job %" PRIu64 " verifies %s; gpuwmctl jobs %" PRIu64 " shows its progress\n",
		       verify->jobs[i], arguments->positional[0], verify->jobs[i]);
	return EXIT_DONE;
}

/* ---- waiting ----------------------------------------------------------- */

/* A job's own failure is told with the others; that of asking ends the command. */
static int job_wait(struct gpuwm_client *client, struct verify *verify, uint64_t job)
{
	enum exit_code code;
	json_t *told;
	int error;

	do
		error = gpuwm_job_wait(client, job, -1);
	while (error == -EINTR);
	if (error == -ECONNABORTED)
		return exit_with(EXIT_FAILED, "verify it again",
				 "job %" PRIu64 " ended, because gpuwmd went away", job);
	if (error == -ECONNRESET || error == -ECONNREFUSED)
		return exit_with_error();
	code = exit_code_of(error);
	if (code != EXIT_DONE && verify->code != EXIT_DAMAGED)
		verify->code = code;
	code = answer_job(client, job, &told);
	if (code == EXIT_DONE)
		json_array_append_new(verify->told, told);
	return code;
}

static int jobs_wait(struct gpuwm_client *client, struct verify *verify)
{
	int code = EXIT_DONE;

	verify->told = json_array();
	for (size_t i = 0; code == EXIT_DONE && i < verify->count; i++)
		code = job_wait(client, verify, verify->jobs[i]);
	return code;
}

/* ---- the result -------------------------------------------------------- */

static bool is_damage(const json_t *job)
{
	return strcmp(answer_text(json_object_get(job, "error"), "code"), "EBADMSG") == 0;
}

static const char *job_result(const json_t *job, const char *key, char text[CELL_TEXT])
{
	const char *state = cell_text(job, key, text);

	return is_damage(job) ? "tainted" : strcmp(state, "done") == 0 ? "intact" : state;
}

/* What was read, and how long that took, without the wait for a loader and its context. NULL: nothing was read. */
static const json_t *job_reading(const json_t *job)
{
	const json_t *phase, *reading = NULL;
	size_t i;

	json_array_foreach(json_object_get(job, "phases"), i, phase) {
		if (strcmp(answer_text(phase, "phase"), "verifying") == 0)
			reading = phase;
	}
	return reading;
}

static const char *job_read(const json_t *job, const char *key, char text[CELL_TEXT])
{
	return cell_size(job_reading(job), key, text);
}

static const char *job_time(const json_t *job, const char *key, char text[CELL_TEXT])
{
	const json_t *reading = job_reading(job);

	return reading ? cell_time(reading, key, text) : "";
}

static const char *job_rate(const json_t *job, const char *key, char text[CELL_TEXT])
{
	const json_t *reading = job_reading(job);

	return rate_text(answer_number(reading, key), answer_number(reading, "ms"), text);
}

static int jobs_print(const struct verify *verify)
{
	static const struct column columns[] = {
		{">JOB", cell_number, "job"},
		{"VERSION", cell_name, NULL},
		{"DEVICE", cell_devices, "devices"},
		{">RANK", cell_number, "rank"},
		{"RESULT", job_result, "state"},
		{">READ", job_read, "bytes"},
		{">TIME", job_time, "ms"},
		{">RATE", job_rate, "bytes"},
		{0},
	};
	int code = table_of(columns, verify->told);
	const json_t *job, *note;
	size_t i, j;

	json_array_foreach(verify->told, i, job) {
		json_array_foreach(json_object_get(job, "notes"), j, note) {
			char shown[UTF8_SHOWN_MAX(TEXT_BYTES_MAX)];

			utf8_show(json_string_value(note), shown, sizeof(shown));
			printf("job %" PRIu64 ": %s\n", answer_number(job, "job"), shown);
		}
	}
	fflush(stdout);
	json_array_foreach(verify->told, i, job) {
		const json_t *error = json_object_get(job, "error");

		if (error)
			exit_with(EXIT_FAILED, answer_text(error, "detail"), "job %" PRIu64 ": %s",
				  answer_number(job, "job"), answer_text(error, "message"));
	}
	return code;
}

/* Who has what is damaged. */
static int holders_print(struct gpuwm_client *client, const struct arguments *arguments,
			 const struct verify *verify)
{
	const json_t *job = json_array_get(verify->told, 0);
	json_t *leases;
	int code = leases_query(client, answer_text(job, "version"), &leases);

	if (code != EXIT_DONE)
		return code;
	if (arguments->json) {
		code = answer_print(json_pack("{s:O, s:o}", "jobs", verify->told, "leases", leases));
		return code;
	}
	if (json_array_size(leases) > 0) {
		printf("\nleases on this version:\n");
		code = leases_print(leases);
	} else {
		printf("\nno process has a lease on this version\n");
	}
	json_decref(leases);
	return code;
}

/* These parts are as they were, which does not speak for the others of their version. */
static int sound_print(struct gpuwm_client *client, const struct arguments *arguments,
		       const struct verify *verify)
{
	const json_t *job = json_array_get(verify->told, 0), *version;
	char name[1100];
	json_t *list;
	int code;

	code = answer_get(client, "list", answer_text(job, "model"), &list);
	if (code != EXIT_DONE)
		return code;
	version = answer_version(list, answer_text(job, "version"));
	if (arguments->json) {
		code = answer_print(json_pack("{s:O, s:O*}", "jobs", verify->told, "tainted",
					      json_object_get(version, "tainted")));
	} else {
		snprintf(name, sizeof(name), "%s@%s is still tainted", answer_text(version, "model"),
			 answer_text(version, "tag"));
		answer_error_print(version, "tainted", name);
	}
	json_decref(list);
	return code;
}

static int result_print(struct gpuwm_client *client, const struct arguments *arguments,
			const struct verify *verify)
{
	int code = EXIT_DONE;

	if (!arguments->json)
		code = jobs_print(verify);
	if (code == EXIT_DONE && verify->code == EXIT_DAMAGED)
		code = holders_print(client, arguments, verify);
	else if (code == EXIT_DONE)
		code = sound_print(client, arguments, verify);
	return code == EXIT_DONE ? (int)verify->code : code;
}

int command_verify(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct verify verify = {0};
	int code = jobs_begin(client, arguments, &verify);

	if (code != EXIT_DONE)
		return code;
	if (arguments->given & OPTION_NO_WAIT)
		return unwatched_print(arguments, &verify);
	code = jobs_wait(client, &verify);
	if (code == EXIT_DONE)
		code = result_print(client, arguments, &verify);
	json_decref(verify.told);
	return code;
}
