/* Scratch memory: one holder at a time, in the order of asking, whoever dies. */
#include "scratch_user.h"

#include <gpuwm/scratch.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

SYSTEM_SUITE(scratch);

/* ---- one holder --------------------------------------------------------- */

GPUWMD_TEST(scratch, passes_from_one_process_to_the_next)
{
	struct process one = scratch_user_start(d, "s", ""), two = scratch_user_start(d, "s", "");

	scratch_user_does(&one, 'a');
	cr_assert_eq(region_number(d, "s", "holder"), 0);
	process_tell(&two, 'a');
	cr_assert(EVENTUALLY(SOON_MS, region_number(d, "s", "waiting") == 1));
	scratch_user_does(&one, 'r');
	process_expect(&two, 'a');
	cr_assert_eq(region_number(d, "s", "holder"), 1);
	cr_assert_eq(region_number(d, "s", "bytes_used"), region_number(d, "s", "bytes"));
	scratch_user_does(&two, 'r');
	cr_assert(!scratch_is_held(d, "s"));
	scratch_user_ends(&one);
	scratch_user_ends(&two);
	scratch_remove(d, "s");
}

/* A file that the holder has open alone says whether another one holds the memory too. */
GPUWMD_TEST(scratch, is_never_held_by_two_in_a_thousand_hand_overs)
{
	struct process one = scratch_user_start(d, "s", ""), two = scratch_user_start(d, "s", "");

	process_tell(&one, 'n');
	process_tell(&two, 'n');
	process_expect(&one, 'n');
	process_expect(&two, 'n');
	scratch_user_ends(&one);
	scratch_user_ends(&two);
	scratch_remove(d, "s");
}

GPUWMD_TEST(scratch, goes_to_five_in_the_order_of_asking)
{
	struct process holder = scratch_user_start(d, "s", ""), askers[5];

	scratch_user_does(&holder, 'a');
	for (unsigned i = 0; i < 5; i++) {
		askers[i] = scratch_user_start(d, "s", "");
		process_tell(&askers[i], 'a');
		cr_assert(EVENTUALLY(SOON_MS, region_number(d, "s", "waiting") == i + 1));
	}
	scratch_user_does(&holder, 'r');
	for (unsigned i = 0; i < 5; i++) {
		process_expect(&askers[i], 'a');
		cr_assert_eq(region_number(d, "s", "waiting"), 4 - i);
		cr_assert_eq(region_number(d, "s", "holder"), i + 1);
		scratch_user_does(&askers[i], 'r');
	}
	for (unsigned i = 0; i < 5; i++)
		scratch_user_ends(&askers[i]);
	scratch_user_ends(&holder);
	scratch_remove(d, "s");
}

/* ---- death, and going without a word ------------------------------------ */

GPUWMD_TEST(scratch, of_a_dead_holder_goes_to_the_next)
{
	struct process one = scratch_user_start(d, "s", ""), two = scratch_user_start(d, "s", "");

	scratch_user_does(&one, 'a');
	process_tell(&two, 'a');
	cr_assert(EVENTUALLY(SOON_MS, region_number(d, "s", "waiting") == 1));
	process_kill(&one, SIGKILL);
	process_expect(&two, 'a');
	scratch_user_ends(&two);
	cr_assert(!scratch_is_held(d, "s"));
	scratch_remove(d, "s");
}

GPUWMD_TEST(scratch, passes_over_those_who_died_in_the_line)
{
	struct process one = scratch_user_start(d, "s", ""), two = scratch_user_start(d, "s", ""),
		       three = scratch_user_start(d, "s", "");

	scratch_user_does(&one, 'a');
	process_tell(&two, 'a');
	cr_assert(EVENTUALLY(SOON_MS, region_number(d, "s", "waiting") == 1));
	process_tell(&three, 'a');
	cr_assert(EVENTUALLY(SOON_MS, region_number(d, "s", "waiting") == 2));
	process_kill(&two, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, region_number(d, "s", "waiting") == 1));
	scratch_user_does(&one, 'r');
	process_expect(&three, 'a');
	scratch_user_ends(&one);
	scratch_user_ends(&three);
	scratch_remove(d, "s");
}

GPUWMD_TEST(scratch, that_its_holder_closes_goes_to_the_next)
{
	struct process one = scratch_user_start(d, "s", ""), two = scratch_user_start(d, "s", "");

	scratch_user_does(&one, 'a');
	process_tell(&two, 'a');
	cr_assert(EVENTUALLY(SOON_MS, region_number(d, "s", "waiting") == 1));
	scratch_user_ends(&one);
	process_expect(&two, 'a');
	scratch_user_ends(&two);
	scratch_remove(d, "s");
}

