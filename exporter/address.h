/* Where the exporter listens, and under which names a browser may ask it. */
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

/* The Host header. A web page from anywhere may send a browser to 127.0.0.1 under a name of its own ("DNS rebinding"), and would then
 * read what the exporter tells. Returns whether the header names this machine by an address of the loopback interface or "localhost",
 * with or without a port. host may be NULL: a client that sends none is no browser. */
bool host_is_loopback(const char *host);

#endif
