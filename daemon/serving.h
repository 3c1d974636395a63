/* From open sockets to READY. gpuwmd says READY only once its loop watches the sockets: a peer that connects to a gpuwmd
 * that does not watch them waits for ever. */
#ifndef GPUWM_DAEMON_SERVING_H
#define GPUWM_DAEMON_SERVING_H

struct server;

/* Prepares the handles of a new server. */
void serving_init(struct server *server);
/* Closes the handles of serving_init. */
void serving_close(struct server *server);

/* Watches the listeners, and sends READY to the service manager after the loop's next turn. If the loop can't watch a
 * listener, calls server_fail. The argument is the struct server. */
void serving_begin(void *server);

#endif
