/* gpuwmctl: completion, as bash, zsh and fish do it with the files that `make install` installs. */
#include "harness.h"

#include "tests/support/any/threads.h"

#include <libgen.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

SYSTEM_SUITE(ctl_completion);

#define COMMAND_BYTES 2048

/* m@v1, which is current, m@v2, and the alias prod. */
static struct gpuwmd *start_with_prod(void)
{
	struct gpuwmd *d = with_two_versions(gpuwmd_start(NULL));

	CTL_IS(0, "alias", "m@v2", "prod");
	return d;
}

/* Runs a shell on these lines, with the completion's folder in $FILES and gpuwmctl in PATH. Its output is in `output`. */
static void shell(const char *program, const char *format, ...)
{
	char file[] = __FILE__, lines[COMMAND_BYTES], command[2 * COMMAND_BYTES];
	size_t length;
	va_list list;
	FILE *from;
	int status;

	va_start(list, format);
	vsnprintf(lines, sizeof(lines), format, list);
	va_end(list);
	snprintf(
		command, sizeof(command),
		"FILES=%s/../../client/ctl/completion PATH=%s/bin:$PATH exec %s 2>&1 <<'END_OF_LINES'\n%s\nEND_OF_LINES\n",
		dirname(file), build_path(), program, lines);
	from = popen(command, "r");
	cr_assert_not_null(from);
	length = fread(output, 1, sizeof(output) - 1, from);
	output[length] = '\0';
	status = pclose(from);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: %#x: %s", program, status, output);
}

static bool has_shell(const char *program)
{
	char command[100];

	snprintf(command, sizeof(command), "command -v %s >/dev/null", program);
	return system(command) == 0;
}

#define IS(text) cr_expect_str_eq(output, text, "expected:\n%sfound:\n%s", text, output)

/* ---- gpuwmctl complete: what all shells ask ------------------------------ */

GPUWMD_TEST_BY(ctl_completion, offers_names_where_they_may_stand, start_with_prod(), gpuwmd_stop)
{
	CTL_IS(0, "complete", "--", "show", "m@");
	cr_assert(strstr(output, "m@v1\tready, ") && strstr(output, "m@prod\tnames v2\n"), "%s", output);
	CTL_IS(0, "complete", "--", "swap", "m", "v");
	cr_assert(strncmp(output, "v1\tready, ", 10) == 0 && strstr(output, "\nv2\tready, "), "%s", output);
	CTL_IS(0, "complete", "--", "rollback", "m", "");
	IS("current\tnames v1\nprod\tnames v2\n");
	CTL_IS(0, "complete", "--", "ls", "");
	IS("m\tmodel\n");
	CTL_IS(0, "complete", "--", "load", "--wait", "/models/x", "");
	IS("m@\tmodel\n");
	CTL_IS(0, "pin", "m@v1", "night");
	CTL_IS(0, "complete", "--", "unpin", "m@v1", "");
	IS("night\tpin\n");
	CTL_IS(0, "complete", "--", "pin", "m@v1", "");
	IS("");
	CTL_IS(0, "complete", "--", "verify", "m@v1", "--device", "hos");
	IS("host\thost memory\n");
	CTL_IS(0, "complete", "--", "verify", "m@v1", "--device=hos");
	IS("--device=host\thost memory\n");
	CTL_IS(0, "complete", "--", "cancel", "");
	cr_assert(strstr(output, "1\tload m@v1: done\n"), "%s", output);
}

/* gpuwmd has as long to answer as a completion may take, not a millisecond. */
GPUWMD_TEST_BY(ctl_completion, waits_for_a_gpuwmd_that_is_slow, start_with_prod(), gpuwmd_stop)
{
	struct ctl_run run;

	cr_assert_eq(kill(d->pid, SIGSTOP), 0);
	run = ctl_start("complete", "--", "ls", "", NULL);
	cr_expect(EVENTUALLY(SOON_MS, thread_sleeps_in(run.pid, NULL, CALL_POLL)));
	cr_assert_eq(kill(d->pid, SIGCONT), 0);
	ctl_ends(&run, 0);
	IS("m\tmodel\n");
}

GPUWMD_TEST_BY(ctl_completion, offers_who_holds_what, start_with_prod(), gpuwmd_stop)
{
	struct process worker = worker_start(d, "m@v1", 1);
	char pid[24];

	CTL_IS(0, "complete", "--", "kick", "");
	SAYS(": m@v1\n");
	snprintf(pid, sizeof(pid), "%d\t", (int)worker.pid);
	CTL_IS(0, "complete", "--", "kick", "--pid", "");
	SAYS(pid);
	CTL_IS(0, "complete", "--", "swap", "m", "v2", "--expect", "");
	SAYS("\tit names this now\n");
	process_tell(&worker, 'd');
	process_finish(&worker);
}

