/* What gpuwmd answered at one moment, and the texts that are made of it, each at most once. */
#ifndef GPUWM_EXPORTER_SNAPSHOT_H
#define GPUWM_EXPORTER_SNAPSHOT_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- questions, and members of the answers ----
 * An answer that lacks a member, because gpuwmd is older, reads
 * as "", 0, false or an empty array. */

enum question { ASK_STATUS, ASK_LIST, ASK_CLIENTS, ASK_JOBS, ASK_REGIONS, ASK_METRICS, QUESTIONS };
/* The names of the methods, each for gpuwm_query. */
extern const char *const question_names[QUESTIONS];

const char *member_text(const json_t *object, const char *key);
uint64_t member_number(const json_t *object, const char *key);
bool member_true(const json_t *object, const char *key);
/* Returns whether the object has the member, and it is not null. */
bool member_has(const json_t *object, const char *key);
bool member_is(const json_t *object, const char *key, const char *text);

/* ---- the snapshot ---- */

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
	uint64_t began_ms; /* of clock_steady_ms */
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

/* ---- /metrics: a snapshot in Prometheus' text format, group by group ---- */

/* Returns the text, which the caller frees. NULL: out of memory. */
char *metrics_make(const struct snapshot *snapshot, size_t *ret_bytes);

/* A group of metrics. It writes nothing of what gpuwmd did not answer. */
typedef void metrics_part(FILE *out, const struct snapshot *snapshot);

metrics_part metrics_server; /* gpuwmd itself: `status` */
metrics_part metrics_devices;
metrics_part metrics_versions; /* `list`, and the leases of `clients` */
metrics_part metrics_users; /* quotas and fairness */
metrics_part metrics_jobs;
metrics_part metrics_regions;
metrics_part metrics_counted; /* counters, refusals and histograms of `metrics` */
metrics_part metrics_exporter; /* the exporter itself; also when gpuwmd is away */

/* ---- /api/state: a snapshot for the status page, as JSON of bounded size ----
 * docs/man/gpuwm-exporter.8.scd has the keys. And sums over whole answers of gpuwmd: the lists of /api/state are bounded, so the page
 * counts nothing in them. The sums name no model and no user: everybody may see them. */

/* Returns the text, which the caller frees. NULL: out of memory. */
char *state_make(const struct snapshot *snapshot, size_t *ret_bytes);

/* Returns a new array of the `most` items of the array for which `rank` is largest, in their order in
 * the array. NULL: out of memory. */
json_t *state_largest(const json_t *array, size_t most, uint64_t (*rank)(const json_t *item));

/* Returns a new object; docs/man/gpuwm-exporter.8.scd has its keys. What gpuwmd did not answer is missing. NULL: out of
 * memory. */
json_t *totals_make(const struct snapshot *snapshot);

/* The device whose memory the version's part is. NULL: it has none, since its version lies on files. */
const char *part_device(const json_t *version, const json_t *part);

/* ---- /readyz: whether a version can be attached to ---- */

#define READY_WHY_BYTES 700

/* Returns whether the version that the reference names (MODEL, MODEL@TAG, MODEL@ALIAS or a version's id)
 * is ready on a device. Sets ret_why to a line about it: where it is, or why it is not ready. */
bool ready_is(const struct snapshot *snapshot, const char *reference, char ret_why[READY_WHY_BYTES]);

#endif
