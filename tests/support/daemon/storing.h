/* A gpuwmd whose service manager keeps its descriptors. */
#ifndef GPUWM_TESTS_DAEMON_STORING_H
#define GPUWM_TESTS_DAEMON_STORING_H

#include "daemon/restart/inherited.h"
#include "daemon/restart/keeping.h"
#include "daemon/restart/store.h"
#include "tests/support/any/between.h"
#include "tests/support/daemon/manager.h"
#include "tests/support/daemon/server.h"

extern struct manager manager;

/* Start the manager, whose FDSTORE is `limit`, and a server that found nothing; end both. */
void storing_begin(const char *limit);
void storing_end(void);

/* A test between the two. */
#define StoringTest(suite, name, limit) TestBetween(suite, name, storing_begin(limit), storing_end())

/* m@tag while it is being stored, and ready. */
struct version *being_stored(const char *tag, uint32_t segments);
struct version *stored(const char *tag);

/* Takes its aliases away, and retires it. */
void withdraw(struct version *version);

/* From here on nothing is confirmed, and not waited for as long as of a manager that is merely slow. */
void silence(void);

#endif
