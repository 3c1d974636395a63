#include "snapshot.h"

#include <stdlib.h>
#include <string.h>

struct snapshot *snapshot_new(const struct tally *tally)
{
	struct snapshot *snapshot = calloc(1, sizeof(*snapshot));

	if (!snapshot)
		return NULL;
	atomic_init(&snapshot->references, 1);
	snapshot->tally = tally;
	pthread_mutex_init(&snapshot->making, NULL);
	return snapshot;
}

struct snapshot *snapshot_ref(struct snapshot *snapshot)
{
	atomic_fetch_add(&snapshot->references, 1);
	return snapshot;
}

void snapshot_forget(struct snapshot *snapshot)
{
	for (size_t i = 0; i < QUESTIONS; i++) {
		json_decref(snapshot->answers[i]);
		snapshot->answers[i] = NULL;
		snapshot->sees[i] = false;
	}
}

struct snapshot *snapshot_unref(struct snapshot *snapshot)
{
	if (!snapshot || atomic_fetch_sub(&snapshot->references, 1) > 1)
		return NULL;
	snapshot_forget(snapshot);
	json_decref(snapshot->swaps);
	json_decref(snapshot->events);
	json_decref(snapshot->totals);
	snapshot_unref(snapshot->open);
	pthread_mutex_destroy(&snapshot->making);
	free(snapshot->metrics);
	free(snapshot->state);
	free(snapshot);
	return NULL;
}

/* gpuwmd's status. Numbers and flags name nobody. Of the other members, among them folders, only those are taken of which that
 * is known. */
static json_t *status_open(const json_t *status)
{
	static const char *const harmless[] = {"server", "ledger", "devices", "limits", "scrub", "locked"};
	json_t *open = status ? json_object() : NULL, *member;
	const char *key;

	json_object_foreach((json_t *)status, key, member) {
		if (json_is_number(member) || json_is_boolean(member))
			json_object_set(open, key, member);
	}
	for (size_t i = 0; i < sizeof(harmless) / sizeof(*harmless); i++)
		json_object_set(open, harmless[i], json_object_get(status, harmless[i]));
	return open;
}

static struct snapshot *open_new(const struct snapshot *snapshot)
{
	struct snapshot *open = snapshot_new(snapshot->tally);

	if (!open)
		return NULL;
	open->restricted = true;
	open->up = snapshot->up;
	memcpy(open->why, snapshot->why, sizeof(open->why));
	open->wall_ms = snapshot->wall_ms;
	open->seen_ms = snapshot->seen_ms;
	open->asked_us = snapshot->asked_us;
	open->answers[ASK_STATUS] = status_open(snapshot->answers[ASK_STATUS]);
	open->sees[ASK_STATUS] = snapshot->sees[ASK_STATUS];
	open->totals = totals_make(snapshot);
	return open;
}

struct snapshot *snapshot_open(struct snapshot *snapshot)
{
	struct snapshot *open;

	pthread_mutex_lock(&snapshot->making);
	if (!snapshot->open)
		snapshot->open = open_new(snapshot);
	open = snapshot->open;
	pthread_mutex_unlock(&snapshot->making);
	return open;
}

const char *snapshot_metrics(struct snapshot *snapshot, size_t *ret_bytes)
{
	const char *text;

	pthread_mutex_lock(&snapshot->making);
	if (!snapshot->metrics)
		snapshot->metrics = metrics_make(snapshot, &snapshot->metrics_bytes);
	text = snapshot->metrics;
	*ret_bytes = snapshot->metrics_bytes;
	pthread_mutex_unlock(&snapshot->making);
	return text;
}

const char *snapshot_state(struct snapshot *snapshot, size_t *ret_bytes)
{
	const char *text;

	pthread_mutex_lock(&snapshot->making);
	if (!snapshot->state)
		snapshot->state = state_make(snapshot, &snapshot->state_bytes);
	text = snapshot->state;
	*ret_bytes = snapshot->state_bytes;
	pthread_mutex_unlock(&snapshot->making);
	return text;
}