GPUWMD_TEST(scratch, that_is_removed_refuses_those_who_wait)
{
	struct process one = scratch_user_start(d, "s", ""), two = scratch_user_start(d, "s", "");

	scratch_user_does(&one, 'a');
	process_tell(&two, 'a');
	cr_assert(EVENTUALLY(SOON_MS, region_number(d, "s", "waiting") == 1));
	scratch_remove(d, "s");
	process_expect(&two, 'e');
	process_tell(&two, 'a');
	process_expect(&two, 'e');
	scratch_user_does(&one, 'r');
	scratch_user_ends(&one);
	scratch_user_ends(&two);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
}

/* ---- time runs out ------------------------------------------------------ */

GPUWMD_TEST(scratch, names_its_holder_when_time_runs_out)
{
	struct process one = scratch_user_start(d, "s", ""), two = scratch_user_start(d, "s", "");
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region;
	char pid[32];

	OK(gpuwm_region_open(client, "s", GPUWM_REGION_WRITE, 0, &region));
	FAILS(EALREADY, gpuwm_scratch_release(region));
	scratch_user_does(&one, 'a');
	snprintf(pid, sizeof pid, "process %d (", (int)one.pid);
	FAILS(ETIMEDOUT, gpuwm_scratch_acquire(region, 0));
	cr_assert(strstr(gpuwm_error()->message, pid), "%s", gpuwm_error()->message);
	cr_assert(strstr(gpuwm_error()->message, "0 others asked"), "%s", gpuwm_error()->message);
	process_tell(&two, 'a');
	cr_assert(EVENTUALLY(SOON_MS, region_number(d, "s", "waiting") == 1));
	FAILS(ETIMEDOUT, gpuwm_scratch_acquire(region, 50));
	cr_assert(strstr(gpuwm_error()->message, "1 other asked"), "%s", gpuwm_error()->message);
	cr_assert_eq(region_number(d, "s", "waiting"), 1);
	scratch_user_does(&one, 'r');
	process_expect(&two, 'a');
	scratch_user_does(&two, 'r');
	OK(gpuwm_scratch_acquire(region, 0));
	FAILS(EALREADY, gpuwm_scratch_acquire(region, 0));
	OK(gpuwm_scratch_release(region));
	OK(gpuwm_region_close(region));
	scratch_user_ends(&one);
	scratch_user_ends(&two);
	scratch_remove(d, "s");
	gpuwm_close(client);
}

static void *wait_for_it(void *region)
{
	return (void *)(intptr_t)gpuwm_scratch_acquire(region, -1);
}

/* One that waits for ever keeps no other call of the process waiting. */
GPUWMD_TEST(scratch, can_be_awaited_while_other_memory_is_given_back)
{
	struct process other = scratch_user_start(d, "s", ""), maker = scratch_user_start(d, "mine", "");
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region, *mine;
	pthread_t thread;
	void *result;

	scratch_user_ends(&maker);
	OK(gpuwm_region_open(client, "s", GPUWM_REGION_WRITE, 0, &region));
	OK(gpuwm_region_open(client, "mine", GPUWM_REGION_WRITE, 0, &mine));
	OK(gpuwm_scratch_acquire(mine, 0));
	scratch_user_does(&other, 'a');
	cr_assert_eq(pthread_create(&thread, NULL, wait_for_it, region), 0);
	cr_assert(EVENTUALLY(SOON_MS, region_number(d, "s", "waiting") == 1));
	FAILS(EALREADY, gpuwm_scratch_acquire(region, 0));
	FAILS(EALREADY, gpuwm_scratch_release(region));
	OK(gpuwm_scratch_release(mine));
	OK(gpuwm_ping(client, NULL));
	scratch_user_does(&other, 'r');
	pthread_join(thread, &result);
	cr_assert_eq((intptr_t)result, 0);
	OK(gpuwm_region_close(region));
	OK(gpuwm_region_close(mine));
	scratch_user_ends(&other);
	scratch_remove(d, "s");
	scratch_remove(d, "mine");
	gpuwm_close(client);
}

/* ---- clearing ------------------------------------------------------------ */

