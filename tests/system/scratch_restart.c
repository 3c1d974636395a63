/* Scratch memory, and gpuwmd that dies and goes on. */
#include "kept.h"
#include "scratch_user.h"

#include <stdio.h>
#include <unistd.h>

SYSTEM_SUITE(scratch_restart);

static struct gpuwmd *start(void)
{
	return gpuwmd_start_kept(KEPT_LONG);
}

#define RESTART_TEST(name) GPUWMD_TEST_BY(scratch_restart, name, start(), stop_empty)

static void stop_empty(struct gpuwmd *d)
{
	scratch_remove(d, "s");
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	gpuwmd_stop_empty(d);
}

static void await(struct gpuwmd *d, struct process *p, unsigned waiting)
{
	process_tell(p, 'a');
	cr_assert(EVENTUALLY(SOON_MS, region_number(d, "s", "waiting") == waiting));
}

static void stays_with_its_holder(struct gpuwmd *d, int signal_number)
{
	struct process one = scratch_user_start(d, "s", ""), two = scratch_user_start(d, "s", ""),
		       three = scratch_user_start(d, "s", "");

	scratch_user_does(&one, 'a');
	await(d, &two, 1);
	await(d, &three, 2);
	kept_kill(d, signal_number);
	cr_assert_eq(region_number(d, "s", "holder"), 0);
	cr_assert(EVENTUALLY(SOON_MS, region_number(d, "s", "waiting") == 2), "those who wait ask again");
	scratch_user_does(&one, 'r');
	/* Whichever of the two has asked again first. */
	if (region_number(d, "s", "holder") == 1) {
		process_expect(&two, 'a');
		scratch_user_does(&two, 'r');
		process_expect(&three, 'a');
	} else {
		process_expect(&three, 'a');
		scratch_user_does(&three, 'r');
		process_expect(&two, 'a');
	}
	scratch_user_ends(&one);
	scratch_user_ends(&two);
	scratch_user_ends(&three);
}

RESTART_TEST(after_a_kill_it_stays_with_its_holder)
{
	stays_with_its_holder(d, SIGKILL);
}

RESTART_TEST(after_a_stop_it_stays_with_its_holder)
{
	stays_with_its_holder(d, SIGTERM);
}

RESTART_TEST(a_holder_that_dies_while_gpuwmd_is_away_holds_it_no_more)
{
	struct process one = scratch_user_start(d, "s", "clear"), two = scratch_user_start(d, "s", "clear");

	scratch_user_does(&one, 'a');
	await(d, &two, 1);
	cr_assert_eq(kill(d->pid, SIGSTOP), 0);
	process_kill(&one, SIGKILL);
	kept_kill(d, SIGKILL);
	process_expect(&two, 'a');
	scratch_user_ends(&two);
	cr_assert(!scratch_is_held(d, "s"));
}

/* One that gave it back does not hold it, whatever happened to gpuwmd after its answer. */
RESTART_TEST(what_was_given_back_is_free)
{
	struct process one = scratch_user_start(d, "s", "");

	scratch_user_does(&one, 'a');
	scratch_user_does(&one, 'r');
	kept_kill(d, SIGKILL);
	cr_assert(!scratch_is_held(d, "s"));
	scratch_user_does(&one, 'a');
	scratch_user_ends(&one);
}

/* Who dies with gpuwmd leaves its bytes. */
RESTART_TEST(it_is_cleared_after_a_holder_that_was_killed)
{
	struct process one = scratch_user_start(d, "s", "clear"), two = scratch_user_start(d, "s", "clear");

	scratch_user_does(&one, 'a');
	if (backend() != BACKEND_CUDA)
		scratch_user_does(&one, 'w');
	cr_assert_eq(kill(d->pid, SIGSTOP), 0);
	process_kill(&one, SIGKILL);
	kept_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, !scratch_is_held(d, "s")));
	kept_kill(d, SIGKILL);
	scratch_user_does(&two, 'a');
	if (backend() != BACKEND_CUDA) {
		process_tell(&two, 'l');
		process_expect(&two, '0');
	}
	scratch_user_ends(&two);
}

/* The answer may have been lost with gpuwmd: the holder is told again what it was told. */
RESTART_TEST(the_holder_is_told_the_same_by_the_next_gpuwmd)
{
	struct process maker = scratch_user_start(d, "s", "clear");
	struct raw_region opened;
	int sock = raw_client(d->socket);

	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "s"), FLAG("write", true)), 0, "%s",
		     raw_refusal());
	scratch_user_does(&maker, 'a');
	scratch_user_does(&maker, 'r');
	cr_assert_eq(scratch_raw_acquire(sock, &opened, 0), SCRATCH_TO_CLEAR);
	for (unsigned i = 0; i < 2; i++) {
		kept_kill(d, SIGKILL);
		close(sock);
		sock = raw_client(d->socket);
		cr_assert_eq(scratch_raw_acquire(sock, &opened, 0), SCRATCH_TO_CLEAR);
	}
	cr_assert_eq(RAW_ASK(sock, "scratch_release", ID("use", opened.use)), 0);
	kept_kill(d, SIGKILL);
	close(sock);
	sock = raw_client(d->socket);
	cr_assert_eq(scratch_raw_acquire(sock, &opened, 0), SCRATCH_AS_IT_IS, "it was the last holder");
	cr_assert_eq(region_close(sock, &opened), 0);
	close(sock);
	scratch_user_ends(&maker);
}

/* A hand-over takes some 0.2 ms, so gpuwmd dies in one. */
RESTART_TEST(it_is_never_held_by_two_although_gpuwmd_is_killed)
{
	const unsigned kills = kills_wanted(8);
	struct process users[3];

	for (unsigned i = 0; i < 3; i++)
		users[i] = scratch_user_start(d, "s", "clear");
	for (unsigned i = 0; i < 3; i++)
		process_tell(&users[i], 'n');
	for (unsigned i = 0; i < kills; i++) {
		usleep(1000 * (10 + i * 7 % 40));
		kept_kill(d, SIGKILL);
	}
	for (unsigned i = 0; i < 3; i++)
		process_expect(&users[i], 'n');
	for (unsigned i = 0; i < 3; i++)
		scratch_user_ends(&users[i]);
	cr_assert(!scratch_is_held(d, "s"));
}
