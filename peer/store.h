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

#endif
