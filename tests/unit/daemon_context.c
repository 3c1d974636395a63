/* What the contexts of loaders take of a GPU's budget, and for how long. */
#include "daemon/work/jobs/job.h"
#include "daemon/work/jobs/verify.h"
#include "tests/support/any/between.h"
#include "tests/support/daemon/service.h"
#include "tests/support/fail_alloc.h"

TestSuite(context, .init = open_service, .fini = close_service, .timeout = 120);

#define GPU "GPU-1"
#define CONTEXT MIB(100)

static struct device *gpu;
static int loader = -1;

/* A GPU with this budget, and a loader that stands by. */
static void begin(uint64_t budget, int pidfd)
{
	struct device report = {
		.id = GPU, .name = "gpu", .kind = &kind_cuda, .total = GIB(1), .context = CONTEXT};

	cr_assert_eq(device_table_budget(&server->ledger.devices, GPU, budget, 0), 0);
	cr_assert_eq(device_table_report(&server->ledger.devices, &report, 1), 0);
	gpu = device_find(&server->ledger.devices, GPU);
	listen_for(SOCK_SEQPACKET, 8);
	pool_start();
	loader = standby_with(pidfd);
}

static void end(void)
{
	close(loader);
	leave();
}

/* A test with this budget. */
#define ContextTest(name, budget) TestBetween(context, name, begin(budget, -1), end())

static struct job *load_to(struct device *second)
{
	struct job *job = new_load("/models/m", "v1", 0);

	cr_assert_eq(job_add_device(job, device_find(&server->ledger.devices, DEVICE_HOST)), 0);
	cr_assert_eq(job_add_device(job, second), 0);
	loader_pool_turn(server->work.loaders);
	return job;
}

Test(context, is_charged_from_a_jobs_start_until_its_process_is_gone)
{
	int pidfd = child_pidfd();
	struct job *job;

	begin(GIB(1), pidfd);
	close(pidfd);
	cr_expect_eq(gpu->used, 0, "one that stands by has none");
	job = load_to(gpu);
	cr_expect_eq(gpu->used, CONTEXT);
	cr_expect_eq(gpu->contexts, CONTEXT);
	cr_expect_eq(device_find(&server->ledger.devices, DEVICE_HOST)->used, 0);
	send_plain(loader, 2, "loader_done");
	TURN_UNTIL(comes(loader) && message.type == MESSAGE_RESPONSE);
	cr_expect(job_ended(job));
	close(loader);
	turn();
	cr_expect_eq(gpu->used, CONTEXT, "its context may still be there");
	child_dies();
	TURN_UNTIL(gpu->used == 0);
	cr_expect_eq(gpu->contexts, 0);
	leave();
}

ContextTest(of_a_load_that_does_not_fit_fails_it, CONTEXT)
{
	struct budget_charge leaving;
	struct error error;
	struct job *job;

	cr_assert_eq(budget_charge(gpu, 1024, &leaving, &error), 0);
	job = load_to(gpu);
	cr_assert_eq(job->state, JOB_FAILED);
	cr_expect_eq(job->error->code, -ENOSPC);
	cr_expect(strstr(job->error->message, "100.0 MiB needed for a CUDA context"), "%s",
		  job->error->message);
	cr_expect(strstr(job->error->detail, ", or wait for what comes back: 1.0 KiB that is being freed"),
		  "%s", job->error->detail);
	cr_expect_eq(gpu->used, 1024);
	budget_release(&leaving);
	cr_expect(loader_pool_standby(server->work.loaders), "the loader is there for the next job");
}

static void send_begin_of(int sock, const char *name, uint64_t bytes)
{
	SEND(sock, 4, "publish_begin", TEXT("name", name), TEXT("device", GPU), NUMBER("bytes", bytes));
}

static void send_begin(int sock, uint64_t bytes)
{
	send_begin_of(sock, "m@v1", bytes);
}

/* What publish_begin's answer names. */
static void abort_it(int sock)
{
	uint8_t id[16];
	struct fields f;

	fields_of(&f, message.body);
	fields_hex128(&f, "publish", id);
	cr_assert_eq(ASK(sock, "publish_abort", ID("publish", id)), 0, "%s", message.error.message);
}

