/* What a hostile user does to gpuwmd: some processes of one uid with many connections, each with a request under
 * way all the time. The requests are all well-formed. */
#ifndef GPUWM_BENCH_FLOOD_H
#define GPUWM_BENCH_FLOOD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct flood {
	const char *name;
	const char *what; /* for a table: what it does */
	struct flood_way *way; /* the module's own */
};
extern const struct flood floods[];
extern const size_t flood_count;
/* NULL: there is none of that name. */
const struct flood *flood_find(const char *name);

struct flood_settings {
	const char *socket, *ref; /* gpuwmd's, and a version that is there */
	uid_t uid;
	gid_t gid;
	unsigned processes, connections; /* in all */
};

#define FLOOD_PROCESSES_MAX 16
struct flooders {
	pid_t pids[FLOOD_PROCESSES_MAX];
	unsigned count;
	uint64_t *done; /* shared: answers, or connections, of each process so far */
};

/* Returns when all connections are open and have their first requests under way. flood NULL, the control: the
 * connections idle, and the processes burn time. Needs root. */
struct flooders flooders_start(const struct flood *flood, const struct flood_settings *settings);
uint64_t flooders_done(const struct flooders *flooders);
void flooders_stop(struct flooders *flooders);

/* Gives the process away, for good. */
void become(uid_t uid, gid_t gid);

#endif
