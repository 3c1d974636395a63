/* A start of the program: fork, put the stored descriptors at 3 and above, exec. And when it is started again. */
#ifndef GPUWM_KEEPER_CHILD_H
#define GPUWM_KEEPER_CHILD_H

#include "store.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The environment of a start: the keeper's own, with the variables that sd_listen_fds(3), sd_notify(3) and sd_watchdog_enabled(3) read. */
struct environment {
	char **variables; /* for execve; ends with NULL */
	/* Where to write the number behind "LISTEN_PID=" and "WATCHDOG_PID=". NULL: that variable
	 * is not set. */
	char *listen_pid, *watchdog_pid;
	char *texts; /* the keeper's variables */
};

/* Makes an environment of `base` and the keeper's own variables, which replace those of `base`:
 * NOTIFY_SOCKET, FDSTORE (how many descriptors the store takes, as systemd sets it since version
 * 254), GPUWM_STORE_ANSWERS (service/manager.h), LISTEN_* for what the store holds, WATCHDOG_* if
 * watchdog_us is not 0, and GPUWM_STORE_ADOPT if `adopt` is set. Returns 0 and sets *ret, for environment_clear. *ret points into the
 * strings of `base`. Fails with -ENOMEM. */
int environment_make(struct environment *ret, char *const *base, const char *notify_socket,
		     const struct store *store, uint64_t watchdog_us, bool adopt);
/* Writes both numbers, once the process is known. It allocates nothing, so that it can be called
 * between fork and exec. */
void environment_set_pid(struct environment *environment, pid_t pid);
void environment_clear(struct environment *environment);

/* The exit statuses that a shell uses too: there is no such program; there is one, but it does not
 * run. The child logs why. */
enum { CHILD_NOT_FOUND = 127, CHILD_NOT_RUN = 126 };

/* Starts command[0]. It is looked up in PATH anew, so that an upgraded file is the one that runs.
 * The program gets the default signal mask and actions, and a session of its own: a terminal's
 * Ctrl-C reaches only the keeper, which forwards it. It dies with the keeper: without the store it
 * could not be restarted without a loss, and it would be in the way of the next keeper's program.
 * Returns the pid. Fails with -errno. */
pid_t child_start(char *const *command, struct environment *environment, const struct store *store);

/* When to start a program again that has ended. The keeper never gives up: giving up would free the store.
 *
 * The first start again comes at once, so that a single crash costs a millisecond. After that the
 * delay is this time, doubled with each start that came to nothing, up to the longest delay. A
 * start of gpuwmd costs some 10 ms of a core and, by its loader, a cuInit of 0.1 to 0.2 s: with 100
 * ms the second try does not fill a core. */
#define RESTART_DELAY_MS 100
/* The longest delay by default. Whoever has removed the cause waits no longer than this, and the
 * machine sees one cuInit in five seconds. */
#define RESTART_DELAY_MAX_MS 5000

struct restart {
	uint64_t max_ms;
	uint64_t next_ms;
};

/* Returns the delay before the next start, after a run that was ready for ready_ms (0: it never
 * was). After a run that was ready for longer than the longest delay, the series begins anew. */
uint64_t restart_delay(struct restart *restart, uint64_t ready_ms);
/* Begins the series anew. */
void restart_reset(struct restart *restart);

#endif
