/* What survives gpuwmd: the fd store has the descriptors, and the memfd of the state says what they are. If no service manager
 * keeps descriptors, versions end with this process, and these functions do nothing.
 *
 * When a version becomes ready, the order is: store, barrier, state, reply. When it is freed: state, removal from the store,
 * barrier, close, budget. So after a kill the store may have more than the state names, but never less. */
#ifndef GPUWM_DAEMON_KEEPING_H
#define GPUWM_DAEMON_KEEPING_H

#include "../ledger/ledger.h"
#include "store.h"

struct descriptions;
struct inherited;
struct config;
struct keeping;

/* Called when the grace time has ended: versions of the last gpuwmd that nobody holds may be freed. Before that it may be called once with
 * `moves`: all that mapped versions are back, so that these may move to other tiers (keeping_await_ms). */
typedef void keeping_over_fn(void *data, bool moves);

/* fresh: the id of the ledger if no earlier gpuwmd left one. Returns NULL if there is no memory. */
struct keeping *keeping_new(uv_loop_t *loop, const struct config *config, struct ledger *ledger,
			    const struct version_id *fresh, keeping_over_fn *over, void *data);
/* keeping_end closes the timer; after the loop, keeping_free frees the rest and returns NULL (NULL is fine). What is stored
 * stays in the store. */
void keeping_end(struct keeping *keeping);
struct keeping *keeping_free(struct keeping *keeping);

/* Call it at start, after the sockets are open. Takes over what an earlier gpuwmd left, and out of *left; or begins with an
 * empty ledger. Removes descriptors that the state does not name from the store, and closes them. If the state can't be read,
 * everything stays as it is, and keeping_locked says why. Fails if the service manager does not do its part. */
int keeping_begin(struct keeping *keeping, struct inherited *left, struct error *error);

/* Call it when everything is adopted, before anybody is served. If gpuwm-keeper took the descriptors over from another keeper, it
 * waits until that one has let go. Then it fails with -EUCLEAN if gpuwmd is locked or has lost a version: the other keeper's
 * gpuwmd goes on with what this one can't use. */
int keeping_settle(const struct keeping *keeping, struct error *error);

/* Opens the folder of descriptions that the configuration names, after a reload too. The state is described there: descriptions.h. */
void keeping_describe(struct keeping *keeping);
/* Call it before the loop sleeps. */
void keeping_settle_descriptions(struct keeping *keeping);
/* Returns the descriptions; never NULL. */
struct descriptions *keeping_descriptions(const struct keeping *keeping);
/* For a drain: leaves the descriptions as they are, so that the next start takes the versions from there. Fails as
 * descriptions_freeze. */
int keeping_keep_descriptions(struct keeping *keeping, struct error *error);
/* Returns whether the devices are those of the last gpuwmd, so that no loader has to report them first. */
bool keeping_knows_devices(const struct keeping *keeping);
/* Returns how many versions gpuwmd found in the folder at its start, besides those of the state. */
uint64_t keeping_found(const struct keeping *keeping);

/* Call it in place of keeping_begin if gpuwmd can't use its configuration, and again when it still can't: `why` is what is wrong
 * with it. Everything stays as it is, and keeping_locked says why. */
void keeping_lock(struct keeping *keeping, const struct error *why);
/* Returns why gpuwmd is locked, so that it answers only what methods/dispatch.c says. NULL: it answers everything. */
const struct error *keeping_locked(const struct keeping *keeping);
/* For a drain: removes everything from the store and closes it, if gpuwmd is locked, or what belongs to records that it could not read. Fails with -ETIMEDOUT, -EIO and -ENOMEM; then
 * something may be left. */
int keeping_let_go(struct keeping *keeping, struct error *error);

/* Returns whether there is a store. */
bool keeping_stores(const struct keeping *keeping);
/* Saves the state. Call it after each change of the ledger that survives, before any session learns of the change. If the state
 * can't be written, gpuwmd ends, and the next one goes on from what was acknowledged. */
void keeping_save(struct keeping *keeping);

/* Returns an empty batch for `count` descriptors, or NULL if there is no memory. keeping_add gives a descriptor that has none
 * a new name in the store, and adds it. */
struct store_batch *keeping_batch_new(const struct keeping *keeping, size_t count);
void keeping_add(struct keeping *keeping, struct store_batch *batch, uint64_t *name, int fd);
/* Returns a batch with the descriptors of a version. put: gives new names to those that have none; a segment that another version
 * holds is in the store already. Otherwise the version lets go (version_let_go), and the batch has what leaves with it. Returns
 * NULL if there is no memory; then nothing has changed. */
struct store_batch *keeping_batch(struct keeping *keeping, struct version *version, bool put);

/* Call when the service manager has not confirmed that a version's descriptors left the store. They may still take room
 * there, so gpuwmd counts them as stored until its next start. */
void keeping_not_removed(struct keeping *keeping, const struct version *version);

/* Returns what is left of the grace time, in which gpuwmd frees nothing because clients may come back; 0: it is over. */
uint64_t keeping_grace_ms(const struct keeping *keeping);
/* Returns what is left of the time in which gpuwmd moves no version, because processes may come back that map it; 0: all that did are
 * back, or gone. It is never more than the grace time. */
uint64_t keeping_await_ms(const struct keeping *keeping);
/* Returns how many leases are awaited. */
uint64_t keeping_awaited(const struct keeping *keeping);
/* The process has been answered about a lease of before the restart. */
void keeping_back(const struct keeping *keeping, uint64_t lease, pid_t pid, uid_t uid);
/* Before that: returns the room of the lease (awaited_take_room). */
uint64_t keeping_take_room(const struct keeping *keeping, uint64_t lease, pid_t pid, uid_t uid);
/* gpuwmd stops: the next one awaits what is awake now. */
void keeping_leave(const struct keeping *keeping);
/* Return the id of the ledger, which stays the same as long as its versions live, and the number of starts with it. */
const struct version_id *keeping_ledger(const struct keeping *keeping);
uint64_t keeping_epoch(const struct keeping *keeping);
/* Return how many versions of the last gpuwmd were adopted, and how many were lost because a descriptor is missing. */
uint64_t keeping_adopted(const struct keeping *keeping);
uint64_t keeping_lost(const struct keeping *keeping);
/* Returns how many records of the state gpuwmd could not read: they stay in the state, and their descriptors in the store. */
uint64_t keeping_unread(const struct keeping *keeping);

#endif
