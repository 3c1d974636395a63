/* Checkers that stay ([loader] keep_checker): gpuwmd's half. The test is the publishers and the loaders. */
#ifndef GPUWM_TESTS_DAEMON_CHECKERS_H
#define GPUWM_TESTS_DAEMON_CHECKERS_H

#include "tests/support/daemon/warm.h"

#define ONE 61001 /* users that no machine has */
#define OTHER 61002
#define KEEP_S 100

/* A test between two GPUs with a loader that stands by, and the end of all. Loads keep no contexts. */
#define CheckerTest(suite, name) TestBetween(suite, name, begin_checkers(), finish_checkers())
void begin_checkers(void);
void finish_checkers(void);

/* Begins a part as this user; name NULL: without a name. Returns its check, which waits for the publisher. */
struct job *begin_part(const char *name, const char *device, uid_t uid);
/* The publisher of this check hands its part in, and a loader gets the check if one can. */
void hand_over(const struct job *job);
/* Both. */
struct job *hand_in(const char *name, const char *device, uid_t uid);

/* The loader has checked the part, hands it over and offers to stay. Returns whether it is to. */
bool checks_and_stays(int sock, const struct job *job);

/* `loader` has checked something of the user ONE on the first GPU and stays; `next` stands by. */
void stay(void);

#endif
