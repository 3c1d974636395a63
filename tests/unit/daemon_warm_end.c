/* Loaders that keep a context, and end at a bad moment. */
#include "tests/support/daemon/warm.h"

#include "daemon/work/loaders/loader.h"

TestSuite(warm_end, .init = open_service, .fini = close_service, .timeout = 120);

/* What it had not begun another loader can do. */
Test(warm_end, loader_that_dies_before_it_begins_loses_no_load)
{
	struct job *job;

	begin(100);
	warm_up();
	job = load_to(gpu);
	cr_assert_eq(job->state, JOB_RUNNING);
	close(loader);
	loader = -1;
	expect_job(next);
	cr_expect_eq(job->state, JOB_RUNNING);
	cr_expect_eq(gpu->contexts, CONTEXT, "the other one's");
	cr_expect_eq(server->work.jobs.running, 1);
	cr_expect_eq(server->work.jobs.queued, 0);
	finish();
}

/* What ended it may have ended others that keep contexts: a fresh loader takes the load. */
Test(warm_end, loader_has_no_load_that_another_one_did_not_begin)
{
	struct job *job;
	int third;

	begin(100);
	warm_up();
	load_to(other_gpu);
	expect_job(next);
	third = standby_with(-1);
	say_progress(next);
	cr_assert(says_done_and_stays(next, 0));
	job = load_to_both(gpu, other_gpu);
	expect_job(next);
	close(next);
	next = -1;
	expect_job(third);
	cr_expect_not(comes(loader), "%s", message.method);
	cr_expect_eq(job->state, JOB_RUNNING);
	close(third);
	finish();
}

Test(warm_end, loader_that_dies_when_it_has_begun_fails_its_load)
{
	struct job *job;

	begin(100);
	warm_up();
	job = load_to(gpu);
	expect_job(loader);
	say_progress(loader);
	close(loader);
	loader = -1;
	TURN_UNTIL(job_ended(job));
	cr_expect_eq(job->state, JOB_FAILED);
	finish();
}

/* A load may take any time where load_stall_ms is 0. */
Test(warm_end, loader_that_has_begun_has_all_the_time_of_a_load)
{
	struct job *job;

	config.load_stall_ms = 0;
	begin(100);
	warm_up();
	job = load_to(gpu);
	expect_job(loader);
	cr_expect(uv_is_active((uv_handle_t *)&job->loader->timer));
	say_progress(loader);
	cr_expect_not(uv_is_active((uv_handle_t *)&job->loader->timer));
	cr_expect(says_done_and_stays(loader, 0));
	finish();
}

/* Its driver hangs. */
Test(warm_end, loader_that_does_not_begin_loses_no_load)
{
	uint64_t began = clock_steady_ms();
	struct job *job;

	begin(100);
	warm_up();
	job = load_to(gpu);
	expect_job(loader);
	expect_job(next);
	cr_expect_geq(clock_steady_ms() - began, KEEP_BEGIN_MS);
	cr_expect_eq(job->state, JOB_RUNNING);
	finish();
}

Test(warm_end, loader_that_dies_before_it_begins_a_cancelled_load_ends_it)
{
	struct error error;
	struct job *job;

	begin(100);
	warm_up();
	job = load_to(gpu);
	error_set(&error, -ECANCELED, NULL, "cancelled");
	job_cancel(&server->work, job, &error);
	close(loader);
	loader = -1;
	TURN_UNTIL(job_ended(job));
	cr_expect_eq(job->state, JOB_CANCELLED);
	finish();
}

/* Between two loads: nobody has lost anything. */
Test(warm_end, loader_that_is_killed_gives_its_context_back)
{
	begin(100);
	warm_up();
	close(loader);
	loader = -1;
	TURN_UNTIL(gpu->contexts == 0);
	load_to(gpu);
	expect_job(next);
	finish();
}

Test(warm_end, loader_that_has_not_begun_loses_its_load_with_its_gpu)
{
	struct error why;
	struct job *job;

	begin(100);
	warm_up();
	job = load_to(gpu);
	error_set(&why, -ENODEV, NULL, "it fell off the bus");
	losses_note(&server->work, gpu, &why);
	TURN_UNTIL(job_ended(job));
	cr_expect_eq(job->error->code, -ENODEV);
	cr_expect_eq(job->given_back, 0, "another loader can't use that GPU either");
	finish();
}
