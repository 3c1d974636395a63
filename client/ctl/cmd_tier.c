/* demote, promote, describe: where the memory of a version lies, and which files have it. */
#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "line.h"
#include "load.h"
#include "table.h"
#include "version.h"

#include "../../base/errors.h"
#include "../../proto/event_kind.h"
#include "../../proto/names.h"
#include "../../proto/tier_kind.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool waits; /* of each of them */
static const char *to_tier;

static int take_tier(const struct option_row *row, const char *text, void *data, struct error *error)
{
	char names[TIERS_TEXT];
	enum tier to;

	if (tier_find(text, &to) == 0 && !tier_is_resident(to))
		return take_text(row, text, data, error);
	return error_set(error, -EINVAL, NULL, "--%s takes %s, not '%s'", row->name,
			 tier_list(ON_DEVICE + 1, names), text);
}

static const struct option_row demote_options[] = {
	{"to", "host (host memory) or files (no memory)", "TIER", take_tier, .into = &to_tier},
	{"wait", "wait until the version lies there", .into = &waits},
	{0},
};

static const struct option_row promote_options[] = {
	{"wait", "wait until the version lies on its devices", .into = &waits},
	{0},
};

static const struct option_row describe_options[] = {
	{"wait", "wait until the files have been compared", .into = &waits},
	{0},
};

struct moving {
	struct gpuwm_client *client;
	const char *ref;
	const char *tier; /* where the version is to lie; NULL: it is described */
	uint64_t jobs[GPUWM_MOVE_JOBS_MAX];
	size_t count;
	bool was_there; /* it lay on `tier` before the request */
	char id[VERSION_ID_TEXT];
	char name[CELL_TEXT]; /* MODEL@TAG, or what the user wrote */
};

/* ---- what the list says ------------------------------------------------ */

/* EXIT_DONE with *ret_list for json_decref and *ret_version in it (NULL: it is gone). */
static int version_look(struct moving *m, json_t **ret_list, const json_t **ret_version)
{
	char text[CELL_TEXT];
	int code = answer_get(m->client, "list", NULL, ret_list);

	if (code != EXIT_DONE)
		return code;
	if (!*m->id)
		snprintf(m->id, sizeof(m->id), "%s", answer_ref(*ret_list, m->ref));
	*ret_version = answer_version(*ret_list, m->id);
	snprintf(m->name, sizeof(m->name), "%s", *ret_version ? cell_ref(*ret_version, NULL, text) : m->ref);
	return EXIT_DONE;
}

/* ---- waiting ----------------------------------------------------------- */

static void event_take(const struct gpuwm_event *event, void *user_data)
{
	static const char *const kinds[] = {EVENT_PROMOTED,    EVENT_DEMOTED,       EVENT_JOB,
					    EVENT_LOST,        EVENT_VERSION_FREED, EVENT_VERSION_RETIRING,
					    EVENT_DISCONNECTED};
	bool *look = user_data;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		*look = *look || strcmp(event->kind, kinds[i]) == 0;
}

/* EXIT_DONE with *ret_moving; or an exit code after printing why. */
static int is_moving(struct moving *m, bool *ret_moving)
{
	const json_t *version, *error;
	json_t *list;
	int code = version_look(m, &list, &version);

	if (code != EXIT_DONE)
		return code;
	*ret_moving = *answer_text(version, "moving");
	error = json_object_get(version, "promotion_error");
	if (!*ret_moving && error)
		code = answer_error_tell(error, exit_code_of(error_code(answer_text(error, "code"))), m->name);
	json_decref(list);
	return code;
}

/* A move that waits for room has no jobs yet; one onto a host copy needs none. */
static int room_wait(struct moving *m)
{
	struct gpuwm_events *events = NULL;
	bool moving = true, look;
	int code = EXIT_DONE, count;

	if (gpuwm_events_open(m->client, UINT64_MAX, &events) < 0)
		return exit_with_error();
	for (;;) {
		code = is_moving(m, &moving);
		if (code != EXIT_DONE || !moving)
			break;
		look = false;
		do
			count = gpuwm_events_dispatch(events, -1, event_take, &look);
		while (count == -EINTR || (count >= 0 && !look));
		if (count < 0) {
			code = exit_with_error();
			break;
		}
	}
	gpuwm_events_close(events);
	return code;
}

/* ---- the result -------------------------------------------------------- */

static void begun_say(const json_t *result)
{
	const json_t *jobs = json_object_get(result, "jobs");
	const char *name = answer_text(result, "name"), *to = answer_text(result, "to");
	const long long first = json_integer_value(json_array_get(jobs, 0));

	if (json_array_size(jobs) == 0)
		say("%s waits for room %s", name,
		    strcmp(to, "device") == 0 ? "on its devices" : "in host memory");
	else if (*to)
		say("%s is on its way to %s; gpuwmctl jobs %lld shows the progress", name,
		    strcmp(to, "device") == 0 ? "its devices" : to, first);
	else
		say("the files are compared with %s; gpuwmctl jobs %lld shows the progress", name, first);
}

