#include "source.h"

#include "../service/log.h"
#include "../base/clock.h"
#include "../proto/event_kind.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gpuwmd_begin(struct gpuwmd *gpuwmd, const char *socket, struct tally *tally)
{
	*gpuwmd = (struct gpuwmd){.socket = socket, .tally = tally};
	timeline_begin(&gpuwmd->timeline);
}

static void disconnect(struct gpuwmd *gpuwmd)
{
	gpuwmd->events = gpuwm_events_close(gpuwmd->events);
	gpuwmd->client = gpuwm_close(gpuwmd->client);
	/* Answers of a gpuwmd that has ended say nothing of the next one. */
	for (size_t i = 0; i < QUESTIONS; i++) {
		json_decref(gpuwmd->recalled[i].answer);
		gpuwmd->recalled[i] = (struct recalled){0};
	}
}

void gpuwmd_end(struct gpuwmd *gpuwmd)
{
	disconnect(gpuwmd);
	timeline_clear(&gpuwmd->timeline);
}

int gpuwmd_connect(struct gpuwmd *gpuwmd)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	const char *ledger;
	int r;

	if (gpuwmd->client)
		return 0;
	options.socket = gpuwmd->socket;
	options.name = "gpuwm-exporter";
	options.flags = GPUWM_CONNECT_ONCE;
	r = gpuwm_connect(&options, &gpuwmd->client);
	/* Each state is told once, not at each attempt. */
	if (r < 0 && r != gpuwmd->told)
		log_warning("gpuwmd can't be reached: %s", gpuwm_error()->message);
	gpuwmd->told = r;
	if (r < 0)
		return r;
	atomic_fetch_add(&gpuwmd->tally->connects, 1);
	log_info("connected to gpuwmd");
	/* Subscribes after the last event that is known of this ledger. Without events the exporter still answers. */
	ledger = gpuwm_ledger(gpuwmd->client);
	if (strcmp(gpuwmd->ledger, ledger) != 0) {
		timeline_clear(&gpuwmd->timeline);
		gpuwmd->seq = 0;
		strncpy(gpuwmd->ledger, ledger, sizeof(gpuwmd->ledger) - 1);
	}
	if (gpuwm_events_open(gpuwmd->client, gpuwmd->seq, &gpuwmd->events) < 0)
		log_warning("no events of gpuwmd: %s", gpuwm_error()->message);
	return 0;
}

static void on_event(const struct gpuwm_event *event, void *user_data)
{
	struct gpuwmd *gpuwmd = user_data;

	if (strcmp(event->kind, EVENT_DISCONNECTED) == 0)
		return;
	gpuwmd->seq = event->seq;
	timeline_add(&gpuwmd->timeline, event->kind, event->json);
}

void gpuwmd_listen(struct gpuwmd *gpuwmd)
{
	int r = gpuwmd->events ? gpuwm_events_dispatch(gpuwmd->events, 0, on_event, gpuwmd) : 0;

	/* gpuwmd has ended. */
	if (r == -ECONNRESET)
		disconnect(gpuwmd);
}

/* Returns whether the code says that gpuwmd, or the library, does not answer this question to this
 * client, while the connection goes on. */
static bool is_refusal(int code)
{
	return code == -EACCES || code == -ENOSYS || code == -EINVAL || code == -EAGAIN || code == -EMFILE;
}

uint64_t gpuwmd_ask_again_us(enum question question, uint64_t began_us, uint64_t ended_us)
{
	uint64_t pause_us = (ended_us - began_us) * ASK_SHARE;

	/* Whether gpuwmd answers is asked each time. */
	if (question == ASK_STATUS)
		return ended_us;
	return began_us + (pause_us < ASK_AGAIN_US_MAX ? pause_us : ASK_AGAIN_US_MAX);
}

/* Asks, unless the last answer took so long that it is to be used for longer. */
static int ask_or_recall(struct gpuwmd *gpuwmd, struct snapshot *snapshot, enum question question)
{
	struct recalled *recalled = &gpuwmd->recalled[question];
	uint64_t began_us = clock_steady_us();
	char *text;
	int r = 0;

	if (began_us < recalled->until_us) {
		snapshot->answers[question] = json_incref(recalled->answer);
	} else {
		r = gpuwm_query(gpuwmd->client, question_names[question], NULL, &text);
		if (r == 0) {
			snapshot->answers[question] = json_loads(text, JSON_ALLOW_NUL, NULL);
			free(text);
			r = snapshot->answers[question] ? 0 : -ENOMEM;
		}
		json_decref(recalled->answer);
		recalled->answer = json_incref(snapshot->answers[question]);
		recalled->until_us =
			r == -ENOMEM ? 0 : gpuwmd_ask_again_us(question, began_us, clock_steady_us());
	}
	snapshot->sees[question] = snapshot->answers[question];
	return r < 0 && !is_refusal(r) ? r : 0;
}

/* Asks, and ends the connection if that failed: gpuwmd may have been in the middle of an answer. */
static int ask_once(struct gpuwmd *gpuwmd, struct snapshot *snapshot)
{
	int r = gpuwmd_connect(gpuwmd);

	for (size_t i = 0; r == 0 && i < QUESTIONS; i++)
		r = ask_or_recall(gpuwmd, snapshot, i);
	if (r == 0)
		return 0;
	snprintf(snapshot->why, sizeof(snapshot->why), "%s",
		 r == -ENOMEM ? "gpuwm-exporter is out of memory for gpuwmd's answers"
			      : gpuwm_error()->message);
	snapshot_forget(snapshot);
	disconnect(gpuwmd);
	return r;
}

struct snapshot *gpuwmd_ask(struct gpuwmd *gpuwmd)
{
	struct snapshot *snapshot = snapshot_new(gpuwmd->tally);
	uint64_t began_us;
	int r;

	if (!snapshot)
		return NULL;
	atomic_fetch_add(&gpuwmd->tally->snapshots, 1);
	began_us = clock_steady_us();
	snapshot->began_ms = began_us / 1000;
	snapshot->wall_ms = clock_wall_ms();
	gpuwmd_listen(gpuwmd);
	r = ask_once(gpuwmd, snapshot);
	/* The connection was one to a gpuwmd that has ended: the next one may be there. */
	if (r == -ECONNRESET)
		r = ask_once(gpuwmd, snapshot);
	snapshot->up = r == 0 && snapshot->answers[ASK_STATUS];
	if (snapshot->up)
		gpuwmd->seen_ms = snapshot->wall_ms;
	else
		atomic_fetch_add(&gpuwmd->tally->failed, 1);
	snapshot->seen_ms = gpuwmd->seen_ms;
	snapshot->asked_us = clock_steady_us() - began_us;
	snapshot->swaps = timeline_swaps(&gpuwmd->timeline);
	snapshot->events = timeline_others(&gpuwmd->timeline);
	return snapshot;
}
