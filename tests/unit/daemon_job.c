/* What is told of a job's course: phases with their times, notes. */
#include "daemon/work/room.h"
#include "tests/support/daemon/service.h"
#include "tests/support/fail_alloc.h"

TestSuite(job, .init = open_service, .fini = close_service, .timeout = 120);

/* ---- the record ---- */

Test(job_record, phases_have_their_times)
{
	struct job_record record = {0};

	job_record_phase(&record, "opening", 100);
	job_record_phase(&record, "copying", 107);
	job_record_bytes(&record, 4096, 8192);
	job_record_phase(&record, "copying", 150);
	job_record_end(&record, false, 207);
	job_record_end(&record, true, 300);
	cr_assert_eq(record.phase_count, 2);
	cr_expect_str_eq(record.phases[0].name, "opening");
	cr_expect_eq(record.phases[0].ms, 7);
	cr_expect_eq(record.phases[0].bytes, 0);
	cr_expect_str_eq(record.phases[1].name, "copying");
	cr_expect_eq(record.phases[1].ms, 100);
	cr_expect_eq(record.phases[1].bytes, 4096);
}

Test(job_record, a_phase_that_ended_well_has_done_all)
{
	struct job_record record = {0};

	job_record_phase(&record, "copying", 10);
	job_record_bytes(&record, 100, 8192);
	job_record_phase(&record, "checking", 11);
	job_record_bytes(&record, 100, 4096);
	job_record_end(&record, true, 12);
	cr_expect_eq(record.phases[0].bytes, 8192);
	cr_expect_eq(record.phases[1].bytes, 4096);
}

Test(job_record, a_phase_that_comes_again_counts_where_it_stood_first)
{
	struct job_record record = {0};

	job_record_phase(&record, "a", 10);
	job_record_bytes(&record, 4, 4);
	job_record_phase(&record, "b", 11);
	job_record_phase(&record, "a", 13);
	job_record_bytes(&record, 3, 4);
	job_record_end(&record, false, 17);
	cr_assert_eq(record.phase_count, 2);
	cr_expect_eq(record.phases[0].ms, 5);
	cr_expect_eq(record.phases[0].bytes, 7);
	cr_expect_eq(record.phases[1].ms, 2);
}

Test(job_record, is_bounded)
{
	struct job_record record = {0};
	char text[64];

	for (unsigned i = 0; i < 3 * JOB_PHASES_MAX; i++) {
		snprintf(text, sizeof(text), "a phase with a name that is too long %u", i);
		job_record_phase(&record, text + i % 3, 10 + i);
		snprintf(text, sizeof(text), "phase %u", i);
		job_record_phase(&record, text, 10 + i);
		cr_expect_eq(job_record_note(&record, text), i < JOB_NOTES_MAX);
	}
	cr_expect_eq(record.phase_count, JOB_PHASES_MAX);
	cr_expect_eq(record.note_count, JOB_NOTES_MAX);
	job_record_clear(&record);
	cr_expect_eq(record.note_count, 0);
}

Test(job_record, a_note_is_kept_once)
{
	struct job_record record = {0};

	cr_expect(job_record_note(&record, "warm"));
	cr_expect_not(job_record_note(&record, "warm"));
	fail_alloc_arm(1);
	cr_expect_not(job_record_note(&record, "cold"));
	cr_expect(fail_alloc_disarm());
	cr_expect_eq(record.note_count, 1);
	job_record_clear(&record);
}

/* ---- what the loader says, and what operators hear ---- */

static void tell(int sock, const char *phase, uint64_t done, uint64_t total, const char *note)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, METHOD_LOADER_PROGRESS);
	message_put_text(&w, "phase", phase);
	message_put_u64(&w, "done", done);
	message_put_u64(&w, "total", total);
	if (note)
		message_put_text(&w, "note", note);
	send_request(sock, &w);
	turn();
}

/* The one job of the answer to `jobs`. */
static struct fields told(int sock)
{
	const msgpack_object *jobs;
	struct fields f, job;
	uint32_t count;

