/* Snapshots of gpuwmd for any number of requests at once. A thread of its own talks to gpuwmd, and only
 * while somebody wants to know. It asks at most once in SNAPSHOT_MS. */
#ifndef GPUWM_EXPORTER_SOURCE_H
#define GPUWM_EXPORTER_SOURCE_H

#include <gpuwm/client.h>

#include "snapshot.h"
#include "limits.h"

#include <jansson.h>
#include <stddef.h>

struct source;

/* Starts the thread. socket: gpuwmd's, or NULL for the usual one. Returns 0 and sets *ret, or fails with
 * -errno and logs why. The caller owns the source until source_free; tally and socket live as long. */
int source_new(const char *socket, struct tally *tally, struct source **ret);
/* Ends the thread, which may take as long as gpuwmd takes to answer. source may be NULL. Returns NULL. */
struct source *source_free(struct source *source);

/* Returns a snapshot that was taken less than SNAPSHOT_MS ago, or the next one. The caller owns one
 * reference. If there is none in wait_ms, the snapshot says that gpuwmd is not up. NULL: out
 * of memory.
 *
 * Threads: any may call it. */
struct snapshot *source_get(struct source *source, uint64_t wait_ms);

/* ---- the last events of gpuwmd: swaps, failures and changes apart from all others ----
 * One thread uses it. */

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

/* ---- the connection to gpuwmd: questions and events ----
 * One thread uses it. */

/* The last answer to a question, and until when it is used again. */
struct recalled {
	json_t *answer; /* NULL: none, or refused */
	uint64_t until_us; /* of clock_steady_us */
};

struct gpuwmd {
	const char *socket; /* NULL: the usual one */
	struct tally *tally;
	struct gpuwm_client *client; /* NULL: not connected */
	struct gpuwm_events *events; /* NULL: none */
	char ledger[33]; /* whose events `timeline` has */
	uint64_t seq; /* of the last event */
	uint64_t seen_ms; /* as in struct snapshot */
	struct timeline timeline;
	struct recalled recalled[QUESTIONS];
	int told; /* the code of the last failure that was logged; 0: connected */
};

void gpuwmd_begin(struct gpuwmd *gpuwmd, const char *socket, struct tally *tally);
void gpuwmd_end(struct gpuwmd *gpuwmd);

/* Connects unless there is a connection. Returns 0 or a negative errno; gpuwm_error() says why. */
int gpuwmd_connect(struct gpuwmd *gpuwmd);

/* Takes what events have come. */
void gpuwmd_listen(struct gpuwmd *gpuwmd);

/* Asks everything. Returns a snapshot, which tells in `why` if gpuwmd did not answer. NULL: out of
 * memory. */
struct snapshot *gpuwmd_ask(struct gpuwmd *gpuwmd);

/* When a question is asked again that was asked and answered at these times, all of clock_steady_us. */
uint64_t gpuwmd_ask_again_us(enum question question, uint64_t began_us, uint64_t ended_us);

#endif
