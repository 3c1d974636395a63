/* gpuwmctl start, restart and stop where gpuwmd's files were replaced or removed, and where gpuwmd does not answer. */
#include "starter.h"

#include <stdio.h>

/* Programs in a folder of their own, as those of an environment of Python. */
static void environment_make(char ret_bin[160])
{
	snprintf(ret_bin, 160, "%s/env/bin", starter_place.dir);
	starter_shell(
		"mkdir -p %1$s; ln -s %2$s/lib %1$s/../lib; cp %2$s/bin/gpuwmctl %2$s/bin/gpuwm-keeper %2$s/bin/gpuwmd "
		"%2$s/bin/gpuwm-loader %1$s",
		ret_bin, build_path());
}

Test(ctl_start, other_releases_and_lost_files_are_told)
{
	char bin[160];

	starter_make(true);
	environment_make(bin);
	starter_shell("%s/gpuwmctl start >%s/out", bin, starter_place.dir);
	CTL_IS(0, "version");
	starter_says(", %s/gpuwmd (pid ", bin);
	cr_assert(!strstr(output, "restart"), "%s", output);
	/* An upgrade. */
	starter_shell("cp %s/tests/next/gpuwmd %s/new", build_path(), bin);
	starter_shell("mv %s/new %s/gpuwmd", bin, bin);
	CTL_IS(0, "version");
	starter_says(
		") runs from a file that was replaced or removed: %s/gpuwmd; gpuwmctl restart takes over without losing "
		"weights\n",
		bin);
	CTL_IS(0, "status");
	SAYS("; gpuwmctl version says what to do\n");
	starter_shell("%s/gpuwmctl restart >%s/out", bin, starter_place.dir);
	CTL_IS(0, "version");
	SAYS("\ngpuwmd is ");
	starter_says("-next (pid %s", "");
	starter_says(", %s/gpuwmd), gpuwmctl is ", bin);
	starter_says(" (%s/bin/gpuwmctl); gpuwmctl restart takes over without losing weights\n", build_path());
	CTL_IS(0, "start");
	SAYS("gpuwmctl version says what to do\n");
	/* This gpuwmd can't read the newer state: the other one goes on. */
	CTL_IS(1, "restart");
	SAYS("the state is of format 2, this gpuwmd reads up to 1");
	SAYS("gpuwmd has not started: ");
	starter_shell("rm -r %s %s/out", bin, starter_place.dir);
	CTL_IS(0, "version");
	SAYS("-next (pid ");
	SAYS("runs from a file that was replaced or removed: ");
}

/* Starts a gpuwmd with m@v1 from an environment, and removes that. Returns its pid. */
static pid_t uninstalled(void)
{
	char bin[160];

	starter_make(true);
	environment_make(bin);
	starter_shell("%s/gpuwmctl start --root %s >/dev/null", bin, starter_place.root);
	CTL_IS(0, "load", "--wait", checkpoint_write(&starter_place, "one", SMALL(1)), "m@v1");
	starter_shell("rm -r %s/env", starter_place.dir, "");
	return starter_pid();
}

Test(ctl_start, a_gpuwmd_whose_files_were_removed_goes_on)
{
	const pid_t gpuwmd = uninstalled();
	pid_t loaders[CHILDREN_MAX];
	const char *file = checkpoint_write(&starter_place, "two", SMALL(2));

	worker_reads(&starter_place, "m@v1", 1);
	/* The loader that stands by may do one more job. */
	for (size_t count = children_of(gpuwmd, loaders, CHILDREN_MAX); count > 0; count--)
		kill(loaders[count - 1], SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, children_of(gpuwmd, loaders, CHILDREN_MAX) == 0));
	CTL_IS(1, "load", "--wait", file, "m@v2");
	starter_says("%s/env/bin/gpuwm-loader could not be started: No such file or directory\n",
		     starter_place.dir);
	SAYS("gpuwmd's own file was removed, too: gpuwmctl version says how ");
	CTL_IS(0, "version");
	SAYS("; gpuwmctl restart takes over without losing weights\n");
	CTL_IS(0, "restart");
	SAYS("it has taken 1 versions over, without loading a byte\n");
	worker_reads(&starter_place, "m@v1", 1);
	CTL_IS(0, "load", "--wait", file, "m@v2");
	worker_reads(&starter_place, "m@v2", 2);
}

static void keeper_holds(pid_t gpuwmd)
{
	cr_assert_eq(kill(gpuwmd, SIGKILL), 0);
	cr_assert(EVENTUALLY(SOON_MS, !process_is_named(gpuwmd, "gpuwmd")));
}

Test(ctl_start, gpuwm_keeper_holds_the_weights_of_a_gpuwmd_that_was_removed_and_killed)
{
	keeper_holds(uninstalled());
	CTL_IS(3, "start");
	SAYS(" keeps the weights, and can't start gpuwmd: there is no ");
	starter_says("%s/env/bin/gpuwmd any more\n  gpuwmctl restart takes over without losing weights",
		     starter_place.dir);
	CTL_IS(7, "wait", "m@v1", "--for", "ready", "--timeout", "2s");
	starter_says("there is no %s/env/bin/gpuwmd any more\n", starter_place.dir);
	CTL_IS(0, "logs");
	starter_says("gpuwm-keeper: error: %s/env/bin/gpuwmd can't be run: No such file", starter_place.dir);
	CTL_IS(0, "restart");
	SAYS("it has taken 1 versions over, without loading a byte\n");
	worker_reads(&starter_place, "m@v1", 1);
}

Test(ctl_start, a_gpuwmd_that_was_removed_and_killed_is_ended)
{
	keeper_holds(uninstalled());
	CTL_IS(0, "stop");
	SAYS("all weights are let go\n");
	cr_assert(nobody_listens());
}

Test(ctl_start, a_gpuwmd_that_can_t_be_asked_is_ended)
{
	char bin[160];

	starter_make(true);
	environment_make(bin);
	starter_shell("cp %s/tests/later/gpuwmd %s/gpuwmd", build_path(), bin);
	starter_shell("! %s/gpuwmctl start 2>%s/out", bin, starter_place.dir);
	CTL_IS(3, "start");
	SAYS("gpuwm-keeper (pid ");
	SAYS("its gpuwmd gives no answer: the client speaks protocol 1 to 1, gpuwmd ");
	CTL_IS(0, "logs");
	SAYS("gpuwm-keeper: info: gpuwmd is started (process ");
	CTL_IS(0, "stop");
	SAYS("all weights are let go\n");
	cr_assert(nobody_listens());
}

/* OWN_ANSWER_MS, for which gpuwmctl waits, and 3 s for a machine that is busy. By default a connection may take 30 s. */
#define TOLD_MS 8000

Test(ctl_start, a_gpuwmd_that_hangs_is_told)
{
	int64_t began;
	pid_t gpuwmd;

	starter_make(true);
	CTL_IS(0, "start");
	gpuwmd = starter_pid();
	cr_assert_eq(kill(gpuwmd, SIGSTOP), 0);
	began = clock_ms();
	CTL_IS(3, "start");
	cr_expect_leq(clock_ms() - began, TOLD_MS);
	SAYS("its gpuwmd gives no answer: ");
	began = clock_ms();
	CTL_IS(0, "logs");
	cr_expect_leq(clock_ms() - began, TOLD_MS);
	SAYS("gpuwm-keeper: info: gpuwmd is ready\n");
	cr_assert_eq(kill(gpuwmd, SIGCONT), 0);
	CTL_IS(0, "start");
	SAYS("runs already, since 20");
	CTL_IS(0, "stop");
}
