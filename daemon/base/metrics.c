#include "metrics.h"
#include "../../base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)

const uint64_t request_bounds_us[HISTOGRAM_BOUNDS] = {5,   10,  20,  30,   50,   75,   100,   150,
						      200, 300, 500, 1000, 2000, 5000, 20000, 100000};
const uint64_t load_bounds_us[HISTOGRAM_BOUNDS] = {1000,     5000,     10000,     50000,    100000,   250000,
						   500000,   1000000,  2000000,   5000000,  10000000, 20000000,
						   30000000, 60000000, 120000000, 300000000};

const char refused_unknown[] = "unknown", refused_packet[] = "packet", refused_connect[] = "connect";

const char *metric_name(enum metric metric)
{
	static const char *const names[METRICS] = {
		[METRIC_ATTACHES] = "attaches",
		[METRIC_RELEASES] = "releases",
		[METRIC_RESUMES] = "resumes",
		[METRIC_LEASES_LOST] = "leases_lost",
		[METRIC_LEASES_REVOKED] = "leases_revoked",
		[METRIC_SWAPS] = "swaps",
		[METRIC_LOADS] = "loads",
		[METRIC_LOADS_FAILED] = "loads_failed",
		[METRIC_PUBLISHES] = "publishes",
		[METRIC_PUBLISHES_FAILED] = "publishes_failed",
		[METRIC_FREED] = "freed",
		[METRIC_EVICTIONS] = "evictions",
		[METRIC_RESTORED] = "restored",
		[METRIC_RESTORES_FAILED] = "restores_failed",
		[METRIC_CONNECTS] = "connects",
		[METRIC_CONNECTS_REFUSED] = "connects_refused",
	};

	return names[metric];
}

struct metrics *metrics_new(void)
{
	struct metrics *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->since_ms = clock_wall_ms();
	m->attach.bounds_us = request_bounds_us;
	m->attach_waited.bounds_us = m->other_phases.bounds_us = load_bounds_us;
	return m;
}

struct metrics *metrics_free(struct metrics *m)
{
	while (m && m->users) {
		struct user_times *user = m->users;

		HASH_DEL(m->users, user);
		free(user);
	}
	free(m);
	return NULL;
}

/* ---- times ---- */

void histogram_add(struct histogram *h, uint64_t took_ns)
{
	size_t i = 0;

	while (i < HISTOGRAM_BOUNDS && took_ns > h->bounds_us[i] * NS_PER_US)
		i++;
	h->counts[i]++;
	h->sum_ns += took_ns;
}

void metrics_request(struct metrics *m, size_t number, const char *name, uint64_t took_ns)
{
	struct method_times *method = &m->methods[number];

	method->name = name;
	method->histogram.bounds_us = request_bounds_us;
	histogram_add(&method->histogram, took_ns);
}

static struct histogram *phase_of(struct metrics *m, const char *name)
{
	struct phase_times *phase = m->phases;

	while (phase < m->phases + m->phase_count && strcmp(phase->name, name) != 0)
		phase++;
	if (phase == m->phases + METRICS_PHASES_MAX)
		return &m->other_phases;
	if (phase == m->phases + m->phase_count) {
		snprintf(phase->name, sizeof(phase->name), "%s", name);
		phase->histogram.bounds_us = load_bounds_us;
		m->phase_count++;
	}
	return &phase->histogram;
}

void metrics_phase(struct metrics *m, const char *phase, uint64_t took_ms)
{
	histogram_add(phase_of(m, phase), took_ms * NS_PER_MS);
}

/* ---- refusals and users ---- */

void metrics_refused(struct metrics *m, const char *method, int code)
{
	struct refusals *row = m->refusals;
	const struct refusals *end = m->refusals + m->refusal_count;

	while (row < end && (row->method != method || row->code != code))
		row++;
	if (row == m->refusals + METRICS_REFUSALS_MAX) {
		m->other_refusals++;
		return;
	}
	if (row == end) {
		*row = (struct refusals){method, code, 0};
		m->refusal_count++;
	}
	row->count++;
}

static struct user_times *user_add(struct metrics *m, uid_t uid)
{
	struct user_times *user = HASH_COUNT(m->users) < METRICS_USERS_MAX ? calloc(1, sizeof(*user)) : NULL;

	if (!user)
		return &m->rest;
	user->uid = uid;
	HASH_ADD(hh, m->users, uid, sizeof(uid), user);
	if (user->hh.tbl)
		return user;
	free(user);
	return &m->rest;
}

struct user_times *metrics_user(struct metrics *m, uid_t uid)
{
	struct user_times *user;

	HASH_FIND(hh, m->users, &uid, sizeof(uid), user);
	return user ? user : user_add(m, uid);
}
