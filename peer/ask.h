/* Discovery: which node has which versions. The settings name the nodes; gpuwm keeps no list of its own. */
#ifndef GPUWM_PEER_ASK_H
#define GPUWM_PEER_ASK_H

#include "link.h"

#include "../base/limits.h"

/* How long one node may take to list all of its versions. A node that is there takes milliseconds. */
#define ASK_TIMEOUT_MS 3000
/* How many nodes are asked, those of the list and of all DNS names together. Further addresses of a name are left out, and the answer
 * counts them. A site with more nodes configures a name that has fewer addresses. */
#define ASK_NODES_MAX 256

/* A node to ask. */
struct ask_node {
	char host[PEER_HOST_BYTES_MAX + 1]; /* a name or an address */
	char name
		[PEER_HOST_BYTES_MAX +
		 1]; /* what its certificate must have: of an address of a `dns` name that name. "": the host */
	unsigned port;
	int why; /* for gai_strerror: a `dns` name that has no address. 0: the node can be asked */
};

/* Sets *ret to the nodes of the settings, each once, and *ret_more to the number of addresses that were left out. Returns the number of
 * nodes. The caller frees *ret with free(). A `dns` name without an address becomes a node that can't be reached. Fails with -ENOMEM. */
int64_t ask_nodes(const struct peer_settings *settings, struct ask_node **ret, size_t *ret_more);

/* Asks all nodes of the file's settings at the same time, and prints what they have as one JSON object: docs/peers.md. Returns 0, also if no node can be
 * reached. Fails as peer_settings_read and peer_keys_read. */
int ask_print(const char *config, uint64_t timeout_ms, struct error *error);

#endif
