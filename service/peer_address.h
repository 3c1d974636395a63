/* Other nodes in texts: their addresses, and the source of a load that is another node's version. */
#ifndef GPUWM_SERVICE_PEER_ADDRESS_H
#define GPUWM_SERVICE_PEER_ADDRESS_H

#include "../base/errors.h"
#include "../proto/names.h"

#include <stdbool.h>

/* Below the range that Linux takes ports from (32768), and the next one after gpuwm-exporter's. */
#define PEER_PORT 9465

/* Returns whether these are labels of letters, digits, '-' and '_', as in DNS, or an address. */
bool peer_is_host(const char *host);
/* Reads HOST, HOST:PORT, ADDRESS or [ADDRESS]:PORT. Without a port *ret_port is PEER_PORT. Returns 0, or -EINVAL. */
int peer_address_parse(const char *text, char ret_host[PEER_HOST_BYTES_MAX + 1], unsigned *ret_port);
/* The same for `listen`, which may have the port 0: any that is free. */
int peer_listen_parse(const char *text, char ret_host[PEER_HOST_BYTES_MAX + 1], unsigned *ret_port);

/* ---- the source of a load ----
 * peer://HOST[:PORT]/REF, or peer:///REF for the first peer of the configuration that has it. */

struct peer_source {
	char host[PEER_HOST_BYTES_MAX + 1]; /* "": any peer */
	unsigned port;
	char ref[REF_BYTES_MAX + 1]; /* what the version is called there */
};

/* Whether the source begins with peer:// */
bool peer_source(const char *source);
/* Parses such a source. Returns 0 and sets *ret. Fails with -EINVAL. */
int peer_source_parse(const char *source, struct peer_source *ret, struct error *error);
/* Returns whether the text is FINGERPRINT_TEXT hexadecimal digits. */
bool peer_fingerprint(const char *text);

#endif
