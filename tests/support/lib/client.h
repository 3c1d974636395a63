/* What tests of the library share: a fake gpuwmd and a client of it. */
#ifndef GPUWM_TESTS_LIB_CLIENT_H
#define GPUWM_TESTS_LIB_CLIENT_H

#include "memory/memory.h"
#include "gpuwm/client.h"
#include "tests/support/lib/fake.h"

#include <sys/wait.h>

extern struct fake *fake;
extern struct gpuwm_client *client;
extern int fds_before; /* descriptors of this process, before there was either */
extern struct memory_device device; /* where the fake's versions lie, for tests that need to know */

/* The options of a client of `fake`. */
struct gpuwm_connect_options to_fake(void);
struct gpuwm_client *client_with(const struct gpuwm_connect_options *options);
/* Starts `fake`, whose device is this one, and `client`. */
void client_start(const char *device_id);
/* Fixtures of a suite: the same on "host"; and the end of both, with no descriptor left. */
void client_setup(void);
void client_teardown(void);

struct gpuwm_mapping *attach_to(const char *ref);
/* How many leases `fake` knows of. */
unsigned leases(void);
/* From now on `fake` refuses this method. If `message` is NULL, the error says "METHOD is refused". */
void refuses(const char *method, int code, const char *message);

/* Waits for a forked child of the test. Returns what it ended with, as waitpid does. */
int child_status(pid_t child);

#endif