GPUWMD_TEST(scratch, is_cleared_between_holders_by_option)
{
	struct process one, two;

	SKIP_UNLESS(backend() != BACKEND_CUDA, "the CPU looks at the memory");
	one = scratch_user_start(d, "s", "clear");
	two = scratch_user_start(d, "s", "clear");
	scratch_user_does(&one, 'a');
	scratch_user_does(&one, 'w'); /* all bytes 0xa5 */
	scratch_user_does(&one, 'r');
	scratch_user_does(&one, 'a');
	process_tell(&one, 'l');
	process_expect(&one, 'w'); /* nobody else has held it */
	scratch_user_does(&one, 'r');
	scratch_user_does(&two, 'a');
	process_tell(&two, 'l');
	process_expect(&two, '0');
	scratch_user_does(&two, 'w');
	process_kill(&two, SIGKILL);
	process_tell(&one, 'a');
	process_expect(&one, 'a');
	process_tell(&one, 'l');
	process_expect(&one, '0');
	scratch_user_ends(&one);
	scratch_remove(d, "s");
}

/* To make one takes 100 ms and more, whoever had the memory before. */
GPUWMD_TEST(scratch, the_context_that_clears_is_kept)
{
	struct process one, two;

	SKIP_UNLESS(backend() != BACKEND_HOST, "only GPUs have contexts");
	one = scratch_user_start(d, "s", "clear");
	two = scratch_user_start(d, "s", "clear");
	scratch_user_does(&one, 'a');
	scratch_user_does(&one, 'r');
	process_tell(&two, 'c');
	process_expect(&two, '-');
	scratch_user_does(&two, 'a');
	scratch_user_does(&two, 'r');
	process_tell(&two, 'c');
	process_expect(&two, 'c');
	scratch_user_ends(&one);
	scratch_user_ends(&two);
	scratch_remove(d, "s");
}

GPUWMD_TEST(scratch, stays_as_it_was_without_the_option)
{
	struct process one, two;

	SKIP_UNLESS(backend() != BACKEND_CUDA, "the CPU looks at the memory");
	one = scratch_user_start(d, "s", "");
	two = scratch_user_start(d, "s", "");
	scratch_user_does(&one, 'a');
	scratch_user_does(&one, 'w');
	scratch_user_does(&one, 'r');
	scratch_user_does(&two, 'a');
	process_tell(&two, 'l');
	process_expect(&two, 'w');
	scratch_user_ends(&one);
	scratch_user_ends(&two);
	scratch_remove(d, "s");
}

/* ---- what is refused, without the library --------------------------------- */

static int acquire(int sock, const struct raw_region *region, int64_t wait_ms)
{
	return RAW_ASK(sock, "scratch_acquire", ID("use", region->use), SIGNED("wait_ms", wait_ms));
}

static void make_raw(struct raw_region *ret, int sock, const char *name)
{
	cr_assert_eq(REGION_CREATE(ret, sock, TEXT("name", name), TEXT("kind", "scratch"),
				   TEXT("device", "host"), TEXT("writers", "many"), TEXT("owner", "uid"),
				   NUMBER("bytes", MB(1)), FLAG("clear", true)),
		     0, "%s", raw_refusal());
}

GPUWMD_TEST(scratch, is_refused_to_those_who_may_not_have_it)
{
	struct raw_region made, reader, pool, none;
	int sock = raw_client(d->socket);
	const uint8_t unknown[16] = {1};

	make_raw(&made, sock, "s");
	cr_assert(made.write && !made.owns && made.bytes == MB(1) && made.chunks == 0 && made.blocks == 0);
	region_make(&pool, sock, "pool", "process");
	cr_assert_eq(acquire(sock, &pool, 0), -EINVAL);
	cr_assert(strstr(raw_refusal(), "of kind pool, not scratch"), "%s", raw_refusal());
	cr_assert_eq(RAW_ASK(sock, "scratch_release", ID("use", pool.use)), -EINVAL);
	cr_assert_eq(RAW_ASK(sock, "scratch_acquire", ID("use", unknown)), -ENOENT);
	cr_assert_eq(REGION_OPEN(&none, sock, TEXT("region", "s"), FLAG("own", true)), -EINVAL);
	cr_assert(strstr(raw_refusal(), "no process owns a region of kind scratch"), "%s", raw_refusal());
	cr_assert_eq(REGION_OPEN(&reader, sock, TEXT("region", "s")), 0, "%s", raw_refusal());
	cr_assert_eq(acquire(sock, &reader, 0), -EACCES);
	cr_assert_eq(region_close(sock, &reader), 0);
	cr_assert_eq(region_close(sock, &pool), 0);
	cr_assert_eq(region_close(sock, &made), 0);
	close(sock);
	scratch_remove(d, "s");
}

