/* A user who starts a gpuwmd of their own with gpuwmctl: for tests of start, restart and stop. */
#ifndef GPUWM_TESTS_STARTER_H
#define GPUWM_TESTS_STARTER_H

#include "harness.h"

extern struct gpuwmd starter_place; /* of which only the folder is used */
extern char starter_home[80], starter_runtime[80];

/* A user who has a home, and a folder for sockets if `has_runtime`; no systemd and no variables of gpuwm. */
void starter_make(bool has_runtime);
/* Stops the user's gpuwmd, and removes what starter_make made: the .fini of a suite. */
void starter_end(void);
/* A client of the gpuwmd that this user finds, and the pid of that gpuwmd. */
struct gpuwm_client *starter_client(void);
pid_t starter_pid(void);
/* Whether no gpuwmd of this user listens. The system's may run besides, and let this user in or not. */
bool nobody_listens(void);
/* Asserts that the output of the last command has these words, with a folder in them. */
void starter_says(const char *format, const char *folder);
/* Runs a command of the shell with two words in it, which must succeed. */
void starter_shell(const char *format, const char *first, const char *second);

#endif
