/* Threads that do the items of a list, each item in one thread. The calling thread reports their progress. */
#ifndef GPUWM_LOADER_TEAM_H
#define GPUWM_LOADER_TEAM_H

#include "../../memory/memory.h"

#include <stdbool.h>
#include <stdint.h>

struct team;

/* Does item number `item`. `member` is a number below `members` that no other thread has. Calls team_add now and then. Returns 0, also
 * if team_add returned false. Fails with -errno and sets *error; then the team stops. */
typedef int team_fn(struct team *team, uint64_t item, unsigned member, void *data, struct error *error);

struct team_work {
	team_fn *run;
	void *data;
	uint64_t count; /* of items */
	unsigned members; /* threads; at least 1 */
	/* Called by the calling thread only, at least every TEAM_LOOK_MS, with the bytes that team_add counted. If it returns
	 * nonzero, the team stops. */
	memory_progress_fn *progress;
	void *user_data;
};

#define TEAM_LOOK_MS 20 /* the longest delay before a cancel is seen */
#define TEAM_MEMBERS_MAX 16

/* Does all items, in their order. Returns 0. If progress stops the team, returns what progress returned. Fails with the error of
 * the first item that failed, and with -EAGAIN if no thread could be started. No thread is left when it returns. */
int team_run(const struct team_work *work, struct error *error);
/* Counts `bytes` as done. Returns false if the team stops; then the member abandons its item. */
bool team_add(struct team *team, uint64_t bytes);

#endif
