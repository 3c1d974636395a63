/* Shares the loop's time between users: round robin by measured time.
 *
 * Each uid has a share. Its descriptors lie in an epoll instance of the share's own, which the loop watches, so
 * the loop's work does not grow with one user's connections. In each turn of the loop every share that has
 * something to do gets FAIR_QUANTUM_NS. A share that took longer rests for as long while others are active. The share
 * of operators and loaders comes first in each turn; then shares that had nothing to do before, as new flows do in
 * fq_codel (RFC 8290); then those that are busy all the time. Everything runs on the loop's thread. */
#ifndef GPUWM_DAEMON_FAIR_H
#define GPUWM_DAEMON_FAIR_H

#include "../../base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

/* A request costs 5 to 20 us, and a turn of the loop 1 to 2 us more. While one user keeps gpuwmd busy, the request of another user
 * waits for the rest of this time, or of one request. */
#define FAIR_QUANTUM_NS UINT64_C(20000)
/* Operators and loaders may take longer at a time: a load hands in 253 descriptors in one request. */
#define FAIR_QUANTUM_FIRST_NS UINT64_C(1000000)
struct fair;
struct fair_share;
struct metrics;

/* A descriptor whose events are handled in the share's time. The owner embeds it, and keeps it until fair_forget. */
struct fair_watch {
	struct fair_share *share;
	int fd;
	uint32_t events; /* the events of epoll that are watched now; 0: none */
	void (*call)(struct fair_watch *watch, uint32_t events);
};

/* Work that is done in the share's time without a descriptor. The owner embeds it, zeroed. */
struct fair_task {
	struct fair_share *share; /* NULL: it is not due */
	struct fair_task *prev, *next;
	bool (*call)(struct fair_task *task); /* returns true if there is more to do: the task is due again */
};

/* Returns the struct of this type that has the watch or task `part` as its `member`. */
#define fair_owner(part, type, member) ((type *)((char *)(part)-offsetof(type, member)))

/* Calls `after` after each call of a watch or task; `after` may free watches and tasks. The metrics get each user's time; they stay the
 * caller's, until the last close callback. Returns NULL if there is no memory or no descriptor. */
struct fair *fair_new(uv_loop_t *loop, struct metrics *metrics, void (*after)(void *data), void *data);
/* Call it when no share is left. The last close callback frees the memory. Returns NULL; NULL is fine. */
struct fair *fair_free(struct fair *fair);

/* Returns whether a user who is not busy all the time had a turn a moment ago, and may come again at once. */
bool fair_is_awaited(const struct fair *fair);

/* Returns the share of a uid, which the caller gives back with fair_leave. NULL: there is no memory or no descriptor. */
struct fair_share *fair_join(struct fair *fair, uid_t uid);
/* The same for the share of operators and loaders. */
struct fair_share *fair_join_first(struct fair *fair);
/* Gives a share back. The caller has forgotten its watches and tasks. NULL is fine. */
void fair_leave(struct fair_share *share);

/* Calls watch->call for these events from now on. The first call for a watch adds its descriptor. Fails with -errno. */
int fair_watch(struct fair_share *share, struct fair_watch *watch, uint32_t events);
/* Ends a watch. Call it before the descriptor is closed. A second call does nothing, nor does a call for a zeroed watch. */
void fair_forget(struct fair_watch *watch);

/* Calls task->call once, when it is the share's turn. A task that is due already keeps its place. */
void fair_due(struct fair_share *share, struct fair_task *task);
/* The task is not due any more. A second call does nothing. */
void fair_undue(struct fair_task *task);

#endif
