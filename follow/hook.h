/* The hook: a command that gets the whole list of servers as JSON on its standard input. One runs at a time. A list that changes meanwhile
 * is given to the next run, of several changes only the last. */
#ifndef GPUWM_FOLLOW_HOOK_H
#define GPUWM_FOLLOW_HOOK_H

#include "trouble.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct hook {
	const char *command; /* for sh -c; NULL: there is no hook */
	uint64_t timeout_ms, retry_ms;
	char *wanted; /* malloced: the newest list; NULL: there is none yet */
	char *given; /* malloced: the list of the run, or of the last one that succeeded; NULL: there is none */
	pid_t pid; /* of the run; 0: there is none */
	uint64_t due_ms; /* when the run is killed, or when the next one may begin */
	bool killed; /* the run took too long */
	struct trouble trouble;
};

/* The list is this text from now on, a malloced one, which the hook takes over. */
void hook_want(struct hook *hook, char *list);
/* Starts a run if one is wanted and may begin; kills one that takes too long. Call it after hook_want, after hook_ended, and when
 * the time of hook_due_ms has come. */
void hook_go_on(struct hook *hook, uint64_t now_ms);
/* SIGCHLD came: takes the exit status of a run that has ended. */
void hook_reap(struct hook *hook, uint64_t now_ms);
/* Returns when hook_go_on has something to do; UINT64_MAX: only after a change. */
uint64_t hook_due_ms(const struct hook *hook);
/* Ends a run, and frees the lists. */
void hook_end(struct hook *hook);

#endif
