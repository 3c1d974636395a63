/* The last events of gpuwmd: swaps, failures and changes apart from all others. One thread uses it. */
#ifndef GPUWM_EXPORTER_TIMELINE_H
#define GPUWM_EXPORTER_TIMELINE_H

#include "limits.h"

#include <jansson.h>
#include <stddef.h>

struct ring {
	json_t **items; /* `room` places */
	size_t room, count, next;
};

struct timeline {
	json_t *swaps[TIMELINE_SWAPS_MAX], *failures[TIMELINE_FAILURES_MAX], *audits[TIMELINE_AUDITS_MAX],
		*others[TIMELINE_OTHERS_MAX];
	struct ring swap_ring, failure_ring, audit_ring, other_ring;
};

void timeline_begin(struct timeline *timeline);
/* Keeps an event. Ignores the progress of jobs, and texts that are not JSON. */
void timeline_add(struct timeline *timeline, const char *kind, const char *json);
/* New arrays of the events, oldest first; timeline_others has failures, then changes (`audit`), then the rest. NULL: out of memory. */
json_t *timeline_swaps(const struct timeline *timeline);
json_t *timeline_others(const struct timeline *timeline);
/* Forgets all events. */
void timeline_clear(struct timeline *timeline);

#endif
