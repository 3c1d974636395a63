/* wait: until a version is ready or freed. Events say when to look; nothing is asked at intervals. */
#include "commands.h"

#include "answer.h"
#include "command.h"
#include "exit.h"
#include "line.h"
#include "load.h"
#include "table.h"

#include "../../proto/event_kind.h"
#include "../../proto/names.h"
#include "../../base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum { FOR_READY, FOR_FREED } wait_for;

static int take_for(const struct option_row *row, const char *text, void *data, struct error *error)
{
	(void)data;
	wait_for = strcmp(text, "freed") == 0 ? FOR_FREED : FOR_READY;
	if (wait_for == FOR_READY && strcmp(text, "ready") != 0)
		return error_set(error, -EINVAL, NULL, "--%s takes ready or freed, not '%s'", row->name, text);
	return 0;
}

static const struct option_row wait_options[] = {
	{"for", "what to wait for", "ready|freed", take_for, .into = NULL},
	{"timeout", "give up after this time, such as 30s (default: never)", "TIME", take_timeout,
	 .into = NULL},
	{0},
};

#define WHY_TEXT (2 * TEXT_BYTES_MAX + 200)

enum verdict {
	STILL_WAITING,
	HAS_COME,
	CANNOT_COME,
	CANNOT_TELL, /* whether it comes: gpuwmd sends no events about it */
};

struct waiting {
	struct gpuwm_client *client;
	const struct arguments *arguments;
	const char *ref;
	bool freed; /* --for freed */
	char id[VERSION_ID_TEXT]; /* of --for freed: what REF named when the command began; of ready: the one that is ready */
	bool look; /* an event came after which the answer may be another one */
	char state[WHY_TEXT], remedy[WHY_TEXT]; /* how it stands, and what to do about it */
};

static bool is_id(const char *ref)
{
	uint8_t id[16];

	return hex128_parse(ref, id) == 0;
}

__attribute__((format(printf, 3, 4))) static void stands(struct waiting *w, const char *remedy,
							 const char *state, ...)
{
	va_list list;

	va_start(list, state);
	vsnprintf(w->state, sizeof(w->state), state, list);
	va_end(list);
	snprintf(w->remedy, sizeof(w->remedy), "%s", remedy);
}

/* ---- ready ------------------------------------------------------------------ */

/* Whether the object is about the version that the reference names by its tag. */
static bool object_is_named(const json_t *object, const char *ref)
{
	char name[2 * ALIAS_TEXT];

	snprintf(name, sizeof(name), "%s@%s", answer_text(object, "model"), answer_text(object, "tag"));
	return strcmp(name, ref) == 0;
}

/* The youngest load of the name, for json_decref; NULL: none, or this user may not see jobs. */
static json_t *job_of(const struct waiting *w)
{
	json_t *answer, *job, *found = NULL;
	size_t i;

	if (answer_ask(w->client, "jobs", NULL, &answer) < 0)
		return NULL;
	json_array_foreach(json_object_get(answer, "jobs"), i, job) {
		if (object_is_named(job, w->ref) && strcmp(answer_text(job, "kind"), "verify") != 0 &&
		    !json_is_true(json_object_get(job, "dry_run")) &&
		    answer_number(job, "job") >= answer_number(found, "job"))
			found = job;
	}
	json_incref(found);
	json_decref(answer);
	return found;
}

static enum verdict verdict_of_error(struct waiting *w, const char *what, const json_t *error)
{
	const char *detail = answer_text(error, "detail");
	char remedy[WHY_TEXT];

	snprintf(remedy, sizeof(remedy), "%s%sload or publish it again", detail, *detail ? "; then " : "");
	stands(w, remedy, "%s failed: %s", what, answer_text(error, "message"));
	return CANNOT_COME;
}

/* There is no version of that name: it may come, unless what was to make it has ended without it. */
static enum verdict judge_missing(struct waiting *w, const json_t *list)
{
	const json_t *object, *failed = NULL;
	json_t *job = job_of(w);
	enum verdict verdict = STILL_WAITING;
	bool claimed = false;
	char what[80];
	size_t i;

	json_array_foreach(json_object_get(list, "versions"), i, object) {
		if (!failed && strcmp(answer_text(object, "state"), "failed") == 0 &&
		    object_is_named(object, w->ref))
			failed = object;
	}
	json_array_foreach(json_object_get(list, "claims"), i, object) {
		claimed = claimed || object_is_named(object, w->ref);
	}
	stands(w, "gpuwmctl ls lists the versions", "%s is not there", w->ref);
	if (job && !job_is_over(job)) {
		stands(w, "gpuwmctl jobs shows its progress", "job %" PRIu64 " that makes %s is %s",
		       answer_number(job, "job"), w->ref, answer_text(job, "state"));
	} else if (claimed) {
		stands(w, "gpuwmctl ls shows who has claimed it", "%s is claimed, and not built yet", w->ref);
	} else if (failed) {
		verdict = verdict_of_error(w, w->ref, json_object_get(failed, "error"));
	} else if (job && json_object_get(job, "error")) {
		snprintf(what, sizeof(what), "job %" PRIu64 ", which was to make it,",
			 answer_number(job, "job"));
		verdict = verdict_of_error(w, what, json_object_get(job, "error"));
	}
	json_decref(job);
	return verdict;
}

