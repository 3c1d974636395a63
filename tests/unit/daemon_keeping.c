/* What a restart finds, up to the restart itself, which tests/system/restart.c does. */
#include "tests/support/daemon/storing.h"
#include "tests/support/fail_alloc.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>

static struct error error;

/* ---- names and limits ---- */

Test(store, names_are_short_and_come_back)
{
	const uint64_t names[] = {1, 0xabc, STORE_NAME_MAX};
	char text[STORE_NAME_TEXT];
	uint64_t again;

	for (size_t i = 0; i < 3; i++) {
		store_name_format(names[i], text);
		cr_expect_leq(strlen(text), 12);
		cr_assert_eq(store_name_parse(text, &again), 0);
		cr_expect_eq(again, names[i]);
	}
}

Test(store, other_names_are_not_ours)
{
	const char *const wrong[] = {"",   "g",   "g0",     "gA",     "g01",
				     "1",  "gx",  "stored", "worker", "gpuwm-state",
				     "g ", "g1 ", "g-1",    "g0x1",   "gffffffffffff"};
	uint64_t name;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		cr_expect_eq(store_name_parse(wrong[i], &name), -EINVAL, "%s", wrong[i]);
}

Test(store, there_is_none_without_a_manager_or_its_limit)
{
	uint64_t limit = 7;

	unsetenv("NOTIFY_SOCKET");
	setenv("FDSTORE", "10", 1);
	cr_expect_eq(store_limit(&limit, &error), 0);
	cr_expect_eq(limit, 0);
	setenv("NOTIFY_SOCKET", "/nonexistent", 1);
	cr_expect_eq(store_limit(&limit, &error), 0);
	cr_expect_eq(limit, 10);
	unsetenv("FDSTORE");
	cr_expect_eq(store_limit(&limit, &error), 0);
	cr_expect_eq(limit, 0);
}

Test(store, a_limit_that_is_no_number_is_an_error)
{
	const char *const wrong[] = {"", "many", "3x", " 7", "-1", "99999999999999999999"};
	uint64_t limit;

	setenv("NOTIFY_SOCKET", "/nonexistent", 1);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		setenv("FDSTORE", wrong[i], 1);
		cr_expect_eq(store_limit(&limit, &error), -EINVAL, "%s", wrong[i]);
		cr_expect(strstr(error.message, wrong[i]));
	}
}

Test(store, a_manager_that_is_gone_is_named)
{
	const char *const names[] = {"g1"};

	unsetenv("NOTIFY_SOCKET");
	cr_expect_eq(store_put_now("g1", 0, 100, &error), -EIO);
	cr_expect(strstr(error.message, "g1"));
	setenv("NOTIFY_SOCKET", "/nonexistent", 1);
	cr_expect_eq(store_remove_now(names, 1, 100, &error), -EIO);
	cr_expect(strstr(error.message, "service manager"), "%s", error.message);
	cr_expect_eq(store_remove_now(names, 0, 100, &error), 0);
}

Test(store, a_manager_that_does_not_confirm_is_waited_for_so_long)
{
	manager_start(&manager, "10");
	manager.silent = true;
	cr_expect_eq(store_put_now("g1", 0, 50, &error), -ETIMEDOUT);
	cr_expect(strstr(error.message, "50 ms") && strstr(error.detail, "store_confirm_ms"));
	manager_stop(&manager);
}

/* ---- versions ---- */

StoringTest(keeping, a_new_state_is_stored_first, "100")
{
	cr_expect_eq(manager_keeps(&manager, STORE_STATE), 1);
	cr_expect_eq(manager_keeps(&manager, NULL), 1);
	cr_expect_eq(keeping_epoch(server->keeping), 1);
	cr_expect_eq(keeping_grace_ms(server->keeping), 0);
}

StoringTest(keeping, a_version_is_ready_when_it_is_stored_and_not_before, "100")
{
	struct version *version = being_stored("v1", 2);
	TURN_UNTIL(version->state == VERSION_READY);
	cr_expect_eq(manager_keeps(&manager, NULL), 4);
	cr_expect_eq(manager_keeps(&manager, "g1") + manager_keeps(&manager, "g2"), 2);
}

