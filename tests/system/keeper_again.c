/* gpuwm-keeper is killed, and with it its gpuwmd, and another keeper is started at once. */
#include "kept.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(keeper_again);

static void serves_and_ends(struct gpuwmd *d)
{
	d->keeper_fds = fds_of(d->keeper);
	load_small(d, 1);
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

/* The process of tests/preload/slow-end.c that puts the end of this gpuwmd off. */
static pid_t slow_end_of(pid_t gpuwmd)
{
	pid_t pids[CHILDREN_MAX];
	size_t count = children_of(gpuwmd, pids, CHILDREN_MAX);

	for (size_t i = 0; i < count; i++) {
		if (process_is_named(pids[i], "slow-end"))
			return pids[i];
	}
	cr_assert_fail("gpuwmd has no child named slow-end");
	return 0;
}

Test(keeper_again, a_gpuwmd_that_takes_long_to_end_is_waited_for)
{
	char words[128];
	struct gpuwmd *d;
	pid_t slow, first;

	SKIP_UNLESS(!SANITIZED, "the sanitizer must be the first library");
	d = gpuwmd_start_kept(&(struct kept){.preload = "slow-end"});
	first = d->pid;
	slow = slow_end_of(first);
	keeper_restart(d, &(struct kept){});
	snprintf(words, sizeof words, "has not let go of %s", d->socket);
	cr_assert(EVENTUALLY(SOON_MS, log_count(d, words) == 1), "nothing is logged of the wait");
	cr_assert_eq(waitpid(d->keeper, NULL, WNOHANG), 0, "the keeper has ended");
	cr_assert(kill(slow, SIGKILL) == 0);
	kept_wait(d);
	serves_and_ends(d);
	cr_assert_eq(log_count(d, "before it was ready"), 0);
}

GPUWMD_TEST_BY(keeper_again, every_keeper_that_is_started_at_once_serves, gpuwmd_start_kept(&(struct kept){}),
	       serves_and_ends)
{
	for (int i = 0; i < 5; i++) {
		load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
		keeper_restart(d, &(struct kept){});
		kept_wait(d);
	}
}