	cr_assert_eq(ask(sock, METHOD_JOBS), 0, "%s", message.error.message);
	fields_of(&f, message.body);
	jobs = fields_array(&f, "jobs", &count);
	cr_assert_eq(count, 1);
	fields_of(&job, jobs);
	return job;
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
	job = told(admin);
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
		cr_assert_str_eq(message.method, NOTIFY_EVENT);
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
	cr_assert_eq(ask(admin, METHOD_SUBSCRIBE), 0);
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

/* ---- dry runs ---- */

/* A loader that stands by, and who asks for loads of /models. */
static void open_dry(int *ret_loader, int *ret_admin)
{
	config.roots[config.root_count++] = strdup("/models");
	listen_for(SOCK_SEQPACKET, 4);
	loader_pool_start(server->work.loaders, NULL, NULL);
	*ret_loader = standby_with(-1);
	*ret_admin = greeted(SESSION_ADMIN);
}

static struct job *ask_for_plan(int admin)
{
	cr_assert_eq(ASK(admin, METHOD_LOAD, TEXT("source", "/models/m"), TEXT("name", "m@v1"),
			 FLAG("dry_run", true)),
		     0, "%s", message.error.message);
	return job_find(&server->work.jobs, answer_u64("job"));
}

/* The loader is done, with a plan for this device. */
static int done_with(int sock, const char *device, uint64_t bytes)
{
	struct message_writer w;

	begin_request(&w, 2, METHOD_LOADER_DONE);
	message_begin_map(&w, "plan");
	message_put_u64(&w, "tensors", 7);
	message_put_u64(&w, "files", 2);
	message_put_u64(&w, "bytes", bytes);
	message_put_u64(&w, "cached", 100);
	message_begin_array(&w, "devices");
	message_begin_map(&w, NULL);
	message_put_text(&w, "device", device);
	message_put_u64(&w, "bytes", bytes);
	message_put_u64(&w, "segments", 1);
	message_end(&w);
	message_end(&w);
	message_end(&w);
	send_request(sock, &w);
	return answered(sock);
}

/* Whether the plan of the one job fits its one device. */
static bool told_to_fit(int admin, uint64_t bytes)
{
	struct fields job = told(admin), plan, device;
	uint32_t count;
	bool fits;

	fields_of(&plan, fields_map(&job, "plan"));
	cr_expect_eq(fields_u64(&plan, "tensors"), 7);
	cr_expect_eq(fields_u64(&plan, "files"), 2);
	cr_expect_eq(fields_u64(&plan, "bytes"), bytes);
	cr_expect_eq(fields_u64(&plan, "cached"), 100);
	fields_of(&device, fields_array(&plan, "devices", &count));
	cr_assert_eq(count, 1);
	cr_expect_eq(fields_u64(&device, "bytes"), bytes);
	cr_expect_eq(fields_u64(&device, "segments"), 1);
	cr_expect_eq(fields_u64(&device, "context"),
		     device_find(&server->ledger.devices, DEVICE_HOST)->context);
	cr_expect_eq(fields_u64(&device, "budget_left"),
		     budget_left(device_find(&server->ledger.devices, DEVICE_HOST)));
	fits = fields_bool_or(&device, "fits", false);
	cr_assert_eq(job.error.code | plan.error.code | device.error.code, 0);
	return fits;
}

Test(job, of_a_dry_run_tells_its_plan_and_whether_it_fits)
{
	struct device *host = device_find(&server->ledger.devices, DEVICE_HOST);
	struct budget_charge charge = {0};
	struct error error;
	int sock, admin;
	struct job *job;

	open_dry(&sock, &admin);
	job = ask_for_plan(admin);
	cr_assert(comes(sock));
	cr_expect_str_eq(message.method, NOTIFY_LOADER_JOB);
	cr_expect(answer_has("dry_run"));
	cr_assert_eq(done_with(sock, DEVICE_HOST, MIB(500)), 0, "%s", message.error.message);
	cr_expect_eq(job->state, JOB_DONE);
	host->free = MIB(500);
	cr_expect(told_to_fit(admin, MIB(500)));
	/* What is used by then counts: here of a context that no loader has. */
	host->context = MIB(400);
	cr_assert_eq(budget_charge_context(host, &charge, &error), 0);
	host->context = 0;
	cr_expect_not(told_to_fit(admin, MIB(500)));
	budget_release(&charge);
	cr_expect(told_to_fit(admin, MIB(500)));
	host->context = MIB(319);
	cr_expect(told_to_fit(admin, MIB(500)));
	host->context = MIB(320);
	cr_expect_not(told_to_fit(admin, MIB(500)), "beside its context");
	close(admin);
	close(sock);
	leave();
}

/* A flag of the one device of the one job's plan. */
static bool told_flag(int admin, const char *flag)
{
	struct fields job = told(admin), plan, device;
	uint32_t count;

	fields_of(&plan, fields_map(&job, "plan"));
	fields_of(&device, fields_array(&plan, "devices", &count));
	cr_assert_eq(count, 1);
	return fields_bool_or(&device, flag, false);
}

/* The load is granted what the budget has. */
static bool told_to_be_short(int admin)
{
	cr_expect(told_flag(admin, "fits"));
	return told_flag(admin, "short_of_free");
}

Test(job, of_a_dry_run_tells_what_is_granted_and_not_free)
{
	struct device *host = device_find(&server->ledger.devices, DEVICE_HOST);
	int sock, admin;

	open_dry(&sock, &admin);
	ask_for_plan(admin);
	cr_assert(comes(sock));
	host->free = MIB(499);
	cr_assert_eq(done_with(sock, DEVICE_HOST, MIB(500)), 0, "%s", message.error.message);
	cr_expect(told_to_be_short(admin));
	host->free = MIB(500);
	cr_expect_not(told_to_be_short(admin));
	host->context = MIB(300);
	host->free = MIB(799);
	cr_expect(told_to_be_short(admin));
	host->free = MIB(800);
	cr_expect_not(told_to_be_short(admin));
	close(admin);
	close(sock);
	leave();
}

/* The same device, asked by a dry run and by a load. */
Test(job, of_a_dry_run_says_that_a_load_fits_which_waits_for_what_is_being_freed)
{
	struct device *host = device_find(&server->ledger.devices, DEVICE_HOST);
	struct version *old;
	struct error error;
	int sock, admin;

	ready("m", "first");
	old = ready("m", "old");
	open_dry(&sock, &admin);
	ask_for_plan(admin);
	cr_assert(comes(sock));
	cr_assert_eq(done_with(sock, DEVICE_HOST, 4096), 0, "%s", message.error.message);
	host->budget = 8192;
	cr_expect_not(told_flag(admin, "fits"));
	cr_expect_eq(room_check_load(&server->work, host, 4096, &error), -ENOSPC);
	cr_assert_eq(versions_retire(&server->work, old, &error), 0);
	cr_expect_eq(room_check_load(&server->work, host, 4096, &error), 0, "it is being freed");
	cr_expect_eq(room_check_load(&server->work, host, 8192, &error), -ENOSPC);
	cr_expect(strstr(error.detail, "4.0 KiB that is being freed"), "%s", error.detail);
	cr_expect(told_flag(admin, "fits"));
	TURN_UNTIL(host->used == 4096);
	cr_expect(told_flag(admin, "fits"));
	close(admin);
	close(sock);
}

Test(job, of_a_dry_run_makes_no_version)
{
	int sock, admin;

	open_dry(&sock, &admin);
	ask_for_plan(admin);
	cr_assert(comes(sock));
	cr_expect_eq(ASK(sock, METHOD_PUBLISH_BEGIN, TEXT("name", "m@v1"), TEXT("device", DEVICE_HOST),
			 NUMBER("bytes", 4096)),
		     -EINVAL);
	cr_expect_str_eq(message.error.message, "a dry run makes no version");
	cr_expect_eq(registry_counts(server->ledger.registry).versions, 0);
	close(admin);
	close(sock);
	leave();
}

Test(job, of_a_dry_run_needs_a_plan_of_its_devices)
{
	struct job *job;
	int sock, admin;

	open_dry(&sock, &admin);
	job = ask_for_plan(admin);
	cr_assert(comes(sock));
	cr_expect_eq(done_with(sock, "GPU-1", 1), -EINVAL);
	cr_expect_str_eq(message.error.message, "the plan has the device GPU-1 in the place of host");
	send_plain(sock, 3, METHOD_LOADER_DONE);
	cr_assert_eq(answered(sock), 0);
	cr_assert_eq(job->state, JOB_FAILED);
	cr_expect_str_eq(job->error->message, "gpuwm-loader ended the dry run without a plan");
	close(admin);
	close(sock);
	leave();
}

static struct job *check_by(uid_t uid)
{
	struct error error;
	struct job *job;

