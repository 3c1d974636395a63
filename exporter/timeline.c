#include "source.h"

#include "snapshot.h"

#include "../proto/event_kind.h"

#include <string.h>

static json_t *ring_array(const struct ring *ring)
{
	size_t first = (ring->next + ring->room - ring->count) % ring->room;
	json_t *array = json_array();

	for (size_t i = 0; array && i < ring->count; i++)
		json_array_append(array, ring->items[(first + i) % ring->room]);
	return array;
}

static void ring_clear(struct ring *ring)
{
	for (size_t i = 0; i < ring->room; i++) {
		json_decref(ring->items[i]);
		ring->items[i] = NULL;
	}
	ring->count = ring->next = 0;
}

void timeline_begin(struct timeline *timeline)
{
	*timeline = (struct timeline){
		.swap_ring = {.items = timeline->swaps, .room = TIMELINE_SWAPS_MAX},
		.failure_ring = {.items = timeline->failures, .room = TIMELINE_FAILURES_MAX},
		.audit_ring = {.items = timeline->audits, .room = TIMELINE_AUDITS_MAX},
		.other_ring = {.items = timeline->others, .room = TIMELINE_OTHERS_MAX},
	};
}

void timeline_add(struct timeline *timeline, const char *kind, const char *json)
{
	json_t *event = json_loads(json, JSON_ALLOW_NUL, NULL);
	bool is_job = strcmp(kind, EVENT_JOB) == 0, failed = member_is(event, "state", "failed");
	struct ring *ring = &timeline->other_ring;

	/* An event of a job tells how far it is, but for the last one. */
	if (!event || (is_job && !failed && !member_is(event, "state", "done") &&
		       !member_is(event, "state", "cancelled"))) {
		json_decref(event);
		return;
	}
	/* The library tells the kind "lost" apart from the event. */
	if (!member_has(event, "kind"))
		json_object_set_new(event, "kind", json_string(kind));
	/* Failures are jobs that failed, and whatever went wrong with a version, a device or a region. */
	if (strcmp(kind, EVENT_SWAPPED) == 0)
		ring = &timeline->swap_ring;
	else if (member_has(event, "error") || (is_job && failed))
		ring = &timeline->failure_ring;
	else if (strcmp(kind, EVENT_AUDIT) == 0)
		ring = &timeline->audit_ring;
	json_decref(ring->items[ring->next]);
	ring->items[ring->next] = event;
	ring->next = (ring->next + 1) % ring->room;
	if (ring->count < ring->room)
		ring->count++;
}

json_t *timeline_swaps(const struct timeline *timeline)
{
	return ring_array(&timeline->swap_ring);
}

json_t *timeline_others(const struct timeline *timeline)
{
	json_t *events = ring_array(&timeline->failure_ring), *audits = ring_array(&timeline->audit_ring);
	json_t *others = ring_array(&timeline->other_ring);

	json_array_extend(events, audits);
	json_array_extend(events, others);
	json_decref(audits);
	json_decref(others);
	return events;
}

void timeline_clear(struct timeline *timeline)
{
	ring_clear(&timeline->swap_ring);
	ring_clear(&timeline->failure_ring);
	ring_clear(&timeline->audit_ring);
	ring_clear(&timeline->other_ring);
}
