/* Checkers that stay: when they end, who makes them go, and what is lost with them. */
#include "tests/support/daemon/checkers.h"

#include "daemon/work/loaders/loader.h"

TestSuite(checker_end, .init = open_service, .fini = close_service, .timeout = 120);

static void reload_with(uint64_t keep_s)
{
	config.keep_checker_s = keep_s;
	loader_pool_watch(server->work.loaders);
}

/* ---- how long ---- */

CheckerTest(checker_end, comes_after_its_time)
{
	config.keep_checker_s = 1;
	stay();
	expect_dismissed();
}

CheckerTest(checker_end, comes_later_after_each_check)
{
	struct job *job;

	stay();
	warm_one()->warm_since_ms -= KEEP_S * 1000 / 2; /* so long ago */
	reload_with(KEEP_S);
	cr_assert_leq(uv_timer_get_due_in(&warm_one()->timer), KEEP_S * 1000 / 2);
	job = hand_in(NULL, GPU, ONE);
	expect_job(loader);
	cr_assert(checks_and_stays(loader, job));
	cr_expect_gt(uv_timer_get_due_in(&warm_one()->timer), KEEP_S * 1000 / 2);
}

CheckerTest(checker_end, comes_when_a_reload_says_so)
{
	stay();
	reload_with(2 * KEEP_S);
	expect_kept();
	reload_with(0);
	expect_dismissed();
}

CheckerTest(checker_end, comes_when_gpuwmd_drains)
{
	struct error why;

	stay();
	error_set(&why, -ESHUTDOWN, NULL, "it is drained");
	work_begin_draining(&server->work, &why);
	expect_dismissed();
}

CheckerTest(checker_end, comes_with_the_loss_of_its_gpu)
{
	struct error why;

	stay();
	error_set(&why, -ENODEV, NULL, "it fell off the bus");
	losses_note(&server->work, gpu, &why);
	expect_dismissed();
}

CheckerTest(checker_end, comes_when_a_gpu_is_back)
{
	struct error why;

	stay();
	error_set(&why, -ENODEV, NULL, "it fell off the bus");
	losses_note(&server->work, other_gpu, &why);
	expect_kept();
	losses_end(&server->work, other_gpu);
	expect_dismissed();
}

/* ---- giving way ---- */

/* Leaves room for one context and a half on the first GPU, that of the checker included. */
static struct budget_charge fill_gpu(void)
{
	struct budget_charge weights = {0};
	struct error error;

	cr_assert_eq(budget_charge(gpu, GIB(1) - CONTEXT - CONTEXT / 2, &weights, &error), 0);
	return weights;
}

/* Its process counts as gone within the turn that dismissed it, as it has no pidfd here. */
static void expect_gone(void)
{
	TURN_UNTIL(is_ended(loader));
	close(loader);
	loader = -1;
	work_later(&server->work, LATER_TURN);
}

CheckerTest(checker_end, makes_room_for_another_users_check)
{
	struct budget_charge weights;
	struct job *job;

	stay();
	job = begin_part(NULL, GPU, OTHER);
	weights = fill_gpu();
	hand_over(job);
	expect_gone();
	expect_job(next);
	budget_release(&weights);
}

CheckerTest(checker_end, makes_room_for_a_load)
{
	struct budget_charge weights;

	stay();
	weights = fill_gpu();
	load_to(gpu);
	expect_gone();
	expect_job(next);
	budget_release(&weights);
}

CheckerTest(checker_end, makes_room_for_a_publish)
{
	struct budget_charge others = {0};
	struct error error;
	int publisher, checker;

	stay();
	cr_assert_eq(budget_charge_context(gpu, &others, &error), 0);
	publisher = greeted(SESSION_ADMIN);
	SEND(publisher, 2, "publish_begin", TEXT("name", "p@v1"), TEXT("device", GPU),
	     NUMBER("bytes", GIB(1) - CONTEXT - CONTEXT / 2));
	expect_gone();
	cr_expect_eq(answered_later(publisher), 0, "%s", message.error.message);
	cr_assert_eq(packet_take_fd(&packet, 0, &checker), 0);
	budget_release(&others);
	close(checker);
	close(publisher);
}

/* Two parts of its user, and room for one context: it has the second part when it is done with the first. */
CheckerTest(checker_end, does_not_come_for_what_it_can_have_itself)
{
	struct budget_charge weights;
	struct job *first, *second;

	stay();
	first = begin_part(NULL, GPU, ONE);
	second = begin_part(NULL, GPU, ONE);
	weights = fill_gpu();
	hand_over(first);
	expect_job(loader);
	hand_over(second);
	cr_expect(second->crowded);
	cr_expect(checks_and_stays(loader, first));
	expect_job(loader);
	cr_expect_eq(second->state, JOB_RUNNING);
	budget_release(&weights);
}

