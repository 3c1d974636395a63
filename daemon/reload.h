/* The configuration in force, and a new one in its place: SIGHUP and the method `reload`. */
#ifndef GPUWM_DAEMON_RELOAD_H
#define GPUWM_DAEMON_RELOAD_H

#include "../proto/errors.h"

struct server;

/* Budgets, limits, rules for models, the groups of publishers and observers, the log level: as server->config says. */
int config_apply(struct server *server, struct error *error);

/* Says where more is used than is budgeted now: once versions were taken over, and after a reload. */
void config_warn_budgets(const struct server *server);

/* Reads file and flags anew. A configuration that is wrong, or changes what only a restart can, is not taken: the old
 * one stays whole, and *error says why. -EINVAL, -ENOENT: there is no such file; -EMFILE: the limits need more
 * files than the process may open. The log tells the outcome. */
int server_reload(struct server *server, struct error *error);

#endif