Test(ctl_completion, offers_commands_and_options_without_a_gpuwmd)
{
	const char *none = "--socket=/nonexistent/gpuwm.sock";

	CTL_IS(0, "complete", "--", "sw");
	IS("swap\tmove an alias (default: current) to another version\n");
	CTL_IS(0, "complete", "--", "help", "sw");
	IS("swap\tmove an alias (default: current) to another version\n");
	CTL_IS(0, "complete", "--", "retire", "m", "--fo");
	IS("--force\trevoke its leases\n");
	CTL_IS(0, "complete", "--", "retire", "m", "--force", "--fo");
	IS("");
	CTL_IS(0, "complete", "--", "wait", "m", "--for", "");
	IS("ready\nfreed\n");
	CTL_IS(0, "complete", "--", "load", "");
	IS(":files\n");
	CTL_IS(0, "complete", "--", "explain", "EOWN");
	IS("EOWNERDEAD\tthe region ended with the process that owned it\n");
	CTL_IS(0, "complete", "--", none, "show", "");
	IS("");
	CTL_IS(0, "complete", "--", "nonsense", "");
	IS("");
	CTL_IS(0, "complete", "--", "show", "m", "more", "");
	IS("");
	CTL_IS(0, "complete", "--");
	IS("");
}

/* Somebody waits at a prompt. */
GPUWMD_TEST_BY(ctl_completion, gives_up_if_gpuwmd_does_not_answer, start_with_prod(), gpuwmd_stop)
{
	cr_assert_eq(kill(d->pid, SIGSTOP), 0);
	CTL_IS(0, "complete", "--", "ls", "");
	IS("");
	cr_assert_eq(kill(d->pid, SIGCONT), 0);
}

/* ---- shells ------------------------------------------------------------- */

/* What bash is asked for at the end of the line. */
static void bash(const char *line)
{
	shell("bash --norc --noprofile",
	      ". $FILES/gpuwmctl.bash\nCOMP_LINE='%s'\nCOMP_POINT=${#COMP_LINE}\n_gpuwmctl\n"
	      "[ ${#COMPREPLY[@]} -eq 0 ] || printf '%%s\\n' \"${COMPREPLY[@]}\"",
	      line);
}

GPUWMD_TEST_BY(ctl_completion, bash_completes, start_with_prod(), gpuwmd_stop)
{
	bash("gpuwmctl sw");
	IS("swap\n");
	bash("gpuwmctl swap ");
	IS("m\nm@current\nm@prod\n");
	bash("gpuwmctl swap m@p");
	IS("prod\n");
	bash("gpuwmctl swap m v");
	IS("v1\nv2\n");
	bash("gpuwmctl -o json verify m --device=hos");
	IS("host\n");
	bash("gpuwmctl show nothing@");
	IS("");
	bash("gpuwmctl load /etc/host");
	SAYS("/etc/hosts\n");
}

GPUWMD_TEST_BY(ctl_completion, zsh_completes, start_with_prod(), gpuwmd_stop)
{
	static const char asks[] = "compdef() { }\n_files() { echo files }\n"
				   "_describe() { printf '%%s\\n' \"${(@P)4}\" }\n"
				   ". $FILES/_gpuwmctl\nwords=(gpuwmctl %s)\nCURRENT=$#words\n_gpuwmctl; true";

	SKIP_UNLESS(has_shell("zsh"), "there is no zsh (scripts/deps operators)");
	shell("zsh -f", asks, "ls m");
	IS("m:model\n");
	shell("zsh -f", asks, "rollback m ''");
	IS("current:names v1\nprod:names v2\n");
	shell("zsh -f", asks, "load /etc/host");
	IS("files\n");
	shell("zsh -f", asks, "ls nothing");
	IS("");
}

GPUWMD_TEST_BY(ctl_completion, fish_completes, start_with_prod(), gpuwmd_stop)
{
	static const char asks[] = "source $FILES/gpuwmctl.fish\ncomplete -C '%s'";

	SKIP_UNLESS(has_shell("fish"), "there is no fish (scripts/deps operators)");
	shell("fish --no-config", asks, "gpuwmctl ls ");
	IS("m\tmodel\n");
	shell("fish --no-config", asks, "gpuwmctl rollback m ");
	IS("current\tnames v1\nprod\tnames v2\n");
	shell("fish --no-config", asks, "gpuwmctl load /etc/hosts");
	SAYS("/etc/hosts");
	shell("fish --no-config", asks, "gpuwmctl ls nothing");
	IS("");
}
