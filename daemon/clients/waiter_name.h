/* A table of waiters by what they wait for: a name (model@tag, model@alias) or the id of a version. So gpuwmd looks only at the
 * waiters that a change concerns. */
#ifndef GPUWM_DAEMON_WAITER_NAME_H
#define GPUWM_DAEMON_WAITER_NAME_H

#include "waiter.h"

struct waiter_name;

/* Enters the waiter, which waits for waiter->ref. Fails with -ENOMEM. */
int waiter_name_enter(struct waiter *waiter);
/* Removes the waiter. A waiter that is not in the table is fine. */
void waiter_name_leave(struct waiter *waiter);

/* Returns the waiter that has waited longest for this name, and next_of_name the others; NULL: there is none. */
struct waiter *waiter_name_first(const struct clients *clients, enum wait_kind kind, const struct ref *ref);

/* Calls `look` for each waiter that waits for a name of the version, or for `previous`, which moves with `current`. */
void waiter_names_of_version(struct clients *clients, enum wait_kind kind, const struct version *version,
			     void (*look)(struct waiter *waiter));

#endif
