/* Shares of the loop's time. */
#include "daemon/base/metrics.h"
#include "daemon/net/fair.h"
#include "tests/support/any/fd_count.h"

#include <criterion/criterion.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define US UINT64_C(1000)

/* ---- the clock ---- */

/* What a look at the clock takes, so that time passes while every share rests. */
#define LOOK_NS UINT64_C(50)

static uint64_t now_ns = UINT64_C(1000000000);

/* The steady clock of this program is the tests' own: it goes on as far as they spend, so that a process that the
 * machine keeps waiting has used up nothing. */
int clock_gettime(clockid_t id, struct timespec *ret)
{
	if (id != CLOCK_MONOTONIC)
		return (int)syscall(SYS_clock_gettime, id, ret);
	now_ns += LOOK_NS;
	*ret = (struct timespec){.tv_sec = (time_t)(now_ns / 1000000000),
				 .tv_nsec = (long)(now_ns % 1000000000)};
	return 0;
}

static void spend(uint64_t ns)
{
	now_ns += ns;
}

/* ---- sources ---- */

/* A descriptor that is always readable, and what its events cost. */
struct source {
	struct fair_watch watch;
	uint64_t costs_ns;
	uint64_t calls;
	struct source *forgets; /* in its call */
};

static uv_loop_t loop;
static struct fair *fair;
static struct metrics *metrics;
static int fds_before;
static uint64_t afters;

static void after(void *data)
{
	cr_assert_eq(data, &loop);
	afters++;
}

static void setup(void)
{
	uv_loop_t first;

	cr_assert_eq(uv_loop_init(&first) | uv_loop_close(&first), 0);
	fds_before = fd_count();
	cr_assert_eq(uv_loop_init(&loop), 0);
	metrics = metrics_new();
	cr_assert(metrics);
	fair = fair_new(&loop, metrics, after, &loop);
	cr_assert(fair);
}

static void teardown(void)
{
	fair_free(fair);
	uv_run(&loop, UV_RUN_DEFAULT);
	cr_assert_eq(uv_loop_close(&loop), 0);
	metrics = metrics_free(metrics);
	cr_expect_eq(fd_count(), fds_before);
}

TestSuite(fair, .init = setup, .fini = teardown, .timeout = 60);

static void turn(void)
{
	uv_run(&loop, UV_RUN_NOWAIT);
}

static void on_event(struct fair_watch *watch, uint32_t events)
{
	struct source *source = (struct source *)watch;

	cr_assert(events & EPOLLIN);
	source->calls++;
	spend(source->costs_ns);
	if (source->forgets)
		fair_forget(&source->forgets->watch);
}

static void begin(struct source *source, struct fair_share *share, uint64_t costs_ns)
{
	*source = (struct source){.watch = {.fd = eventfd(1, EFD_CLOEXEC), .call = on_event},
				  .costs_ns = costs_ns};
	cr_assert(share && source->watch.fd >= 0);
	cr_assert_eq(fair_watch(share, &source->watch, EPOLLIN), 0);
}

static void end(struct source *source, struct fair_share *share)
{
	fair_forget(&source->watch);
	fair_forget(&source->watch);
	close(source->watch.fd);
	fair_leave(share);
}

Test(fair, a_turn_ends_when_its_time_is_used_up)
{
	struct fair_share *share = fair_join(fair, 1000);
	struct source busy;

	begin(&busy, share, FAIR_QUANTUM_NS / 4);
	turn();
	cr_expect(busy.calls >= 1 && busy.calls <= 4, "%llu", (unsigned long long)busy.calls);
	cr_expect_eq(afters, busy.calls);
	end(&busy, share);
}

