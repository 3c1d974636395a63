/* A load whose source is a peer: the new version is an exact copy of the peer's, part by part.
 *
 *   main thread: ask for index and sums, compare the fingerprint, begin each publish, make memory ── watch ── seal, check, hand in
 *   beside it:   a thread for each part (peer_fetch.c), threads that compare pieces (peer_verify.c), and a server for the next
 *                taker (peer_serve.c) */
#ifndef GPUWM_LOADER_PEER_LOAD_H
#define GPUWM_LOADER_PEER_LOAD_H

#include "../load.h"

/* Loads job->source, for which peer_source returns true. Returns 0. Fails as load_run does, and with
 *   -EBADMSG  The fingerprint is not the one that was expected, or a peer sent other bytes.
 *   -ENOKEY   This node has no keys for peers.
 *   -ENOTSUP  This gpuwm has no TLS or no UCX.
 *   and as peer_offer_take and peer_take */
int peer_load_run(const struct job *job, struct work *work, struct error *error);

/* Asks the peer for the version, and sets *ret to what the load would do. Returns 0. Fails as peer_load_run does. */
int peer_load_dry_run(const struct job *job, struct work *work, struct load_plan *ret, struct error *error);

#endif
