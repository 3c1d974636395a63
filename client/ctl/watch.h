/* --watch: a command that is run again and again, at each event of gpuwmd and at an interval, for its result may have
 * changed, and ages grow. */
#ifndef GPUWM_CTL_WATCH_H
#define GPUWM_CTL_WATCH_H

#include "arguments.h"

typedef int command_fn(struct gpuwm_client *client, const struct arguments *arguments);

/* Runs the command until the user presses q or Ctrl-C, or the command fails. On a terminal its result is drawn in one place.
 * Elsewhere, and as data, each result that differs from the last one is appended. Returns the command's exit code, or
 * EXIT_DONE after q. */
int watch(struct gpuwm_client *client, const struct arguments *arguments, command_fn *run);

#endif