/* Else a user with many parts would keep others from the GPU for as long as he has some. */
CheckerTest(checker_end, comes_before_its_users_next_check_if_another_user_waits_for_the_room)
{
	struct budget_charge weights;
	struct job *first, *second, *others;

	stay();
	first = begin_part(NULL, GPU, ONE);
	second = begin_part(NULL, GPU, ONE);
	others = begin_part(NULL, GPU, OTHER);
	weights = fill_gpu();
	hand_over(first);
	expect_job(loader);
	hand_over(others);
	hand_over(second);
	cr_expect(others->crowded);
	cr_expect(checks_and_stays(loader, first));
	expect_gone();
	expect_job(next);
	cr_expect_eq(others->state, JOB_RUNNING);
	cr_expect_eq(second->state, JOB_QUEUED);
	budget_release(&weights);
}

/* The last place is that of the loader that stands by. */
CheckerTest(checker_end, makes_place_for_a_loader_that_stands_by)
{
	config.loaders = 2;
	stay();
	expect_kept();
	hand_in(NULL, GPU, OTHER);
	expect_gone();
	expect_job(next);
	loader = accept_one();
	cr_expect_eq(hello_with(loader, -1), 0);
}

CheckerTest(checker_end, comes_where_there_is_one_place)
{
	struct job *job;

	config.loaders = 1;
	job = hand_in(NULL, GPU, ONE);
	expect_job(loader);
	cr_expect(checks_and_stays(loader, job));
	expect_dismissed();
	loader = standby_with(-1);
}

CheckerTest(checker_end, comes_before_its_users_next_check_if_another_user_waits_for_a_place)
{
	struct job *first, *second, *others;
	int third;

	config.loaders = 3;
	stay();
	first = hand_in(NULL, GPU, ONE);
	expect_job(loader);
	load_to(other_gpu);
	expect_job(next);
	third = standby_with(-1);
	load_to(other_gpu);
	expect_job(third);
	second = hand_in(NULL, GPU, ONE);
	others = hand_in(NULL, GPU, OTHER);
	cr_expect(checks_and_stays(loader, first));
	expect_gone();
	loader = standby_with(-1);
	expect_job(loader);
	cr_expect_eq(others->state, JOB_RUNNING);
	cr_expect_eq(second->state, JOB_QUEUED);
	close(third);
}

/* ---- what is lost with it ---- */

CheckerTest(checker_end, between_two_checks_loses_nothing)
{
	struct job *job;

	stay();
	close(loader);
	loader = -1;
	TURN_UNTIL(gpu->contexts == 0);
	job = hand_in(NULL, GPU, ONE);
	expect_job(next);
	cr_expect_eq(job->state, JOB_RUNNING);
	cr_expect_eq(server->work.loaders->warm_failures, 0, "it says nothing of contexts for loads");
}

CheckerTest(checker_end, before_it_has_begun_loses_no_check)
{
	struct job *job;

	stay();
	job = hand_in(NULL, GPU, ONE);
	cr_assert_eq(job->state, JOB_RUNNING);
	close(loader);
	loader = -1;
	expect_job(next);
	cr_expect_eq(packet.fd_count, 1);
	cr_expect_eq(job->given_back, 1);
	cr_expect_eq(gpu->contexts, CONTEXT, "the other one's");
}

/* gpuwmd may learn of its end before it reads that the check had begun. */
CheckerTest(checker_end, of_one_that_took_what_was_handed_in_fails_the_check)
{
	struct job *job;
	char byte;

	stay();
	job = hand_in(NULL, GPU, ONE);
	expect_job(loader);
	cr_assert_eq(packet.fd_count, 1);
	cr_assert_eq(recv(packet.fds[0], &byte, 1, MSG_DONTWAIT), 1);
	forget();
	close(loader);
	loader = -1;
	TURN_UNTIL(job_ended(job));
	cr_expect_eq(job->state, JOB_FAILED);
	cr_expect_eq(job->given_back, 0);
}

/* Its driver hangs. */
CheckerTest(checker_end, of_one_that_does_not_begin_loses_no_check)
{
	uint64_t began = clock_steady_ms();
	struct job *job;

	stay();
	job = hand_in(NULL, GPU, ONE);
	expect_job(loader);
	expect_job(next);
	cr_expect_geq(clock_steady_ms() - began, KEEP_BEGIN_MS);
	cr_expect_eq(job->given_back, 1);
}

CheckerTest(checker_end, in_a_check_fails_it)
{
	struct job *job;

	stay();
	job = hand_in(NULL, GPU, ONE);
	expect_job(loader);
	say_progress(loader);
	close(loader);
	loader = -1;
	TURN_UNTIL(job_ended(job));
	cr_expect_eq(job->state, JOB_FAILED);
	cr_expect_eq(job->error->code, -EIO);
	TURN_UNTIL(gpu->contexts == 0);
}