/* Before the publisher makes memory that could then not be checked. */
Test(context, of_a_check_counts_when_the_publish_begins)
{
	int publisher;

	begin(CONTEXT + MIB(50), -1);
	publisher = greeted(SESSION_ADMIN);
	send_begin(publisher, MIB(51));
	cr_assert_eq(answered(publisher), -ENOSPC);
	cr_expect(strstr(message.error.message,
			 "51.0 MiB asked for and 100.0 MiB for a CUDA context while it is checked, 150.0 MiB "
			 "of the budget of 150.0 MiB left"),
		  "%s", message.error.message);
	cr_expect_eq(gpu->used, 0, "nothing is left behind");
	cr_expect_null(registry_next_version(server->ledger.registry, NULL, NULL));
	send_begin(publisher, MIB(50));
	cr_assert_eq(answered(publisher), 0);
	cr_expect_eq(gpu->used, MIB(50), "a loader comes when there is something to check");
	abort_it(publisher);
	close(loader);
	TURN_UNTIL(gpu->used == 0);
	close(publisher);
	leave();
}

/* Whoever came in between took the room. */
ContextTest(of_a_check_may_be_gone_when_its_loader_comes, CONTEXT + MIB(50))
{
	struct budget_charge other;
	struct error error;
	const struct version *version;
	int publisher, checker;
	struct job *load;

	publisher = greeted(SESSION_ADMIN);
	load = load_to(device_find(&server->ledger.devices, DEVICE_HOST));
	send_begin(publisher, MIB(50));
	cr_assert_eq(answered(publisher), 0);
	cr_assert_eq(packet_take_fd(&packet, 0, &checker), 0);
	cr_assert_eq(packet_send(checker, "", 1, NULL, 0), 0, "what it hands in is for the checker to judge");
	cr_expect_eq(gpu->used, MIB(50));
	cr_assert_eq(budget_charge(gpu, 1, &other, &error), 0);
	say_progress(loader);
	close(loader);
	TURN_UNTIL(job_ended(load));
	loader = standby_with(-1);
	version = registry_next_version(server->ledger.registry, "m", NULL);
	TURN_UNTIL(version->state == VERSION_FAILED);
	cr_expect_eq(version->error.code, -ENOSPC);
	close(checker);
	TURN_UNTIL(gpu->used == 1);
	budget_release(&other);
	close(publisher);
}

Test(context, of_another_job_is_waited_for)
{
	struct job *first, *second, *third;
	int other, last;

	config.loaders = 3;
	begin(CONTEXT + CONTEXT / 2, -1);
	first = load_to(gpu);
	other = standby_with(-1);
	second = load_to(gpu);
	cr_expect_eq(first->state, JOB_RUNNING);
	cr_assert_eq(second->state, JOB_QUEUED);
	cr_expect_str_eq(second->phase,
			 "waiting for a loader: CUDA contexts of running jobs leave no room for its own");
	third = load_to(device_find(&server->ledger.devices, DEVICE_HOST));
	cr_expect_eq(third->state, JOB_RUNNING, "it needs none, and passes by");
	say_progress(loader);
	close(loader);
	TURN_UNTIL(job_ended(first));
	last = standby_with(-1);
	cr_assert_eq(second->state, JOB_RUNNING);
	cr_expect_eq(gpu->used, CONTEXT);
	say_progress(other);
	close(other);
	say_progress(last);
	close(last);
	TURN_UNTIL(job_ended(second) && job_ended(third));
	cr_expect_eq(gpu->used, 0);
	leave();
}

/* Each of the two would fit alone: the first to ask waits for the second, which fails at once. */
Test(context, of_another_load_is_waited_for_with_the_bytes_too)
{
	struct job *first, *second;
	int other;

	config.loaders = 3;
	config.load_stall_ms = 100;
	begin(2 * CONTEXT + MIB(10), -1);
	first = load_to(gpu);
	other = standby_with(-1);
	second = load_to(gpu);
	cr_assert_eq(second->state, JOB_RUNNING);
	send_begin(loader, MIB(20));
	TURN_UNTIL(server->clients.waiting == 1);
	cr_expect_str_eq(first->record.notes[0],
			 "waits for room on GPU-1: CUDA contexts of other jobs are in the way");
	TURN_UNTIL(job_ended(second));
	cr_expect_eq(second->error->code, -ETIMEDOUT, "%s", second->error->message);
	cr_assert_eq(first->state, JOB_RUNNING, "who waits does not hang");
	close(other);
	TURN_UNTIL(comes(loader) && message.type == MESSAGE_RESPONSE);
	cr_expect_eq(message.error.code, 0, "%s", message.error.message);
	cr_expect_eq(gpu->used, CONTEXT + MIB(20));
	close(loader);
	TURN_UNTIL(job_ended(first) && gpu->used == 0);
	leave();
}