StoringTest(keeping, a_version_that_the_manager_does_not_confirm_fails, "100")
{
	struct version *version;

	silence();
	version = being_stored("v1", 2);
	TURN_UNTIL(version->state == VERSION_FAILED);
	cr_expect_eq(version->error.code, -ETIMEDOUT);
	cr_expect_eq(manager_keeps(&manager, NULL), 1, "what was stored is left there");
	TURN_UNTIL(server->ledger.devices.devices[0]->used == 0);
}

StoringTest(keeping, what_can_not_become_ready_leaves_the_store, "100")
{
	struct version *version;

	stored("v1");
	version = ready_with("another", "v1", 2);
	/* `current`, once the pool is done: until then the loop allocates nothing. */
	fail_alloc_arm(1);
	TURN_UNTIL(version->state == VERSION_FAILED);
	cr_assert(fail_alloc_disarm());
	cr_expect_eq(version->error.code, -ENOMEM, "%s", version->error.message);
	cr_expect_eq(manager_keeps(&manager, NULL), 4,
		     "its descriptors stay in the store, and its memory with them");
}

/* So many sockets of libsystemd can't be made: one a notification. */
static atomic_int sockets_failing;

__attribute__((visibility("default"))) int socket(int domain, int type, int protocol)
{
	if (domain == AF_UNIX && atomic_load(&sockets_failing) > 0) {
		/* The last one fails for the limit of the whole system. */
		errno = atomic_fetch_sub(&sockets_failing, 1) > 1 ? EMFILE : ENFILE;
		return -1;
	}
	return (int)syscall(SYS_socket, domain, type, protocol);
}

StoringTest(keeping, what_is_freed_leaves_the_store_though_descriptors_were_short, "100")
{
	struct version *version = stored("v1");
	atomic_store(&sockets_failing, 2);
	withdraw(version);
	cr_expect(version->freeing);
	TURN_UNTIL(registry_counts(server->ledger.registry).versions == 0);
	cr_expect_eq(server->ledger.devices.devices[0]->used, 0);
	cr_expect_eq(atomic_load(&sockets_failing), 0);
	cr_expect_eq(manager_keeps(&manager, NULL), 1, "only the state is kept");
}

StoringTest(keeping, what_could_not_be_freed_is_freed_when_there_is_memory_again, "100")
{
	int log = memfd_create("log", MFD_CLOEXEC), terminal = dup(STDERR_FILENO);
	struct version *version;
	char text[512] = "";

	version = stored("v1");
	registry_remove_aliases(server->ledger.registry);
	cr_assert(log >= 0 && terminal >= 0 && dup2(log, STDERR_FILENO) >= 0);
	fail_alloc_arm(1);
	cr_expect_eq(versions_retire(&server->work, version, &error), 0);
	cr_expect(fail_alloc_disarm());
	cr_assert(dup2(terminal, STDERR_FILENO) >= 0);
	cr_assert_gt(pread(log, text, sizeof(text) - 1, 0), 0);
	cr_expect(strstr(text, "out of memory: m@v1 is not freed yet"), "%s", text);
	cr_expect_eq(manager_keeps(&manager, NULL), 4);
	TURN_UNTIL(manager_keeps(&manager, NULL) == 1);
	TURN_UNTIL(registry_counts(server->ledger.registry).versions == 0);
	close(log);
	close(terminal);
}

static void on_alarm(int number)
{
	(void)number;
}

/* As when a loader ends: libsystemd gives up at any signal. */
StoringTest(keeping, signals_do_not_disturb_what_is_stored, "200")
{
	const struct itimerval often = {.it_interval.tv_usec = 100, .it_value.tv_usec = 100};
	const struct itimerval never = {0};
	const struct sigaction action = {.sa_handler = on_alarm};
	char tag[16];

	manager.slow_us = 1000;
	cr_assert_eq(sigaction(SIGALRM, &action, NULL) | setitimer(ITIMER_REAL, &often, NULL), 0);
	for (int i = 0; i < 20; i++) {
		snprintf(tag, sizeof(tag), "v%d", i);
		stored(tag);
		cr_expect_eq(store_put_now("x", 0, 200, &error), 0, "%s", error.message);
	}
	cr_assert_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
}

