/* Processes that use regions exit, many at once. Pipes stand for pidfds. */
#include "daemon/ledger/region.h"
#include "daemon/work/regions/regions.h"
#include "daemon/work/work.h"

#include <criterion/criterion.h>
#include <unistd.h>

enum { USERS = 5 };

static uv_loop_t loop;
static uv_check_t turns;
static struct work work;
static struct region_user users[USERS];
static int ends[USERS];
static unsigned turn, told, told_in[USERS];
static uint64_t takes_ns; /* one death */

static void on_turn(uv_check_t *check)
{
	(void)check;
	turn++;
}

static void gone(struct work *w, struct region_user *user)
{
	const uint64_t begun = uv_hrtime();

	cr_assert_eq(w, &work);
	cr_assert_eq(user, &users[told], "in another order than they exited");
	told_in[told++] = turn;
	region_unwatch(user);
	while (uv_hrtime() - begun < takes_ns)
		;
}

static void begin(void)
{
	struct error error;

	told = turn = 0;
	takes_ns = 0;
	uv_loop_init(&loop);
	loop.data = &work;
	work.loop = &loop;
	region_watches_init(&work);
	uv_check_init(&loop, &turns);
	uv_check_start(&turns, on_turn);
	uv_unref((uv_handle_t *)&turns);
	for (unsigned i = 0; i < USERS; i++) {
		int fds[2];

		cr_assert_eq(pipe(fds), 0);
		users[i] = (struct region_user){.pidfd = fds[0]};
		ends[i] = fds[1];
		cr_assert_eq(region_watch(&work, &users[i], gone, &error), 0, "%s", error.message);
	}
}

/* One after the other, all before the loop looks. */
static void all_exit(void)
{
	for (unsigned i = 0; i < USERS; i++)
		close(ends[i]);
}

static void end(void)
{
	for (unsigned i = 0; i < USERS; i++)
		region_unwatch(&users[i]);
	region_watches_end(&work);
	uv_close((uv_handle_t *)&turns, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	cr_assert_eq(uv_loop_close(&loop), 0);
	for (unsigned i = 0; i < USERS; i++)
		close(users[i].pidfd);
}

TestSuite(region_deaths, .init = begin, .fini = end, .timeout = 60);

Test(region_deaths, that_take_long_let_others_run_in_between)
{
	takes_ns = 3000000;
	all_exit();
	uv_run(&loop, UV_RUN_DEFAULT);
	cr_assert_eq(told, USERS);
	for (unsigned i = 1; i < USERS; i++)
		cr_expect_gt(told_in[i], told_in[i - 1], "two in one turn");
}

Test(region_deaths, that_are_short_share_a_turn)
{
	all_exit();
	uv_run(&loop, UV_RUN_DEFAULT);
	cr_assert_eq(told, USERS);
	cr_expect_leq(told_in[USERS - 1] - told_in[0], 1);
}

/* Its user has closed the region, or gpuwmd ends. */
Test(region_deaths, of_a_user_that_has_gone_meanwhile_are_not_told)
{
	takes_ns = 3000000;
	all_exit();
	while (told < 2)
		uv_run(&loop, UV_RUN_ONCE);
	region_unwatch(&users[4]);
	region_unwatch(&users[4]);
	while (told < 3)
		uv_run(&loop, UV_RUN_ONCE);
	region_unwatch(&users[3]);
	uv_run(&loop, UV_RUN_DEFAULT);
	cr_assert_eq(told, 3);
}
