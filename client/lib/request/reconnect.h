/* Connects a client again. When its gpuwmd goes away, the client connects to the next one and takes its leases and claims
 * again, before any other call goes out. Either a thread of the library does this, the watcher, or a call that needs the
 * connection. */
#ifndef GPUWM_LIB_RECONNECT_H
#define GPUWM_LIB_RECONNECT_H

#include "client.h"

/* Begins the watcher, unless it runs or the client connects only once. -EAGAIN: the thread could not be made; -EMFILE,
 * -ENFILE: there is no descriptor for what wakes it. */
int reconnect_watch(struct gpuwm_client *client, struct error *error);

/* Waits until `deadline` for a connection that can be used. Sets *ret_connection, which the caller frees, and its round.
 * If `only` is not 0, takes the connection of that round, without waiting. -ECONNRESET: that connection has ended;
 * -ECONNREFUSED: there was no gpuwmd in time; -ECANCELED: the client was closed meanwhile. */
int reconnect_take(struct gpuwm_client *client, uint64_t only, int64_t deadline,
		   struct connection **ret_connection, uint64_t *ret_round, struct error *error);

#endif
