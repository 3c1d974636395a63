/* A load whose version is there is done, whatever becomes of its loader. */
#include "daemon/restart/inherited.h"
#include "daemon/restart/keeping.h"
#include "tests/support/daemon/manager.h"
#include "tests/support/daemon/service.h"

TestSuite(load, .init = open_service, .fini = close_service, .timeout = 60);

static struct manager manager;
static int loader;

/* A load, begun by its loader. */
static struct job *begin(void)
{
	struct job *job;

	listen_for(SOCK_SEQPACKET, 8);
	pool_start();
	loader = standby_with(-1);
	job = new_job();
	cr_assert(comes(loader));
	cr_assert_eq(ASK(loader, "publish_begin", TEXT("name", "m@v1"), TEXT("device", DEVICE_HOST),
			 NUMBER("bytes", 4096)),
		     0, "%s", message.error.message);
	return job;
}

/* The same, where a service manager keeps the descriptors. */
static struct job *begin_stored(void)
{
	struct inherited left = {.sockets = {-1, -1, -1, -1}, .state = -1};
	struct error error;

	manager_start(&manager, "100");
	cr_assert_eq(keeping_begin(server->keeping, &left, &error), 0, "%s", error.message);
	manager.silent = true;
	return begin();
}

static const struct version *version_of(const struct job *job)
{
	const struct ref ref = {.has_id = true, .id = job->version};
	struct version *version = NULL;
	uint64_t generation;

	registry_find(server->ledger.registry, &ref, &version, &generation, NULL);
	return version;
}

/* All of it; the version is ready, or on its way into the store. */
static void hand_in(const struct job *job)
{
	send_checked(loader, &version_of(job)->publish, DEVICE_HOST);
}

/* The version is ready, and its loader has heard so. */
static struct job *made(void)
{
	struct job *job = begin();

	hand_in(job);
	cr_assert_eq(answered(loader), 0, "%s", message.error.message);
	cr_assert_eq(version_of(job)->state, VERSION_READY);
	cr_assert_eq(job->state, JOB_RUNNING, "the loader ends it");
	return job;
}

static struct job *being_stored(void)
{
	struct job *job = begin_stored();

	hand_in(job);
	TURN_UNTIL(version_of(job)->storing);
	return job;
}

static void expect_done(const struct job *job)
{
	cr_expect_eq(job->state, JOB_DONE, "%s", job_state_name(job->state));
	cr_expect_null(job->error);
	cr_expect_eq(version_of(job)->state, VERSION_READY);
	cr_expect_eq(server->work.jobs.running, 0);
}

Test(load, is_done_when_its_loader_dies_behind_it)
{
	struct job *job = made();

	close(loader);
	TURN_UNTIL(job_ended(job));
	expect_done(job);
}

Test(load, is_done_though_it_is_cancelled)
{
	struct job *job = made();
	struct error reason;

	error_set(&reason, -ECANCELED, NULL, "cancelled");
	job_cancel(&server->work, job, &reason);
	TURN_UNTIL(job_ended(job));
	expect_done(job);
	close(loader);
}

Test(load, that_is_done_before_a_cancel_is_heeded_is_not_said_to_be_cancelled)
{
	struct job *job = made();
	int admin = greeted(SESSION_ADMIN);

	SEND(admin, 7, "cancel", NUMBER("job", job->id));
	cr_expect_not(comes(admin));
	close(loader);
	cr_expect_eq(answered_later(admin), -ENOENT);
	cr_expect_str_eq(message.error.message, "job 1 is done already");
	expect_done(job);
	close(admin);
}

Test(load, goes_on_without_its_loader_while_it_is_stored)
{
	struct job *job = being_stored();
	struct error reason;

	error_set(&reason, -ECANCELED, NULL, "cancelled");
	close(loader);
	TURN_UNTIL(!job->loader);
	job_cancel(&server->work, job, &reason);
	cr_expect_eq(job->state, JOB_RUNNING);
	manager_confirm(&manager);
	TURN_UNTIL(job_ended(job));
	expect_done(job);
	manager_stop(&manager);
}

Test(load, fails_without_its_loader_when_it_can_not_be_stored)
{
	struct error reason;
	struct job *job;

	error_set(&reason, -ECANCELED, NULL, "cancelled");
	server->config->store_confirm_ms = 500;
	job = being_stored();
	close(loader);
	TURN_UNTIL(!job->loader);
	job_cancel(&server->work, job, &reason);
	cr_expect_eq(job->state, JOB_RUNNING);
	TURN_UNTIL(job_ended(job));
	cr_expect_eq(job->state, JOB_FAILED);
	cr_expect_eq(job->error->code, -ETIMEDOUT, "%s", job->error->message);
	cr_expect_eq(version_of(job)->state, VERSION_FAILED);
	manager_stop(&manager);
}
