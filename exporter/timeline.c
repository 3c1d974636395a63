#include "timeline.h"

#include "member.h"

#include <string.h>

static void ring_add(struct ring *ring, json_t *item)
{
	json_decref(ring->items[ring->next]);
	ring->items[ring->next] = item;
	ring->next = (ring->next + 1) % ring->room;
	if (ring->count < ring->room)
		ring->count++;
}

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

/* A job that failed, and whatever went wrong with a version, a device or a region. */
static bool is_failure(const char *kind, const json_t *event)
{
	return member_has(event, "error") || (strcmp(kind, "job") == 0 && member_is(event, "state", "failed"));
}

static struct ring *ring_of(struct timeline *timeline, const char *kind, const json_t *event)
{
	if (strcmp(kind, "swapped") == 0)
		return &timeline->swap_ring;
	if (is_failure(kind, event))
		return &timeline->failure_ring;
	return strcmp(kind, "audit") == 0 ? &timeline->audit_ring : &timeline->other_ring;
}

/* An event of a job tells how far it is, but for the last one. */
static bool is_progress(const json_t *event)
{
	return !member_is(event, "state", "done") && !member_is(event, "state", "failed") &&
	       !member_is(event, "state", "cancelled");
}

void timeline_add(struct timeline *timeline, const char *kind, const char *json)
{
	json_t *event = json_loads(json, JSON_ALLOW_NUL, NULL);

	if (!event || (strcmp(kind, "job") == 0 && is_progress(event))) {
		json_decref(event);
		return;
	}
	/* The library tells the kind "lost" apart from the event. */
	if (!member_has(event, "kind"))
		json_object_set_new(event, "kind", json_string(kind));
	ring_add(ring_of(timeline, kind, event), event);
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
