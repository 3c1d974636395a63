#include "daemon/base/notify.h"
#include "daemon/methods/server.h"
#include "tests/support/daemon/storing.h"
#include "tests/support/any/own_folder.h"

#include <fcntl.h>

static struct error error;

TestSuite(reload_method, .init = server_open, .fini = server_close, .timeout = 120);

static char path[64];

static void configure(const char *text)
{
	static char *argv[] = {"gpuwmd", "--config", path, NULL};
	FILE *file;

	snprintf(path, sizeof(path), "%s/reload.conf", own_folder());
	file = fopen(path, "we");
	cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
	server->config->argc = 3;
	server->config->argv = argv;
}

Test(reload_method, the_new_file_is_in_force_when_the_answer_comes)
{
	int admin = greeted(SESSION_ADMIN);

	configure("[limits]\nloaders = 3\n");
	cr_assert_eq(ask(admin, "reload"), 0);
	cr_expect_eq(server->config->loaders, 3);
	unlink(path);
}

Test(reload_method, an_error_names_file_line_and_remedy_and_the_old_file_stays)
{
	int admin = greeted(SESSION_ADMIN);
	char where[128];

	configure("[limits]\nloaders = 3\n");
	cr_assert_eq(ask(admin, "reload"), 0);
	configure("[limits]\nloaders = 4\nloadres = 5\n");
	log_level_set(LOG_LEVEL_ERROR);
	cr_assert_eq(ask(admin, "reload"), -EINVAL);
	snprintf(where, sizeof(where), "%s:3: there is no key \"loadres\" in [limits]", path);
	cr_expect(strstr(message.error.message, where), "%s", message.error.message);
	cr_expect(strstr(message.error.message, "the old configuration stays"), "%s", message.error.message);
	cr_expect(strstr(message.error.detail, "loaders"), "%s", message.error.detail);
	cr_expect_eq(server->config->loaders, 3);
	unlink(path);
}

Test(reload_method, a_file_that_is_gone_is_told)
{
	int admin = greeted(SESSION_ADMIN);

	configure("");
	unlink(path);
	cr_assert_eq(ask(admin, "reload"), -ENOENT);
	cr_expect(strstr(message.error.message, path), "%s", message.error.message);
	cr_expect(strstr(message.error.detail, "--config"), "%s", message.error.detail);
}

/* ---- under a service manager ---- */

StoringTest(reload, before_it_is_ready_it_does_not_say_so, "10")
{
	char *argv[] = {"gpuwmd", NULL};

	server->config->argc = 1;
	server->config->argv = argv;
	log_level_set(LOG_LEVEL_ERROR);
	cr_assert_eq(server_reload(server, &error), 0);
	cr_assert_eq(store_put_now("x", 0, 200, &error), 0, "so that all before was heard");
	cr_expect(!manager_heard(&manager, "READY=1") && !manager_heard(&manager, "RELOADING=1"), "%s",
		  manager.heard);
}

#define ANOTHER_MS 20000 /* not what a new configuration begins with */

StoringTest(reload, a_wrong_configuration_changes_nothing, "10")
{
	char *argv[] = {"gpuwmd", "--set", "limits.sessions=none", NULL};

	notify_ready(server->notify);
	server->config->argc = 3;
	server->config->argv = argv;
	server->config->store_confirm_ms = ANOTHER_MS;
	log_level_set(LOG_LEVEL_ERROR);
	cr_expect_eq(server_reload(server, &error), -EINVAL);
	cr_expect_eq(server->config->sessions, SESSIONS_MAX);
	cr_expect_eq(server->config->store_confirm_ms, ANOTHER_MS, "the old configuration is not whole");
	TURN_UNTIL(manager_heard(&manager, "RELOADING=1") && manager_heard(&manager, "READY=1"));
}

StoringTest(reload, what_is_taken_at_start_only_is_refused, "10")
{
	char *sockets[] = {"gpuwmd", "--socket", "/tmp/elsewhere.sock", NULL};
	char *modes[] = {"gpuwmd", "--set", "socket.mode=0666", NULL};
	char *groups[] = {"gpuwmd", "--set", "socket.group=root", NULL};
	char **const all[] = {sockets, modes, groups};

	log_level_set(LOG_LEVEL_ERROR);
	server->config->store_confirm_ms = ANOTHER_MS;
	for (size_t i = 0; i < 3; i++) {
		server->config->argc = 3;
		server->config->argv = all[i];
		cr_expect_eq(server_reload(server, &error), -EINVAL);
		cr_expect_eq(server->config->store_confirm_ms, ANOTHER_MS, "%zu was taken", i);
	}
}

StoringTest(reload, limits_and_budgets_change, "100")
{
	char *argv[] = {"gpuwmd", "--set", "limits.leases_per_uid=1", "--budget", "host=1K", NULL};
	struct quota_charge first = {0}, second = {0};
	struct version *version = stored("v1");
	server->config->argc = 5;
	server->config->argv = argv;
	cr_expect_eq(server_reload(server, &error), 0);
	cr_expect_eq(quota_charge(server->ledger.quota, 1, QUOTA_LEASES, &first, &error), 0);
	cr_expect_eq(quota_charge(server->ledger.quota, 1, QUOTA_LEASES, &second, &error), -EDQUOT);
	quota_release(&first);
	cr_expect_eq(server->ledger.devices.devices[0]->budget, 1024);
	cr_expect_eq(server->ledger.devices.devices[0]->used, 4096, "what is held stays");
	cr_expect_eq(version->state, VERSION_READY);
}
