/* The course of a job: its phases and notes, the time that it may take, and its turn in the queue. */
#include "tests/support/daemon/service.h"
#include "tests/support/fail_alloc.h"

TestSuite(job, .init = open_service, .fini = close_service, .timeout = 120);

/* ---- what the loader says, and what operators hear ---- */

static void tell(int sock, const char *phase, uint64_t done, uint64_t total, const char *note)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "loader_progress");
	message_put_text(&w, "phase", phase);
	message_put_u64(&w, "done", done);
	message_put_u64(&w, "total", total);
	if (note)
		message_put_text(&w, "note", note);
	send_request(sock, &w);
	turn();
}

static void expect_phase(const msgpack_object *phase, const char *name, uint64_t bytes)
{
	struct fields f;
	char text[64];

	fields_of(&f, phase);
	fields_text(&f, "phase", text, sizeof(text));
	cr_expect_str_eq(text, name);
	fields_u64(&f, "ms");
	cr_expect_eq(fields_u64_or(&f, "bytes", 0), bytes);
	cr_expect_eq(f.error.code, 0, "%s", f.error.message);
}

static void expect_notes(struct fields *job, const char *first, uint32_t expected)
{
	char text[64] = "";
	uint32_t count;
	const msgpack_object *notes = fields_array(job, "notes", &count);

	cr_assert_eq(count, expected);
	fields_text_at(job, notes, "notes", text, sizeof(text));
	cr_expect_str_eq(text, first);
}

Test(job, tells_its_phases_and_notes)
{
	const msgpack_object *phases;
	int sock, admin;
	struct fields job;
	uint32_t count;

	listen_for(SOCK_SEQPACKET, 4);
	loader_pool_start(server->work.loaders, NULL, NULL);
	sock = standby_with(-1);
	new_job();
	admin = greeted(SESSION_ADMIN);
	tell(sock, "opening", 0, 0, NULL);
	tell(sock, "copying", 4096, 8192, "all of it was cached");
	tell(sock, "copying", 8192, 8192, "all of it was cached");
	job = job_told(admin);
	phases = fields_array(&job, "phases", &count);
	cr_assert_eq(count, 4);
	expect_phase(&phases[0], "waiting", 0);
	expect_phase(&phases[1], "starting", 0);
	expect_phase(&phases[2], "opening", 0);
	expect_phase(&phases[3], "copying", 8192);
	expect_notes(&job, "all of it was cached", 1);
	close(admin);
	close(sock);
	leave();
}

/* Numbers of job events that came, and of those with a note. */
static void count_events(int sock, unsigned *ret_events, unsigned *ret_notes)
{
	*ret_events = *ret_notes = 0;
	while (comes(sock)) {
		cr_assert_str_eq(message.method, "event");
		++*ret_events;
		if (!answer_has("note"))
			continue;
		++*ret_notes;
		cr_expect_str_eq(answer_text("note"), "half of it was cached");
		cr_expect_str_eq(answer_text("phase"), "copying");
	}
}

Test(job, tells_a_note_at_once_and_once)
{
	unsigned events, notes;
	int sock, admin;

	listen_for(SOCK_SEQPACKET, 4);
	loader_pool_start(server->work.loaders, NULL, NULL);
	sock = standby_with(-1);
	new_job();
	admin = greeted(SESSION_ADMIN);
	tell(sock, "copying", 1, 8192, NULL);
	cr_assert_eq(ask(admin, "subscribe"), 0);
	for (int i = 0; i < 3; i++)
		tell(sock, "copying", 2, 8192, "half of it was cached");
	count_events(admin, &events, &notes);
	cr_expect_eq(notes, 1);
	cr_expect_leq(events, 2, "%u", events);
	close(admin);
	close(sock);
	leave();
}

/* ---- a load that hangs ---- */

/* A load that runs; its loader's end. */
static int running(struct job **ret_job)
{
	int sock;

	listen_for(SOCK_SEQPACKET, 4);
	loader_pool_start(server->work.loaders, NULL, NULL);
	sock = standby_with(-1);
	*ret_job = new_job();
	cr_assert_eq((*ret_job)->state, JOB_RUNNING);
	return sock;
}

static void expect_stalled(struct job *job, const char *says)
{
	TURN_UNTIL(job_ended(job));
	cr_assert_eq(job->state, JOB_FAILED);
	cr_expect_eq(job->error->code, -ETIMEDOUT);
	cr_expect_str_eq(job->error->message, says);
	cr_expect(strstr(job->error->detail, "load_stall_ms in [limits]"), "%s", job->error->detail);
}

