/* From open sockets to READY. gpuwmd announces itself once its loop watches the sockets, not before: whoever connects
 * to a gpuwmd that does not watch them waits for ever. */
#ifndef GPUWM_DAEMON_SERVING_H
#define GPUWM_DAEMON_SERVING_H

struct server;

/* Of a new server. */
void serving_init(struct server *server);
/* Closes the handles of serving_init. */
void serving_close(struct server *server);

/* Watches the listeners, and tells the service manager READY after the loop's next turn. Where a listener can't be
 * watched gpuwmd ends (server_fail). */
void serving_begin(struct server *server);

#endif