static enum verdict judge_ready(struct waiting *w, const json_t *list)
{
	const char *id = answer_ref(list, w->ref);
	const json_t *version = answer_version(list, id), *tainted = json_object_get(version, "tainted");
	const char *state = answer_text(version, "state");

	snprintf(w->id, sizeof(w->id), "%s", id);
	if (!version && !is_id(w->ref))
		return judge_missing(w, list);
	if (!version || strcmp(state, "retiring") == 0 || strcmp(state, "failed") == 0) {
		stands(w, "gpuwmctl ls lists the versions; ids are never used again", "%s %s%s", w->ref,
		       version ? "is "
			       : "is not there: it was freed, or has no name, or this user may not see it",
		       state);
		return CANNOT_COME;
	}
	if (tainted) {
		stands(w, answer_text(tainted, "detail"), "%s is tainted, so workers don't get it: %s", w->ref,
		       answer_text(tainted, "message"));
		return CANNOT_COME;
	}
	stands(w, "gpuwmctl jobs shows its progress", "%s is %s", w->ref, state);
	return strcmp(state, "ready") == 0 ? HAS_COME : STILL_WAITING;
}

/* ---- freed ------------------------------------------------------------------ */

static enum verdict judge_freed(struct waiting *w, const json_t *list)
{
	const json_t *version = answer_version(list, w->id);
	const char *state = answer_text(version, "state");
	unsigned long long leases = answer_number(version, "leases");
	size_t pins = json_array_size(json_object_get(version, "pins"));

	if (!version || strcmp(state, "failed") == 0)
		return HAS_COME;
	if (name_is_nameless(answer_text(version, "model"))) {
		stands(w, "gpuwmctl ls '~UID' lists such versions of a user",
		       "%s has no name, and gpuwmd sends no events about it: nothing would end the wait",
		       w->ref);
		return CANNOT_TELL;
	}
	if (strcmp(state, "retiring") == 0)
		stands(w, "gpuwmctl ps lists the leases; gpuwmctl retire --force revokes them",
		       "%s is retiring: %llu lease%s and %zu pin%s hold it", w->ref, leases,
		       leases == 1 ? "" : "s", pins, pins == 1 ? "" : "s");
	else
		stands(w, "gpuwmctl retire frees it when its last lease and pin are gone",
		       "%s is %s, and nobody has retired it", w->ref, state);
	return STILL_WAITING;
}

/* ---- lists ------------------------------------------------------------------ */

/* Versions without a name are listed for their user only. Puts those of `uid` into the list. */
static void nameless_add(struct gpuwm_client *client, uint64_t uid, json_t *list)
{
	char model[24];
	json_t *more;

	snprintf(model, sizeof(model), "~%" PRIu64, uid);
	if (answer_ask(client, "list", model, &more) < 0)
		return;
	json_array_extend(json_object_get(list, "versions"), json_object_get(more, "versions"));
	json_decref(more);
}

/* Observers learn which users have such versions. */
static void nameless_add_all(struct gpuwm_client *client, json_t *list)
{
	json_t *clients, *user;
	size_t i;

	nameless_add(client, geteuid(), list);
	if (answer_ask(client, "clients", NULL, &clients) < 0)
		return;
	json_array_foreach(json_object_get(clients, "users"), i, user) {
		if (answer_number(user, "nameless") > 0 && answer_number(user, "uid") != geteuid())
			nameless_add(client, answer_number(user, "uid"), list);
	}
	json_decref(clients);
}

/* Looks how it stands, and sets w->id, state and remedy. EXIT_DONE with *ret_verdict, or an exit code after printing why. */
static int waiting_look(struct waiting *w, enum verdict *ret_verdict)
{
	json_t *list;
	int code = answer_get(w->client, "list", NULL, &list);

	if (code != EXIT_DONE)
		return code;
	w->look = false;
	if (is_id(w->ref) && !answer_version(list, w->ref))
		nameless_add_all(w->client, list);
	if (w->freed && !*w->id)
		snprintf(w->id, sizeof(w->id), "%s", is_id(w->ref) ? w->ref : answer_ref(list, w->ref));
	*ret_verdict = w->freed ? judge_freed(w, list) : judge_ready(w, list);
	json_decref(list);
	return EXIT_DONE;
}

/* ---- events ----------------------------------------------------------------- */

/* Those after which the answer may be another one. Jobs tell of their progress too, which changes nothing. */
static void event_take(const struct gpuwm_event *event, void *user_data)
{
	static const char *const kinds[] = {
		EVENT_VERSION_READY,   EVENT_VERSION_FAILED, EVENT_VERSION_RETIRING, EVENT_VERSION_FREED,
		EVENT_VERSION_REMOVED, EVENT_SWAPPED,        EVENT_TAINTED,          EVENT_LOST};
	struct waiting *w = user_data;
	json_t *all;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		w->look = w->look || strcmp(event->kind, kinds[i]) == 0;
	if (strcmp(event->kind, EVENT_JOB) != 0)
		return;
	all = json_loads(event->json, JSON_ALLOW_NUL, NULL);
	w->look = w->look || job_is_over(all);
	json_decref(all);
}

