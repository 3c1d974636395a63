/* Serving the next taker of a chain: a loader that takes a version listens, and serves the pieces that it has already. */
#ifndef GPUWM_LOADER_PEER_SERVE_H
#define GPUWM_LOADER_PEER_SERVE_H

#include "peer_part.h"

#include "../../peer/keys.h"

/* Connections at a time. In a chain there is one for each part. Further takers are refused, and ask the first node again; but a connection that
 * has not proved who it is makes room. */
#define PEER_SERVE_MAX 16
/* How long a loader that has everything waits for the takers that it serves. They are a few pieces behind. A taker that is further
 * behind goes on at another node. */
#define PEER_LINGER_MS 10000

struct peer_serve;

/* Listens on a free port of all addresses, for nodes whose certificates have one of the names (link_peer_matches). Names and parts outlive
 * the server. Parts that have no memory yet are not served. Returns 0 and sets *ret. Fails with -EMFILE, -ENOMEM and -EAGAIN. */
int peer_serve_begin(struct peer_keys *keys, const struct peer_list *names, const struct peer_offer *offer,
		     const struct taken_part *parts, struct peer_serve **ret, struct error *error);
/* Returns its port. */
unsigned peer_serve_port(const struct peer_serve *serve);
/* Returns how many connections there are now. */
unsigned peer_serve_count(struct peer_serve *serve);
/* Ends all connections. Afterwards nobody reads the parts' memory. serve may be NULL. Returns NULL. */
struct peer_serve *peer_serve_end(struct peer_serve *serve);

#endif
