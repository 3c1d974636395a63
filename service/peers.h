/* Other nodes: the section [peers] of gpuwmd.conf. */
#ifndef GPUWM_SERVICE_PEERS_H
#define GPUWM_SERVICE_PEERS_H

#include "peer_address.h"

#include "../base/errors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The section has other machines, and the keys by which both sides of a connection prove who they are.
 * gpuwmd checks the section and hands it to loaders with a load from a peer; gpuwm-peer reads it itself.
 *
 *   certificate, key, authority  files in PEM: this node's certificate (with its chain) and key, and who signs for peers
 *   secret    a file with a secret that all nodes have, in place of certificates. May repeat: the first one is for
 *             connecting, all of them let others in, so that a secret can be changed
 *   names     which certificates may take (gpuwm-peer): a name, or *.DOMAIN. May repeat. Without it every one that the
 *             authority signed
 *   peer      HOST[:PORT], may repeat
 *   dns       NAME[:PORT], may repeat: each address of the name is a peer
 *   listen    ADDRESS:PORT (gpuwm-peer)
 *   encrypt   yes, the default, or no: bytes of weights go over TCP in clear if both sides say so
 *   takers    how many connections take at a time before gpuwm-peer sends others to one of them
 *
 * Without keys there are no peers: nothing listens, and a load from a peer is refused. */

struct peer_list {
	char *items[PEER_LIST_MAX];
	size_t count;
};

struct peer_settings {
	char *certificate, *key, *authority; /* paths; NULL: not set */
	struct peer_list secrets; /* paths */
	struct peer_list names, peers, dns;
	char *listen; /* NULL: not set */
	uint64_t takers; /* 0: not set */
	bool clear; /* encrypt = no */
};

/* Sets one key as a line of the file would. Returns 0. Fails with -EINVAL and with -ENOMEM; *error says what is wrong with
 * the value, without the section and the key. */
int peer_settings_set(struct peer_settings *settings, const char *key, const char *value, struct error *error);

/* Reads the section of a file, and skips all others. Returns 0, or fails as ini_file_read. *ret is set on success only; the
 * caller ends it with peer_settings_clear. */
int peer_settings_read(const char *path, struct peer_settings *ret, struct error *error);

/* Whether there are keys, so that this node has peers. */
bool peer_settings_on(const struct peer_settings *settings);

/* Checks what no single key tells: that certificate, key and authority come together, and not beside a secret. Returns 0, or
 * -EINVAL. */
int peer_settings_check(const struct peer_settings *settings, struct error *error);

/* Frees everything. Zeroed settings are fine. */
void peer_settings_clear(struct peer_settings *settings);

#endif
