/* Checkers that stay for the next check of their user: who stays, and what it gets. The test is the loaders. */
#include "tests/support/daemon/checkers.h"

TestSuite(checker, .init = open_service, .fini = close_service, .timeout = 120);

/* ---- whose it is ---- */

CheckerTest(checker, has_the_next_check_of_its_user)
{
	struct fields f;

	stay();
	for (int i = 0; i < 3; i++) {
		struct job *job = hand_in(NULL, GPU, ONE);

		expect_job(loader);
		fields_of(&f, message.body);
		cr_expect(fields_bool_or(&f, "keep", false));
		cr_expect_eq(gpu->contexts, CONTEXT, "it is charged once");
		cr_expect(checks_and_stays(loader, job));
	}
	cr_expect_eq(gpu->contexts, CONTEXT);
}

CheckerTest(checker, has_no_check_of_another_user)
{
	stay();
	hand_in(NULL, GPU, OTHER);
	expect_job(next);
	cr_expect_not(comes(loader), "%s", message.method);
	cr_expect_eq(gpu->contexts, 2 * CONTEXT);
}

/* Root in a container has the uid of root. */
CheckerTest(checker, has_no_check_of_an_operator_with_the_uid_of_its_user)
{
	struct job *job;

	stay();
	job = begin_part(NULL, GPU, ONE);
	job->by_operator = true;
	hand_over(job);
	expect_job(next);
	cr_expect_not(comes(loader), "%s", message.method);
}

CheckerTest(checker, has_no_check_on_another_gpu)
{
	stay();
	hand_in(NULL, OTHER_GPU, ONE);
	expect_job(next);
	cr_expect_not(comes(loader), "%s", message.method);
}

CheckerTest(checker, has_no_check_of_a_version_with_a_name)
{
	struct fields f;
	struct job *job;

	stay();
	job = hand_in("m@v1", GPU, ONE);
	expect_job(next);
	fields_of(&f, message.body);
	cr_expect_not(fields_have(&f, "keep"));
	cr_expect_not(comes(loader), "%s", message.method);
	cr_expect_not(checks_and_stays(next, job), "whatever it offers");
}

CheckerTest(checker, has_no_load)
{
	stay();
	load_to(gpu);
	expect_job(next);
	cr_expect_not(comes(loader), "%s", message.method);
}

CheckerTest(checker, covers_no_gpu_for_loads)
{
	int third;

	stay();
	config.keep_context_s = 100;
	load_to(gpu);
	expect_job(next);
	third = standby_with(-1);
	say_progress(next);
	cr_expect(says_done_and_stays(next, 0));
	turn();
	cr_expect_eq(gpu->contexts, 2 * CONTEXT, "both stay");
	hand_in(NULL, GPU, ONE);
	expect_job(loader);
	load_to(gpu);
	expect_job(next);
	close(third);
}

/* It is not one of the contexts that keep_context has on each GPU. */
CheckerTest(checker, keeps_no_context_from_loads)
{
	uint32_t count = 0;
	struct fields f;

	stay();
	config.keep_context_s = KEEP_ALWAYS;
	loader_pool_watch(server->work.loaders);
	TURN_UNTIL(comes(next) && strcmp(message.method, "warm") == 0);
	fields_of(&f, message.body);
	fields_array(&f, "devices", &count);
	cr_expect_eq(count, 2);
}

/* A user may have several: what is shared at the same time is checked at the same time. */
CheckerTest(checker, is_one_of_several_of_its_user)
{
	struct job *first, *second;
	int third;

	stay();
	first = hand_in(NULL, GPU, ONE);
	expect_job(loader);
	second = hand_in(NULL, GPU, ONE);
	expect_job(next);
	third = standby_with(-1);
	cr_expect(checks_and_stays(loader, first));
	cr_expect(checks_and_stays(next, second));
	cr_expect_eq(gpu->contexts, 2 * CONTEXT);
	close(third);
}

/* ---- who does not stay ---- */

CheckerTest(checker, is_none_whose_check_failed)
{
	hand_in(NULL, GPU, ONE);
	expect_job(loader);
	cr_expect_not(says_done_and_stays(loader, -EBADMSG));
}

CheckerTest(checker, is_none_whose_check_was_cancelled)
{
	struct error error;
	struct job *job = hand_in(NULL, GPU, ONE);

	expect_job(loader);
	error_set(&error, -ECANCELED, NULL, "cancelled");
	job_cancel(&server->work, job, &error);
	cr_expect_not(says_done_and_stays(loader, 0));
}

