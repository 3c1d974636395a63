/* gpuwmctl: its exit codes, and words and options that it refuses before it asks anybody. */
#include "harness.h"

#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

Test(ctl, exit_codes_of_usage_and_of_a_daemon_that_is_not_there)
{
	CTL_IS(2, "ping", "--nonsense");
	CTL_IS(2, "nonsense");
	CTL_IS(2, "swap");
	CTL_IS(3, "--socket", "/nonexistent/gpuwm.sock", "ping");
	cr_assert(strlen(output) > 0);
}

static void is_wrong_use(const char *what, const char *looks)
{
	cr_assert(strstr(output, what), "no \"%s\" in: %s", what, output);
	cr_assert(strstr(output, looks), "no \"%s\" in: %s", looks, output);
}

/* Before anybody is asked: there is no gpuwmd. */
Test(ctl, words_that_are_no_names_are_wrong_use)
{
	static const char ref[] = "MODEL@TAG, MODEL@ALIAS or a version id", name[] = "1 to 128 letters";

	CTL_IS(2, "show", "m@");
	is_wrong_use("'m@' has nothing after its '@'", ref);
	CTL_IS(2, "verify", "@v1");
	is_wrong_use("'@v1' has no model before its '@'", ref);
	CTL_IS(2, "retire", "");
	is_wrong_use("'' is empty", ref);
	CTL_IS(2, "load", "/models", "m@v 1");
	is_wrong_use("'m@v 1' has a character", "write MODEL@TAG");
	CTL_IS(2, "load", "/models", "m");
	is_wrong_use("'m' has no tag", "write MODEL@TAG");
	CTL_IS(2, "load", "/models", "m@v1", "--alias", "../prod");
	is_wrong_use("'../prod' has a leading '.'", name);
	CTL_IS(2, "pin", "m@v1", "a pin");
	is_wrong_use("'a pin' has a character", name);
	CTL_IS(2, "swap", "m@prod", "v..1");
	is_wrong_use("'v..1' has \"..\" in it", name);
	CTL_IS(2, "swap", "0123456789abcdef0123456789abcdef", "v1");
	is_wrong_use("is a version id", "write MODEL or MODEL@ALIAS");
	CTL_IS(2, "rollback", ".m");
	CTL_IS(2, "ls", "m@v1");
	is_wrong_use("'m@v1' has a tag or an alias", "write MODEL alone");
	CTL_IS(2, "ls", "a model");
	CTL_IS(2, "swap", "m", "v1", "--expect", "v0");
	is_wrong_use("--expect takes a version id", "gpuwmctl show");
	CTL_IS(2, "load", "/models", "m@v1", "--key", "=bf16");
	/* What could be a name gets as far as the socket. */
	CTL_IS(3, "--socket", "/nonexistent/gpuwm.sock", "swap", "m", "0123456789abcdef0123456789abcdef");
	CTL_IS(3, "--socket", "/nonexistent/gpuwm.sock", "show", "meta/llama@v1.2");
}

/* Of two values one would be lost; an empty one comes of an empty variable. */
Test(ctl, options_are_there_once_and_not_empty)
{
	CTL_IS(2, "load", "/models", "m@v1", "--alias", "a", "--alias", "b");
	is_wrong_use("--alias was given twice", "");
	CTL_IS(2, "swap", "m", "v1", "--load", "/a", "--load", "/b");
	CTL_IS(2, "show", "m", "--rank", "0", "--rank", "1");
	CTL_IS(2, "retire", "m@v1", "--wait", "--wait", "5");
	CTL_IS(2, "show", "m", "--device", "host", "--device", "cuda:0");
	is_wrong_use("--device was given twice", "the replica on this device");
	CTL_IS(2, "show", "m", "--device", "");
	is_wrong_use("--device is empty", "gpuwmctl status");
	CTL_IS(2, "--socket", "", "ping");
	/* Those that may be repeated get as far as the socket. */
	CTL_IS(3, "--socket", "/nonexistent/gpuwm.sock", "load", "/m", "m@v1", "--device", "a", "--device", "b",
	       "--key", "a=1", "--key", "b=2");
}

/* Also where the last write of several had nothing left to fail with. */
GPUWMD_TEST_BY(ctl, what_a_full_disk_does_not_take_fails, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	char command[700];
	int status;

	snprintf(command, sizeof(command), "%s/bin/gpuwmctl events --after 0 --count 3 2>&1 >/dev/full",
		 build_path());
	status = system(command);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1, "status %#x", status);
	snprintf(command, sizeof(command), "%s/bin/gpuwmctl ls >/dev/full 2>&1", build_path());
	status = system(command);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1, "status %#x", status);
}

GPUWMD_TEST_BY(ctl, exit_codes_of_refusals, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	struct process worker = worker_start(d, "m@v2", 2);

	CTL_IS(6, "load", "relative/path", "x@v1", "--device", d->device, "--wait");
	CTL_IS(4, "show", "nobody@v1");
	CTL_IS(5, "retire", "m@v1");
	CTL_IS(6, "load", "/etc/passwd", "x@v1", "--device", d->device, "--wait");
	CTL_IS(7, "retire", "m@v2", "--wait", "1");
	CTL_IS(9, "load", safetensors_write(d, "bad", "{", 0), "x@v1", "--device", d->device, "--wait");
	CTL_IS(1, "load", file_write(d, "gguf", "GGUF\3\0\0\0\0\0\0\0", 12), "x@v1", "--device", d->device,
	       "--wait");
	process_tell(&worker, 'd');
	process_finish(&worker);
}

GPUWMD_TEST_BY(ctl, exit_code_of_no_room_names_the_budget,
	       gpuwmd_start("--set", "budget.host=4M", "--set", "budget.*=4M", NULL), gpuwmd_stop_empty)
{
	const char *path = checkpoint_write(d, "v1", LARGE(1));

	CTL_IS(8, "load", path, "m@v1", "--device", d->device, "--wait");
	SAYS("4");
}

/* Root's child as nobody: the exit code of gpuwmctl jobs. */
static int stranger_asks(int argc, char **argv)
{
	(void)argc, (void)argv;
	CHILD_ASSERT(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
	return CTL("jobs");
}

GPUWMD_TEST_BY(ctl, permission_is_said_to_those_who_may_not, gpuwmd_start(NULL), gpuwmd_stop)
{
	struct process stranger;
	int status;

	NEEDS_ROOT();
	stranger = process_start(stranger_asks, NULL);
	status = process_join(&stranger);
	SKIP_UNLESS(WEXITSTATUS(status) < 126, "the programs lie where only root can reach them");
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 6, "%#x", status);
}