Test(context, of_loads_that_wait_for_each_other_lets_one_fail)
{
	struct job *first, *second;
	int other;

	config.loaders = 3;
	begin(2 * CONTEXT + MIB(10), -1);
	first = load_to(gpu);
	other = standby_with(-1);
	second = load_to(gpu);
	TURN_UNTIL(comes(loader) && comes(other));
	send_begin(loader, MIB(20));
	TURN_UNTIL(server->clients.waiting == 1);
	send_begin(other, MIB(20));
	cr_assert_eq(answered(other), -ENOSPC);
	cr_expect(strstr(message.error.message, "20.0 MiB asked for beside 200.0 MiB of CUDA contexts"), "%s",
		  message.error.message);
	cr_expect_eq(server->clients.waiting, 1);
	first->watched_ms = 1; /* it has waited for long */
	close(other);
	TURN_UNTIL(job_ended(second));
	cr_assert_eq(answered(loader), 0);
	cr_expect_gt(first->watched_ms, 1, "from the answer on it has load_stall_ms to make progress");
	close(loader);
	TURN_UNTIL(job_ended(first) && gpu->used == 0);
	leave();
}

Test(context, that_nobody_gives_back_is_not_waited_for)
{
	struct budget_charge other;
	struct error error;
	struct job *load;

	config.loaders = 3;
	begin(2 * CONTEXT + MIB(10), -1);
	load = load_to(gpu);
	TURN_UNTIL(comes(loader));
	cr_assert_eq(budget_charge_context(gpu, &other, &error), 0);
	send_begin(loader, MIB(20));
	cr_assert_eq(answered(loader), -ENOSPC);
	cr_expect(strstr(message.error.detail, ": 200.0 MiB of CUDA contexts when running jobs have ended"),
		  "%s", message.error.detail);
	send_begin(loader, MIB(200));
	cr_assert_eq(answered(loader), -ENOSPC);
	budget_release(&other);
	close(loader);
	TURN_UNTIL(job_ended(load) && gpu->used == 0);
	leave();
}

ContextTest(of_a_job_that_never_starts_is_given_back, GIB(1))
{
	struct error error;
	struct job *job;

	cr_assert_eq(job_new(&server->work, &(struct job_wish){JOB_CHECK, "m", "v1", 0, false}, &job, &error),
		     0);
	cr_assert_eq(job_add_device(job, gpu), 0);
	cr_assert_eq(job_charge_contexts(job, NULL, &error), 0);
	cr_expect_eq(gpu->used, CONTEXT);
	error_set(&error, -ECANCELED, NULL, "cancelled");
	job_cancel(&server->work, job, &error);
	cr_expect_eq(gpu->used, 0);
	cr_assert_eq(job_new(&server->work, &(struct job_wish){JOB_CHECK, "m", "v1", 0, false}, &job, &error),
		     0);
	cr_assert_eq(job_add_device(job, gpu), 0);
	fail_alloc_arm(1);
	cr_expect_eq(job_charge_contexts(job, NULL, &error), -ENOMEM);
	cr_assert(fail_alloc_disarm());
	cr_assert_eq(job_charge_contexts(job, NULL, &error), 0);
	job_drop(&server->work.jobs, job);
	cr_expect_eq(gpu->used, 0);
}

/* Where there is no memory to tie it to the process it goes with the job. */
static unsigned looks;

/* Who waits for room begins, and there is no memory for the loader that is to check it. */
static void look_for_room(struct waiter *waiter, const struct version *changed, bool expired)
{
	(void)waiter;
	(void)changed;
	(void)expired;
	cr_assert_eq(looks++, 0, "it is woken while it begins");
	fail_alloc_arm(2); /* the loader itself is the first */
	cr_expect(loader_start(server->work.loaders));
	cr_assert(fail_alloc_disarm());
}

ContextTest(room_is_looked_for_by_one_at_a_time, GIB(1))
{
	struct request request = {.server = server};
	struct waiter *waiter;
	struct error error;
	int client;

	client = greeted(SESSION_WORKER);
	request.session = server->net.sessions;
	cr_assert_eq(waiter_new(&request, WAIT_ROOM, -1, look_for_room, &waiter, &error), 0);
	waiters_wake(&server->clients, WAIT_ROOM, NULL);
	cr_expect_eq(looks, 1);
	cr_expect_eq(loader_pool_count(server->work.loaders), 1, "the one that stands by");
	waiter_free(waiter);
	close(client);
}