/* However many connections the other user has, and whatever its requests cost. */
Test(fair, another_users_descriptors_delay_a_user_by_one_turn)
{
	struct fair_share *many = fair_join(fair, 1000), *one = fair_join(fair, 1001);
	static struct source busy[300];
	struct source good;
	uint64_t calls = 0;

	for (size_t i = 0; i < 300; i++) {
		begin(&busy[i], many, 4 * FAIR_QUANTUM_NS);
		busy[i].watch.share = many;
	}
	turn();
	begin(&good, one, 0);
	for (size_t i = 0; i < 300; i++)
		busy[i].calls = 0;
	turn();
	for (size_t i = 0; i < 300; i++)
		calls += busy[i].calls;
	cr_expect(good.calls > 0);
	cr_expect(calls <= 1, "%llu calls of the other user came first", (unsigned long long)calls);
	for (int i = 0; i < 10000 && metrics_user(metrics, 1000)->turns < 2; i++)
		turn(); /* the other user rests first */
	cr_expect_gt(metrics_user(metrics, 1000)->waited, 0);
	cr_expect_geq(metrics_user(metrics, 1000)->busy_ns, 4 * FAIR_QUANTUM_NS);
	cr_expect_gt(metrics_user(metrics, 1001)->turns, 0);
	for (size_t i = 0; i < 299; i++) {
		fair_forget(&busy[i].watch);
		close(busy[i].watch.fd);
	}
	end(&busy[299], many);
	end(&good, one);
}

Test(fair, all_descriptors_of_a_share_have_their_turn)
{
	struct fair_share *share = fair_join(fair, 1000), *other = fair_join(fair, 1001);
	static struct source busy[40];
	struct source beside;

	begin(&beside, other, 0);
	for (size_t i = 0; i < 40; i++)
		begin(&busy[i], share, FAIR_QUANTUM_NS / 5);
	for (int i = 0; i < 40; i++)
		turn();
	for (size_t i = 0; i < 40; i++) {
		cr_expect(busy[i].calls > 0, "%zu never had a turn", i);
		fair_forget(&busy[i].watch);
		close(busy[i].watch.fd);
	}
	fair_leave(share);
	end(&beside, other);
}

/* By time, not by calls. */
Test(fair, time_is_shared_evenly_between_cheap_and_costly_requests)
{
	struct fair_share *cheap = fair_join(fair, 1000), *costly = fair_join(fair, 1001);
	struct source few, many;
	double ratio;

	begin(&many, cheap, 5 * US);
	begin(&few, costly, 500 * US);
	while (few.calls < 20)
		turn();
	ratio = (double)(many.calls * 5) / (double)(few.calls * 500);
	cr_expect(ratio > 0.2 && ratio < 5, "%llu cheap ones beside %llu costly ones: %f",
		  (unsigned long long)many.calls, (unsigned long long)few.calls, ratio);
	end(&many, cheap);
	end(&few, costly);
}

Test(fair, a_share_alone_has_all_the_time)
{
	struct fair_share *share = fair_join(fair, 1000);
	struct source costly;

	begin(&costly, share, 10 * FAIR_QUANTUM_NS);
	for (int i = 0; i < 5; i++)
		turn();
	cr_expect_eq(costly.calls, 5, "it paid for its turns though nobody waited: %llu",
		     (unsigned long long)costly.calls);
	end(&costly, share);
}

Test(fair, operators_and_loaders_come_first)
{
	struct fair_share *share = fair_join(fair, 0), *first = fair_join_first(fair);
	struct source worker, operator;

	begin(&worker, share, 0);
	begin(&operator, first, FAIR_QUANTUM_NS);
	turn();
	cr_expect(operator.calls >= 10, "%llu", (unsigned long long)operator.calls);
	cr_expect(worker.calls > 0, "they leave time to others");
	end(&operator, first);
	end(&worker, share);
}

Test(fair, who_was_forgotten_in_a_call_is_not_called)
{
	struct fair_share *share = fair_join(fair, 1000);
	struct source one, two;

	begin(&one, share, 0);
	begin(&two, share, 0);
	one.forgets = &two;
	two.forgets = &one;
	turn();
	turn();
	cr_expect_eq(one.calls > 0, two.calls == 0, "%llu and %llu", (unsigned long long)one.calls,
		     (unsigned long long)two.calls);
	close(one.watch.fd);
	end(&two, share);
	fair_forget(&one.watch);
}