static int moved_print(const json_t *result)
{
	const char *name = answer_text(result, "name"), *state = answer_text(result, "state");
	const char *tier = answer_text(result, "tier");

	if (strcmp(state, "begun") == 0)
		begun_say(result);
	else if (!*answer_text(result, "to"))
		say("described: %s, by %s", name, answer_text(result, "source"));
	else
		say("%s: %s lies on %s", state, name, strcmp(tier, "device") == 0 ? "its devices" : tier);
	return EXIT_DONE;
}

static int result_tell(struct moving *m)
{
	static const struct view view = {moved_print, cell_text, "name", NULL};
	json_t *list, *jobs = json_array();
	const json_t *version;
	const char *state;
	int code = version_look(m, &list, &version);

	if (code != EXIT_DONE) {
		json_decref(jobs);
		return code;
	}
	for (size_t i = 0; i < m->count; i++)
		json_array_append_new(jobs, json_integer((json_int_t)m->jobs[i]));
	if (m->tier)
		state = strcmp(tier_of(version), m->tier) == 0
				? m->was_there && m->count == 0 ? "unchanged" : "moved"
				: "begun";
	else
		state = waits ? "moved" : "begun";
	code = result_show(json_pack("{s:s, s:s, s:s?, s:s, s:s, s:s?, s:s*, s:o}", "ref", m->ref, "name",
				     m->name, "to", m->tier, "state", state, "tier", tier_of(version),
				     "version", *m->id ? m->id : NULL, "source",
				     json_string_value(json_object_get(version, "source")), "jobs", jobs),
			   &view);
	json_decref(list);
	return code;
}

/* ---- the commands ------------------------------------------------------ */

static int moving_finish(struct moving *m)
{
	int code = EXIT_DONE, error;

	if (!waits)
		return result_tell(m);
	if (m->count == 0 && m->tier)
		code = room_wait(m);
	for (size_t i = 0; code == EXIT_DONE && i < m->count; i++) {
		do
			error = gpuwm_job_wait(m->client, m->jobs[i], -1);
		while (error == -EINTR);
		if (error == -ECONNABORTED)
			code = exit_with(EXIT_FAILED, "gpuwmctl ls shows where it lies",
					 "job %" PRIu64 " ended, because gpuwmd went away", m->jobs[i]);
		else if (error < 0)
			code = exit_with_error();
	}
	return code == EXIT_DONE ? result_tell(m) : code;
}

static struct moving moving_of(struct gpuwm_client *client, const char *ref, const char *to)
{
	return (struct moving){.client = client, .ref = ref, .tier = to};
}

/* Notes where the version lies before it is asked to move. */
static int moving_look(struct moving *m)
{
	const json_t *version;
	json_t *list;
	int code = version_look(m, &list, &version);

	if (code != EXIT_DONE)
		return code;
	m->was_there = version && strcmp(tier_of(version), m->tier) == 0;
	json_decref(list);
	return EXIT_DONE;
}

static int demote_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct moving m = moving_of(client, arguments->positional[0], to_tier);
	int code = moving_look(&m);

	if (code != EXIT_DONE)
		return code;
	if (gpuwm_demote(client, m.ref, m.tier, m.jobs, &m.count) < 0)
		return exit_with_error();
	return moving_finish(&m);
}

const struct command command_demote = {
	.name = "demote",
	.words = {{"REF", WORD_REF, false}},
	.summary = "move a version to host memory, or keep only its description",
	.about =
		"The version keeps its name, and a worker that attaches waits until gpuwmd has brought it back. It must have "
		"neither leases nor pins; for --to files it needs a source: gpuwmctl show prints it.",
	.options = demote_options,
	.required = "to",
	.example = "gpuwmctl demote llama@v1 --to host --wait\n"
		   "gpuwmctl demote llama@v1 --to files",
	.run = demote_run,
};

static int promote_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct moving m = moving_of(client, arguments->positional[0], "device");
	int code = moving_look(&m);

	if (code != EXIT_DONE)
		return code;
	if (gpuwm_promote(client, m.ref, m.jobs, &m.count) < 0)
		return exit_with_error();
	return moving_finish(&m);
}

const struct command command_promote = {
	.name = "promote",
	.words = {{"REF", WORD_REF, false}},
	.summary = "move a version back to its devices",
	.options = promote_options,
	.example = "gpuwmctl promote llama@v1 --wait",
	.run = promote_run,
};

static int describe_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct moving m = moving_of(client, arguments->positional[0], NULL);
	char *source = load_source(arguments->positional[1]);
	int r;

	if (!source)
		return EXIT_FAILED;
	r = gpuwm_describe(client, m.ref, source, m.jobs, &m.count);
	free(source);
	return r < 0 ? (int)exit_with_error() : moving_finish(&m);
}

const struct command command_describe = {
	.name = "describe",
	.words = {{"REF", WORD_REF, false}, {"SOURCE", WORD_SOURCE, false}},
	.summary = "compare files with a version, which can be loaded from them then",
	.about = "SOURCE is as for load, and becomes the source of the version if it has every byte of it.",
	.options = describe_options,
	.example = "gpuwmctl describe llama@tuned /models/llama-tuned --wait",
	.run = describe_run,
};
