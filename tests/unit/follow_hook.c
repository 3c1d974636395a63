/* The command that gets the list of servers. */
#include "follow/hook.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

static struct hook hook;
static char folder[] = "/tmp/gpuwm-hook-XXXXXX", file[64];
static int signals;

static void begin(void)
{
	sigset_t child;

	cr_redirect_stderr();
	strcpy(folder, "/tmp/gpuwm-hook-XXXXXX");
	cr_assert(mkdtemp(folder));
	snprintf(file, sizeof(file), "%s/file", folder);
	setenv("FILE", file, true);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	signals = signalfd(-1, &child, SFD_CLOEXEC);
	hook = (struct hook){.timeout_ms = 30000, .retry_ms = 500};
}

static void end(void)
{
	hook_end(&hook);
	unlink(file);
	rmdir(folder);
	close(signals);
}

TestSuite(hook, .init = begin, .fini = end, .timeout = 60);

static void want(const char *list, uint64_t now_ms)
{
	hook_want(&hook, strdup(list));
	hook_go_on(&hook, now_ms);
}

/* The run ends. */
static void ends(uint64_t now_ms)
{
	struct signalfd_siginfo info;

	cr_assert(hook.pid);
	while (hook.pid) {
		cr_assert_eq(read(signals, &info, sizeof(info)), (ssize_t)sizeof(info));
		hook_reap(&hook, now_ms);
	}
	hook_go_on(&hook, now_ms);
}

static const char *content(void)
{
	static char text[256];
	FILE *opened = fopen(file, "re");
	size_t got = opened ? fread(text, 1, sizeof(text) - 1, opened) : 0;

	text[got] = '\0';
	if (opened)
		fclose(opened);
	return text;
}

Test(hook, gets_the_list_on_its_standard_input)
{
	hook.command = "cat >$FILE";
	want("one", 1000);
	ends(1001);
	cr_expect_str_eq(content(), "one");
	cr_expect_eq(hook.pid, 0);
	cr_expect_eq(hook_due_ms(&hook), UINT64_MAX);
	want("one", 1002);
	cr_expect_eq(hook.pid, 0, "it has that list");
	want("two", 1003);
	ends(1004);
	cr_expect_str_eq(content(), "two");
}

Test(hook, without_a_command_nothing_runs)
{
	want("one", 1000);
	cr_expect_eq(hook.pid, 0);
	cr_expect_eq(hook_due_ms(&hook), UINT64_MAX);
}

Test(hook, one_runs_at_a_time_and_the_last_list_is_next)
{
	hook.command = "cat >>$FILE; while [ ! -e $FILE.go ]; do sleep 0.01; done; rm $FILE.go";
	want("one,", 1000);
	want("two,", 1001);
	want("three", 1002);
	cr_assert_neq(hook.pid, 0);
	cr_assert_eq(system("touch $FILE.go"), 0);
	ends(1003);
	cr_assert_neq(hook.pid, 0, "the list has changed meanwhile");
	cr_assert_eq(system("touch $FILE.go"), 0);
	ends(1004);
	cr_expect_eq(hook.pid, 0);
	cr_expect_str_eq(content(), "one,three");
}

Test(hook, one_that_fails_is_run_again_after_a_pause)
{
	hook.command = "echo x >>$FILE; exit 3";
	want("one", 1000);
	ends(1010);
	cr_expect(strstr(hook.trouble.text, "ended with status 3"), "%s", hook.trouble.text);
	cr_expect_eq(hook.pid, 0);
	cr_expect_eq(hook_due_ms(&hook), 1510);
	want("two", 1100);
	hook_go_on(&hook, 1509);
	cr_expect_eq(hook.pid, 0, "a change does not shorten the pause");
	hook_go_on(&hook, 1510);
	cr_expect_neq(hook.pid, 0);
	hook.command = "true";
	ends(1520);
	hook_go_on(&hook, 2020);
	ends(2030);
	cr_expect_str_eq(content(), "x\nx\n");
	cr_expect_str_eq(hook.trouble.text, "");
}

Test(hook, one_that_takes_too_long_is_killed_with_its_children)
{
	struct pollfd held = {.events = POLLIN};
	int pipes[2]; /* what the hook starts inherits it */

	cr_assert_eq(pipe(pipes), 0);
	cr_assert_eq(mkfifo(file, 0600), 0);
	held.fd = pipes[0];
	hook.command = "sleep 1000 & echo >$FILE; sleep 1000";
	want("one", 1000);
	close(pipes[1]);
	cr_assert_str_eq(content(), "\n", "its child has begun");
	cr_expect_eq(hook_due_ms(&hook), 31000);
	hook_go_on(&hook, 30999);
	cr_expect_not(hook.killed);
	hook_go_on(&hook, 31000);
	cr_expect(hook.killed);
	ends(31001);
	cr_expect(strstr(hook.trouble.text, "killed after 30000 ms"), "%s", hook.trouble.text);
	cr_expect_eq(hook_due_ms(&hook), 31501);
	cr_expect_eq(poll(&held, 1, 10000), 1, "a child lives on");
	close(pipes[0]);
}

Test(hook, one_that_a_signal_ends_has_failed)
{
	hook.command = "kill -TERM $$";
	want("one", 1000);
	ends(1001);
	cr_expect(strstr(hook.trouble.text, "signal 15"), "%s", hook.trouble.text);
}

Test(hook, the_end_takes_a_run_along)
{
	pid_t pid;

	hook.command = "sleep 1000";
	want("one", 1000);
	pid = hook.pid;
	hook_end(&hook);
	cr_expect_eq(kill(pid, 0), -1);
}
