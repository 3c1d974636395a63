#include "server.h"

#include "../restart/keeping.h"
#include "../restart/store.h"
#include "../work/tiers/tiers.h"
#include "../work/loaders/loader.h"
#include "../base/notify.h"
#include "../config/roots.h"
#include "../work/jobs/verify.h"
#include "../work/versions/versions.h"
#include "../../base/bytes.h"

#include <errno.h>
#include <string.h>

static int set_budgets(struct server *server, struct error *error)
{
	const struct config *config = server->config;
	int r = 0;

	server->ledger.devices.budget_count = 0;
	for (size_t i = 0; r == 0 && i < config->budget_count; i++)
		r = device_table_budget(&server->ledger.devices, config->budgets[i].device,
					config->budgets[i].bytes, config->budgets[i].percent);
	device_table_rebudget(&server->ledger.devices);
	return r < 0 ? error_set(error, r, "[budget] of the configuration", "a budget was not taken: %s",
				 strerror(-r))
		     : 0;
}

int config_apply(struct server *server, struct error *error)
{
	clients_configure(&server->clients);
	ledger_set_limits(&server->ledger, &server->config->quota);
	log_level_set(server->config->log_level);
	scrub_configure(server->work.scrub);
	return set_budgets(server, error);
}

void config_warn_budgets(const struct server *server)
{
	char budget[BYTES_TEXT], used[BYTES_TEXT];

	for (size_t i = 0; i < server->ledger.devices.count; i++) {
		const struct device *device = server->ledger.devices.devices[i];

		if (device->used > device->budget)
			log_warning(
				"%s: the budget of %s is below the %s that are used: nothing more is granted "
				"there until versions are retired",
				device->id, bytes_format(device->budget, budget),
				bytes_format(device->used, used));
	}
}

static int check_same(const struct config *old, const struct config *new, struct error *error)
{
	const char *what = NULL;

	if (strcmp(old->socket, new->socket) != 0 || strcmp(old->admin_socket, new->admin_socket) != 0)
		what = "path and admin_path";
	else if (old->socket_mode != new->socket_mode || old->admin_mode != new->admin_mode)
		what = "mode and admin_mode";
	else if (strcmp(old->group, new->group) != 0 || strcmp(old->admin_group, new->admin_group) != 0)
		what = "group and admin_group";
	return what ? error_set(error, -EINVAL,
				"restart gpuwmd for that; where systemd made the sockets, change their units",
				"%s in [socket] are taken at start only", what)
		    : 0;
}

static int read_again(const struct server *server, struct config *ret_fresh, struct error *error)
{
	uint64_t limit;
	int r;

	config_init(ret_fresh);
	r = config_arguments(ret_fresh, server->config->argc, server->config->argv, error);
	/* First: what the next start would refuse needs another remedy than a restart. */
	if (r == 0)
		r = config_check_machine(ret_fresh, &server->judge, error);
	if (r == 0)
		r = store_limit(&limit, error); /* of the environment, which may be why gpuwmd is locked */
	if (r == 0 && !server->unconfigured)
		r = check_same(server->config, ret_fresh, error);
	if (r < 0)
		config_clear(ret_fresh);
	return r;
}

static void put_in_force(struct server *server, const struct config *fresh)
{
	config_clear(server->config);
	*server->config = *fresh;
	config_apply(server, NULL); /* budgets were checked when they were read */
	log_info("the configuration was read again");
	config_warn_budgets(server);
	roots_forget(server->roots);
	/* One that stands by has the groups and the roots of its start. Those that begin now have the new ones. */
	loader_pool_renew(server->work.loaders);
	loader_pool_watch(server->work.loaders);
	versions_failed_arm(&server->work);
	keeping_describe(server->keeping);
	work_later(&server->work, LATER_RESIDENTS);
	work_later(&server->work, LATER_UNPARKS); /* a budget may have grown */
	work_later(&server->work, LATER_HOST_COPIES);
	work_later(&server->work, LATER_TURN); /* host copies may be wanted now */
	idle_arm(&server->work);
	/* Rules may let them have now what is there. */
	waiters_wake(&server->clients, WAIT_READY, NULL);
	waiters_wake(&server->clients, WAIT_CLAIM, NULL);
}

int server_reload(struct server *server, struct error *error)
{
	struct config fresh;
	int r;

	notify_reloading(server->notify);
	r = read_again(server, &fresh, error);
	if (r < 0 && server->unconfigured) {
		keeping_lock(server->keeping, error);
		*error = *keeping_locked(server->keeping);
	} else if (r < 0) {
		error_set(error, error->code,
			  error->detail[0] ? error->detail : "correct it, then: gpuwmctl reload",
			  "the old configuration stays: %s", error->message);
		log_error("%s%s%s", error->message, error->detail[0] ? ": " : "", error->detail);
	} else if (server->unconfigured) {
		/* What was inherited lies as it was passed: the next program in this process finds it as after a
		 * restart. */
		config_clear(&fresh);
		log_info("the configuration can be used: gpuwmd begins anew, with all that it keeps");
		server->begins_anew = true;
	} else {
		put_in_force(server, &fresh);
	}
	if (!server->begins_anew) /* the next program says so */
		notify_reloaded(server->notify);
	return r;
}
