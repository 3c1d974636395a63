#include "balancer.h"

#include "../base/clock.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define UNIX_PREFIX "unix:"
#define HOST_BYTES 256
#define ANSWER_ROOM_FIRST 8192

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

/* Connects to the path of a Unix socket, or to an address of proto/address.h. Sets *ret_sock, whose send and recv fail with EAGAIN after
 * timeout_ms. Fails with -errno, -ETIMEDOUT, and -EADDRNOTAVAIL if the host's name is unknown. */
static int dial(const char *address, int timeout_ms, int *ret_sock)
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

struct answer {
	char *text;
	size_t bytes, room;
	uint64_t until_ms; /* it is there as a whole by then */
};

static int haproxy_failed(int code, const char *socket, const char *what, struct error *error)
{
	return error_set(
		error, code,
		"is HAProxy running, with a `stats socket` of level admin there, which this user may use?",
		"HAProxy at %s: %s: %s", socket, what, strerror(-code));
}

static int send_all(int sock, const char *text, size_t bytes)
{
	while (bytes > 0) {
		ssize_t sent = send(sock, text, bytes, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		text += sent;
		bytes -= (size_t)sent;
	}
	return 0;
}

static int grow(struct answer *answer)
{
	size_t room = answer->room ? 2 * answer->room : ANSWER_ROOM_FIRST;
	char *text;

	if (room > HAPROXY_ANSWER_MAX)
		return -EMSGSIZE;
	text = realloc(answer->text, room);
	if (!text)
		return -ENOMEM;
	answer->text = text;
	answer->room = room;
	return 0;
}

/* Reads until HAProxy closes the connection, as it does after the answer to one command. */
static int receive_all(int sock, struct answer *answer)
{
	for (;;) {
		ssize_t got;
		int r = answer->bytes + 1 < answer->room ? 0 : grow(answer);

		if (r < 0)
			return r;
		got = recv(sock, answer->text + answer->bytes, answer->room - answer->bytes - 1, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		if (got == 0)
			break;
		if (clock_steady_ms() >= answer->until_ms)
			return -ETIMEDOUT;
		answer->bytes += (size_t)got;
	}
	while (answer->bytes > 0 && answer->text[answer->bytes - 1] == '\n')
		answer->bytes--;
	answer->text[answer->bytes] = '\0';
	return 0;
}

int haproxy_ask(const char *socket, const char *command, char **ret_answer, struct error *error)
{
	struct answer answer = {.until_ms = clock_steady_ms() + HAPROXY_TIMEOUT_MS};
	char line[512];
	int bytes, sock, r = dial(socket, HAPROXY_TIMEOUT_MS, &sock);

	if (r < 0)
		return haproxy_failed(r, socket, "no connection", error);
	bytes = snprintf(line, sizeof(line), "%s\n", command);
	if (bytes < 0 || (size_t)bytes >= sizeof(line))
		r = -EMSGSIZE;
	else
		r = send_all(sock, line, (size_t)bytes);
	if (r == 0)
		r = receive_all(sock, &answer);
	close(sock);
	if (r < 0) {
		free(answer.text);
		return haproxy_failed(r, socket, command, error);
	}
	*ret_answer = answer.text;
	return 0;
}

/* HAProxy says nothing if a state was set, and for an address what it changed. */
static bool is_done(const char *answer)
{
	return !*answer || strncmp(answer, "IP changed", 10) == 0 ||
	       strncmp(answer, "no need to change", 17) == 0 || strncmp(answer, "nothing changed", 15) == 0;
}

int haproxy_set(const char *socket, const char *command, struct error *error)
{
	char *answer = NULL;
	int r = haproxy_ask(socket, command, &answer, error);

	if (r == 0 && !is_done(answer))
		r = error_set(error, -EIO, "the socket needs level admin, and the backend a server-template",
			      "HAProxy at %s refuses \"%s\": %.200s", socket, command, answer);
	free(answer);
	return r;
}
