/* Processes of other users, which do what the test tells them. Needs root. */
#ifndef GPUWM_TESTS_USER_H
#define GPUWM_TESTS_USER_H

#include "harness.h"

#define ALICE 61001
#define BOB 61002
#define CAROL 61003

/* For process_start, with the user's number and its groups. user_start starts a user without groups. */
int user(int argc, char **argv);
struct process user_start(uid_t uid);
/* Ends the user, and with it what it holds. */
void user_end(struct process *p);

/* Sends a command, "VERB FIRST SECOND", to the user and waits for the answer: what the library returned. */
int does(struct process *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Waits for the answer to a command that was sent before. */
int answer_of(struct process *p);
/* The last answer, with message and detail of its error. */
extern char said[2 * 1100];

#define DOES(p, ...) cr_assert_geq(does(p, __VA_ARGS__), 0, "%s", said)
#define REFUSED(code, p, ...) cr_assert_eq(does(p, __VA_ARGS__), -(code), "%s", said)

#endif
