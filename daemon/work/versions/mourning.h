/* Publishers that died before their commit. What was charged for their parts is given back when the process has exited, which
 * its pidfd tells; the connection ends earlier. A process that closed its connection and lives on gives no signs of life any
 * more, so its charges are given back after publish_silence_ms. */
#ifndef GPUWM_DAEMON_MOURNING_H
#define GPUWM_DAEMON_MOURNING_H

#include "../../ledger/segment.h"

struct work;

/* Drops one use of each of these charges when the process behind pidfd has exited or lives on for too long. The charge of the
 * publish moves in: the publish counts as open until then, because otherwise a publisher that lives on could make gpuwmd hold
 * any number of pidfds. The pidfd stays the caller's. If pidfd is -1 or there is no memory, the uses are dropped at once, and
 * the charge of the publish stays where it is. */
void mourn(struct work *work, int pidfd, struct shared_charge *const *charges, uint32_t count,
	   struct quota_charge *charge);

/* Drops all of them at once, because gpuwmd ends. */
void mourning_end(struct work *work);

#endif
