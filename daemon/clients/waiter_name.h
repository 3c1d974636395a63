/* Waiters by what they wait for: a name (model@tag, model@alias) or a version's id. So a change costs those who wait
 * for it, and nobody else. */
#ifndef GPUWM_DAEMON_WAITER_NAME_H
#define GPUWM_DAEMON_WAITER_NAME_H

#include "waiter.h"

struct waiter_name;

/* The waiter waits for waiter->ref. -ENOMEM. */
int waiter_name_enter(struct waiter *waiter);
/* Twice is fine, and so is a waiter that was never entered. */
void waiter_name_leave(struct waiter *waiter);

/* Who waits for it longest, then the others by next_of_name; NULL: nobody. */
struct waiter *waiter_name_first(const struct clients *clients, enum wait_kind kind, const struct ref *ref);

/* Calls `look` for everyone who waits for a name of the version, or for `previous`, which moves with `current`. */
void waiter_names_of_version(struct clients *clients, enum wait_kind kind, const struct version *version,
			     void (*look)(struct waiter *waiter));

#endif