Test(job, of_a_load_that_hangs_fails_and_says_in_which_phase)
{
	struct job *job;
	int sock;

	config.load_stall_ms = 50;
	sock = running(&job);
	tell(sock, "copying", 4096, 8192, NULL);
	expect_stalled(job, "the load hangs: no progress for 50 ms while copying");
	forget();
	while (packet_receive(sock, true, &packet) > 0)
		packet_drop(&packet);
	cr_expect(is_ended(sock), "its loader lives on");
	close(sock);
	leave();
}

Test(job, of_a_load_that_never_begins_fails)
{
	struct job *job;
	int sock;

	config.load_stall_ms = 50;
	sock = running(&job);
	expect_stalled(job, "the load hangs: no progress for 50 ms while starting");
	close(sock);
	leave();
}

/* For gpuwmd, which looks then whether the job made progress meanwhile. */
static void time_passes(struct job *job, uint64_t ms)
{
	job->watched_ms -= ms;
	loader_pool_watch(server->work.loaders);
	turn();
}

/* Words alone are none. */
Test(job, of_a_load_needs_progress)
{
	struct job *job;
	int sock;

	config.load_stall_ms = 60000;
	sock = running(&job);
	for (uint64_t done = 1; done <= 8; done++) {
		tell(sock, "copying", done, 8, NULL);
		TURN_UNTIL(job->done == done);
		time_passes(job, 40000);
		cr_assert_not(job_ended(job), "%llu of 8", (unsigned long long)done);
	}
	tell(sock, "copying", 8, 8, NULL);
	turn();
	time_passes(job, 40000);
	expect_stalled(job, "the load hangs: no progress for 60000 ms while copying");
	close(sock);
	leave();
}

Test(job, of_a_load_may_take_any_time_where_there_is_no_limit)
{
	struct job *job;
	int sock;

	config.load_stall_ms = 0;
	sock = running(&job);
	tell(sock, "copying", 4096, 8192, NULL);
	TURN_UNTIL(job->done == 4096);
	time_passes(job, UINT32_MAX);
	cr_expect_eq(job->state, JOB_RUNNING);
	/* The configuration is read again: the limit holds for the loads that run. */
	config.load_stall_ms = 50;
	loader_pool_watch(server->work.loaders);
	expect_stalled(job, "the load hangs: no progress for 50 ms while copying");
	close(sock);
	leave();
}

/* ---- the queue ---- */

static struct job *check_by(uid_t uid)
{
	struct error error;
	struct job *job;

	cr_assert_eq(job_new(&server->work, &(struct job_wish){JOB_CHECK, "m", "v1", uid, false}, &job, &error),
		     0);
	cr_assert_eq(job_add_device(job, device_find(&server->ledger.devices, DEVICE_HOST)), 0);
	loader_pool_turn(server->work.loaders);
	return job;
}

Test(job, checks_of_one_user_leave_room_in_the_queue)
{
	struct error error;
	struct job *job;

	for (int i = 0; i < CHECKS_OPEN_PER_UID_MAX; i++)
		check_by(1);
	cr_assert_eq(job_new(&server->work, &(struct job_wish){JOB_CHECK, "m", "v1", 1, false}, &job, &error),
		     -EDQUOT);
	cr_expect(strstr(error.message, "uid 1 has all 64"), "%s", error.message);
	cr_assert_eq(job_new(&server->work, &(struct job_wish){JOB_CHECK, "m", "v1", 2, false}, &job, &error),
		     0);
	job = new_load("/models/m", "v1", 1);
}

/* However many parts a publish has. */
Test(job, checks_of_one_user_leave_loaders_to_the_others)
{
	struct job *mine[3], *other;
	int loaders[4];

	config.loaders = 8;
	config.quota.per_uid[QUOTA_PUBLISHES] = 2;
	listen_for(SOCK_SEQPACKET, 8);
	pool_start();
	for (int i = 0; i < 3; i++) {
		loaders[i] = standby_with(-1);
		mine[i] = check_by(1);
	}
	cr_expect_eq(mine[1]->state, JOB_RUNNING);
	cr_expect_eq(mine[2]->state, JOB_QUEUED);
	cr_expect(strstr(mine[2]->phase, "publishes_per_uid"), "%s", mine[2]->phase);
	other = check_by(2);
	cr_expect_eq(other->state, JOB_RUNNING);
	loaders[3] = standby_with(-1);
	cr_expect_eq(mine[2]->state, JOB_QUEUED);
	cr_expect_eq(loader_pool_count(server->work.loaders), 4,
		     "no loader is started for what could not have it");
	close(loaders[0]);
	TURN_UNTIL(job_ended(mine[0]) && mine[2]->state == JOB_RUNNING);
	for (int i = 1; i < 4; i++)
		close(loaders[i]);
	TURN_UNTIL(job_ended(mine[1]) && job_ended(mine[2]) && job_ended(other));
	leave();
}

