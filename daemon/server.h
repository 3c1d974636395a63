/* The life of a gpuwmd: what it has is in methods/server.h. */
#ifndef GPUWM_DAEMON_SERVER_H
#define GPUWM_DAEMON_SERVER_H

#include "methods/server.h"

struct inherited;

/* Everything but listeners and loaders; *config stays the caller's, and is changed by a reload. */
int server_new(struct config *config, struct server **ret_server, struct error *error);
/* Ends what is left; waits at most STOP_DRAIN_MS for descriptors that are being closed. Not NULL: some thread is
 * still at it, or waits for the service manager. The server is left to the kernel then, and the process
 * ends with _exit: libuv makes exit wait for its threads. */
struct server *server_free(struct server *server);

/* Serves as a locked gpuwmd until a signal or a reload that succeeds: `why` is what is wrong with the configuration. *left stays as
 * it is. Returns 0, or why gpuwmd could not start or go on. */
int server_run_locked(struct server *server, const struct inherited *left, const struct error *why,
		      struct error *error);

/* Opens the sockets. If it fails, *left stays as it is: a locked gpuwmd can go on with it. */
int server_listen(struct server *server, struct inherited *left, struct error *error);
/* After server_listen: what a restart left (left is taken), signals, the first loader: then the loop until a signal or server_stop. 0,
 * or why gpuwmd could not start or go on. */
int server_run(struct server *server, struct inherited *left, struct error *error);

/* Leaves the loop at once. server_run then returns this error. */
void server_fail(struct server *server, const struct error *error);
/* SIGTERM: refuses what waits, lets replies drain, and leaves the loop. */
void server_stop(struct server *server);
/* Before the loop sleeps: goodbyes that are due, then events. Also for tests,
 * which turn the loop themselves. */
void server_settle(struct server *server);

#endif
