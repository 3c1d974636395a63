/* A service manager that says what it does not keep: nothing is promised that the next start would not find. */
#include "tests/support/daemon/storing.h"
#include "service/manager.h"

#include <sys/resource.h>

static struct error error;

static void setup(void)
{
	storing_begin("100");
}

static void teardown(void)
{
	unsetenv(STORE_ANSWER_VARIABLE);
	storing_end();
}

TestSuite(store_answers, .init = setup, .fini = teardown, .timeout = 60);

/* The version's names are g1, g2 and g3. */
static struct version *refused(int code, const char *words, const char *remedy)
{
	struct version *version = ready_with("m", "v1", 2);

	TURN_UNTIL(version->state == VERSION_FAILED);
	cr_expect_eq(version->error.code, code, "%s", version->error.message);
	cr_expect(strstr(version->error.message, words), "%s", version->error.message);
	cr_expect(strstr(version->error.detail, remedy), "%s", version->error.detail);
	cr_expect_eq(manager_keeps(&manager, NULL), 1, "what was kept is left there");
	return version;
}

Test(store_answers, a_version_of_which_a_descriptor_is_not_kept_fails)
{
	manager.answer = "24 g2\nEND\n";
	refused(-EMFILE, "does not keep the descriptor g2", "RLIMIT_NOFILE");
}

Test(store_answers, every_reason_has_its_words)
{
	const char *const names[] = {"g1"};

	manager.answer = "28 x\nEND\n";
	cr_expect_eq(store_put_now("x", 0, 5000, &error), -EDQUOT);
	cr_expect(strstr(error.message, "store is full") && strstr(error.detail, "--store-max"));
	manager.answer = "7 x\nEND\n";
	cr_expect_eq(store_put_now("x", 0, 5000, &error), -EDQUOT);
	manager.answer = "17 x\nEND\n";
	cr_expect_eq(store_put_now("x", 0, 5000, &error), -EEXIST);
	cr_expect(strstr(error.message, "same open file"));
	manager.answer = "24 *\nEND\n";
	cr_expect_eq(store_put_now("x", 0, 5000, &error), -EMFILE);
	manager.answer = "12 x\nEND\n";
	cr_expect_eq(store_put_now("x", 0, 5000, &error), -EIO);
	cr_expect(strstr(error.message, "Cannot allocate memory"), "%s", error.message);
	/* Of others, and where nothing was put. */
	manager.answer = "24 y\nEND\n";
	cr_expect_eq(store_put_now("x", 0, 5000, &error), 0);
	manager.answer = "24 g1\nEND\n";
	cr_expect_eq(store_remove_now(names, 1, 5000, &error), 0);
}

/* There is room for the socket, and then not for the two ends of the barrier. */
Test(store_answers, that_gpuwmd_may_open_no_more_files_is_said_so)
{
	const char *const names[] = {"g1"};
	struct rlimit before, one_more;
	const int next = dup(0);
	int r;

	close(next);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	one_more = before;
	one_more.rlim_cur = (rlim_t)next + 1;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &one_more), 0);
	r = store_remove_now(names, 1, 5000, &error);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	cr_expect_eq(r, -EMFILE, "%s", error.message);
	cr_expect(strstr(error.message, "Too many open files"), "%s", error.message);
	cr_expect_null(strstr(error.message, "5000 ms"), "%s", error.message);
}

Test(store_answers, a_barrier_that_was_lost_is_none_that_was_passed)
{
	setenv(STORE_ANSWER_VARIABLE, "1", 1);
	refused(-EMFILE, "has no room for another descriptor", "RLIMIT_NOFILE");
}

Test(store_answers, an_answer_without_its_end_is_none)
{
	setenv(STORE_ANSWER_VARIABLE, "1", 1);
	manager.answer = "24 another\n";
	refused(-EMFILE, "has no room for another descriptor", "RLIMIT_NOFILE");
}

Test(store_answers, a_version_that_is_kept_is_ready)
{
	struct version *version;

	setenv(STORE_ANSWER_VARIABLE, "1", 1);
	manager.answer = "END\n";
	version = ready_with("m", "v1", 2);
	TURN_UNTIL(version->state == VERSION_READY);
	cr_expect_eq(manager_keeps(&manager, NULL), 4);
}

/* systemd drops without a word what is above its limit. */
Test(store_answers, what_may_still_be_in_the_store_counts_against_its_limit)
{
	uint64_t max = registry_fds_max(server->ledger.registry);
	struct version *version = ready_with("m", "v1", 2);

	TURN_UNTIL(version->state == VERSION_READY);
	registry_remove_aliases(server->ledger.registry);
	manager.silent = true;
	config.store_confirm_ms = 200;
	cr_assert_eq(versions_retire(&server->work, version, &error), 0);
	TURN_UNTIL(registry_counts(server->ledger.registry).versions == 0);
	cr_expect_eq(registry_fds_max(server->ledger.registry), max - 3);
	ready_with("m", "v2", 1);
	TURN_UNTIL(registry_fds_max(server->ledger.registry) == max - 5);
}
