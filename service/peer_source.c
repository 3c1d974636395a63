#include "peer_source.h"

#include "peer_settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SCHEME "peer://"

bool peer_source(const char *source)
{
	return strncmp(source, SCHEME, strlen(SCHEME)) == 0;
}

static int malformed(const char *source, struct error *error)
{
	return error_set(error, -EINVAL, "peer://HOST[:PORT]/MODEL@TAG, or peer:///MODEL@TAG for all peers",
			 "the source %.300s is no version of a peer", source);
}

int peer_source_parse(const char *source, struct peer_source *ret, struct error *error)
{
	const char *host = source + strlen(SCHEME), *slash = strchr(host, '/');
	char address[PEER_ADDRESS_BYTES_MAX + 1];
	size_t bytes = slash ? (size_t)(slash - host) : 0;
	struct error why;
	struct ref ref;

	if (!slash || bytes >= sizeof(address) || strlen(slash + 1) > REF_BYTES_MAX ||
	    reference_parse(slash + 1, "source", &ref, &why) < 0)
		return malformed(source, error);
	*ret = (struct peer_source){0};
	strcpy(ret->ref, slash + 1);
	snprintf(address, sizeof(address), "%.*s", (int)bytes, host);
	if (bytes > 0 && peer_address_parse(address, ret->host, &ret->port) < 0)
		return malformed(source, error);
	return 0;
}

bool peer_fingerprint(const char *text)
{
	return strlen(text) == FINGERPRINT_TEXT && strspn(text, "0123456789abcdefABCDEF") == FINGERPRINT_TEXT;
}
