/* Contexts that are there before the first load: keep_context = always. And what is told of those that are kept. */
#include "tests/support/daemon/warm.h"

TestSuite(warm_always, .init = open_service, .fini = close_service, .timeout = 120);

/* Waits until gpuwmd asks the loader to make contexts. Returns on how many GPUs. */
static uint32_t expect_wish(int sock)
{
	struct fields f;
	uint32_t count = 0;

	TURN_UNTIL(comes(sock) && strcmp(message.method, "warm") == 0);
	fields_of(&f, message.body);
	fields_array(&f, "devices", &count);
	return count;
}

static void expect_no_wish(int sock)
{
	while (comes(sock))
		cr_expect_str_neq(message.method, "warm");
}

static void say_warm(int sock, int code)
{
	struct error error = {.code = code, .message = "no room for a CUDA context"};
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "loader_warm");
	if (code)
		message_put_error(&w, "error", &error);
	send_request(sock, &w);
	turn();
}

WarmTest(warm_always, a_loader_has_a_context_on_each_gpu_before_the_first_load, KEEP_ALWAYS)
{
	struct job *job;

	cr_expect_eq(expect_wish(loader), 2);
	cr_expect_eq(gpu->contexts, CONTEXT);
	cr_expect_eq(other_gpu->contexts, CONTEXT);
	next = standby_with(-1);
	say_warm(loader, 0);
	job = load_to(other_gpu);
	expect_job(loader);
	cr_expect_eq(job->state, JOB_RUNNING);
	cr_expect_eq(other_gpu->contexts, CONTEXT);
}

WarmTest(warm_always, a_load_does_not_wait_for_contexts_that_are_being_made, KEEP_ALWAYS)
{
	expect_wish(loader);
	next = standby_with(-1);
	load_to(gpu);
	expect_job(next);
}

Test(warm_always, a_gpu_without_room_is_left_out)
{
	struct budget_charge weights = {0};
	struct error error;

	config.keep_context_s = 100;
	begin(100);
	cr_assert_eq(budget_charge(gpu, GIB(1) - CONTEXT / 2, &weights, &error), 0);
	config.keep_context_s = KEEP_ALWAYS;
	loader_pool_watch(server->work.loaders);
	cr_expect_eq(expect_wish(loader), 1);
	cr_expect_eq(gpu->contexts, 0);
	next = standby_with(-1);
	say_warm(loader, 0);
	budget_release(&weights);
	work_later(&server->work, LATER_ROOM);
	cr_expect_eq(expect_wish(next), 1, "it has room now");
	cr_expect_eq(gpu->contexts, CONTEXT);
	finish();
}

WarmTest(warm_always, a_context_that_gave_way_comes_again_later, KEEP_ALWAYS)
{
	int again;

	expect_wish(loader);
	next = standby_with(-1);
	say_warm(loader, 0);
	config.loaders = 2;
	load_to(device_find(&server->ledger.devices, DEVICE_HOST));
	expect_job(next);
	load_to(device_find(&server->ledger.devices, DEVICE_HOST));
	expect_dismissed();
	config.loaders = 4;
	again = standby_with(-1);
	expect_job(again);
	say_progress(again);
	close(again);
	again = standby_with(-1);
	expect_no_wish(again);
	cr_expect_geq(server->work.loaders->warm_at_ms, clock_steady_ms() + KEEP_AGAIN_MS / 2);
	server->work.loaders->warm_at_ms = 0; /* that time has passed */
	loader_pool_turn(server->work.loaders);
	expect_wish(again);
	close(again);
}

WarmTest(warm_always, contexts_that_can_not_be_made_are_tried_again_later, KEEP_ALWAYS)
{
	expect_wish(loader);
	next = standby_with(-1);
	say_warm(loader, -ENOSPC);
	expect_dismissed();
	expect_no_wish(next);
	cr_expect_gt(server->work.loaders->warm_at_ms, clock_steady_ms());
	cr_expect_eq(server->work.loaders->warm_failures, 1);
}

WarmTest(warm_always, a_gpu_that_refuses_its_context_keeps_no_other_one_from_it, KEEP_ALWAYS)
{
	cr_expect_eq(expect_wish(loader), 2);
	next = standby_with(-1);
	say_warm(loader, -EIO);
	expect_dismissed();
	server->work.loaders->warm_at_ms = 0; /* that time has passed */
	loader_pool_turn(server->work.loaders);
	cr_expect_eq(expect_wish(next), 1);
	cr_expect_eq(gpu->contexts, CONTEXT);
	cr_expect_eq(other_gpu->contexts, 0);
	loader = accept_one();
	cr_assert_eq(hello_with(loader, -1), 0);
	cr_expect_eq(expect_wish(loader), 1, "the other one is tried again");
	say_warm(next, 0);
	cr_expect_eq(other_gpu->contexts, CONTEXT);
	say_warm(loader, -EIO);
	TURN_UNTIL(is_ended(loader));
	TURN_UNTIL(other_gpu->contexts == 0);
	cr_expect_eq(gpu->contexts, CONTEXT, "the first one has its own");
}

Test(warm_always, a_loader_that_hangs_while_it_makes_contexts_is_given_up)
{
	config.loader_start_ms = 500;
	begin(KEEP_ALWAYS);
	expect_wish(loader);
	next = standby_with(-1);
	expect_dismissed();
	finish();
}

WarmTest(warm_always, what_a_loader_says_unasked_is_ignored, 100)
{
	say_warm(loader, 0);
	cr_expect(loader_pool_standby(server->work.loaders));
}

/* ---- what is told ---- */

static const msgpack_object *keeping(uint32_t *ret_count)
{
	struct fields f;
	int admin = greeted(SESSION_ADMIN);

	cr_assert_eq(ask(admin, "status"), 0);
	close(admin);
	fields_of(&f, message.body);
	return fields_array(&f, "keeping", ret_count);
}

WarmTest(warm_always, status_tells_who_keeps_what, 100)
{
	const msgpack_object *loaders, *contexts;
	char device[DEVICE_BYTES_MAX + 1];
	struct fields f, c;
	uint32_t count;

	keeping(&count);
	cr_expect_eq(count, 0);
	warm_up();
	loaders = keeping(&count);
	cr_assert_eq(count, 1);
	fields_of(&f, &loaders[0]);
	cr_expect_eq(fields_u64(&f, "pid"), 12345);
	cr_expect(fields_bool_or(&f, "ready", false));
	cr_expect_leq(fields_u64(&f, "left_ms"), 100000);
	cr_expect_gt(fields_u64(&f, "left_ms"), 50000);
	contexts = fields_array(&f, "contexts", &count);
	cr_assert_eq(count, 1);
	fields_of(&c, &contexts[0]);
	fields_text(&c, "device", device, sizeof(device));
	cr_expect_str_eq(device, GPU);
	cr_expect_eq(fields_u64(&c, "bytes"), CONTEXT);
	cr_expect_eq(c.error.code, 0, "%s", c.error.message);
}

WarmTest(warm_always, status_tells_no_end, KEEP_ALWAYS)
{
	const msgpack_object *loaders;
	struct fields f;
	uint32_t count;

	expect_wish(loader);
	next = standby_with(-1);
	loaders = keeping(&count);
	cr_assert_eq(count, 1);
	fields_of(&f, &loaders[0]);
	cr_expect_not(fields_bool_or(&f, "ready", true), "it makes them");
	say_warm(loader, 0);
	loaders = keeping(&count);
	fields_of(&f, &loaders[0]);
	cr_expect(fields_bool_or(&f, "ready", false));
	cr_expect_not(fields_have(&f, "left_ms"));
}
