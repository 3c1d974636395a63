#include "waiting.h"

#include "exit.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

bool job_is_over(const json_t *job)
{
	const char *state = answer_text(job, "state");

	return strcmp(state, "done") == 0 || strcmp(state, "failed") == 0 || strcmp(state, "cancelled") == 0;
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

int waiting_look(struct waiting *w, enum verdict *ret_verdict)
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
