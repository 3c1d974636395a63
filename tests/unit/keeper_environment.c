#include "keeper/child.h"
#include "tests/support/fail_alloc.h"
#include "tests/support/any/open_files.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static struct store store;
static struct environment environment;

static const char *value(const char *name)
{
	size_t length = strlen(name);

	for (char **v = environment.variables; *v; v++) {
		if (strncmp(*v, name, length) == 0 && (*v)[length] == '=')
			return *v + length + 1;
	}
	return NULL;
}

static size_t count(void)
{
	size_t n = 0;

	while (environment.variables[n])
		n++;
	return n;
}

static void make(const char *const *base, uint64_t watchdog_us)
{
	cr_assert_eq(environment_make(&environment, (char *const *)base, "/run/x/notify", &store, watchdog_us,
				      false),
		     0);
	environment_set_pid(&environment, 2147483647);
}

static void setup(void)
{
	open_files_raise();
	cr_assert_eq(store_init(&store, 2048), 0);
}

static void teardown(void)
{
	environment_clear(&environment);
	store_clear(&store);
}

TestSuite(keeper_environment, .init = setup, .fini = teardown);

static const char *const plain[] = {"PATH=/bin", "HOME=/", NULL};

Test(keeper_environment, an_empty_store_sets_no_listen_variables)
{
	make(plain, 0);
	cr_expect_str_eq(value("PATH"), "/bin");
	cr_expect_str_eq(value("HOME"), "/");
	cr_expect_str_eq(value("NOTIFY_SOCKET"), "/run/x/notify");
	cr_expect_str_eq(value("GPUWM_STORE_ANSWERS"), "1");
	cr_expect_str_eq(value("FDSTORE"), "2048");
	cr_expect_eq(count(), 5);
}

Test(keeper_environment, what_is_stored_is_told_in_its_order)
{
	store_add(&store, memfd_create("", MFD_CLOEXEC), "worker");
	store_add(&store, memfd_create("", MFD_CLOEXEC), "s.1");
	store_add(&store, memfd_create("", MFD_CLOEXEC), "s.1");
	make(plain, 0);
	cr_expect_str_eq(value("LISTEN_FDS"), "3");
	cr_expect_str_eq(value("LISTEN_FDNAMES"), "worker:s.1:s.1");
	cr_expect_str_eq(value("LISTEN_PID"), "2147483647");
	cr_expect_null(value("WATCHDOG_USEC"));
	cr_expect_null(value("WATCHDOG_PID"));
	environment_set_pid(&environment, 1);
	cr_expect_str_eq(value("LISTEN_PID"), "1");
}

Test(keeper_environment, a_watchdog_is_told_with_the_pid_it_is_for)
{
	make(plain, 30000000);
	cr_expect_str_eq(value("WATCHDOG_USEC"), "30000000");
	cr_expect_str_eq(value("WATCHDOG_PID"), "2147483647");
	cr_expect_null(value("LISTEN_PID"));
	environment_clear(&environment);
	store_add(&store, memfd_create("", MFD_CLOEXEC), "a");
	make(plain, UINT64_MAX);
	cr_expect_str_eq(value("WATCHDOG_USEC"), "18446744073709551615");
	cr_expect_str_eq(value("WATCHDOG_PID"), "2147483647");
	cr_expect_str_eq(value("LISTEN_PID"), "2147483647");
	cr_expect_str_eq(value("LISTEN_FDNAMES"), "a");
}

/* Those of the supervisor above us would tell the program lies. */
Test(keeper_environment, inherited_ones_are_gone)
{
	static const char *const base[] = {"NOTIFY_SOCKET=/outer",
					   "GPUWM_STORE_ANSWERS=0",
					   "A=1",
					   "LISTEN_FDS=7",
					   "LISTEN_PID=1",
					   "LISTEN_FDNAMES=x",
					   "LISTEN_PIDFDID=3",
					   "WATCHDOG_USEC=1",
					   "WATCHDOG_PID=1",
					   "FDSTORE=9",
					   "MAINPID=4",
					   "LISTEN_FDSX=kept",
					   NULL};

	make(base, 0);
	cr_expect_str_eq(value("NOTIFY_SOCKET"), "/run/x/notify");
	cr_expect_str_eq(value("FDSTORE"), "2048");
	cr_expect_str_eq(value("A"), "1");
	cr_expect_str_eq(value("LISTEN_FDSX"), "kept");
	cr_expect_eq(count(), 5);
}

Test(keeper_environment, a_store_for_none_is_not_told)
{
	store_clear(&store);
	cr_assert_eq(store_init(&store, 0), 0);
	make(plain, 0);
	cr_expect_null(value("FDSTORE"));
}

Test(keeper_environment, a_full_store_fits)
{
	char name[13];

	for (int i = 0; i < 2048; i++) {
		snprintf(name, sizeof(name), "s%011d", i);
		struct store_entry *entry = &store.entries[store.count++];

		entry->fd = -1;
		strcpy(entry->name, name);
		store.name_bytes += 13;
	}
	make(plain, 1);
	cr_expect_eq(strlen(value("LISTEN_FDNAMES")), 2048 * 13 - 1);
	cr_expect_str_eq(value("LISTEN_FDS"), "2048");
	cr_expect_str_eq(value("WATCHDOG_PID"), "2147483647");
}

Test(keeper_environment, a_store_that_was_taken_over_is_told_as_such)
{
	static const char *const base[] = {"GPUWM_STORE_ADOPT=2", NULL};

	cr_assert_eq(environment_make(&environment, (char *const *)base, "/x", &store, 1, true), 0);
	cr_expect_str_eq(value("GPUWM_STORE_ADOPT"), "1");
	environment_clear(&environment);
	make(base, 1);
	cr_expect_null(value("GPUWM_STORE_ADOPT"));
}

Test(keeper_environment, every_allocation_may_fail)
{
	unsigned n = 1;
	int r;

	for (; fail_alloc_arm(n),
	       r = environment_make(&environment, (char *const *)plain, "/x", &store, 0, false),
	       fail_alloc_disarm();
	     n++)
		cr_assert_eq(r, -ENOMEM);
	cr_expect_eq(r, 0);
	cr_expect_eq(n, 3);
}
