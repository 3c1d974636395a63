#include "host.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool is_port(const char *text)
{
	return !*text || (*text == ':' && text[1 + strspn(text + 1, "0123456789")] == '\0');
}

static bool is_loopback_v4(const char *text)
{
	struct in_addr address;

	return inet_pton(AF_INET, text, &address) == 1 && ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET;
}

bool host_is_loopback(const char *host)
{
	char name[64];
	size_t length;

	if (!host)
		return true;
	if (strncmp(host, "[::1]", 5) == 0)
		return is_port(host + 5);
	length = strcspn(host, ":");
	if (length >= sizeof(name) || !is_port(host + length))
		return false;
	memcpy(name, host, length);
	name[length] = '\0';
	return strcasecmp(name, "localhost") == 0 || is_loopback_v4(name);
}
