/* The part of the ledger that survives a restart, as one MessagePack map. The map has
 * - versions that are ready or retiring, with their parts, pins, known damage, and the names of their descriptors in the
 *   fd store; a segment that several versions hold has the same name in each of them;
 * - aliases, and owners of models. If an older gpuwmd wrote the map without owners, the user who made a model's oldest
 *   version owns the model;
 * - the names that users have claimed to build;
 * - regions that are ready, or have ended and still have users, and the processes that use them;
 * - devices, so that gpuwmd needs no GPU to go on.
 * It has no leases, open publishes, failed versions or jobs. */
#ifndef GPUWM_DAEMON_SNAPSHOT_H
#define GPUWM_DAEMON_SNAPSHOT_H

#include "../../proto/wire/message.h"
#include "../ledger/claim.h"
#include "../ledger/region.h"
#include "../ledger/registry.h"

/* A record of a map that this program could not read: the next map has it again as it is, so that the program that wrote it can go
 * on with it. What it says counts for nothing until then. */
struct unread_record {
	const char *array; /* of the map */
	void *data; /* malloced: the record */
	size_t bytes;
	struct error why; /* begins with its place */
	struct unread_record *next;
};
struct unread_records {
	struct unread_record *first, *last; /* in the order of the map */
	uint64_t count;
};
void unread_records_clear(struct unread_records *records);

struct snapshot {
	struct version_id ledger; /* the same for as long as the versions live */
	uint64_t epoch; /* counts the starts of gpuwmd with this ledger, from 1 */
	uint64_t next_name; /* the first name of the fd store that was never used */
	bool described; /* the ledger has what the folder of descriptions had at the start */
	uint64_t scrub_from_ms; /* as in struct ledger; 0: not known, as in the map of an older gpuwmd */
	struct registry *registry;
	struct device_table *devices;
	struct claim_table *claims; /* the map has those for which claim_is_kept is true */
	struct region_table *regions; /* NULL: the map has none, and those that it has are not read */
	struct quota *quota; /* of the owners of versions and claims */
	struct unread_records *unread;
};

/* Writes the whole map; message_finish returns whether there was memory for it. Leaves out versions that are being freed
 * (version->freeing), since their descriptors leave the store. Keeps the bytes of what changes only when a version moves to
 * another tier, or is described (ids, names, parts with the names of descriptors) in version->told, for the next map: what
 * moves or describes a version frees them. */
void snapshot_put(struct message_writer *w, const struct snapshot *snapshot);

/* A snapshot as an earlier gpuwmd stored it: a map of MessagePack, in a format that this one reads (state.h). */
struct snapshot_stored {
	const void *data;
	size_t bytes;
	uint32_t format;
};

/* The descriptors that the fd store gave back, by name. */
enum snapshot_fd { SNAPSHOT_FD_HERE, SNAPSHOT_FD_MISSING, SNAPSHOT_FD_OTHER };
struct snapshot_fds {
	/* Returns an enum snapshot_fd: whether the descriptor is the one that was stored. seals: the stored one was a memfd of
	 * so many bytes with at least these seals; 0: it was none. -errno: a call that looks at the descriptor failed. */
	int (*look)(void *data, uint64_t name, int seals, uint64_t bytes);
	/* Returns the descriptor of a name that is there, which the registry owns from then on. snapshot_take calls it once
	 * for each name, after everything else has succeeded. */
	int (*take)(void *data, uint64_t name);
	void *data;
};

/* Reads the map into an empty registry, claim table and device table. Charges budgets and quotas with what the map has,
 * also where a limit is smaller now. Sets ledger, epoch, next_name and scrub_from_ms. The free memory of devices is not
 * known afterwards.
 *
 * A version is adopted only if all of its descriptors are there and are the ones that were stored. Any other version
 * becomes a failed one (-ESTALE, with what is missing), without aliases and pins, and its descriptors are not taken.
 * *ret_lost counts these versions, also those that the registry no longer keeps as failed.
 * A region of which something is missing becomes one that has ended (-ESTALE), without users.
 *
 * A record that says what can't be, or that names one which does, is left out and added to into->unread. Its descriptors are not
 * taken. One of a device is not kept: a loader reports it again. A model of such a version belongs to the user whom the record names, else to operators; if the record of a version, an owner or
 * a claim does not say its model, registry_has_unnamed returns true.
 *
 * -EUCLEAN: the bytes are no such map (the message names the place); -EAGAIN: a call that looks at a descriptor failed, so
 * that the descriptor may be a good one; -ENOMEM. After an error no descriptor was taken, and the caller frees registry
 * and devices. */
int snapshot_take(const struct snapshot_stored *stored, const struct snapshot_fds *fds, struct snapshot *into,
		  uint64_t *ret_lost, struct error *error);

#endif
