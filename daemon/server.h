/* The life of a gpuwmd: how it begins, serves and ends. What it has is in methods/server.h. */
#ifndef GPUWM_DAEMON_SERVER_H
#define GPUWM_DAEMON_SERVER_H

#include "base/notify.h"
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

/* ---- connections: connections.c ----
 * What the floors above net do with what happens on a connection. */

/* For a net whose data is the server. */
extern const struct net_above connections;

/* ---- sockets: sockets.c ----
 * The sockets on which gpuwmd serves, over restarts: opened with what systemd passed or the last gpuwmd left, and stored for
 * the next one. */

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

/* ---- what gpuwmd says of itself: start_lines.c ---- */

/* The first line of a start in the log: version and process. */
void start_lines_begin(void);
/* The others, when gpuwmd begins to serve: who keeps the weights, sockets, devices, roots and limits. */
void start_lines_serving(const struct server *server);
/* How gpuwmd is, in one line for people: the service manager shows it. It is a notify_describe_fn, whose data is the server. */
void status_line(const void *server, char line[NOTIFY_LINE_BYTES]);

#endif
