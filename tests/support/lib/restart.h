/* What tests of restarts share: a fake gpuwmd with one version, and a client of it. */
#ifndef GPUWM_TESTS_LIB_RESTART_H
#define GPUWM_TESTS_LIB_RESTART_H

#include "client/lib/request/client.h"
#include "tests/support/any/threads.h"
#include "tests/support/lib/client.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <sys/wait.h>

/* Starts `fake` and `client`, which publishes m@v1: 256 bytes, each 7. Its end is client_teardown. */
void restart_setup(void);
bool holds_sevens(const struct gpuwm_mapping *mapping);

/* Attach to m so many times; detach all. */
void attach_all(struct gpuwm_mapping *mappings[], int count);
void detach_all(struct gpuwm_mapping *mappings[], int count);

/* How many threads the library has, besides those of a client without leases. */
unsigned threads_of_library(void);

/* Begins another publish of m@v1. Returns what gpuwm_publish_begin returns. */
int publish_begin(struct gpuwm_publish **ret_publish);

/* ---- the end of gpuwmd ------------------------------------------------- */

void fake_restart(void);
/* The next `count` requests for this method kill gpuwmd. */
void dies_at(const char *method, unsigned count);

/* gpuwmd answers this for so many leases when the client resumes. */
void loses_leases(unsigned count, int code, const char *message);

/* Waits until the client has tried `count` more times to connect. Call it while no gpuwmd listens: each attempt fails. */
void fails_to_connect(unsigned count);
/* Waits until gpuwmd knows of so many leases again, and the client of that. */
void leases_are(unsigned count);

/* The client forgets how often gpuwmd went away lately: it connects again without a longer pause. */
void pause_forget(void);
/* Replaces `client` by one whose calls wait so long for the next gpuwmd. */
void with_restart_ms(int64_t restart_ms);

/* Makes a call in a thread, so that gpuwmd can change meanwhile. call_join waits for it and returns what it returned. */
pthread_t call_begin_in_thread(int (*const *call)(void));
int call_join(pthread_t thread);

#endif