/* A process asks again because its answer was lost: the holder is the holder, and has not cleared the memory yet. */
GPUWMD_TEST(scratch, asked_for_again_is_the_same)
{
	struct raw_region one, two;
	int sock = raw_client(d->socket);

	make_raw(&one, sock, "s");
	cr_assert_eq(REGION_OPEN(&two, sock, TEXT("region", "s"), FLAG("write", true)), 0, "%s", raw_refusal());
	cr_assert_eq(scratch_raw_acquire(sock, &one, -1), SCRATCH_AS_IT_IS);
	cr_assert_eq(scratch_raw_acquire(sock, &one, -1), SCRATCH_AS_IT_IS);
	cr_assert_eq(acquire(sock, &two, 0), -ETIMEDOUT);
	cr_assert_eq(RAW_ASK(sock, "scratch_release", ID("use", two.use)), 0, "it holds nothing");
	cr_assert_eq(acquire(sock, &two, 0), -ETIMEDOUT);
	cr_assert_eq(RAW_ASK(sock, "scratch_release", ID("use", one.use)), 0);
	cr_assert_eq(RAW_ASK(sock, "scratch_release", ID("use", one.use)), 0);
	cr_assert_eq(scratch_raw_acquire(sock, &two, 0), SCRATCH_TO_CLEAR);
	cr_assert_eq(scratch_raw_acquire(sock, &two, 0), SCRATCH_TO_CLEAR);
	cr_assert_eq(RAW_ASK(sock, "scratch_release", ID("use", two.use), FLAG("untouched", true)), 0);
	cr_assert_eq(scratch_raw_acquire(sock, &two, 0), SCRATCH_TO_CLEAR, "it has not cleared it");
	cr_assert_eq(RAW_ASK(sock, "scratch_release", ID("use", two.use), FLAG("untouched", true)), 0);
	cr_assert_eq(scratch_raw_acquire(sock, &one, 0), SCRATCH_AS_IT_IS, "nobody else has touched it");
	cr_assert_eq(region_close(sock, &one), 0);
	cr_assert_eq(scratch_raw_acquire(sock, &two, 0), SCRATCH_TO_CLEAR);
	cr_assert_eq(region_close(sock, &two), 0);
	close(sock);
	scratch_remove(d, "s");
}

/* Its connection says whether it still waits. */
GPUWMD_TEST(scratch, is_not_given_to_a_connection_that_has_ended)
{
	struct raw_region one, two;
	int sock = raw_client(d->socket), other = raw_client(d->socket);

	make_raw(&one, sock, "s");
	cr_assert_eq(REGION_OPEN(&two, sock, TEXT("region", "s"), FLAG("write", true)), 0, "%s", raw_refusal());
	cr_assert_eq(acquire(sock, &one, 0), 0);
	RAW_SEND(other, 9, "scratch_acquire", ID("use", two.use), SIGNED("wait_ms", -1));
	cr_assert(EVENTUALLY(SOON_MS, region_number(d, "s", "waiting") == 1));
	close(other);
	cr_assert(EVENTUALLY(SOON_MS, region_number(d, "s", "waiting") == 0));
	cr_assert_eq(RAW_ASK(sock, "scratch_release", ID("use", one.use)), 0);
	cr_assert(!scratch_is_held(d, "s"));
	cr_assert_eq(region_close(sock, &one), 0);
	cr_assert_eq(region_close(sock, &two), 0);
	close(sock);
	scratch_remove(d, "s");
}

/* The second request of a use takes the place of the first, and so does giving up. */
GPUWMD_TEST(scratch, is_awaited_once_by_a_process)
{
	struct raw_region one, two;
	int sock = raw_client(d->socket), first = raw_client(d->socket), second = raw_client(d->socket);

	make_raw(&one, sock, "s");
	cr_assert_eq(REGION_OPEN(&two, sock, TEXT("region", "s"), FLAG("write", true)), 0, "%s", raw_refusal());
	cr_assert_eq(acquire(sock, &one, 0), 0);
	RAW_SEND(first, 9, "scratch_acquire", ID("use", two.use), SIGNED("wait_ms", -1));
	cr_assert(EVENTUALLY(SOON_MS, region_number(d, "s", "waiting") == 1));
	RAW_SEND(second, 9, "scratch_acquire", ID("use", two.use), SIGNED("wait_ms", -1));
	cr_assert_eq(raw_code(first), -ECANCELED);
	cr_assert_eq(region_number(d, "s", "waiting"), 1);
	cr_assert_eq(RAW_ASK(sock, "scratch_release", ID("use", two.use)), 0);
	cr_assert_eq(raw_code(second), -ECANCELED);
	cr_assert_eq(region_number(d, "s", "waiting"), 0);
	cr_assert_eq(region_close(sock, &one), 0);
	cr_assert_eq(region_close(sock, &two), 0);
	close(sock);
	close(first);
	close(second);
	scratch_remove(d, "s");
}
