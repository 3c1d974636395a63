/* wait: until a version is ready or freed. Events say when to look; nothing is asked at intervals. */
#include "commands.h"

#include "answer.h"
#include "clock.h"
#include "exit.h"
#include "line.h"
#include "table.h"
#include "waiting.h"

#include <errno.h>
#include <string.h>

/* ---- events ----------------------------------------------------------------- */

/* Those after which the answer may be another one. Jobs tell of their progress too, which changes nothing. */
static void event_take(const struct gpuwm_event *event, void *user_data)
{
	static const char *const kinds[] = {
		"version_ready",   "version_failed", "version_retiring", "version_freed",
		"version_removed", "swapped",        "tainted",          "lost"};
	struct waiting *w = user_data;
	json_t *all;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		w->look = w->look || strcmp(event->kind, kinds[i]) == 0;
	if (strcmp(event->kind, "job") != 0)
		return;
	all = json_loads(event->json, JSON_ALLOW_NUL, NULL);
	w->look = w->look || job_is_over(all);
	json_decref(all);
}

/* Waits for events until one says that it is time to look. Returns 0, or a negative errno: -ETIMEDOUT at the deadline. */
static int events_wait(struct waiting *w, struct gpuwm_events **events, uint64_t deadline_ms)
{
	while (!w->look) {
		uint64_t now = (uint64_t)clock_ms();
		int64_t left = deadline_ms == UINT64_MAX ? -1
			       : now < deadline_ms       ? (int64_t)(deadline_ms - now)
							 : 0;
		int count = gpuwm_events_dispatch(*events, left, event_take, w);

		if (count == -ECONNRESET) {
			/* The next gpuwmd has the same versions, and may have freed some. */
			*events = gpuwm_events_close(*events);
			count = gpuwm_events_open(w->client, UINT64_MAX, events);
			w->look = true;
		}
		if (count < 0 && count != -EINTR)
			return count;
		if (!w->look && deadline_ms != UINT64_MAX && (uint64_t)clock_ms() >= deadline_ms)
			return -ETIMEDOUT;
	}
	return 0;
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

static int wait_run(struct waiting *w, struct gpuwm_events **events)
{
	static const struct view view = {waited_print, cell_text, "ref", NULL};
	const bool limited = w->arguments->given[OPTION_TIMEOUT];
	const int64_t end = w->arguments->deadline_ms >= 0 ? w->arguments->deadline_ms : clock_ms();
	const uint64_t deadline = limited ? (uint64_t)end : UINT64_MAX;
	enum verdict verdict;
	int code, error = 0;

	for (bool first = true;; first = false) {
		code = waiting_look(w, &verdict);
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
		if (first && (!limited || w->arguments->timeout_ms > 0))
			/* Once, so that nobody waits for a name that is misspelled without a word. */
			exit_note(w->freed ? "waiting until it is freed" : "waiting until it is ready", "%s",
				  w->state);
		error = events_wait(w, events, deadline);
		if (error == -ETIMEDOUT)
			return exit_with(EXIT_TIMEOUT, w->remedy, "time ran out after %.1f s: %s",
					 (double)w->arguments->timeout_ms / 1000, w->state);
		if (error < 0)
			return exit_with_error();
	}
}

int command_wait(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct waiting w = {.client = client, .arguments = arguments, .ref = arguments->positional[0]};
	struct gpuwm_events *events = NULL;
	int code;

	w.freed = arguments->freed;
	/* Before the first look, so that no change falls between the two. */
	if (gpuwm_events_open(client, UINT64_MAX, &events) < 0)
		return exit_with_error();
	code = wait_run(&w, &events);
	gpuwm_events_close(events);
	return code;
}
