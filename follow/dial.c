#include "dial.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define UNIX_PREFIX "unix:"
#define HOST_BYTES 256

/* SO_SNDTIMEO bounds connect too. */
static int limit(int sock, int timeout_ms)
{
	const struct timeval most = {timeout_ms / 1000, timeout_ms % 1000 * 1000};

	if (setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most)) < 0 ||
	    setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most)) < 0)
		return -errno;
	return 0;
}

static int connect_to(int family, const struct sockaddr *address, socklen_t bytes, int timeout_ms,
		      int *ret_sock)
{
	int sock = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	if (sock < 0)
		return -errno;
	r = limit(sock, timeout_ms);
	if (r == 0 && connect(sock, address, bytes) < 0)
		r = errno == EINPROGRESS || errno == EAGAIN ? -ETIMEDOUT : -errno;
	if (r < 0) {
		close(sock);
		return r;
	}
	*ret_sock = sock;
	return 0;
}

static int dial_path(const char *path, int timeout_ms, int *ret_sock)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	return connect_to(AF_UNIX, (struct sockaddr *)&address, sizeof(address), timeout_ms, ret_sock);
}

/* Splits "host:port" or "[IPv6]:port", which is valid. */
static const char *split(const char *text, char ret_host[HOST_BYTES])
{
	const char *colon = strrchr(text, ':');
	const size_t open = text[0] == '[', bytes = (size_t)(colon - text) - 2 * open;

	snprintf(ret_host, HOST_BYTES, "%.*s", (int)bytes, text + open);
	return colon + 1;
}

static int dial_host(const char *text, int timeout_ms, int *ret_sock)
{
	const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *found;
	char host[HOST_BYTES];
	const char *port = split(text, host);
	int r = -EADDRNOTAVAIL;

	if (getaddrinfo(host, port, &wanted, &found) != 0)
		return r;
	for (const struct addrinfo *one = found; one && r < 0; one = one->ai_next)
		r = connect_to(one->ai_family, one->ai_addr, one->ai_addrlen, timeout_ms, ret_sock);
	freeaddrinfo(found);
	return r;
}

int dial(const char *address, int timeout_ms, int *ret_sock)
{
	if (strncmp(address, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
		address += strlen(UNIX_PREFIX);
	return address[0] == '/' ? dial_path(address, timeout_ms, ret_sock)
				 : dial_host(address, timeout_ms, ret_sock);
}
