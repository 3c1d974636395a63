/* Publishers that died before their commit: what was charged for them returns when
 * the process is really gone, which its pidfd tells after its socket. One that closed its connection and lives on gives no
 * signs of life any more, so its charge returns after publish_silence_ms. */
#ifndef GPUWM_DAEMON_MOURNING_H
#define GPUWM_DAEMON_MOURNING_H

#include "../ledger/segment.h"

struct work;

/* What was charged for one publish: drops one use of each when the process behind pidfd has
 * exited, or lives on for too long. Until then the publish counts as open, or a publisher that lives on could make
 * gpuwmd hold any number of pidfds: the publish's own charge moves in. The pidfd stays the caller's. -1, or
 * out of memory: the charges are dropped at once, the publish's own stays. */
void mourn(struct work *work, int pidfd, struct shared_charge *const *charges, uint32_t count,
	   struct quota_charge *charge);

/* When gpuwmd ends: all of them, at once. */
void mourning_end(struct work *work);

#endif
