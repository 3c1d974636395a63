/* Plain TCP beside a take from a node: how fast N connections of this machine carry bytes that nobody looks at.
 *   streams [CONNECTIONS] [GIB]
 * Defaults: 8 connections, 16 GiB in all. Prints GB/s. */
#include "base/clock.h"

#include <arpa/inet.h>
#include <err.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define STREAMS_MAX 64
#define BUFFER_BYTES (4 << 20) /* as a piece */

static uint64_t bytes_each;
static struct sockaddr_in address = {.sin_family = AF_INET};

static void *send_all(void *unused)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char *buffer = calloc(1, BUFFER_BYTES);

	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		err(1, "connect");
	for (uint64_t sent = 0; sent < bytes_each;) {
		ssize_t n = send(fd, buffer, BUFFER_BYTES, 0);

		if (n <= 0)
			err(1, "send");
		sent += (uint64_t)n;
	}
	free(buffer);
	close(fd);
	return unused;
}

static void *receive_all(void *fd)
{
	char *buffer = malloc(BUFFER_BYTES);

	while (recv((int)(intptr_t)fd, buffer, BUFFER_BYTES, 0) > 0)
		;
	free(buffer);
	close((int)(intptr_t)fd);
	return NULL;
}

int main(int argc, char *argv[])
{
	unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 8;
	double gib = argc > 2 ? atof(argv[2]) : 16, begin;
	pthread_t senders[STREAMS_MAX], receivers[STREAMS_MAX];
	socklen_t bytes = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (count < 1 || count > STREAMS_MAX)
		errx(1, "1 to %d connections", STREAMS_MAX);
	bytes_each = (uint64_t)(gib * (1 << 30)) / count;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (struct sockaddr *)&address, bytes) < 0 || listen(listener, STREAMS_MAX) < 0 ||
	    getsockname(listener, (struct sockaddr *)&address, &bytes) < 0)
		err(1, "listen");
	begin = clock_steady_seconds();
	for (unsigned i = 0; i < count; i++) {
		pthread_create(&senders[i], NULL, send_all, NULL);
		pthread_create(&receivers[i], NULL, receive_all,
			       (void *)(intptr_t)accept4(listener, NULL, NULL, SOCK_CLOEXEC));
	}
	for (unsigned i = 0; i < count; i++) {
		pthread_join(senders[i], NULL);
		pthread_join(receivers[i], NULL);
	}
	printf("%u connections: %.2f GB/s\n", count,
	       (double)bytes_each * count / (clock_steady_seconds() - begin) / 1e9);
	return 0;
}
