#include "options.h"

#include "limits.h"
#include "../service/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define PORT_MAX 65535

static int port_parse(const char *text, in_port_t *ret)
{
	char *end;
	unsigned long port = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || port > PORT_MAX)
		return -EINVAL;
	*ret = htons((in_port_t)port);
	return 0;
}

static int v6_set(struct address *address, const char *host, in_port_t port)
{
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address->socket;

	*v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = port};
	address->bytes = sizeof(*v6);
	if (inet_pton(AF_INET6, host, &v6->sin6_addr) != 1)
		return -EINVAL;
	address->is_loopback =
		IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) ||
		(IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && v6->sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
	return 0;
}

static int v4_set(struct address *address, const char *host, in_port_t port)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)&address->socket;

	*v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port};
	address->bytes = sizeof(*v4);
	if (inet_pton(AF_INET, host, &v4->sin_addr) != 1)
		return -EINVAL;
	address->is_loopback = ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return 0;
}

int address_parse(const char *text, struct address *ret)
{
	const char *colon = strrchr(text, ':');
	struct address address = {0};
	char host[INET6_ADDRSTRLEN];
	bool is_v6 = *text == '[';
	size_t length;
	in_port_t port;
	int r;

	if (!colon || port_parse(colon + 1, &port) < 0)
		return -EINVAL;
	length = (size_t)(colon - text);
	if (is_v6 && (length < 2 || text[length - 1] != ']'))
		return -EINVAL;
	if (is_v6) {
		text++;
		length -= 2;
	}
	if (length >= sizeof(host))
		return -EINVAL;
	memcpy(host, text, length);
	host[length] = '\0';
	r = is_v6 ? v6_set(&address, host, port) : v4_set(&address, host, port);
	if (r == 0)
		*ret = address;
	return r;
}

int address_listen(const struct address *address, const char *text, unsigned *ret_port)
{
	struct sockaddr_storage bound = {0};
	socklen_t bytes = sizeof(bound);
	const int on = 1;
	int fd = socket(address->socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

	if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
	    bind(fd, (const struct sockaddr *)&address->socket, address->bytes) == 0 &&
	    listen(fd, SOMAXCONN) == 0 && getsockname(fd, (struct sockaddr *)&bound, &bytes) == 0) {
		/* Both kinds of addresses have their port at the same place. */
		*ret_port = ntohs(((const struct sockaddr_in *)&bound)->sin_port);
		return fd;
	}
	r = -errno;
	log_error("gpuwm-exporter can't listen at %s: %s (choose another one with --listen ADDRESS:PORT)", text,
		  strerror(-r));
	if (fd >= 0)
		close(fd);
	return r;
}

static bool is_port(const char *text)
{
	return !*text || (*text == ':' && text[1 + strspn(text + 1, "0123456789")] == '\0');
}

bool host_is_loopback(const char *host)
{
	struct in_addr v4;
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
	return strcasecmp(name, "localhost") == 0 ||
	       (inet_pton(AF_INET, name, &v4) == 1 && ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET);
}