CheckerTest(checker, is_none_on_host)
{
	struct fields f;
	struct job *job;

	job = hand_in(NULL, DEVICE_HOST, ONE);
	expect_job(loader);
	fields_of(&f, message.body);
	cr_expect_not(fields_have(&f, "keep"));
	cr_expect_not(checks_and_stays(loader, job));
}

CheckerTest(checker, is_none_without_a_time)
{
	struct fields f;
	struct job *job;

	config.keep_checker_s = 0;
	job = hand_in(NULL, GPU, ONE);
	expect_job(loader);
	fields_of(&f, message.body);
	cr_expect_not(fields_have(&f, "keep"));
	cr_expect_not(checks_and_stays(loader, job));
}

/* ---- how many, and for whom else it needs no place ---- */

CheckerTest(checker, that_was_idle_for_longest_goes_first)
{
	struct job *jobs[CHECKERS_KEPT_MAX + 1];
	int socks[CHECKERS_KEPT_MAX + 1];

	config.loaders = LOADERS_MAX;
	socks[0] = loader;
	for (size_t i = 0; i <= CHECKERS_KEPT_MAX; i++) {
		jobs[i] = hand_in(NULL, GPU, (uid_t)(ONE + i));
		expect_job(socks[i]);
		next = standby_with(-1);
		if (i < CHECKERS_KEPT_MAX)
			socks[i + 1] = next;
	}
	/* In another order than that of their starts. */
	cr_assert(checks_and_stays(socks[1], jobs[1]));
	warm_one()->warm_since_ms -= 2; /* so long ago */
	cr_assert(checks_and_stays(socks[0], jobs[0]));
	for (size_t i = 2; i <= CHECKERS_KEPT_MAX; i++)
		cr_assert(checks_and_stays(socks[i], jobs[i]));
	TURN_UNTIL(is_ended(socks[1]));
	cr_expect_not(is_ended(socks[0]));
	cr_expect_eq(gpu->contexts, CHECKERS_KEPT_MAX * CONTEXT);
	for (size_t i = 1; i <= CHECKERS_KEPT_MAX; i++)
		close(socks[i]);
}

CheckerTest(checker, makes_another_one_needless)
{
	struct loader *idle = server->work.loaders->first;

	stay();
	/* The user that begins parts here. */
	idle->uid = geteuid();
	idle->by_operator = true;
	begin_part(NULL, GPU, geteuid())->by_operator = true;
	turn();
	cr_expect_eq(loader_pool_count(server->work.loaders), 2);
	begin_part(NULL, GPU, geteuid());
	turn();
	cr_expect_eq(loader_pool_count(server->work.loaders), 3, "it has one check at a time");
}

CheckerTest(checker, makes_none_needless_on_another_gpu)
{
	struct loader *idle = server->work.loaders->first;

	stay();
	idle->uid = geteuid();
	idle->by_operator = true;
	begin_part(NULL, OTHER_GPU, geteuid());
	turn();
	cr_expect_eq(loader_pool_count(server->work.loaders), 3);
}

/* ---- what is told ---- */

static struct fields told_to(enum session_kind kind)
{
	const msgpack_object *loaders;
	struct fields f;
	uint32_t count;
	int sock = greeted(kind);

	cr_assert_eq(ask(sock, "status"), 0);
	close(sock);
	fields_of(&f, message.body);
	loaders = fields_array(&f, "keeping", &count);
	cr_assert_eq(count, 1);
	fields_of(&f, &loaders[0]);
	return f;
}

CheckerTest(checker, is_told)
{
	struct fields f;

	stay();
	f = told_to(SESSION_ADMIN);
	cr_expect(fields_bool_or(&f, "checks", false));
	cr_expect(fields_bool_or(&f, "ready", false));
	cr_expect_eq(fields_u64(&f, "uid"), ONE);
	cr_expect_leq(fields_u64(&f, "left_ms"), 1000 * KEEP_S);
	cr_expect_eq(f.error.code, 0, "%s", f.error.message);
}

CheckerTest(checker, is_told_to_workers_without_its_user)
{
	struct fields f;

	stay();
	f = told_to(SESSION_WORKER);
	cr_expect(fields_bool_or(&f, "checks", false));
	cr_expect_not(fields_have(&f, "uid"));
}
