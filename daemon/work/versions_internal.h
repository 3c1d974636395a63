/* What versions.c and versions_freed.c share; nobody else. */
#ifndef GPUWM_DAEMON_VERSIONS_INTERNAL_H
#define GPUWM_DAEMON_VERSIONS_INTERNAL_H

#include "versions.h"

/* versions_events.c: what subscribers are told. */
void tell_version(struct work *work, const char *kind, const struct version *version);
/* It gives no new leases any more; after_ms: how long those that there are go on; NULL: as long as their holders like. */
void tell_retiring(struct work *work, const struct version *version, const uint64_t *after_ms);
void tell_failed(struct work *work, const struct version *version);
void tell_tainted(struct work *work, const struct version *version, const struct replica *replica,
		  const struct error *found);
void tell_swapped(struct work *work, const char *model, const char *alias, const struct swap_result *result);

/* In versions_forced.c. Revokes the leases of a retiring version and frees the version at once, also within the grace time;
 * a pinned version when its last pin goes. The caller then saves the state and calls revoked_tell with the reason. */
void force_now(struct work *work, struct version *version);

/* versions_freed.c. Marks the version if nothing holds it any more: it is in no snapshot from then
 * on, and goes at the next versions_settle. False: it is held, or out of memory. */
bool freeing_begin(struct work *work, struct version *version);

#endif
