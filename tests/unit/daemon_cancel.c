/* cancel is answered when the job has ended. */
#include "tests/support/daemon/service.h"

TestSuite(cancel, .init = open_service, .fini = close_service, .timeout = 60);

static void send_cancel(int sock, const struct job *job)
{
	SEND(sock, 7, "cancel", NUMBER("job", job->id));
}

static int loader;

/* A load that a loader has. */
static struct job *running(void)
{
	struct job *job;

	listen_for(SOCK_SEQPACKET, 4);
	pool_start();
	loader = standby_with(-1);
	job = new_job();
	cr_assert(comes(loader));
	cr_assert_str_eq(message.method, "job");
	return job;
}

static void loader_heeds(void)
{
	cr_assert(comes(loader));
	cr_assert_str_eq(message.method, "cancel");
	loader_ends(loader, -ECANCELED, "cancelled");
}

/* The state of the one job, as `jobs` tells it. */
static void expect_told(int sock, const char *expected)
{
	const msgpack_object *jobs;
	struct fields f, job;
	char state[32];
	uint32_t count;

	cr_assert_eq(ask(sock, "jobs"), 0);
	fields_of(&f, message.body);
	jobs = fields_array(&f, "jobs", &count);
	cr_assert_eq(count, 1);
	fields_of(&job, jobs);
	fields_text(&job, "state", state, sizeof(state));
	cr_expect_str_eq(state, expected);
}

static void expect_ended_already(int sock, const struct job *job, const char *says)
{
	send_cancel(sock, job);
	cr_expect_eq(answered(sock), -ENOENT);
	cr_expect_str_eq(message.error.message, says);
}

Test(cancel, is_answered_when_the_job_has_ended_to_everybody_who_asked)
{
	struct job *job = running();
	int first = greeted(SESSION_ADMIN), second = greeted(SESSION_ADMIN), third = greeted(SESSION_ADMIN);

	expect_told(third, "running");
	send_cancel(first, job);
	cr_expect_not(comes(first), "its loader goes on");
	send_cancel(second, job);
	cr_expect_not(comes(second), "its loader goes on");
	expect_told(third, "cancelling");
	loader_heeds();
	cr_expect_eq(answered(first), 0);
	cr_expect_eq(answered(second), 0);
	expect_told(third, "cancelled");
	expect_ended_already(third, job, "job 1 is cancelled already");
	close(first);
	close(second);
	close(third);
	close(loader);
	leave();
}

Test(cancel, of_a_job_without_a_loader_is_answered_at_once)
{
	int admin = greeted(SESSION_ADMIN);
	struct job *job;

	listen_for(SOCK_SEQPACKET, 4);
	pool_start();
	job = new_job();
	send_cancel(admin, job);
	cr_expect_eq(answered(admin), 0);
	expect_told(admin, "cancelled");
	close(admin);
	leave();
}

Test(cancel, of_a_job_that_is_done_or_failed_says_so)
{
	struct error error = {.code = -EIO, .message = "no such luck"};
	int admin = greeted(SESSION_ADMIN);
	struct job *done, *failed;

	done = new_job();
	failed = new_job();
	job_end(&server->work, done, NULL);
	job_end(&server->work, failed, &error);
	expect_ended_already(admin, done, "job 1 is done already");
	expect_ended_already(admin, failed, "job 2 is failed already");
	close(admin);
	leave();
}

Test(cancel, that_can_not_be_answered_cancels_nothing)
{
	struct job *job = running();
	int admin = greeted(SESSION_ADMIN), other = greeted(SESSION_ADMIN);

	/* As many as a connection may have. */
	for (int i = 0; i < REQUESTS_PER_SESSION_MAX; i++) {
		SEND(admin, 100 + (uint64_t)i, "jobs", NUMBER("job", job->id), SIGNED("wait_ms", -1));
		turn();
	}
	send_cancel(admin, job);
	cr_expect_eq(answered(admin), -EDQUOT, "%s", message.error.message);
	expect_told(other, "running");
	close(admin);
	close(other);
	close(loader);
	leave();
}
