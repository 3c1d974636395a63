/* gpuwm-keeper with gpuwmd below it, started for this user. */
#ifndef GPUWM_CTL_LAUNCH_H
#define GPUWM_CTL_LAUNCH_H

#include "own_gpuwmd.h"

#include "../../../base/limits.h"

/* keeper, --take-over, SOCKET, --, gpuwmd, and the most flags: two words for each root, the hub's root and each budget, and --socket and
 * --config; for a restart as many as the running one has. NULL ends them. */
#define LAUNCH_WORDS_MAX (5 + 2 * (ROOTS_MAX + 1 + DEVICES_MAX + 2) + 1)

struct launch {
	struct own_gpuwmd *own;
	const char *words[LAUNCH_WORDS_MAX];
	size_t count;
	bool is_restart; /* the keeper takes over from another one */
	/* Set by launching: */
	char unit[64]; /* of this user's systemd; "": none */
	char log[OWN_PATH]; /* "": the terminal */
	off_t log_from; /* where this launch's lines begin in the log */
};

/* Starts the programs in the background, with a log file: as a unit of this user's systemd if there is one, else in a session of their
 * own. Waits until the new gpuwmd answers, and sets own->status and own->keeper. EXIT_DONE, or an exit code after printing why it does
 * not run, with the end of its log. */
int launch_background(struct launch *launch);

/* Runs the programs until a signal or the end of the terminal ends them. Calls `ready` once gpuwmd answers. Returns an exit code. */
int launch_foreground(struct launch *launch, int (*ready)(const struct launch *launch));

#endif
