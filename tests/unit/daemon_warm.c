/* Who keeps a context, who gets it, and who makes it go. */
#include "tests/support/daemon/warm.h"

#include "daemon/work/loaders/loader.h"
#include "daemon/methods/server.h"

TestSuite(warm, .init = open_service, .fini = close_service, .timeout = 120);

/* ---- after a load ---- */

WarmTest(warm, loader_has_the_next_load_with_the_same_context, 100)
{
	struct job *second;

	warm_up();
	second = load_to(gpu);
	expect_job(loader);
	cr_expect_eq(second->state, JOB_RUNNING);
	cr_expect_eq(gpu->contexts, CONTEXT, "it is charged once");
	say_progress(loader);
	cr_expect(says_done_and_stays(loader, 0));
	cr_expect_eq(gpu->contexts, CONTEXT);
	cr_expect(loader_pool_standby(server->work.loaders));
}

WarmTest(warm, loader_is_asked_for_by_the_load, 100)
{
	struct fields f;

	load_to(gpu);
	expect_job(loader);
	fields_of(&f, message.body);
	cr_expect(fields_bool_or(&f, "keep", false));
}

WarmTest(warm, loader_is_not_had_by_default, 0)
{
	struct fields f;

	load_to(gpu);
	expect_job(loader);
	fields_of(&f, message.body);
	cr_expect_not(fields_have(&f, "keep"));
	next = standby_with(-1);
	cr_expect_not(says_done_and_stays(loader, 0), "whatever it offers");
	close(loader);
	loader = -1;
	TURN_UNTIL(gpu->contexts == 0);
}

WarmTest(warm, loader_is_none_whose_load_failed, 100)
{
	load_to(gpu);
	expect_job(loader);
	cr_expect_not(says_done_and_stays(loader, -EIO));
}

WarmTest(warm, loader_is_none_whose_load_was_cancelled, 100)
{
	struct error error;
	struct job *job;

	job = load_to(gpu);
	expect_job(loader);
	error_set(&error, -ECANCELED, NULL, "cancelled");
	job_cancel(&server->work, job, &error);
	cr_expect_not(says_done_and_stays(loader, 0), "a cancel that comes late is a cancel of this load");
}

WarmTest(warm, loader_is_none_without_a_gpu, 100)
{
	load_to(device_find(&server->ledger.devices, DEVICE_HOST));
	expect_job(loader);
	cr_expect_not(says_done_and_stays(loader, 0));
}

/* What may still hold the memory of a version is not clean. */
WarmTest(warm, loader_is_none_that_is_charged_with_more, 100)
{
	struct budget_charge charge = {0};
	struct error error;
	struct job *job;

	job = load_to(gpu);
	expect_job(loader);
	cr_assert_eq(budget_charge(gpu, 4096, &charge, &error), 0);
	loader_keep(loader_of(server->work.loaders, job), shared_charge_new(&charge));
	cr_expect_not(says_done_and_stays(loader, 0));
}

WarmTest(warm, loader_makes_the_contexts_that_it_lacks, 100)
{
	struct job *job;

	warm_up();
	job = load_to_both(other_gpu, gpu);
	expect_job(loader);
	cr_expect_eq(job->state, JOB_RUNNING);
	cr_expect_eq(gpu->contexts, CONTEXT);
	cr_expect_eq(other_gpu->contexts, CONTEXT);
	say_progress(loader);
	cr_expect(says_done_and_stays(loader, 0));
	cr_expect_eq(other_gpu->contexts, CONTEXT);
	load_to(other_gpu);
	expect_job(loader);
}

/* A GPU has one kept context: of two loaders the one with fewer goes. */
WarmTest(warm, loader_with_fewer_contexts_goes, 100)
{
	struct job *both;
	int third;

	load_to(gpu);
	expect_job(loader);
	next = standby_with(-1);
	both = load_to_both(gpu, other_gpu);
	expect_job(next);
	cr_assert_eq(both->state, JOB_RUNNING);
	third = standby_with(-1);
	say_progress(loader);
	cr_expect(says_done_and_stays(loader, 0));
	cr_expect_eq(gpu->contexts, 2 * CONTEXT);
	say_progress(next);
	cr_expect(says_done_and_stays(next, 0));
	TURN_UNTIL(is_ended(loader));
	cr_expect_eq(gpu->contexts, CONTEXT);
	cr_expect_eq(other_gpu->contexts, CONTEXT);
	close(third);
}

WarmTest(warm, loader_with_more_contexts_stays, 100)
{
	int third;

	load_to_both(gpu, other_gpu);
	expect_job(loader);
	next = standby_with(-1);
	load_to(gpu);
	expect_job(next);
	third = standby_with(-1);
	cr_expect(says_done_and_stays(loader, 0));
	cr_expect_not(says_done_and_stays(next, 0));
	close(third);
}

/* ---- whose it is not ---- */

/* What a publisher handed in is another user's: its checker is a process of its own. */
WarmTest(warm, loader_checks_nothing, 100)
{
	int publisher, checker;

	warm_up();
	publisher = greeted(SESSION_ADMIN);
	cr_assert_eq(ASK(publisher, "publish_begin", TEXT("name", "p@v1"), TEXT("device", GPU),
			 NUMBER("bytes", 4096)),
		     0, "%s", message.error.message);
	cr_assert_eq(packet_take_fd(&packet, 0, &checker), 0);
	cr_assert_eq(packet_send(checker, "", 1, NULL, 0), 0);
	expect_job(next);
	cr_expect_not(comes(loader), "%s", message.method);
	cr_expect_eq(gpu->contexts, 2 * CONTEXT, "the check's own is charged besides");
	close(checker);
	close(publisher);
}

