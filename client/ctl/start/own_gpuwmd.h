/* The gpuwmd of this user: where it is or would be, whether it runs, and how it is started. */
#ifndef GPUWM_CTL_OWN_GPUWMD_H
#define GPUWM_CTL_OWN_GPUWMD_H

#include "../answer.h"
#include "../runner.h"
#include "../../../base/limits.h"

#include <sys/types.h>

#define OWN_PATH 512 /* of a file in a home folder; a socket's path has less */

struct own_gpuwmd {
	char folder[OWN_PATH], socket[OWN_PATH];
	char take_over[OWN_PATH + 16]; /* the socket on which the keeper hands everything to the next one */
	bool is_named; /* --socket or GPUWM_SOCKET names the socket: clients need that variable, too */
	bool system_answers; /* the system's gpuwmd runs besides */
	pid_t keeper; /* the gpuwm-keeper that was started for this folder; 0: none */
	json_t *status; /* gpuwmd's answer; NULL: nobody answers */
	char why[OWN_PATH]; /* nobody answers */
};

/* Looks where this user's gpuwmd is: at the socket that --socket or GPUWM_SOCKET names; else at the first of this user's places where
 * one runs; else where one would be started. EXIT_DONE; own_gpuwmd_clear frees what is in *ret. Or an exit code, after printing why:
 * there is no such place, its path is too long for a socket, or another user's process listens there. */
int own_gpuwmd_find(const struct arguments *arguments, struct own_gpuwmd *ret);
void own_gpuwmd_clear(struct own_gpuwmd *own);

/* Asks the gpuwmd at the socket. NULL: nobody answers, or not yet. */
json_t *own_gpuwmd_ask(const struct own_gpuwmd *own);

/* What runs the gpuwmd that answers; zeros if it is in another container. */
struct runner own_gpuwmd_runner(const struct own_gpuwmd *own);
/* Prints that gpuwmctl start has not started the gpuwmd that answers, with the remedy. Returns the exit code. */
int own_gpuwmd_foreign_tell(const struct own_gpuwmd *own, const char *remedy);

/* Makes a folder and those above it, with the mode 0700. EXIT_DONE, or an exit code after printing why. */
int own_folder_make(const char *path);
/* The log of a gpuwmd that gpuwmctl start has started in the background, with its sockets in this folder: gpuwmd.log. If clients need
 * a variable to find these sockets, the log has the folder in its name. EXIT_DONE, or an exit code after printing why there is none. */
int own_log_path(const char *folder, char ret_path[OWN_PATH]);

/* ---- gpuwm-keeper with gpuwmd below it, started for this user ---- */

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
