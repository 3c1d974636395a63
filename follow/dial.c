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

static int connect_to(int family, const struct sockaddr *address, socklen_t bytes, int timeout_ms,
		      int *ret_sock)
{
	const struct timeval most = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
	int sock = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), r = 0;

	if (sock < 0)
		return -errno;
	/* SO_SNDTIMEO bounds connect too. */
	if (setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most)) < 0 ||
	    setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most)) < 0)
		r = -errno;
	if (r == 0 && connect(sock, address, bytes) < 0)
		r = errno == EINPROGRESS || errno == EAGAIN ? -ETIMEDOUT : -errno;
	if (r < 0) {
		close(sock);
		return r;
	}
	*ret_sock = sock;
	return 0;
}

static int dial_host(const char *text, int timeout_ms, int *ret_sock)
{
	const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *found;
	char host[HOST_BYTES];
	/* "host:port" or "[IPv6]:port", which is valid */
	const char *colon = strrchr(text, ':');
	const size_t open = text[0] == '[', bytes = (size_t)(colon - text) - 2 * open;
	int r = -EADDRNOTAVAIL;

	snprintf(host, sizeof(host), "%.*s", (int)bytes, text + open);
	if (getaddrinfo(host, colon + 1, &wanted, &found) != 0)
		return r;
	for (const struct addrinfo *one = found; one && r < 0; one = one->ai_next)
		r = connect_to(one->ai_family, one->ai_addr, one->ai_addrlen, timeout_ms, ret_sock);
	freeaddrinfo(found);
	return r;
}

int dial(const char *address, int timeout_ms, int *ret_sock)
{
	struct sockaddr_un path = {.sun_family = AF_UNIX};

	if (strncmp(address, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
		address += strlen(UNIX_PREFIX);
	if (address[0] != '/')
		return dial_host(address, timeout_ms, ret_sock);
	if (strlen(address) >= sizeof(path.sun_path))
		return -ENAMETOOLONG;
	strcpy(path.sun_path, address);
	return connect_to(AF_UNIX, (struct sockaddr *)&path, sizeof(path), timeout_ms, ret_sock);
}
