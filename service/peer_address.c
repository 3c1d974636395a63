#include "peer_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#define PORT_MAX 65535

bool peer_is_host(const char *host)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
	struct in6_addr v6;
	size_t bytes = strlen(host);

	if (inet_pton(AF_INET6, host, &v6) == 1)
		return true;
	return bytes > 0 && bytes <= PEER_HOST_BYTES_MAX && strspn(host, allowed) == bytes && host[0] != '.' &&
	       host[0] != '-' && !strstr(host, "..");
}

static int parse_port(const char *text, unsigned least, unsigned *ret)
{
	char *end;
	unsigned long port = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || port < least || port > PORT_MAX)
		return -EINVAL;
	*ret = (unsigned)port;
	return 0;
}

/* Cuts the text into host and port, which is NULL if there is none. An address of IPv6 without brackets has no port. */
static int cut(const char *text, char host[PEER_ADDRESS_BYTES_MAX + 1], const char **ret_port)
{
	const char *end = strchr(text, ':');

	*ret_port = NULL;
	if (text[0] == '[') {
		text++;
		end = strchr(text, ']');
		if (!end || (end[1] && end[1] != ':'))
			return -EINVAL;
		if (end[1])
			*ret_port = end + 2;
	} else if (end && !strchr(end + 1, ':')) {
		*ret_port = end + 1;
	} else {
		end = text + strlen(text);
	}
	if ((size_t)(end - text) > PEER_HOST_BYTES_MAX)
		return -EINVAL;
	memcpy(host, text, (size_t)(end - text));
	host[end - text] = '\0';
	return 0;
}

static int parse_address(const char *text, unsigned least, char ret_host[PEER_HOST_BYTES_MAX + 1],
			 unsigned *ret_port)
{
	char host[PEER_ADDRESS_BYTES_MAX + 1];
	const char *digits;
	unsigned port = PEER_PORT;

	if (cut(text, host, &digits) < 0 || !peer_is_host(host) ||
	    (digits && parse_port(digits, least, &port) < 0))
		return -EINVAL;
	strcpy(ret_host, host);
	*ret_port = port;
	return 0;
}

int peer_address_parse(const char *text, char ret_host[PEER_HOST_BYTES_MAX + 1], unsigned *ret_port)
{
	return parse_address(text, 1, ret_host, ret_port);
}

int peer_listen_parse(const char *text, char ret_host[PEER_HOST_BYTES_MAX + 1], unsigned *ret_port)
{
	return parse_address(text, 0, ret_host, ret_port);
}

/* ---- the source of a load ---- */

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
	const char *why;
	struct ref ref;

	if (!slash || bytes >= sizeof(address) || strlen(slash + 1) > REF_BYTES_MAX ||
	    ref_parse(slash + 1, &ref, &why) < 0)
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
