/* A worker that does what workers do, timed, in a process of its own user: it attaches and releases every millisecond
 * on one connection, then connects as often. */
#ifndef GPUWM_BENCH_GOOD_WORKER_H
#define GPUWM_BENCH_GOOD_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct good_worker_settings {
	const char *socket, *ref;
	uid_t uid;
	gid_t gid;
	double attach_us, connect_us; /* how long it does each */
};

struct good_worker_times {
	double attach_p50, attach_p99,
		connect_p50; /* us; an attach with its release, a connect with its hello */
	size_t attaches, connects;
};

/* An answer that takes longer counts as so long, and ends the series. */
#define GOOD_WORKER_WAIT_US 20e6

struct good_worker;
/* Starts the process; returns when it is connected. */
struct good_worker *good_worker_start(const struct good_worker_settings *settings);
/* Lets it begin. */
void good_worker_begin(struct good_worker *worker);
/* True when it is done, which ends it: *ret is set. */
bool good_worker_done(struct good_worker *worker, struct good_worker_times *ret);

#endif
