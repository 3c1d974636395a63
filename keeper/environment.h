/* The environment of a start: the keeper's own, with the variables that sd_listen_fds(3),
 * sd_notify(3) and sd_watchdog_enabled(3) read. */
#ifndef GPUWM_KEEPER_ENVIRONMENT_H
#define GPUWM_KEEPER_ENVIRONMENT_H

#include "store.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct environment {
	char **variables; /* for execve; ends with NULL */
	/* Where to write the number behind "LISTEN_PID=" and "WATCHDOG_PID=". NULL: that variable
	 * is not set. */
	char *listen_pid, *watchdog_pid;
	char *texts; /* the keeper's variables */
};

/* Makes an environment of `base` and the keeper's own variables, which replace those of `base`:
 * NOTIFY_SOCKET, FDSTORE (how many descriptors the store takes, as systemd sets it since version
 * 254), GPUWM_STORE_ANSWERS (service/store_answer.h), LISTEN_* for what the store holds, WATCHDOG_* if
 * watchdog_us is not 0, and GPUWM_STORE_ADOPT if `adopt` is set. Returns 0 and sets *ret, for environment_clear. *ret points into the
 * strings of `base`. Fails with -ENOMEM. */
int environment_make(struct environment *ret, char *const *base, const char *notify_socket,
		     const struct store *store, uint64_t watchdog_us, bool adopt);
/* Writes both numbers, once the process is known. It allocates nothing, so that it can be called
 * between fork and exec. */
void environment_set_pid(struct environment *environment, pid_t pid);
void environment_clear(struct environment *environment);

#endif