WarmTest(warm, loader_has_no_load_of_another_gpu, 100)
{
	warm_up();
	load_to(other_gpu);
	expect_job(next);
	expect_kept();
}

/* ---- how long ---- */

WarmTest(warm, loader_ends_after_its_time, 1)
{
	warm_up();
	expect_dismissed();
}

static void reload_with(uint64_t keep_s)
{
	config.keep_context_s = keep_s;
	loader_pool_watch(server->work.loaders);
}

WarmTest(warm, loader_heeds_a_reload, 1)
{
	warm_up();
	reload_with(KEEP_ALWAYS);
	cr_expect_not(uv_is_active((uv_handle_t *)&warm_one()->timer));
	reload_with(1000);
	cr_expect(uv_is_active((uv_handle_t *)&warm_one()->timer));
	expect_kept();
	reload_with(0);
	expect_dismissed();
}

WarmTest(warm, loader_ends_when_gpuwmd_drains, 100)
{
	struct error why;

	warm_up();
	error_set(&why, -ESHUTDOWN, NULL, "it is drained");
	work_begin_draining(&server->work, &why);
	expect_dismissed();
}

WarmTest(warm, loader_ends_with_its_gpu, 100)
{
	struct error why;

	warm_up();
	error_set(&why, -ENODEV, NULL, "it fell off the bus");
	losses_note(&server->work, gpu, &why);
	expect_dismissed();
}

/* It began before the GPU came back, and its driver can't know that one. */
WarmTest(warm, loader_is_renewed_when_a_gpu_is_back, 100)
{
	struct error why;

	warm_up();
	error_set(&why, -ENODEV, NULL, "it fell off the bus");
	losses_note(&server->work, other_gpu, &why);
	expect_kept();
	losses_end(&server->work, other_gpu);
	expect_dismissed();
}

WarmTest(warm, loader_is_none_that_had_a_job_when_a_gpu_came_back, 100)
{
	struct error why;

	load_to(gpu);
	expect_job(loader);
	error_set(&why, -ENODEV, NULL, "it fell off the bus");
	losses_note(&server->work, other_gpu, &why);
	turn();
	losses_end(&server->work, other_gpu);
	turn();
	cr_expect_not(says_done_and_stays(loader, 0));
}

/* ---- where memory or a loader is short ---- */

/* A publisher's connection, on which it asks for what fits beside one context and not beside two. */
static int publish_on(const char *device)
{
	int publisher = greeted(SESSION_ADMIN);

	SEND(publisher, 4, "publish_begin", TEXT("name", "p@v1"), TEXT("device", device),
	     NUMBER("bytes", GIB(1) - CONTEXT - CONTEXT / 2));
	return publisher;
}

WarmTest(warm, loader_goes_for_a_publish_that_finds_no_room, 100)
{
	struct budget_charge other = {0};
	struct error error;
	int publisher, checker;

	warm_up();
	cr_assert_eq(budget_charge_context(gpu, &other, &error), 0);
	publisher = publish_on(GPU);
	TURN_UNTIL(is_ended(loader));
	cr_assert_eq(answered_later(publisher), 0, "%s", message.error.message);
	budget_release(&other);
	cr_assert_eq(packet_take_fd(&packet, 0, &checker), 0);
	close(checker);
	close(publisher);
}

WarmTest(warm, loader_stays_for_a_publish_on_another_gpu, 100)
{
	int publisher, third, fourth;

	warm_up();
	load_to(other_gpu);
	expect_job(next);
	third = standby_with(-1);
	load_to(other_gpu);
	expect_job(third);
	fourth = standby_with(-1);
	publisher = publish_on(OTHER_GPU);
	TURN_UNTIL(server->clients.waiters[WAIT_ROOM]);
	expect_kept();
	close(publisher);
	TURN_UNTIL(!server->clients.waiters[WAIT_ROOM]);
	close(fourth);
	close(third);
}

WarmTest(warm, loader_goes_for_the_context_of_a_check, 100)
{
	struct budget_charge weights = {0};
	struct error error;
	struct job *job;

	warm_up();
	cr_assert_eq(budget_charge(gpu, GIB(1) - CONTEXT - CONTEXT / 2, &weights, &error), 0);
	cr_assert_eq(job_new(&server->work, &(struct job_wish){JOB_CHECK, "m", "v1", 0, false}, &job, &error),
		     0);
	cr_assert_eq(job_add_device(job, gpu), 0);
	loader_pool_turn(server->work.loaders);
	cr_expect(job->crowded);
	TURN_UNTIL(is_ended(loader));
	error_set(&error, -ECANCELED, NULL, "cancelled");
	job_cancel(&server->work, job, &error);
	budget_release(&weights);
}

WarmTest(warm, loader_goes_where_no_more_processes_may_be, 100)
{
	warm_up();
	config.loaders = 2;
	load_to(other_gpu);
	expect_job(next);
	expect_kept();
	load_to(other_gpu);
	expect_dismissed();
}
