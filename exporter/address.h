/* Where the exporter listens. */
#ifndef GPUWM_EXPORTER_ADDRESS_H
#define GPUWM_EXPORTER_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

#define ADDRESS_DEFAULT "127.0.0.1:9464"

struct address {
	struct sockaddr_storage socket;
	socklen_t bytes;
	bool is_loopback;
};

/* Reads "127.0.0.1:9464" or "[::1]:9464": an address in digits, and a port from 0 to 65535. Returns 0 or
 * -EINVAL. */
int address_parse(const char *text, struct address *ret);

/* Listens. Returns the socket, which the caller owns. Fails with -errno and logs why. */
int address_listen(const struct address *address, const char *text);

/* The port of a listening socket. */
unsigned address_port(int fd);

#endif
