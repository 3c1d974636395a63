/* gpuwmctl start --foreground: gpuwmd ends with its terminal. */
#include "starter.h"

#include <poll.h>
#include <pty.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_MS 20000 /* a start takes 30 ms */

struct terminal {
	pid_t pid;
	int fd;
};

/* Runs `gpuwmctl start --foreground` on a terminal until gpuwmd serves. */
static struct terminal foreground_start(void)
{
	struct terminal t;
	char program[512];
	size_t used = 0;

	starter_make(true);
	snprintf(program, sizeof program, "%s/bin/gpuwmctl", build_path());
	t.pid = forkpty(&t.fd, NULL, NULL, NULL);
	if (t.pid == 0) {
		execl(program, program, "start", "--foreground", (char *)NULL);
		_exit(126);
	}
	output[0] = '\0';
	while (!strstr(output,
		       "the weights end with Ctrl-C, when this terminal is closed, or with gpuwmctl stop")) {
		struct pollfd ready = {.fd = t.fd, .events = POLLIN};
		ssize_t got;

		cr_assert(poll(&ready, 1, START_MS) == 1, "%s", output);
		got = read(t.fd, output + used, sizeof output - 1 - used);
		cr_assert(got > 0, "%s", output);
		output[used += (size_t)got] = '\0';
	}
	cr_assert(!nobody_listens());
	return t;
}

/* Whether it has ended, with this exit code, and gpuwmd with it. */
static void foreground_ended(struct terminal *t, int code)
{
	int status;

	cr_assert(EVENTUALLY(START_MS, waitpid(t->pid, &status, WNOHANG) == t->pid), "it goes on");
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == code, "%#x", status);
	cr_assert(nobody_listens());
}

Test(ctl_start, ctrl_c_ends_it)
{
	struct terminal t = foreground_start();
	ssize_t got;
	size_t used = 0;

	CTL_IS(4, "logs");
	SAYS("the log goes where gpuwmctl start --foreground (pid ");
	cr_assert_eq(write(t.fd, "\x03", 1), 1);
	while ((got = read(t.fd, output + used, sizeof output - 1 - used)) > 0)
		used += (size_t)got;
	output[used] = '\0';
	SAYS("Ctrl-C: gpuwmd ends, and lets its weights go");
	foreground_ended(&t, 0);
	close(t.fd);
}

Test(ctl_start, a_closed_terminal_ends_it)
{
	struct terminal t = foreground_start();

	close(t.fd);
	foreground_ended(&t, 0);
}

Test(ctl_start, a_killed_gpuwmctl_takes_gpuwmd_along)
{
	struct terminal t = foreground_start();

	cr_assert(kill(t.pid, SIGKILL) == 0 && waitpid(t.pid, NULL, 0) == t.pid);
	cr_assert(EVENTUALLY(START_MS, nobody_listens()), "gpuwmd goes on");
	close(t.fd);
}

Test(ctl_start, a_restart_takes_over_from_a_terminal)
{
	struct terminal t = foreground_start();
	int status;

	CTL_IS(0, "restart");
	cr_assert(EVENTUALLY(START_MS, waitpid(t.pid, &status, WNOHANG) == t.pid), "it goes on");
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%#x", status);
	cr_assert(!nobody_listens());
	CTL_IS(0, "stop");
	close(t.fd);
}