/* EXIT_DONE, or an exit code after printing why there are no events. */
static int waiting_subscribe(struct waiting *w, struct gpuwm_events **ret_events)
{
	int code = bound_begin(w->arguments, NULL);

	if (code == EXIT_DONE && gpuwm_events_open(w->client, UINT64_MAX, ret_events) < 0)
		code = exit_with_error();
	bound_end();
	return code;
}

/* EXIT_DONE with *ret_verdict, or an exit code after printing why. */
static int waiting_ask(struct waiting *w, enum verdict *ret_verdict)
{
	int code = bound_begin(w->arguments, NULL);

	if (code == EXIT_DONE)
		code = waiting_look(w, ret_verdict);
	bound_end();
	return code;
}

/* Waits for events until one says that it is time to look, or until the deadline: *ret_late. EXIT_DONE, or an exit code after
 * printing why. */
static int events_wait(struct waiting *w, struct gpuwm_events **events, int64_t deadline, bool *ret_late)
{
	int code;

	*ret_late = false;
	while (!w->look) {
		int count = gpuwm_events_dispatch(*events, clock_left(deadline), event_take, w);

		if (count == -ECONNRESET) {
			/* The next gpuwmd has the same versions, and may have freed some. */
			*events = gpuwm_events_close(*events);
			code = waiting_subscribe(w, events);
			if (code != EXIT_DONE)
				return code;
			w->look = true;
		} else if (count < 0 && count != -EINTR) {
			return exit_with_error();
		}
		*ret_late = !w->look && clock_left(deadline) == 0;
		if (*ret_late)
			return EXIT_DONE;
	}
	return EXIT_DONE;
}

static int waited_print(const json_t *result)
{
	const char *ref = answer_text(result, "ref"), *state = answer_text(result, "state");

	if (strcmp(state, "freed") == 0 && !*answer_text(result, "version"))
		say("%s is not there: nothing holds memory under this name", ref);
	else
		say("%s is %s", ref, state);
	return EXIT_DONE;
}

static int waiting_run(struct waiting *w, struct gpuwm_events **events)
{
	static const struct view view = {waited_print, cell_text, "ref", NULL};
	const bool limited = w->arguments->limit.given;
	const int64_t deadline = w->arguments->deadline_ms;
	enum verdict verdict;
	bool is_late;
	int code;

	for (bool first = true;; first = false) {
		code = waiting_ask(w, &verdict);
		if (code != EXIT_DONE)
			return code;
		if (verdict == HAS_COME)
			return result_show(json_pack("{s:s, s:s, s:s?}", "ref", w->ref, "state",
						     w->freed ? "freed" : "ready", "version",
						     *w->id ? w->id : NULL),
					   &view);
		if (verdict == CANNOT_COME)
			return exit_with(EXIT_NOT_FOUND, w->remedy, "%s", w->state);
		if (verdict == CANNOT_TELL)
			return exit_with(EXIT_FAILED, w->remedy, "%s", w->state);
		/* Events may come so fast that each look finds a new one. */
		is_late = !first && clock_left(deadline) == 0;
		if (first && (!limited || w->arguments->limit.value > 0))
			/* Once, so that nobody waits for a name that is misspelled without a word. */
			exit_note(w->freed ? "waiting until it is freed" : "waiting until it is ready", "%s",
				  w->state);
		code = is_late ? EXIT_DONE : events_wait(w, events, deadline, &is_late);
		if (code != EXIT_DONE)
			return code;
		if (is_late)
			return exit_with(EXIT_TIMEOUT, w->remedy, "time ran out after %.1f s: %s",
					 (double)w->arguments->limit.value / 1000, w->state);
	}
}

static int wait_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct waiting w = {.client = client, .arguments = arguments, .ref = arguments->positional[0]};
	struct gpuwm_events *events = NULL;
	int code;

	w.freed = wait_for == FOR_FREED;
	/* Before the first look, so that no change falls between the two. */
	code = waiting_subscribe(&w, &events);
	if (code != EXIT_DONE)
		return code;
	code = waiting_run(&w, &events);
	gpuwm_events_close(events);
	return code;
}

const struct command command_wait = {
	.name = "wait",
	.words = {{"REF", WORD_REF, false}},
	.summary = "wait until a version is ready, or freed",
	.about =
		"A tag or an alias that is not there yet may come. If REF can't become ready any more, the exit status is 4, "
		"and 7 if the time ran out.",
	.options = wait_options,
	.required = "for",
	.example = "gpuwmctl wait llama@v3 --for ready --timeout 5m\n"
		   "gpuwmctl wait llama@v2 --for freed",
	.run = wait_run,
};