StoringTest(keeping, what_is_being_stored_can_not_be_aborted, "100")
{
	struct version *version;
	int admin;

	admin = greeted(SESSION_ADMIN);
	version = being_stored("v1", 1);
	SEND(admin, 1, "publish_abort", ID("publish", version->publish.bytes));
	uv_run(&server->loop, UV_RUN_NOWAIT);
	TURN_UNTIL(comes(admin));
	/* Either it came in time, or the version was there already. */
	cr_expect(message.error.code == -EBUSY || message.error.code == -ENOENT);
	TURN_UNTIL(version->state == VERSION_READY);
	close(admin);
	forget();
}

/* Its loaders are gone by the time that the store has failed. */
StoringTest(keeping, a_stop_while_the_manager_confirms_nothing, "100")
{
	silence();
	being_stored("v1", 2);
	log_level_set(LOG_LEVEL_ERROR);
	server_stop(server);
}

StoringTest(keeping, a_manager_that_hangs_does_not_keep_a_version_from_being_freed, "100")
{
	struct version *version = stored("v1");
	silence();
	log_level_set(LOG_LEVEL_ERROR);
	withdraw(version);
	TURN_UNTIL(registry_counts(server->ledger.registry).versions == 0);
}

Test(keeping, a_stop_leaves_what_is_unused_in_the_store)
{
	struct version *version;
	struct lease *lease, *leases_of = NULL;

	storing_begin("100");
	version = stored("v1");
	cr_assert_eq(lease_grant(server->ledger.registry, version, 0,
				 &(struct lease_holder){.holder = &lease,
							.leases = &leases_of,
							.quota = server->ledger.quota,
							.uid = 1},
				 &lease, &error),
		     0);
	withdraw(version);
	server->net.stopping = true;
	versions_free_unused(&server->work, lease_release(server->ledger.registry, lease));
	cr_expect(!version->freeing);
	storing_end();
	cr_expect_eq(manager.count, 4);
}

StoringTest(keeping, the_limit_of_the_store_is_the_registry_s, "5")
{
	struct publish_checked checked = {.part.segment_count = 2};
	struct publish_part *part;
	struct publish *publish;

	/* the state, two sockets, two more */
	publish = building("m", "v1", &part);
	cr_expect_eq(publish_checked(server->ledger.registry, publish, part, &checked, &error), -EDQUOT);
	cr_expect(strstr(error.message, "0 of the 2 descriptors") &&
			  strstr(error.detail, "FileDescriptorStoreMax"),
		  "%s (%s)", error.message, error.detail);
}

Test(keeping, without_a_manager_nothing_is_kept)
{
	struct inherited left = inherited_none;

	unsetenv("NOTIFY_SOCKET");
	server_open();
	cr_assert_eq(keeping_begin(server->keeping, &left, &error), 0);
	cr_expect(!keeping_stores(server->keeping));
	cr_expect_eq(ready("m", "v1")->state, VERSION_READY);
	server_close();
}

Test(keeping, a_manager_that_does_not_take_the_state_ends_the_start)
{
	struct inherited left = inherited_none;

	manager_start(&manager, "10");
	manager.silent = true;
	server_open();
	server->config->store_confirm_ms = 50;
	cr_expect_eq(keeping_begin(server->keeping, &left, &error), -ETIMEDOUT);
	storing_end();
}

Test(keeping, a_drain_that_can_not_let_go_says_so)
{
	struct inherited found = {.sockets = {-1, -1}, .state = memfd_create("strange", MFD_CLOEXEC)};
	int admin;

	manager_start(&manager, "10");
	server_open();
	log_level_set(LOG_LEVEL_ERROR);
	cr_assert_eq(keeping_begin(server->keeping, &found, &error), 0);
	cr_assert(keeping_locked(server->keeping));
	admin = greeted(SESSION_ADMIN);
	silence();
	cr_expect_eq(ask(admin, "drain"), -ETIMEDOUT);
	manager.silent = false;
	server->config->store_confirm_ms = STORE_CONFIRM_MS;
	cr_expect_eq(ask(admin, "drain"), 0);
	close(admin);
	forget();
	storing_end();
}
