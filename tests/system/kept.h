/* gpuwmd under gpuwm-keeper: it dies, and the next one goes on with the same weights. */
#ifndef GPUWM_TESTS_KEPT_H
#define GPUWM_TESTS_KEPT_H

#include "raw.h"

/* Its configuration is a file, which each start reads anew. The keeper waits up to GPUWM_TEST_RESTART_DELAY seconds between two starts; else
 * not at all. */
struct kept {
	const char *limits; /* lines of [limits]; NULL: a short grace time */
	const char *loader; /* NULL: the one that was built */
	const char *store_max; /* NULL: the keeper's default */
	const char *fdstore; /* what gpuwmd is told of the store's size; NULL: the truth */
	const char *preload; /* a library that gpuwmd and its loaders load first: preload(); NULL: none */
	const char *program; /* NULL: the gpuwmd that was built */
	bool take_over; /* keepers hand over to one another, at d->dir/take-over */
	bool acts; /* tests/tools/before-gpuwmd runs before each start */
};
/* For moves that copy each time. Behind the lines of [limits]. */
#define NO_HOST_COPIES "[model.1]\nmatch = *\nhost_copy = no\n"
#define LIMITS_SHORT "grace_ms = 300\n"
/* For what must be done before it ends, by processes that wait for a busy machine. */
#define GRACE_LONG_MS 4000
#define LIMITS_LONG "grace_ms = 4000\n"
#define KEPT_LONG (&(const struct kept){.limits = LIMITS_LONG})

struct gpuwmd *gpuwmd_start_kept(const struct kept *how);
/* The same without waiting. */
struct gpuwmd *gpuwmd_spawn_kept(const struct kept *how);
/* Kills the keeper, and its gpuwmd with it, and starts another keeper at once. kept_wait waits for its gpuwmd. */
void keeper_restart(struct gpuwmd *d, const struct kept *how);
/* Starts another keeper beside the one that runs, and returns the process of that one. kept_wait waits for the new gpuwmd. */
pid_t keeper_succeed(struct gpuwmd *d, const struct kept *how);
/* Counts from the next start on. */
void kept_configure(const struct gpuwmd *d, const struct kept *how);
/* What before-gpuwmd does before the next start, once: its lines. */
void kept_act(const struct gpuwmd *d, const char *lines);

/* What this variable of the environment says, or this number. */
uint64_t number_wanted(const char *variable, uint64_t otherwise);
/* GPUWM_STORM_KILLS, or this many: how often a test kills that finds what is rare. */
unsigned kills_wanted(unsigned otherwise);
/* Ends gpuwmd with this signal, and waits until the next one answers: d->pid and d->admin are its. */
void kept_kill(struct gpuwmd *d, int signal_number);
/* The same after something else has ended it. */
void kept_wait(struct gpuwmd *d);
/* One look whether it does. */
bool kept_next_is_there(struct gpuwmd *d);
/* The process that the keeper started last; 0: none yet. */
pid_t kept_pid(const struct gpuwmd *d);

/* Two tests: `name` of SIGKILL, and of SIGTERM. */
#define KILL_AND_STOP_TEST(suite, name)                                                                        \
	static void name(int signal_number);                                                                   \
	Test(suite, name##_a_kill)                                                                             \
	{                                                                                                      \
		name(SIGKILL);                                                                                 \
	}                                                                                                      \
	Test(suite, name##_a_stop)                                                                             \
	{                                                                                                      \
		name(SIGTERM);                                                                                 \
	}                                                                                                      \
	static void name(int signal_number)

/* `list` without what changes by itself (seq, how many leases there are, and when the last one ended): equal texts are equal
 * registries. free it. */
char *kept_registry(struct gpuwmd *d);
/* Bytes in all memfds of the keeper, gpuwmd and its loaders, but for the state. */
uint64_t kept_memory(const struct gpuwmd *d);
/* Lines of the log of keeper and gpuwmd that have these words. */
size_t log_count(const struct gpuwmd *d, const char *words);

/* ---- leases without the library --------------------------------------- */

struct raw_lease {
	uint64_t lease;
	uint8_t version[16];
};
/* get_handles; its descriptors are closed. The code. */
int raw_lease(int sock, const char *ref, struct raw_lease *ret);
/* resume of `count` versions on d->device; each one's code in ret_codes. The code of the call. */
int raw_resume(const struct gpuwmd *d, int sock, const struct raw_lease *leases, size_t count, int *ret_codes,
	       uint64_t *ret_grace_ms);
/* resume of one: its code. */
int raw_resume_one(const struct gpuwmd *d, int sock, const struct raw_lease *lease);

#endif
