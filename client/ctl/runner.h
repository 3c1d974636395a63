/* Which programs run gpuwmd, and whether it is of the same release as gpuwmctl, and runs from the file that is installed. */
#ifndef GPUWM_CTL_RUNNER_H
#define GPUWM_CTL_RUNNER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define UNIT_TEXT 256 /* UNIT_NAME_MAX of systemd */
#define COMM_TEXT 17 /* TASK_COMM_LEN, and a newline */

struct runner {
	pid_t keeper; /* gpuwm-keeper, of which gpuwmd is a child; 0: none */
	char unit[UNIT_TEXT]; /* of systemd; "": systemd does not run gpuwmd */
	bool user; /* the unit is of a user's manager */
	bool is_started; /* gpuwmctl start has started the keeper */
	pid_t foreground; /* the gpuwmctl that still runs the keeper, on a terminal; 0: none */
};

/* Returns whether the process is gpuwmd. False if gpuwmd has this number in another container. */
bool runner_is_gpuwmd(pid_t pid);
/* Looks who runs the gpuwmd with this pid, whose workers' socket this is. */
struct runner runner_find(pid_t pid, const char *socket);
/* Looks who runs the keeper that gpuwmctl start has started. */
struct runner runner_of_keeper(pid_t keeper);
/* How its operator starts gpuwmd anew without losing weights, as a sentence: for remedies. */
void runner_renew_text(const struct runner *runner, char *ret_text, size_t size);

/* The name of the socket, in the folder of gpuwmd's, where a keeper that gpuwmctl start has started hands everything over. */
#define RUNNER_TAKE_OVER "take-over.sock"
/* Returns this user's gpuwm-keeper that takes over at this socket, other than `except`; 0: there is none. Sets ret_words (may be
 * NULL) to the words that follow PROGRAM in its command line, each ended by a zero, and *ret_bytes to their bytes. What has no room
 * is left out. */
pid_t runner_keeper_at(const char *take_over, pid_t except, char *ret_words, size_t size, size_t *ret_bytes);

/* Looks for such a keeper at the places where a client looks for gpuwmd, and asks nobody. given: the workers' socket as the user names it,
 * or NULL. Returns its pid, and sets ret_socket (may be NULL) to the socket's path; 0: there is none, or memory is short. */
pid_t runner_keeper_find(const char *given, char *ret_socket, size_t size);

/* Sets ret_path to the file that this keeper starts as gpuwmd, if that file is not there any more. Returns false, and sets nothing, if
 * it is there, or if nothing is known. */
bool runner_program_is_gone(pid_t keeper, char *ret_path, size_t size);
/* This as a sentence, of the keeper's pid and the file; and what to do. */
#define RUNNER_GONE "gpuwm-keeper (pid %d) keeps the weights, and can't start gpuwmd: there is no %s any more"
#define RUNNER_GONE_REMEDY "gpuwmctl restart takes over without losing weights, gpuwmctl stop ends it"

/* ---- the release of the gpuwmd that runs (release.c) ---- */

#define RELEASE_TEXT 1024

/* Returns false if there is nothing to tell. Else sets ret_text to what is so, by gpuwmd's status. */
bool release_differs(const json_t *status, char ret_text[RELEASE_TEXT]);
/* Sets ret_remedy to how the gpuwmd at this socket is renewed. */
void release_remedy(const json_t *status, const char *socket, char ret_remedy[RELEASE_TEXT]);

/* Sets ret_path to the file that this gpuwmctl runs from. */
void release_own_path(char *ret_path, size_t size);

#endif