	cr_assert_eq(job_new(&server->work, &(struct job_wish){JOB_CHECK, "m", "v1", uid}, &job, &error), 0);
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
	cr_assert_eq(job_new(&server->work, &(struct job_wish){JOB_CHECK, "m", "v1", 1}, &job, &error),
		     -EDQUOT);
	cr_expect(strstr(error.message, "uid 1 has all 64"), "%s", error.message);
	cr_assert_eq(job_new(&server->work, &(struct job_wish){JOB_CHECK, "m", "v1", 2}, &job, &error), 0);
	cr_assert_eq(job_new(&server->work, &(struct job_wish){JOB_LOAD, "m", "v1", 1}, &job, &error), 0);
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
	struct error error;
	int loaders[2];

	config.loaders = 8;
	listen_for(SOCK_SEQPACKET, 8);
	pool_start();
	check = check_by(1);
	cr_assert_eq(job_new(&server->work, &(struct job_wish){JOB_LOAD, "m", "v2", 1}, &load, &error), 0);
	cr_assert_eq(job_add_device(load, device_find(&server->ledger.devices, DEVICE_HOST)), 0);
	loaders[0] = standby_with(-1);
	cr_expect_eq(load->state, JOB_RUNNING);
	cr_expect_eq(check->state, JOB_QUEUED);
	loaders[1] = standby_with(-1);
	cr_expect_eq(check->state, JOB_RUNNING);
	close(loaders[0]);
	close(loaders[1]);
	TURN_UNTIL(job_ended(check) && job_ended(load));
	leave();
}
