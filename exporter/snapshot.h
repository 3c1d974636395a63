/* What gpuwmd answered at one moment, and the texts that are made of it, each at most once. */
#ifndef GPUWM_EXPORTER_SNAPSHOT_H
#define GPUWM_EXPORTER_SNAPSHOT_H

#include "member.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the exporter counts of itself. Any thread adds to it. */
struct tally {
	_Atomic uint64_t scrapes; /* requests for /metrics */
	_Atomic uint64_t pages; /* requests for the page and its state */
	_Atomic uint64_t refused; /* requests that were answered with a 4xx code */
	_Atomic uint64_t cut; /* connections that were slow */
	_Atomic uint64_t snapshots; /* that gpuwmd was asked for */
	_Atomic uint64_t failed; /* of them */
	_Atomic uint64_t late; /* requests that got no snapshot in SNAPSHOT_WAIT_MS */
	_Atomic uint64_t connects; /* to gpuwmd */
};

#define WHY_BYTES 512

struct snapshot {
	_Atomic unsigned references;
	bool up; /* gpuwmd answered `status` */
	char why[WHY_BYTES]; /* why it did not */
	uint64_t began_ms; /* of clock_ms */
	uint64_t wall_ms; /* since 1970 */
	uint64_t
		seen_ms; /* since 1970, when gpuwmd last answered; 0: it has not, since the exporter was started */
	uint64_t asked_us; /* how long gpuwmd took to answer all questions */
	const struct tally *tally;
	json_t *answers[QUESTIONS]; /* NULL: there is none */
	bool sees[QUESTIONS]; /* gpuwmd answers this client */
	json_t *swaps, *events; /* arrays, oldest first */
	/* It is what everybody may see: no model, no user, and these sums of what gpuwmd answered. */
	bool restricted;
	json_t *totals;

	pthread_mutex_t making; /* of what follows */
	struct snapshot *open; /* see snapshot_open */
	char *metrics, *state;
	size_t metrics_bytes, state_bytes;
};

/* Returns a snapshot with one reference and without answers, or NULL: out of memory. */
struct snapshot *snapshot_new(const struct tally *tally);
struct snapshot *snapshot_ref(struct snapshot *snapshot);
/* snapshot may be NULL. Always returns NULL. */
struct snapshot *snapshot_unref(struct snapshot *snapshot);
/* What everybody may see of the snapshot: gpuwmd's status and sums. It names no model, no user and no folder. It lives as
 * long as the snapshot. NULL: out of memory. */
struct snapshot *snapshot_open(struct snapshot *snapshot);
/* Drops all answers. */
void snapshot_forget(struct snapshot *snapshot);

/* A text of the snapshot, which lives as long as it. NULL: out of memory. */
const char *snapshot_metrics(struct snapshot *snapshot, size_t *ret_bytes);
const char *snapshot_state(struct snapshot *snapshot, size_t *ret_bytes);

#endif
