/* The versions that gpuwm-peer serves: attached while somebody takes them, and a short time more. Sums are kept beyond that. */
#ifndef GPUWM_PEER_STORE_H
#define GPUWM_PEER_STORE_H

#include "gpuwmd.h"
#include "serve.h"

/* How long a version stays attached after the last connection that wanted it. A taker has a connection for each part, and connects again
 * after a connection broke. An operator who retires the version waits up to this time. */
#define STORE_LINGER_MS 15000
/* Versions whose sums are kept: 8 MiB for a version of 1 TiB. The sums that were unused for the longest time are freed first. */
#define STORE_VERSIONS_MAX 256

struct store;

/* Makes a store. `socket` is gpuwmd's; NULL: the usual one. Returns NULL if there is no memory. */
struct store *store_new(const char *socket);
/* Frees the store. No connection may be served any more. NULL is fine. Returns NULL. */
struct store *store_free(struct store *store);

/* Detaches versions that no connection has wanted for STORE_LINGER_MS. Call it about once a second. */
void store_look(struct store *store);
/* Makes every later look fail, so that takers get the error that this node stops. */
void store_stop(struct store *store);

/* Sets *ret_ledger to the id of gpuwmd's ledger. Returns false if gpuwmd is away, or has no such id. */
bool store_ledger(struct store *store, struct version_id *ret_ledger);

/* Serves from a store, the `user` of its functions. */
extern const struct serve_source store_source;

/* ---- attached versions (attached.c) ----
 *
 * A version of gpuwmd that is attached: all its ranks, under leases, mapped read-only. */

struct attached;

/* Attaches the version at `position` of the listing. Returns 0 and sets *ret. Fails as gpuwm_get_handles, with -ENOMEM, and with
 * -EAGAIN if the version lies on a lower tier: gpuwm-peer never begins a promotion. */
int attached_new(struct gpuwmd *gpuwmd, const struct listing *listing, size_t position, struct attached **ret,
		 struct error *error);
/* Unmaps everything and gives the leases back. Nobody may read it any more. NULL is fine. Returns NULL. */
struct attached *attached_free(struct attached *attached);

/* Its parts, one for each rank, as long as it is attached. */
const struct served_part *attached_parts(const struct attached *attached);

/* ---- hashing (hashing.c) ----
 *
 * The sums of one part's pieces: computed once, in the order of its segments, while others wait for the first of them. */

struct hashing;

/* Makes the room for the sums of a part. Returns NULL if there is no memory. */
struct hashing *hashing_new(const struct served_part *part, unsigned threads);
/* NULL is fine. Nothing may run any more. Returns NULL. */
struct hashing *hashing_free(struct hashing *hashing);

/* Computes what is not there yet, if nobody does, in a thread that reads the part; the part stays mapped until hashing_stop.
 * Returns how many sums of pieces->segment are known from pieces->first on, and waits for the first one for wait_ms. Fails with
 * -ETIMEDOUT, and with the reason why computing ended. Threads: any. */
int64_t hashing_wait(struct hashing *hashing, const struct served_part *part,
		     const struct served_pieces *pieces, uint64_t wait_ms, const struct sum **ret_sums,
		     struct error *error);
/* Computes the part's sum. Returns 0 and sets *ret. Fails with -EAGAIN if not all sums of its pieces are known yet, and with -ENOMEM. */
int hashing_part(struct hashing *hashing, const struct served_part *part, struct sum *ret);
/* Ends the thread, if there is one: the part may be unmapped. What is known stays known. */
void hashing_stop(struct hashing *hashing);

#endif
