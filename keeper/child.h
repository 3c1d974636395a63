/* Starting the program: a fork, what is stored from descriptor 3 on, an exec. */
#ifndef GPUWM_KEEPER_CHILD_H
#define GPUWM_KEEPER_CHILD_H

#include "environment.h"

/* What a shell says too: no such program; there is one, but it does not run. The child logs why. */
enum { CHILD_NOT_FOUND = 127, CHILD_NOT_RUN = 126 };

/* Starts command[0], looked up in PATH anew, so that an upgraded file is the one that runs. It gets the
 * default signal mask and actions, a session of its own (a terminal's Ctrl-C reaches us alone, and we
 * forward it), and dies with us: without the store it could not be restarted without a loss, and it
 * would be in the way of the next keeper's. Returns the pid or -errno. */
pid_t child_start(char *const *command, struct environment *environment, const struct store *store);

#endif
