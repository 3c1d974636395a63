/* The sockets on which gpuwmd serves, over restarts: opened with what systemd passed or the last gpuwmd left, and stored for
 * the next one. */
#ifndef GPUWM_DAEMON_SOCKETS_H
#define GPUWM_DAEMON_SOCKETS_H

#include "../base/errors.h"
#include "config/config.h"

struct inherited;
struct server;

/* Returns for whom config_check_machine is to judge: which sockets a service manager has passed. */
struct config_judge sockets_judge(const struct inherited *left);
/* Opens server->listeners, and takes the sockets out of *left. If it fails, *left stays as it is. Errors of listener_open. */
int sockets_open(struct server *server, struct inherited *left, struct error *error);
/* The same for a gpuwmd that is locked, which serves copies of the sockets and leaves *left as it is. If no socket for operators is
 * there, it makes one, for root and its own user; if that is not possible either, gpuwmd serves without, and only SIGHUP unlocks
 * it. */
int sockets_open_locked(struct server *server, const struct inherited *left, struct error *error);
/* Gives sockets that gpuwmd bound to the fd store, in place of those that it no longer uses. So peers that connect while
 * gpuwmd restarts wait, and are not refused. Does nothing without a store. */
int sockets_keep(struct server *server, struct error *error);

#endif
