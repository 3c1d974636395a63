/* Starts the program: fork, put the stored descriptors at 3 and above, exec. */
#ifndef GPUWM_KEEPER_CHILD_H
#define GPUWM_KEEPER_CHILD_H

#include "environment.h"

/* The exit statuses that a shell uses too: there is no such program; there is one, but it does not
 * run. The child logs why. */
enum { CHILD_NOT_FOUND = 127, CHILD_NOT_RUN = 126 };

/* Starts command[0]. It is looked up in PATH anew, so that an upgraded file is the one that runs.
 * The program gets the default signal mask and actions, and a session of its own: a terminal's
 * Ctrl-C reaches only the keeper, which forwards it. It dies with the keeper: without the store it
 * could not be restarted without a loss, and it would be in the way of the next keeper's program.
 * Returns the pid. Fails with -errno. */
pid_t child_start(char *const *command, struct environment *environment, const struct store *store);

#endif
