/* The source of a load that is another node's version: peer://HOST[:PORT]/REF, or peer:///REF for the first peer of the configuration that has
 * it. */
#ifndef GPUWM_SERVICE_PEER_SOURCE_H
#define GPUWM_SERVICE_PEER_SOURCE_H

#include "../base/errors.h"
#include "../proto/names.h"
#include "../proto/wire/reference.h"

#include <stdbool.h>

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
