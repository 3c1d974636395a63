/* Reading the configuration again: for SIGHUP and for the method `reload`. */
#ifndef GPUWM_DAEMON_RELOAD_H
#define GPUWM_DAEMON_RELOAD_H

#include "../../base/errors.h"

struct server;

/* Budgets, limits, rules for models, the groups of publishers and observers, the log level: as server->config says. */
int config_apply(struct server *server, struct error *error);

/* Says where more is used than is budgeted now: once versions were taken over, and after a reload. */
void config_warn_budgets(const struct server *server);

/* Reads file and flags again, puts the new configuration in force, and logs the outcome. A gpuwmd that is locked by its
 * configuration begins anew with the new one, once the answer is sent. If there is an error, the old
 * configuration stays in force, whole. -EINVAL: the new one is wrong, or changes what only a restart can change; -ENOENT:
 * the file is not there; -EMFILE: the limits need more files than the process may open. */
int server_reload(struct server *server, struct error *error);

#endif
