/* gpuwmd under a service manager that only records notifications: for tests of what gpuwmd says before it serves. */
#ifndef GPUWM_TESTS_STARTING_H
#define GPUWM_TESTS_STARTING_H

#include "harness.h"

struct starting {
	struct gpuwmd *d;
	int manager; /* what gpuwmd's notifications come to */
	int status; /* of gpuwmd's end */
	bool ready; /* it said READY=1 */
	bool ended;
};

/* A folder, and $NOTIFY_SOCKET in it. */
void starting_prepare(struct starting *s);
/* Starts gpuwmd, by a program of these words (end with NULL) that is to run it or directly, with an empty log. Waits
 * until it is ready or has ended, which must come. */
void starting_run(struct starting *s, const char *const *words);
/* Sends SIGTERM and waits for the end: it must leave with 0. */
void starting_stop(struct starting *s);
/* Asserts that gpuwmd ended by itself before it was ready, and that its log has these words. */
void starting_refused(const struct starting *s, const char *words);

#endif
