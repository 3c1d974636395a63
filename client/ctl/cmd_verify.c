/* verify: is what lies in memory, or in the files of a version, still what was checked? */
#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "version.h"
#include "line.h"
#include "table.h"

#include "../../base/errors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *device;
static bool waits, of_source;
static const struct option_row verify_options[] = {
	ROW_DEVICE(device, "only the replica on this device"),
	{"source", "read the files it comes back from, not its memory", .into = &of_source},
	{"wait", "wait for the result", .into = &waits},
	{0},
};

/* One a replica. */
struct verify {
	uint64_t jobs[GPUWM_VERIFY_JOBS_MAX];
	size_t count;
	json_t *told; /* the jobs as gpuwmd told them at their end */
	enum exit_code code; /* damage counts more than what else failed */
};

static const char *job_of_number(const json_t *job, const char *key, char text[CELL_TEXT])
{
	(void)key;
	snprintf(text, CELL_TEXT, "%lld", (long long)json_integer_value(job));
	return text;
}

static int begun_print(const json_t *result)
{
	const json_t *job;
	size_t i;

	json_array_foreach(json_object_get(result, "jobs"), i, job) {
		const long long number = json_integer_value(job);

		say("job %lld verifies %s; gpuwmctl jobs %lld shows its progress", number,
		    answer_text(result, "ref"), number);
	}
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

/* ---- the result -------------------------------------------------------- */

static const char *job_result(const json_t *job, const char *key, char text[CELL_TEXT])
{
	const char *state = cell_text(job, key, text);

	if (strcmp(answer_text(json_object_get(job, "error"), "code"), "EBADMSG") == 0)
		return json_object_get(job, "source") ? "differs" : "tainted";
	return strcmp(state, "done") == 0 ? "intact" : state;
}

/* What was read, and how long that took, without the wait for a loader and its context. NULL: nothing was read. */
static const json_t *job_reading(const json_t *job)
{
	return answer_find(job, "phases", "phase", json_object_get(job, "source") ? "reading" : "verifying");
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

static int jobs_print(const json_t *jobs)
{
	static const struct column columns[] = {
		{">JOB", cell_number, "job"},
		{"VERSION", cell_name, NULL},
		{"DEVICE", cell_devices, "devices"},
		{">RANK", cell_number, "rank"},
		{"!RESULT", job_result, "state"},
		{">READ", job_read, "bytes"},
		{">TIME", job_time, "ms"},
		{">RATE", job_rate, "bytes"},
		{0},
	};
	int code = table_of(columns, jobs);
	const json_t *job, *note;
	size_t i, j;

	json_array_foreach(jobs, i, job) {
		json_array_foreach(json_object_get(job, "notes"), j, note) {
			say("job %" PRIu64 ": %s", answer_number(job, "job"), json_string_value(note));
		}
	}
	return code;
}

static int verified_print(const json_t *result)
{
	const json_t *jobs = json_object_get(result, "jobs"), *leases = json_object_get(result, "leases");
	char name[CELL_TEXT], text[CELL_TEXT + 20];
	int code = jobs_print(jobs);

	if (code == EXIT_DONE && leases) { /* who has what is damaged */
		putchar('\n');
		if (json_array_size(leases) == 0) {
			say("no process has a lease on this version");
		} else {
			say("leases on this version:");
			code = leases_print(leases);
		}
	}
	snprintf(text, sizeof(text), "%s is still tainted", cell_name(json_array_get(jobs, 0), NULL, name));
	answer_error_print(result, "tainted", text);
	return code;
}

static const char *verified_name(const json_t *result, const char *key, char text[CELL_TEXT])
{
	return cell_name(json_array_get(json_object_get(result, "jobs"), 0), key, text);
}

static int result_query(struct gpuwm_client *client, const struct verify *verify)
{
	static const struct view view = {verified_print, verified_name, NULL, NULL};
	const json_t *job = json_array_get(verify->told, 0);
	json_t *leases = NULL, *tainted = NULL, *list;
	char name[40];
	size_t i;
	int code;

	if (verify->code == EXIT_DAMAGED && !of_source) {
		code = leases_query(client, answer_text(job, "version"), &leases);
		if (code != EXIT_DONE)
			return code;
	} else if (!of_source) {
		/* These parts are as they were, which does not speak for the others of their version. */
		code = answer_get(client, "list", answer_text(job, "model"), &list);
		if (code != EXIT_DONE)
			return code;
		tainted = json_incref(
			json_object_get(answer_version(list, answer_text(job, "version")), "tainted"));
		json_decref(list);
	}
	code = result_show(
		json_pack("{s:O, s:o*, s:o*}", "jobs", verify->told, "leases", leases, "tainted", tainted),
		&view);
	json_array_foreach(verify->told, i, job) {
		const json_t *error = json_object_get(job, "error");

		snprintf(name, sizeof(name), "job %" PRIu64, answer_number(job, "job"));
		if (error)
			answer_error_tell(error, exit_code_of(error_code(answer_text(error, "code"))), name);
	}
	return code == EXIT_DONE ? (int)verify->code : code;
}

static int verify_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	static const struct view begun_view = {begun_print, job_of_number, NULL, "jobs"};
	const char *ref = arguments->positional[0], *on = NULL;
	struct verify verify = {0};
	int code = EXIT_DONE;

	if (device)
		code = device_resolve(client, device, &on);
	if (code != EXIT_DONE)
		return code;
	if ((of_source ? gpuwm_verify_source : gpuwm_verify)(client, ref, on, verify.jobs, &verify.count) < 0)
		return exit_with_error();
	if (!waits) {
		json_t *numbers = json_array();

		for (size_t i = 0; i < verify.count; i++)
			json_array_append_new(numbers, json_integer((json_int_t)verify.jobs[i]));
		return result_show(json_pack("{s:s, s:o}", "ref", ref, "jobs", numbers), &begun_view);
	}
	verify.told = json_array();
	for (size_t i = 0; code == EXIT_DONE && i < verify.count; i++)
		code = job_wait(client, &verify, verify.jobs[i]);
	if (code == EXIT_DONE)
		code = result_query(client, &verify);
	json_decref(verify.told);
	return code;
}

const struct command command_verify = {
	.name = "verify",
	.words = {{"REF", WORD_REF, false}},
	.summary = "read a version's memory again and compare it with its digests",
	.about = "With --source: the files that it comes back from, whatever tier it lies on.",
	.options = verify_options,
	.example = "gpuwmctl verify llama --wait\n"
		   "gpuwmctl verify llama --source --wait",
	.run = verify_run,
};
