/* Two versions of m on host, v1 and v2, of one layout and filled with 1 and 2, at a gpuwmd that comes and goes. */
#ifndef GPUWM_TESTS_LIB_SWITCH_H
#define GPUWM_TESTS_LIB_SWITCH_H

#include "client/lib/mapping/attach.h"
#include "tests/support/lib/restart.h"
#include "tests/support/lib/versions.h"

extern struct memory_device host;
extern struct fake_version *v1, *v2;

/* Its end is client_teardown. */
void switch_setup(void);

/* How many descriptors this process has once gpuwmd has closed those that it sent. */
int settled_fds(void);

/* The mapping is this version now, and each of its bytes is `fill`. */
void is_version(const struct gpuwm_mapping *mapping, const struct fake_version *version, int fill);

/* One lease is held, by gpuwmd and by the client, and it is the mapping's. */
void holds_one_lease(struct gpuwm_mapping *mapping);

#endif
