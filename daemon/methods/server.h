/* What one gpuwmd has: the loop, and one of each floor. Everything runs on the loop's thread; only closing descriptors and
 * talking to the service manager go to the thread pool. Methods use the floors; main (../server.h) makes and ends them. */
#ifndef GPUWM_DAEMON_METHODS_SERVER_H
#define GPUWM_DAEMON_METHODS_SERVER_H

#include "../clients/clients.h"
#include "../config/config.h"
#include "../ledger/ledger.h"
#include "../net/net.h"
#include "../work/work.h"
#include "../../base/errors.h"

#include <uv.h>

#define LISTENERS 2
#define SIGNALS 3

struct keeping;
struct listener;
struct notify;
struct roots;

struct server {
	struct config *config;
	uv_loop_t loop;
	struct version_id instance;
	uint64_t started_ms; /* steady */

	struct ledger ledger;
	struct net net;
	struct clients clients;
	struct work work;
	struct keeping *keeping; /* what a restart finds */
	struct notify *notify;
	struct listener *listeners[LISTENERS];
	struct roots *roots;
	struct config_judge judge; /* for a reload: what the next start would refuse */

	uv_work_t first_work; /* base/loop.h */
	uv_prepare_t settle;
	uv_idle_t serving_soon; /* these two: READY is due */
	uv_check_t serving;
	uv_timer_t stop_timer;
	uv_signal_t signals[SIGNALS];
	bool unconfigured; /* locked, since its configuration can't be used: a reload that succeeds begins anew */
	bool begins_anew; /* main is to start the program again, with the descriptors that were passed */
	struct error failed; /* why gpuwmd ends; code 0: it goes on */
};

/* ---- reload: reload.c ----
 * Reading the configuration again: for SIGHUP and for the method `reload`. */

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
