/* What gpuwmd counts and times from its start on, for the method `metrics`. Counting takes no memory on a request's way, and no table
 * here grows beyond its limit. Everything runs on the loop's thread. */
#ifndef GPUWM_DAEMON_METRICS_H
#define GPUWM_DAEMON_METRICS_H

#include "hash.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Pairs of a method and a code. There are some 40 methods, and each refuses with a few codes. */
#define METRICS_REFUSALS_MAX 256
/* Phases of loads with a label of their own. A load has about eight, and each way of loading has others. */
#define METRICS_PHASES_MAX 24
/* The methods of the table. */
#define METRICS_METHODS_MAX 64
/* Users with an entry of their own: as many as have a share of gpuwmd's time (FAIR_SHARES_MAX). */
#define METRICS_USERS_MAX 256

enum metric {
	METRIC_ATTACHES,
	METRIC_RELEASES,
	METRIC_RESUMES,
	METRIC_LEASES_LOST,
	METRIC_LEASES_REVOKED,
	METRIC_SWAPS,
	METRIC_LOADS,
	METRIC_LOADS_FAILED,
	METRIC_PUBLISHES,
	METRIC_PUBLISHES_FAILED,
	METRIC_FREED,
	METRIC_EVICTIONS, /* demotions that gpuwmd began by itself */
	METRIC_RESTORED,
	METRIC_RESTORES_FAILED,
	METRIC_CONNECTS,
	METRIC_CONNECTS_REFUSED,
	METRICS,
};
/* Returns its name in messages: "attaches". */
const char *metric_name(enum metric metric);

/* ---- times ---- */

#define HISTOGRAM_BOUNDS 16
/* The upper bounds in microseconds. Requests take from 5 us to some milliseconds, loads from milliseconds to minutes. */
extern const uint64_t request_bounds_us[HISTOGRAM_BOUNDS], load_bounds_us[HISTOGRAM_BOUNDS];

/* Zeroed, but for the bounds: nothing was timed yet. */
struct histogram {
	const uint64_t *bounds_us;
	uint64_t counts[HISTOGRAM_BOUNDS + 1]; /* the last: above all bounds */
	uint64_t sum_ns;
};
void histogram_add(struct histogram *histogram, uint64_t took_ns);

struct method_times {
	const char *name; /* NULL: it was never called */
	struct histogram histogram;
};

#define METRICS_PHASE_BYTES 31
struct phase_times {
	char name[METRICS_PHASE_BYTES + 1];
	struct histogram histogram;
};

/* ---- refusals and users ---- */

struct refusals {
	const char *method;
	int code; /* negative errno */
	uint64_t count;
};
/* What takes the place of a method: for requests of methods that there are not, packets that are no requests, and connections. */
extern const char refused_unknown[], refused_packet[], refused_connect[];

struct user_times {
	uid_t uid;
	uint64_t requests, refused;
	uint64_t busy_ns; /* the loop's time */
	uint64_t turns;
	uint64_t waited; /* how many of them had to wait until the turns of others were over */
	UT_hash_handle hh;
};

struct metrics {
	uint64_t since_ms; /* since 1970 */
	uint64_t counters[METRICS];
	struct histogram attach, attach_waited;
	struct method_times methods[METRICS_METHODS_MAX]; /* by their number in the table */
	struct phase_times phases[METRICS_PHASES_MAX];
	size_t phase_count;
	struct histogram other_phases;
	struct refusals refusals[METRICS_REFUSALS_MAX];
	size_t refusal_count;
	uint64_t other_refusals;
	struct user_times *users; /* by uid */
	struct user_times rest; /* of users beyond METRICS_USERS_MAX */
	struct user_times operators; /* the turns of operators and loaders */
};

/* Returns NULL if there is no memory. */
struct metrics *metrics_new(void);
/* Returns NULL. NULL is fine. */
struct metrics *metrics_free(struct metrics *metrics);

static inline void metrics_count(struct metrics *metrics, enum metric metric, uint64_t count)
{
	metrics->counters[metric] += count;
}
/* The method with this number in the table, and this name, has handled a request. */
void metrics_request(struct metrics *metrics, size_t number, const char *name, uint64_t took_ns);
/* A load that is done spent this time in the phase. */
void metrics_phase(struct metrics *metrics, const char *phase, uint64_t took_ms);
/* method: a text that lives as long as the program; its address stands for it. */
void metrics_refused(struct metrics *metrics, const char *method, int code);
/* Returns the entry of the user, which stays. If there is no room, returns the entry of the rest. */
struct user_times *metrics_user(struct metrics *metrics, uid_t uid);

#endif
