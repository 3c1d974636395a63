/* What a restart must find: the fd store has the descriptors, the state memfd says what they are.
 * Without a service manager that keeps descriptors, versions end with this process, and nothing here does anything.
 *
 * Order when a version becomes ready: store, barrier, state, reply; when it is freed: state, remove,
 * barrier, close, budget. So after a kill the store has at most too much, never too little. */
#ifndef GPUWM_DAEMON_KEEPING_H
#define GPUWM_DAEMON_KEEPING_H

#include "../ledger/ledger.h"
#include "store.h"

struct inherited;
struct config;
struct keeping;

/* Called when the grace time has ended: versions of the last gpuwmd that nobody holds may be freed. */
typedef void keeping_over_fn(void *data);

/* fresh: the id of the ledger, unless an earlier gpuwmd left one. NULL: out of memory. */
struct keeping *keeping_new(uv_loop_t *loop, const struct config *config, struct ledger *ledger,
			    const struct version_id *fresh, keeping_over_fn *over, void *data);
/* Its timer goes; then, after the loop, the rest. What is stored stays. NULL is fine for the second. */
void keeping_end(struct keeping *keeping);
struct keeping *keeping_free(struct keeping *keeping);

/* At start, after the sockets are open: takes over what was left (and takes it out of *left), or begins anew. What nobody
 * knows is removed from the store, then closed. A state that can't be read is left alone with all that is
 * there: keeping_locked. Negative: the service manager does not do its part; *error. */
int keeping_begin(struct keeping *keeping, struct inherited *left, struct error *error);

/* Why gpuwmd answers status and drain only; NULL: it does not. */
const struct error *keeping_locked(const struct keeping *keeping);
/* drain, when locked: everything leaves the store and is closed. -ETIMEDOUT, -EIO, -ENOMEM: something may be left. */
int keeping_let_go(struct keeping *keeping, struct error *error);

/* Whether there is a store. */
bool keeping_stores(const struct keeping *keeping);
/* Every change of the ledger that survives, before anybody is told of it. A
 * state that can't be written ends gpuwmd: the next one goes on from what was acknowledged. */
void keeping_save(struct keeping *keeping);

/* A version's descriptors as a batch; put: with new names. NULL: out of memory. */
struct store_batch *keeping_batch(struct keeping *keeping, struct version *version, bool put);

/* Call when the service manager has not confirmed that a version's descriptors left the store. They may still take room
 * there, so gpuwmd counts them as stored until its next start. */
void keeping_not_removed(struct keeping *keeping, const struct version *version);

/* What is left of the time in which nothing is freed, since clients may come back; 0: over. */
uint64_t keeping_grace_ms(const struct keeping *keeping);
/* Stays as long as the versions do; counts starts. */
const struct version_id *keeping_ledger(const struct keeping *keeping);
uint64_t keeping_epoch(const struct keeping *keeping);
/* Versions of the last gpuwmd: taken over, and lost for want of a descriptor. */
uint64_t keeping_adopted(const struct keeping *keeping);
uint64_t keeping_lost(const struct keeping *keeping);

#endif