/* The first user's second part is older, and waits for the other user's first. */
Test(job, checks_are_given_to_the_users_in_turn)
{
	struct job *mine[2], *other;
	int loaders[4];

	config.loaders = 8;
	listen_for(SOCK_SEQPACKET, 8);
	pool_start();
	mine[0] = check_by(1);
	mine[1] = check_by(1);
	other = check_by(2);
	loaders[0] = standby_with(-1);
	cr_expect_eq(mine[0]->state, JOB_RUNNING);
	loaders[1] = standby_with(-1);
	cr_expect_eq(other->state, JOB_RUNNING);
	cr_expect_eq(mine[1]->state, JOB_QUEUED);
	loaders[2] = standby_with(-1);
	cr_expect_eq(mine[1]->state, JOB_RUNNING);
	loaders[3] = standby_with(-1);
	for (int i = 0; i < 4; i++)
		close(loaders[i]);
	TURN_UNTIL(job_ended(mine[0]) && job_ended(mine[1]) && job_ended(other));
	leave();
}

Test(job, loads_come_before_checks)
{
	struct job *check, *load;
	int loaders[2];

	config.loaders = 8;
	listen_for(SOCK_SEQPACKET, 8);
	pool_start();
	check = check_by(1);
	load = new_load("/models/m", "v2", 1);
	cr_assert_eq(job_add_device(load, device_find(&server->ledger.devices, DEVICE_HOST)), 0);
	loaders[0] = standby_with(-1);
	cr_expect_eq(load->state, JOB_RUNNING);
	cr_expect_eq(check->state, JOB_QUEUED);
	loaders[1] = standby_with(-1);
	cr_expect_eq(check->state, JOB_RUNNING);
	say_progress(loaders[0]);
	close(loaders[0]);
	close(loaders[1]);
	TURN_UNTIL(job_ended(check) && job_ended(load));
	leave();
}

/* The files come from a user, who would else come before those who published earlier. */
Test(job, a_load_of_a_users_files_takes_turns_with_checks)
{
	struct job *checks[2], *load;
	int loaders[3];

	config.loaders = 8;
	listen_for(SOCK_SEQPACKET, 8);
	pool_start();
	checks[0] = check_by(1);
	load = new_load("hf:acme/tiny@0123abc", "v2", 1);
	load->takes_turns = true;
	cr_assert_eq(job_add_device(load, device_find(&server->ledger.devices, DEVICE_HOST)), 0);
	checks[1] = check_by(2);
	loaders[0] = standby_with(-1);
	cr_expect_eq(checks[0]->state, JOB_RUNNING);
	loaders[1] = standby_with(-1);
	cr_expect_eq(checks[1]->state, JOB_RUNNING);
	cr_expect_eq(load->state, JOB_QUEUED);
	loaders[2] = standby_with(-1);
	cr_expect_eq(load->state, JOB_RUNNING);
	say_progress(loaders[2]);
	for (int i = 0; i < 3; i++)
		close(loaders[i]);
	TURN_UNTIL(job_ended(checks[0]) && job_ended(checks[1]) && job_ended(load));
	leave();
}

Test(job, waiting_loads_of_files_count_with_open_parts)
{
	struct error error;
	struct job *load;

	for (int i = 0; i < CHECKS_OPEN_PER_UID_MAX; i++)
		check_by(1);
	load = new_load("/models/m", "v2", 1);
	load->asked_by_operator = false;
	cr_assert_eq(job_take_files(&server->work.jobs, load, &error), -EDQUOT);
	cr_expect(strstr(error.message, "uid 1 has all 64 open parts and waiting loads"), "%s", error.message);
	job_drop(&server->work.jobs, load);
}

/* ---- which ended jobs are forgotten ---- */

/* A load that has ended without a loader. */
static uint64_t ended_load(int code)
{
	struct error why;
	struct job *job;

	job = new_load("/models/m", "v1", 1);
	if (code < 0)
		error_set(&why, code, NULL, "it failed");
	job_end(&server->work, job, code < 0 ? &why : NULL);
	return job->id;
}

Test(job, that_failed_is_forgotten_last)
{
	uint64_t failed, good;

	failed = ended_load(-EBADMSG);
	good = ended_load(0);
	for (int i = 0; i < JOBS_KEPT_MAX; i++)
		ended_load(0);
	job_table_prune(&server->work.jobs);
	cr_expect(job_find(&server->work.jobs, failed));
	cr_expect_null(job_find(&server->work.jobs, good));
	cr_expect_leq(server->work.jobs.kept, JOBS_KEPT_MAX);
	for (int i = 0; i < JOBS_KEPT_MAX; i++)
		ended_load(-EBADMSG);
	job_table_prune(&server->work.jobs);
	cr_expect_null(job_find(&server->work.jobs, failed), "the oldest of too many");
	cr_expect_leq(server->work.jobs.kept, JOBS_KEPT_MAX);
	leave();
}
