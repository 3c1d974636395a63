/* The part of the ledger that survives a restart, as one MessagePack map: versions that are ready
 * or retiring with their parts, pins, what is known of damage, and the names of their descriptors in the fd store; aliases;
 * owners of models, which in a state of a gpuwmd without them are who made the oldest version; which users have claimed
 * names to build; devices, so that no GPU is needed to go on. Not in it: leases, open publishes, failed versions,
 * jobs. */
#ifndef GPUWM_DAEMON_SNAPSHOT_H
#define GPUWM_DAEMON_SNAPSHOT_H

#include "../proto/message.h"
#include "claim.h"
#include "registry.h"

struct snapshot {
	struct version_id ledger; /* stays as long as the versions do */
	uint64_t epoch; /* starts of gpuwmd with it, from 1 */
	uint64_t next_name; /* of the fd store: never used so far */
	uint64_t scrub_from_ms; /* scrub_from; 0: not known, as in what a gpuwmd without it wrote */
	struct registry *registry;
	struct device_table *devices;
	struct claim_table *claims; /* those that claim_is_kept */
	struct quota *quota; /* of the owners of versions and claims */
};

/* The whole map; message_finish tells whether it could be written. A version that is being freed
 * (version->freeing) is left out: its descriptors are to go. What never changes once a version is ready (ids,
 * names, parts with the names of descriptors) is kept as bytes in version->told. */
void snapshot_put(struct message_writer *w, const struct snapshot *snapshot);

/* Descriptors that the fd store gave back, by name. */
enum snapshot_fd { SNAPSHOT_FD_HERE, SNAPSHOT_FD_MISSING, SNAPSHOT_FD_OTHER };
struct snapshot_fds {
	/* An enum snapshot_fd: whether the descriptor is what was stored. sealed: that was a memfd of so many bytes that
	 * nobody can change. -errno: the calls that tell failed. */
	int (*look)(void *data, uint64_t name, bool sealed, uint64_t bytes);
	/* The descriptor of a name that it has, now the registry's; asked once for each name, at the end. */
	int (*take)(void *data, uint64_t name);
	void *data;
};

/* Fills an empty registry, claim table and device table, charges budgets and quotas as they were (also above one that
 * is smaller now), and sets ledger, epoch, next_name and scrub_from_ms as they were written. A version whose
 * descriptors are not all there, and what was stored, is not adopted: it is found as failed with -ESTALE, naming what is
 * missing, without aliases and pins, and none of its descriptors are taken. *ret_lost counts those, also
 * where there are more than are kept as failed. What a device has free is not known.
 * -EUCLEAN: the bytes are no such map (names the place); -EAGAIN: a descriptor could not be looked at, and may be a good
 * one; -ENOMEM. After an error nothing was
 * taken, and registry and devices are to be thrown away. */
int snapshot_take(const void *data, size_t bytes, uint32_t format, const struct snapshot_fds *fds,
		  struct snapshot *into, uint64_t *ret_lost, struct error *error);

#endif