Test(fair, what_is_watched_can_change)
{
	struct fair_share *share = fair_join(fair, 1000);
	struct source source;

	begin(&source, share, 0);
	cr_assert_eq(fair_watch(share, &source.watch, 0), 0);
	turn();
	cr_expect_eq(source.calls, 0);
	cr_assert_eq(fair_watch(share, &source.watch, EPOLLIN), 0);
	turn();
	cr_expect_neq(source.calls, 0);
	end(&source, share);
}

Test(fair, what_can_not_be_watched_is_an_error)
{
	struct fair_share *share = fair_join(fair, 1000);
	struct fair_watch watch = {.fd = -1};

	cr_expect_lt(fair_watch(share, &watch, EPOLLIN), 0);
	fair_forget(&watch);
	fair_leave(share);
}

/* ---- tasks ---- */

struct work {
	struct fair_task task;
	uint64_t left, calls;
};

static bool do_work(struct fair_task *task)
{
	struct work *work = (struct work *)task;

	work->calls++;
	spend(FAIR_QUANTUM_NS / 2);
	return --work->left > 0;
}

Test(fair, a_task_is_done_in_several_turns)
{
	struct fair_share *share = fair_join(fair, 1000), *other = fair_join(fair, 1001);
	struct work work = {.task = {.call = do_work}, .left = 20};
	struct source beside;

	begin(&beside, other, 0);
	fair_due(share, &work.task);
	fair_due(share, &work.task);
	turn();
	cr_expect(work.calls > 0 && work.calls < 20, "%llu", (unsigned long long)work.calls);
	while (work.left > 0)
		turn();
	turn();
	cr_expect_eq(work.calls, 20);
	cr_expect_null(work.task.share);
	fair_leave(share);
	end(&beside, other);
}

Test(fair, a_task_that_is_not_due_any_more_is_not_done)
{
	struct fair_share *share = fair_join(fair, 1000);
	struct work works[3] = {{.task = {.call = do_work}, .left = 1},
				{.task = {.call = do_work}, .left = 1},
				{.task = {.call = do_work}, .left = 1}};

	for (size_t i = 0; i < 3; i++)
		fair_due(share, &works[i].task);
	fair_undue(&works[2].task);
	fair_undue(&works[1].task);
	fair_undue(&works[1].task);
	turn();
	turn();
	cr_expect_eq(works[0].calls, 1);
	cr_expect_eq(works[1].calls + works[2].calls, 0);
	fair_leave(share);
}

/* A session's last event makes it leave. */
static struct fair_share *leaves;

static bool leave(struct fair_task *task)
{
	(void)task;
	fair_leave(leaves);
	return false;
}

Test(fair, a_share_may_end_in_its_own_turn)
{
	struct fair_task task = {.call = leave};

	leaves = fair_join(fair, 1000);
	fair_due(leaves, &task);
	turn();
	turn();
	cr_expect_null(task.share);
}

Test(fair, a_queued_share_may_end)
{
	struct fair_share *share = fair_join(fair, 1000), *other = fair_join(fair, 1001);
	struct work one = {.task = {.call = do_work}, .left = 1}, two = one;

	fair_due(share, &one.task);
	fair_due(other, &two.task);
	fair_undue(&one.task);
	fair_leave(share);
	turn();
	cr_expect_eq(two.calls, 1);
	fair_leave(other);
}

Test(fair, users_beyond_the_shares_share_the_last_one)
{
	static struct fair_share *shares[FAIR_SHARES_MAX + 2];
	int fds;

	for (uid_t i = 0; i < FAIR_SHARES_MAX; i++) {
		shares[i] = fair_join(fair, 1000 + i);
		cr_assert(shares[i]);
	}
	fds = fd_count();
	for (uid_t i = FAIR_SHARES_MAX; i < FAIR_SHARES_MAX + 2; i++)
		shares[i] = fair_join(fair, 1000 + i);
	cr_expect_eq(shares[FAIR_SHARES_MAX], shares[FAIR_SHARES_MAX + 1]);
	cr_expect_eq(fd_count(), fds + 1);
	cr_expect_eq(fair_join(fair, 1000), shares[0], "one uid, one share");
	fair_leave(shares[0]);
	for (size_t i = 0; i < FAIR_SHARES_MAX + 2; i++)
		fair_leave(shares[i]);
}
