#include "address.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define UNIX_PREFIX "unix:"
#define LETTERS_AND_DIGITS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

static const char no_port[] = "has no port from 1 to 65535 after a ':'";

/* 0: it is none. */
static unsigned port_of(const char *text)
{
	unsigned long port;

	if (text[0] == '0' || strspn(text, "0123456789") != strlen(text) || strlen(text) > 5)
		return 0;
	port = strtoul(text, NULL, 10);
	return port <= 65535 ? (unsigned)port : 0;
}

static const char *path_wrong(const char *path)
{
	if (path[0] != '/')
		return "has no absolute path after its \"unix:\"";
	if (strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
		return "has a path of more than 107 bytes, which no socket has";
	if (path[strspn(path, LETTERS_AND_DIGITS "/._-@+")])
		return "has a path with a character other than letters, digits and \"/._-@+\"";
	return NULL;
}

/* Copies the text between `text` and `end`. Returns false if that is an IPv6 address of more than it can be. */
static bool copy_ip(const char *text, const char *end, char ret_ip[ADDRESS_IP_TEXT])
{
	const size_t bytes = (size_t)(end - text);

	if (bytes >= ADDRESS_IP_TEXT)
		return false;
	memcpy(ret_ip, text, bytes);
	ret_ip[bytes] = '\0';
	return true;
}

/* "[IPv6]:port" */
static const char *brackets_wrong(const char *text, char ret_ip[ADDRESS_IP_TEXT])
{
	const char *end = strchr(text, ']');
	struct in6_addr unused;

	if (!end || !copy_ip(text + 1, end, ret_ip) || inet_pton(AF_INET6, ret_ip, &unused) != 1)
		return "has no IPv6 address between its brackets";
	return end[1] == ':' && port_of(end + 2) ? NULL : no_port;
}

static const char *host_wrong(const char *text)
{
	const char *colon = strchr(text, ':');

	if (!colon)
		return no_port;
	if (colon == text)
		return "has no host before its ':'";
	if (strspn(text, LETTERS_AND_DIGITS ".-_") != (size_t)(colon - text))
		return "has a host with a character other than letters, digits, '.', '-' and '_'";
	return port_of(colon + 1) ? NULL : no_port;
}

const char *address_wrong(const char *text)
{
	char ip[ADDRESS_IP_TEXT];

	if (!text[0])
		return "is empty";
	if (strlen(text) > ADDRESS_BYTES_MAX)
		return "is longer than 128 bytes";
	if (strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
		return path_wrong(text + strlen(UNIX_PREFIX));
	return text[0] == '[' ? brackets_wrong(text, ip) : host_wrong(text);
}

/* The same address always gets the same text. */
static bool normalise(int family, char ip[ADDRESS_IP_TEXT])
{
	unsigned char bytes[sizeof(struct in6_addr)];

	return inet_pton(family, ip, bytes) == 1 && inet_ntop(family, bytes, ip, ADDRESS_IP_TEXT);
}

bool address_ip(const char *text, char ret_ip[ADDRESS_IP_TEXT], unsigned *ret_port)
{
	if (address_wrong(text) || strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
		return false;
	*ret_port = port_of(strrchr(text, ':') + 1);
	if (text[0] == '[')
		return !brackets_wrong(text, ret_ip) && normalise(AF_INET6, ret_ip);
	return copy_ip(text, strchr(text, ':'), ret_ip) && normalise(AF_INET, ret_ip);
}