ContextTest(without_memory_goes_with_the_job, GIB(1))
{
	struct error error;
	struct job *job = new_load("/models/m", "v1", 0);

	cr_assert_eq(job_add_device(job, gpu), 0);
	cr_assert_eq(job_charge_contexts(job, NULL, &error), 0);
	fail_alloc_arm(1);
	job_hand_contexts(job, server->work.loaders->first);
	cr_assert(fail_alloc_disarm());
	cr_expect_eq(gpu->used, CONTEXT);
	error_set(&error, -ECANCELED, NULL, "cancelled");
	job_cancel(&server->work, job, &error);
	cr_expect_eq(gpu->used, 0);
}

ContextTest(is_what_loaders_say, GIB(1))
{
	struct message_writer w;
	struct fields f, device;
	const msgpack_object *devices;
	uint32_t count;
	int admin;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "loader_devices");
	message_begin_array(&w, "devices");
	message_begin_map(&w, NULL);
	message_put_text(&w, "device", GPU);
	message_put_text(&w, "kind", "cuda");
	message_put_text(&w, "name", "gpu");
	message_put_u64(&w, "total", GIB(1));
	message_put_u64(&w, "free", GIB(1));
	message_put_u64(&w, "granularity", 4096);
	message_put_u64(&w, "context", 12345);
	message_end(&w);
	message_end(&w);
	send_request(loader, &w);
	TURN_UNTIL(gpu->context == 12345);
	admin = greeted(SESSION_ADMIN);
	cr_assert_eq(ask(admin, "status"), 0);
	fields_of(&f, message.body);
	devices = fields_array(&f, "devices", &count);
	cr_assert_eq(count, 2);
	fields_of(&device, &devices[1]);
	cr_expect_eq(fields_u64(&device, "context"), 12345);
	close(admin);
}

/* While the publisher waits for room, the library sends no signs of life. */
ContextTest(that_comes_after_a_long_wait_is_not_taken_back_at_once, GIB(1))
{
	struct device *host;
	uint64_t granted;
	int publisher;

	host = device_find(&server->ledger.devices, DEVICE_HOST);
	config.publish_silence_ms = 300;
	publisher = greeted(SESSION_ADMIN);
	host->used = host->budget;
	SEND(publisher, 4, "publish_begin", TEXT("name", "m@v1"), TEXT("device", DEVICE_HOST),
	     NUMBER("bytes", 4096));
	turn();
	cr_assert_eq(server->clients.waiting, 1);
	server->net.sessions->client->heard_ms -= 10000; /* so long ago */
	host->used = 0;
	work_later(&server->work, LATER_ROOM);
	cr_assert_eq(answered(publisher), 0, "%s", message.error.message);
	granted = clock_steady_ms();
	TURN_UNTIL(publish_count(server->ledger.publishes) == 0);
	cr_expect_geq(clock_steady_ms() - granted, 300);
	close(publisher);
}

/* What ends with it may be the next one that is looked at. */
Test(context, of_a_job_that_ends_as_a_publish_fails_is_no_trap)
{
	int silent, next, checkers[2], other;

	config.loaders = 4;
	begin(CONTEXT + MIB(60), -1);
	silent = greeted(SESSION_ADMIN);
	next = greeted(SESSION_ADMIN);
	cr_assert_eq(load_to(gpu)->state, JOB_RUNNING);
	other = standby_with(-1);
	config.publish_silence_ms = 60000;
	send_begin_of(silent, "m@v1", MIB(50));
	cr_assert_eq(answered(silent), 0, "%s", message.error.message);
	cr_assert_eq(packet_take_fd(&packet, 0, &checkers[0]), 0);
	cr_assert_eq(packet_send(checkers[0], "", 1, NULL, 0), 0);
	turn();
	config.publish_silence_ms = 100;
	send_begin_of(next, "m@v2", 0);
	cr_assert_eq(answered(next), 0, "%s", message.error.message);
	cr_assert_eq(packet_take_fd(&packet, 0, &checkers[1]), 0);
	gpu->budget = MIB(120); /* as a reload */
	TURN_UNTIL(publish_count(server->ledger.publishes) == 0);
	for (size_t i = 0; i < 2; i++)
		close(checkers[i]);
	close(silent);
	close(next);
	close(loader);
	close(other);
	TURN_UNTIL(gpu->used == 0);
	leave();
}
