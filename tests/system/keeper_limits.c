/* A keeper that can't keep what it is given says so, and gpuwmd promises nothing that the next start would not find. */
#include "kept.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(keeper_limits);

#define SLACK_MS SOON_MS
/* gpuwmd counts on more than the keeper keeps: the state, two sockets, two versions of two descriptors. */
#define SEVEN_OF_MANY (&(const struct kept){.store_max = "7", .fdstore = "100"})

static struct gpuwmd *scene(const struct kept *how)
{
	struct gpuwmd *d = gpuwmd_start_kept(how);

	load_small(d, 1);
	return d;
}

/* The load fails with this errno, these words and this remedy, and leaves nothing. */
static void load_is_refused(struct gpuwmd *d, int code, const char *words, const char *remedy)
{
	const char *path = checkpoint_write(d, "v9", SMALL(9));
	uint64_t memory = kept_memory(d);
	size_t kept = fds_of(d->keeper);

	cr_assert_eq(load_try(d, path, "m@v9"), -code, "%s", gpuwm_error()->message);
	cr_assert(strstr(gpuwm_error()->message, words), "%s", gpuwm_error()->message);
	cr_assert(strstr(gpuwm_error()->detail, remedy), "%s", gpuwm_error()->detail);
	cr_assert(version_is(d, "m", "v9", "failed"));
	cr_assert(EVENTUALLY(SLACK_MS, kept_memory(d) == memory));
	cr_assert(EVENTUALLY(SLACK_MS, fds_of(d->keeper) == kept));
}

GPUWMD_TEST_BY(keeper_limits, a_store_that_is_fuller_than_gpuwmd_knows_refuses_a_load, scene(SEVEN_OF_MANY),
	       gpuwmd_stop_empty)
{
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	for (int i = 0; i < 2; i++) {
		load_is_refused(d, EDQUOT, "its store is full", "--store-max");
		kept_kill(d, SIGKILL);
		cr_assert_eq(status_of(d, "adopted"), 2);
		cr_assert_eq(status_of(d, "lost"), 0);
	}
	worker_reads(d, "m@v1", 1);
	worker_reads(d, "m@v2", 2);
	DROP(d, "m@v1", "m@v2");
}

GPUWMD_TEST_BY(keeper_limits, a_store_that_is_fuller_than_gpuwmd_knows_refuses_a_commit, scene(SEVEN_OF_MANY),
	       gpuwmd_stop_empty)
{
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	FAILS(EDQUOT, publish_version(d->admin, d->device, "p@v1", SMALL(3)));
	cr_assert(strstr(gpuwm_error()->message, "its store is full"), "%s", gpuwm_error()->message);
	DROP(d, "m@v2");
	OK(publish_version(d->admin, d->device, "p@v2", SMALL(3)));
	kept_kill(d, SIGKILL);
	cr_assert_eq(status_of(d, "adopted"), 2);
	DROP(d, "m@v1", "p@v2");
}

static rlim_t keeper_may_open(const struct gpuwmd *d, rlim_t files)
{
	struct rlimit before, now;

	cr_assert(prlimit(d->keeper, RLIMIT_NOFILE, NULL, &before) == 0);
	now = before;
	now.rlim_cur = files;
	cr_assert(prlimit(d->keeper, RLIMIT_NOFILE, &now, NULL) == 0);
	return before.rlim_cur;
}

/* The keeper keeps the next load: gpuwmd, started anew, has both versions. Ends the scene. */
static void next_load_is_kept(struct gpuwmd *d)
{
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	kept_kill(d, SIGKILL);
	cr_assert_eq(status_of(d, "adopted"), 2);
	worker_reads(d, "m@v1", 1);
	worker_reads(d, "m@v2", 2);
	DROP(d, "m@v1", "m@v2");
	gpuwmd_stop_empty(d);
}

/* A keeper that may open so few files refuses a load with these words, and keeps the next load once it may open more. */
static void refuses_while_it_may_open(rlim_t files, const char *words)
{
	struct gpuwmd *d = scene(&(struct kept){});
	rlim_t before = keeper_may_open(d, files);

	load_is_refused(d, EMFILE, words, "RLIMIT_NOFILE");
	keeper_may_open(d, before);
	next_load_is_kept(d);
}

/* Stored descriptors get high numbers, of which none is left. A message's descriptors get low ones, and arrive. */
Test(keeper_limits, a_keeper_that_can_store_no_more_files_refuses)
{
	refuses_while_it_may_open(500, "may open no more files");
}

/* Neither the descriptors that gpuwmd sends arrive, nor that of the barrier. */
Test(keeper_limits, a_keeper_that_can_receive_no_files_refuses)
{
	refuses_while_it_may_open(0, "has no room for another descriptor");
}

/* Without the state all would be lost: gpuwmd does not begin. */
Test(keeper_limits, a_state_that_is_not_kept_ends_the_start)
{
	struct gpuwmd *d = gpuwmd_spawn_kept(&(struct kept){.store_max = "0", .fdstore = "100"});
	int status = 0;

	cr_assert(EVENTUALLY(20000, waitpid(d->keeper, &status, WNOHANG) == d->keeper));
	d->keeper = 0;
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1, "status %#x", status);
	cr_assert_eq(log_count(d, "gpuwm-keeper does not keep the descriptor gpuwm-state: its store is full"),
		     1);
	d->stopped = true;
}
