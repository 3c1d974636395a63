/* How a link begins: TCP, then the handshake, all of it before one deadline. */
#include "link_internal.h"

#include "../base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The first byte of the side that accepts: it has seen who the other one is. With TLS 1.3 the side that connects would not know that
 * otherwise, before its first request fails. */
#define WELCOME 'G'

/* ---- a link without TLS ---- */

static void show(struct link *link, const char *host, const struct sockaddr *address)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
	bool is_v6 = address->sa_family == AF_INET6, mapped = is_v6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
	unsigned port = ntohs(is_v6 ? v6->sin6_port : v4->sin_port);
	char place[LINK_PLACE_BYTES];

	if (mapped)
		inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], link->address, sizeof(link->address));
	else
		inet_ntop(is_v6 ? AF_INET6 : AF_INET, is_v6 ? (const void *)&v6->sin6_addr : &v4->sin_addr,
			  link->address, sizeof(link->address));
	snprintf(place, sizeof(place), is_v6 && !mapped ? "[%s]:%u" : "%s:%u", link->address, port);
	if (host && strcmp(host, link->address) != 0)
		snprintf(link->shown, sizeof(link->shown), "%s (%s)", host, place);
	else
		snprintf(link->shown, sizeof(link->shown), "%s", place);
}

/* Takes over fd in any case. */
static int link_new(struct peer_keys *keys, int fd, const char *host, const struct sockaddr *address,
		    struct link **ret, struct error *error)
{
	struct link *link = calloc(1, sizeof(*link));
	const int on = 1, silence = LINK_SILENCE_MS;

	if (!link) {
		close(fd);
		return error_set(error, -ENOMEM, NULL, "out of memory");
	}
	link->fd = fd;
	link->keys = peer_keys_hold(keys);
	pthread_mutex_init(&link->lock, NULL);
	atomic_init(&link->interrupted, false);
	show(link, host, address);
	/* Requests are small and wait for answers. A cable that was pulled ends the connection. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof(silence));
	*ret = link;
	return 0;
}

/* ---- the handshake ---- */

static int shake(SSL *tls, void *user)
{
	(void)user;
	return SSL_do_handshake(tls);
}

static int read_byte(SSL *tls, void *user)
{
	return SSL_read(tls, user, 1);
}

static int write_byte(SSL *tls, void *user)
{
	return SSL_write(tls, user, 1);
}

static int welcome(struct link *link, bool accepts, uint64_t deadline_ms, struct error *error)
{
	char byte = WELCOME;
	int r = link_step(link, accepts ? write_byte : read_byte, &byte, deadline_ms, error);

	if (r < 0)
		return r;
	return byte == WELCOME ? 0 : link_error(link, error, -EPROTO, NULL, "it is no node of gpuwm");
}

/* An end in the middle of a handshake has no reason that TLS would tell. */
static int shake_hands(struct link *link, const char *name, uint64_t deadline_ms, struct error *error)
{
	int r = link_tls_new(link, name, error);

	if (r == 0)
		r = link_step(link, shake, NULL, deadline_ms, error);
	if (r > 0)
		r = link_tls_check(link, error);
	if (r == 0)
		r = welcome(link, !name, deadline_ms, error);
	if (r == -ENOLINK)
		r = link_error(link, error, -ECONNRESET, NULL,
			       "it ended the connection before it had proved who it is");
	return r;
}

/* ---- accepting ---- */

int link_accept(struct peer_keys *keys, int fd, uint64_t timeout_ms, struct link **ret, struct error *error)
{
	struct sockaddr_storage address = {.ss_family = AF_INET};
	socklen_t bytes = sizeof(address);
	struct link *link;
	int r;

	getpeername(fd, (struct sockaddr *)&address, &bytes);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	r = link_new(keys, fd, NULL, (struct sockaddr *)&address, &link, error);
	if (r < 0)
		return r;
	r = shake_hands(link, NULL, clock_steady_ms() + timeout_ms, error);
	if (r == -ECONNRESET && BIO_number_read(SSL_get_rbio(link->tls)) == 0)
		r = link_error(link, error, -ENOLINK, NULL, "it left without a word");
	if (r < 0)
		link_close(link);
	else
		*ret = link;
	return r;
}

/* ---- connecting ---- */

static int connected(int fd, uint64_t deadline_ms)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
	int code = 0, r;
	socklen_t bytes = sizeof(code);
	uint64_t now;

	do {
		now = clock_steady_ms();
		r = now < deadline_ms ? poll(&poll_fd, 1, (int)(deadline_ms - now)) : 0;
	} while (r < 0 && errno == EINTR);
	if (r == 0)
		return -ETIMEDOUT;
	if (r < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &bytes) < 0)
		return -errno;
	return -code;
}

static int dial(const struct addrinfo *at, uint64_t deadline_ms)
{
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

	if (fd < 0)
		return -errno;
	r = connect(fd, at->ai_addr, at->ai_addrlen) == 0 ? 0 : -errno;
	if (r == -EINPROGRESS)
		r = connected(fd, deadline_ms);
	if (r == 0)
		return fd;
	close(fd);
	return r == -ENETUNREACH || r == -EHOSTDOWN ? -EHOSTUNREACH : r;
}

/* The addresses share the time that is left. */
static int dial_any(const struct link_target *target, const struct addrinfo *list, uint64_t deadline_ms,
		    const struct addrinfo **ret_at, struct error *error)
{
	uint64_t left = 0, now;
	int fd = -EHOSTUNREACH;

	for (const struct addrinfo *at = list; at; at = at->ai_next)
		left++;
	for (const struct addrinfo *at = list; at; at = at->ai_next, left--) {
		now = clock_steady_ms();
		fd = dial(at, now < deadline_ms ? now + (deadline_ms - now) / left : now);
		*ret_at = at;
		if (fd >= 0)
			return fd;
	}
	/* What the loader's unit says to every socket. */
	if (fd == -EAFNOSUPPORT)
		return error_set(error, -EHOSTUNREACH,
				 "a service has no network unless peers.conf allows it: docs/peers.md",
				 "%s, port %u: this process has no network", target->host, target->port);
	return error_set(error, fd, "is gpuwm-peer running there, and is its port open?", "%s, port %u: %s",
			 target->host, target->port, strerror(-fd));
}

static int resolve(const struct link_target *target, struct addrinfo **ret, struct error *error)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	char port[8];
	int r;

	snprintf(port, sizeof(port), "%u", target->port);
	r = getaddrinfo(target->host, port, &hints, ret);
	if (r == 0)
		return 0;
	return error_set(error, r == EAI_MEMORY ? -ENOMEM : -ENOENT, NULL, "the name %s has no address: %s",
			 target->host, gai_strerror(r));
}

int link_connect(struct peer_keys *keys, const struct link_target *target, uint64_t timeout_ms,
		 struct link **ret, struct error *error)
{
	uint64_t deadline_ms;
	const struct addrinfo *at = NULL;
	struct addrinfo *list;
	struct link *link;
	int r = resolve(target, &list, error), fd;

	if (r < 0)
		return r;
	deadline_ms = clock_steady_ms() + timeout_ms;
	fd = dial_any(target, list, deadline_ms, &at, error);
	r = fd < 0 ? fd : link_new(keys, fd, target->host, at->ai_addr, &link, error);
	freeaddrinfo(list);
	if (r < 0)
		return r;
	r = shake_hands(link, target->name && *target->name ? target->name : target->host, deadline_ms, error);
	if (r < 0)
		link_close(link);
	else
		*ret = link;
	return r;
}
