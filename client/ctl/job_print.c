#include "load.h"

#include "answer.h"
#include "exit.h"
#include "line.h"
#include "table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool job_is_over(const json_t *job)
{
	const char *state = answer_text(job, "state");

	return strcmp(state, "done") == 0 || strcmp(state, "failed") == 0 || strcmp(state, "cancelled") == 0;
}

/* ---- its course -------------------------------------------------------- */

static const char *phase_bytes(const json_t *phase, const char *key, char text[CELL_TEXT])
{
	return answer_number(phase, key) ? cell_size(phase, key, text) : "";
}

static const char *phase_rate(const json_t *phase, const char *key, char text[CELL_TEXT])
{
	return rate_text(answer_number(phase, key), answer_number(phase, "ms"), text);
}

void job_notes_print(const json_t *job)
{
	const json_t *note;
	size_t i;

	json_array_foreach(json_object_get(job, "notes"), i, note) {
		say("note: %s", json_string_value(note));
	}
}

int job_course_print(const json_t *job)
{
	static const struct column columns[] = {
		{"PHASE", cell_text, "phase"},
		{">TIME", cell_time, "ms"},
		{">BYTES", phase_bytes, "bytes"},
		{">RATE", phase_rate, "bytes"},
		{0},
	};
	const json_t *copying = answer_find(job, "phases", "phase", "copying"), *phase;
	json_t *phases = json_array();
	uint64_t ms = 0, bytes;
	size_t i;
	int code;

	json_array_foreach(json_object_get(job, "phases"), i, phase) {
		json_array_append(phases, (json_t *)phase);
		ms += answer_number(phase, "ms");
	}
	/* The sum of the phases is from the request on, the wait for a loader included. Its bytes are what was copied, or else what the
	 * last phase that counts has done. */
	bytes = copying ? answer_number(copying, "bytes") : answer_number(job, "done");
	json_array_append_new(phases, json_pack("{s:s, s:I, s:I}", "phase", "total", "ms", (json_int_t)ms,
						"bytes", (json_int_t)bytes));
	code = table_of(columns, phases);
	json_decref(phases);
	job_notes_print(job);
	return code;
}

/* ---- the plan of a dry run -------------------------------------------- */

static const char *plan_fits(const json_t *device, const char *key, char text[CELL_TEXT])
{
	(void)text;
	if (!json_is_true(json_object_get(device, key)))
		return "no";
	return json_is_true(json_object_get(device, "short_of_free")) ? "short of free" : "yes";
}

/* gpuwmd would start the load. */
static int short_of_free(const json_t *device)
{
	uint64_t needed = answer_number(device, "bytes") + answer_number(device, "context");
	char needed_size[SHORT_TEXT], free_size[SHORT_TEXT];

	return exit_with(
		EXIT_NO_ROOM,
		"something other than gpuwm uses the memory: nvidia-smi shows it for a GPU, free for the host",
		"%s: the load needs %s, and %s are free: it would start, since the budget allows it, and would "
		"fail unless more is free by then",
		answer_text(device, "device"), size_text(needed, needed_size),
		size_text(answer_number(device, "free"), free_size));
}

int job_plan_print(const json_t *job)
{
	static const struct column columns[] = {
		{"DEVICE", cell_device, "device"},      {">BYTES", cell_size, "bytes"},
		{">SEGMENTS", cell_number, "segments"}, {">CONTEXT", cell_size, "context"},
		{">FREE", cell_size_known, "free"},     {">BUDGET LEFT", cell_size, "budget_left"},
		{"!FITS", plan_fits, "fits"},           {0},
	};
	const json_t *plan = json_object_get(job, "plan"), *version;
	const uint64_t files = answer_number(plan, "files"), tensors = answer_number(plan, "tensors"),
		       bytes = answer_number(plan, "bytes");
	const double cached = (double)answer_number(plan, "cached") / (double)bytes;
	char size[SHORT_TEXT];
	size_t i;
	int code;

	/* The files are a little more than their tensors. */
	say("%s: %" PRIu64 " file%s, %" PRIu64 " tensor%s, %s, %u%% of it cached", answer_text(job, "source"),
	    files, files == 1 ? "" : "s", tensors, tensors == 1 ? "" : "s", size_text(bytes, size),
	    bytes == 0 || cached > 1 ? 100 : (unsigned)(cached * 100));
	code = table_of(columns, json_object_get(plan, "devices"));
	json_array_foreach(json_object_get(plan, "demotes"), i, version) {
		say("%s@%s would go to %s, which frees %s of %s", answer_text(version, "model"),
		    answer_text(version, "tag"), answer_text(version, "to"),
		    size_text(answer_number(version, "bytes"), size), answer_text(version, "device"));
	}
	return code;
}

int job_plan_judge(const json_t *job)
{
	const json_t *devices = json_object_get(json_object_get(job, "plan"), "devices"), *device;
	int code = EXIT_DONE;
	size_t i;

	json_array_foreach(devices, i, device) {
		const json_t *refusal = json_object_get(device, "refusal");

		fflush(stdout); /* the table comes first */
		if (!json_is_true(
			    json_object_get(device, "fits"))) /* gpuwmd would refuse the load, in these words */
			code = exit_with(EXIT_NO_ROOM, answer_text(refusal, "detail"), "%s",
					 answer_text(refusal, "message"));
		else if (json_is_true(json_object_get(device, "short_of_free")))
			code = short_of_free(device);
	}
	return code;
}
