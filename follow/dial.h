/* Connections to a server that may hang. */
#ifndef GPUWM_FOLLOW_DIAL_H
#define GPUWM_FOLLOW_DIAL_H

/* Connects to the path of a Unix socket, or to an address of proto/address.h. Sets *ret_sock, whose send and recv fail with EAGAIN after
 * timeout_ms. Fails with -errno, -ETIMEDOUT, and -EADDRNOTAVAIL if the host's name is unknown. */
int dial(const char *address, int timeout_ms, int *ret_sock);

#endif
