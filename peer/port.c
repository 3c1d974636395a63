#include "port.h"

#include "../service/peers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 128

static socklen_t make_address(const char *text, bool any_port, struct sockaddr_storage *ret)
{
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
	char host[PEER_HOST_BYTES_MAX + 1];
	unsigned port;

	*ret = (struct sockaddr_storage){0};
	if (peer_listen_parse(text, host, &port) < 0)
		return 0;
	if (any_port)
		port = 0;
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((in_port_t)port);
		return sizeof(*v4);
	}
	inet_pton(AF_INET6, host, &v6->sin6_addr);
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons((in_port_t)port);
	return sizeof(*v6);
}

int port_open(const char *address, bool any_port, unsigned *ret_port, struct error *error)
{
	struct sockaddr_storage at;
	socklen_t bytes = make_address(address, any_port, &at);
	const int on = 1;
	int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

	if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
	    bind(fd, (struct sockaddr *)&at, bytes) == 0 && listen(fd, BACKLOG) == 0 &&
	    getsockname(fd, (struct sockaddr *)&at, &bytes) == 0) {
		/* Both kinds of addresses have their port at the same place. */
		*ret_port = ntohs(((const struct sockaddr_in *)&at)->sin_port);
		return fd;
	}
	r = -errno;
	if (fd >= 0)
		close(fd);
	return error_set(error, r, "choose another one with `listen` in [peers]", "can't listen at %s: %s",
			 address, strerror(-r));
}
