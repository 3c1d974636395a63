/* Leases that are to be awake, with room: the queue in which they wait for their devices.
 *
 * A lease waits on all devices that its version, and its room, lack memory of. It gets everything at once, or nothing. The first that waits on
 * a device is its head: versions that only parked leases hold leave for it. Others go past the head only if it would go as soon
 * nevertheless: so nobody starves as long as those that are awake park some time. A lease for which there would be no room even then, because
 * of pins or of what parked ones keep, holds nobody up. A lease of which gpuwmd knows nothing to leave for it asks
 * the awake ones: the event `wanted`.
 *
 * Leases may wait as a group, such as those of the ranks of one engine: gpuwmd grants nothing to them before all of them have asked, and then
 * everything to all of them at once. Else the ranks of two engines, each with a device that the other one needs too, would wait for each other.
 *
 * What was granted is reserved until the holder has heard of it. A lease keeps its place, and what is reserved for it, for
 * UNPARK_KEPT_MS after its request has ended, so that a client may ask in short questions. */
#ifndef GPUWM_DAEMON_UNPARKS_H
#define GPUWM_DAEMON_UNPARKS_H

#include "../work.h"
#include "../../ledger/registry.h"

struct unpark;

/* The lease is going to ask (unparks_ask) as one of so many leases of its user with this group's name; group NULL: alone. -ENOMEM */
int unparks_join(struct work *work, struct lease *lease, const char *group, uint64_t leases,
		 struct error *error);
/* Asks for a lease to be awake with so many bytes of room; it may be awake already, and ask for other room. wait_ms: how long its holder
 * waits, below 0: for ever. Returns 0 if the version lies on its devices, with the room charged: the caller then calls leases_unpark, or
 * unparks_end if the lease was awake. Fails with
 *   -ETIMEDOUT  It comes: sets *ret_comes. When something has changed, the waiters for the version (WAIT_READY) are woken, and ask again.
 *   -ENOSPC     Awake leases, or others that wait, are in the way; *ret_comes is set too. Or no device is that large: it is not set.
 *   -EDQUOT, -EBADMSG, -ENODEV, -ENOENT, -ESHUTDOWN, -ENOMEM, and the error of the promotion: the lease does not wait any more. */
int unparks_ask(struct work *work, struct lease *lease, uint64_t room, int64_t wait_ms, bool *ret_comes,
		struct error *error);
/* Gives those that wait what there is for them now. The loop calls it before it sleeps (LATER_UNPARKS). */
void unparks_settle(struct work *work);

/* ---- unpark.c: what needs no moves ---- */

/* Returns who is charged with the lease's room: its holder's user; NULL: nobody, since the holder is an operator. */
const uid_t *lease_payer(const struct lease *lease);
/* The lease does not wait any more. What was reserved for it stays only if `taken`. A lease that does not wait is fine. */
void unparks_end(struct work *work, struct lease *lease, bool taken);
/* Returns since when the lease waits, in milliseconds since 1970; 0: it does not wait. */
uint64_t unpark_since_ms(const struct lease *lease);
/* Returns how many leases wait. */
uint64_t unparks_count(const struct work *work);

#endif
