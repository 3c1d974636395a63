/* The scrub: what it reads, when, and for whom it gives way. */
#include "base/clock.h"
#include "daemon/work/jobs/verify.h"
#include "tests/support/any/between.h"
#include "tests/support/daemon/service.h"
#include "tests/support/fail_alloc.h"

TestSuite(scrub, .init = open_service, .fini = close_service, .timeout = 120);

static int admin = -1, loader = -1;
static struct error error;

/* A pass begins in a second; of so many loaders one stands by. */
static void begin(uint64_t loaders)
{
	config.loaders = loaders;
	config.scrub_interval = 1;
	config.scrub_duty = 2;
	listen_for(SOCK_SEQPACKET, 8);
	pool_start();
	loader = standby_with(-1);
	admin = greeted(SESSION_ADMIN);
	scrub_configure(server->work.scrub);
}

static void end(void)
{
	versions_retire_all(&server->work);
	close(admin);
	close(loader);
	TURN_UNTIL(registry_counts(server->ledger.registry).fds == 0);
	leave();
}

/* A test between begin and end. */
#define ScrubTest(name, loaders) TestBetween(scrub, name, begin(loaders), end())

/* What the status tells. */
static uint64_t told(const char *key)
{
	struct fields f, scrub;
	uint64_t value;

	cr_assert_eq(ask(admin, "status"), 0);
	fields_of(&f, message.body);
	fields_of(&scrub, fields_map(&f, "scrub"));
	value = strcmp(key, "running") == 0 ? fields_bool_or(&scrub, key, false)
					    : fields_u64_or(&scrub, key, 0);
	cr_assert_eq(f.error.code | scrub.error.code, 0);
	return value;
}

/* The job that the loader is given next, by its tag. */
static const char *next_tag(int sock)
{
	TURN_UNTIL(comes(sock) && strcmp(message.method, "job") == 0);
	return answer_text("tag");
}

static void finish(int sock, int code)
{
	loader_ends(sock, code, "what it found");
	close(sock);
}

/* The same, and the next loader comes. */
static void finish_and_go_on(int code)
{
	finish(loader, code);
	loader = standby_with(-1);
}

/* The loader is told to give the part up, and does. */
static void expect_cancel(void)
{
	TURN_UNTIL(comes(loader) && strcmp(message.method, "cancel") == 0);
	finish(loader, -ECANCELED);
}

ScrubTest(reads_every_version_once_a_pass, 1)
{
	const struct version *first = ready("a", "v1"), *second = ready("b", "v2");

	cr_expect_not(told("running"));
	cr_expect_str_eq(next_tag(loader), "v1");
	cr_expect_str_eq(answer_text("kind"), "verify");
	cr_expect_eq(answer_u64("chunk"), SCRUB_CHUNK_BYTES);
	cr_expect_eq(answer_u64("permille"), 20);
	cr_expect(told("running"));
	cr_expect_eq(told("passes"), 0);
	finish_and_go_on(0);
	cr_expect_str_eq(next_tag(loader), "v2");
	finish_and_go_on(0);
	cr_expect_eq(told("passes"), 1);
	cr_expect_not(told("running"));
	cr_expect_gt(told("last_ms"), UINT64_C(1600000000000));
	cr_expect_eq(told("skipped"), 0);
	cr_expect(!first->tainted && !second->tainted);
	cr_expect_str_eq(next_tag(loader), "v1", "the next pass begins anew");
	finish_and_go_on(0);
}

ScrubTest(leaves_out_what_has_no_name, 1)
{
	struct publish_part *part;
	struct publish *publish = building(NULL, NULL, &part);
	struct version *version = publish->version;

	version->readers++; /* as if somebody had it */
	complete(publish, part, 1);
	ready("a", "v1");
	cr_expect_str_eq(next_tag(loader), "v1");
	finish_and_go_on(0);
	cr_expect_eq(told("passes"), 1);
	version->readers--;
	versions_free_unused(&server->work, version);
}

ScrubTest(has_nothing_to_read, 1)
{
	TURN_UNTIL(told("passes") == 1);
	cr_expect_eq(told("skipped"), 0);
}

/* As an earlier gpuwmd told it. */
static void count_from(uint64_t ms)
{
	server->ledger.scrub_from_ms = ms;
	scrub_begin(server->work.scrub);
}

/* Restarts do not put it off. */
ScrubTest(begins_when_it_is_due_since_the_last_one_began, 1)
{
	const uint64_t hour = 3600000;
	uint64_t now;

	config.scrub_interval = 3600;
	scrub_configure(server->work.scrub);
	now = clock_wall_ms();
	count_from(now - hour / 2);
	turn();
	cr_expect_not(told("running"));
	cr_expect_eq(server->ledger.scrub_from_ms, now - hour / 2);
	count_from(now - 2 * hour);
	TURN_UNTIL(told("passes") == 1);
	cr_expect(server->ledger.scrub_from_ms >= now, "the next one counts from this one's beginning");
}

/* The clock was set back. */
ScrubTest(that_began_in_the_future_counts_from_now, 1)
{
	uint64_t now;

	now = clock_wall_ms();
	count_from(now + 1000000000);
	cr_expect(server->ledger.scrub_from_ms <= clock_wall_ms());
	TURN_UNTIL(told("passes") == 1);
}

ScrubTest(finds_damage_and_goes_on, 1)
{
	const struct version *bad = ready("a", "v1");
	struct job *job;

	ready("b", "v2");
	next_tag(loader);
	job = server->work.jobs.first;
	finish_and_go_on(-EBADMSG);
	cr_expect(bad->tainted);
	cr_expect_str_eq(next_tag(loader), "v2");
	cr_expect_eq(job_find(&server->work.jobs, job->id), job, "what failed is told");
	finish_and_go_on(0);
	cr_expect_eq(told("passes"), 1);
	cr_expect_eq(told("skipped"), 0, "it was read");
	cr_expect_str_eq(next_tag(loader), "v2", "what is known to be damaged is left alone");
	finish_and_go_on(0);
}

ScrubTest(counts_what_can_not_be_read, 1)
{
	ready("a", "v1");
	ready("b", "v2");
	log_level_set(LOG_LEVEL_WARNING);
	next_tag(loader);
	finish_and_go_on(-EIO);
	next_tag(loader);
	cr_expect_eq(told("skipped"), 1);
	finish_and_go_on(-EIO);
	TURN_UNTIL(told("passes") == 1);
	cr_expect_eq(told("skipped"), 2);
	next_tag(loader);
	cr_expect_eq(told("skipped"), 0, "each pass counts anew");
	finish_and_go_on(0);
}

/* A version on a GPU whose budget is full. */
static struct device *full_gpu(uint64_t context)
{
	struct device gpu = {
		.id = "GPU-1", .name = "gpu", .kind = &kind_cuda, .total = 1000, .context = context};
	struct version_id id = {{7}};
	struct version like = {.id = id, .publish = id, .state = VERSION_READY, .world = 1, .tag = "v0"};
	struct replica part = {.index.fd = memfd_create("index", MFD_CLOEXEC)};
	struct version *version;

	cr_assert_eq(device_table_report(&server->ledger.devices, &gpu, 1), 0);
	part.device = device_find(&server->ledger.devices, "GPU-1");
	cr_assert_eq(registry_adopt(server->ledger.registry, "a", &like, &version, &error), 0);
	cr_assert_eq(version_adopt_replica(version, &part, &error), 0);
	return device_find(&server->ledger.devices, "GPU-1");
}

ScrubTest(skips_what_a_context_does_not_fit_beside, 1)
{
	full_gpu(901);
	ready("b", "v2");
	cr_expect_str_eq(next_tag(loader), "v2");
	cr_expect_eq(told("skipped"), 1);
	finish_and_go_on(0);
	TURN_UNTIL(told("passes") == 1);
	cr_expect_eq(told("skipped"), 1);
}

/* A job there has a context: when it is gone the part's turn comes. */
ScrubTest(leaves_for_later_what_others_contexts_are_in_the_way_of, 1)
{
	struct device *gpu = full_gpu(900);
	struct budget_charge context;

	ready("b", "v2");
	cr_assert_eq(budget_charge_context(gpu, &context, &error), 0);
	cr_expect_str_eq(next_tag(loader), "v2");
	finish_and_go_on(0);
	turn();
	cr_expect_eq(told("passes"), 0);
	cr_expect_eq(told("skipped"), 0);
	budget_release(&context);
	loader_pool_turn(server->work.loaders);
	cr_expect_str_eq(next_tag(loader), "v0");
	finish_and_go_on(0);
	cr_expect_eq(told("passes"), 1);
}

/* ---- others come first ---- */

ScrubTest(gives_way_and_begins_the_part_again, 1)
{
	struct job *load;

	ready("a", "v1");
	next_tag(loader);
	load = new_job();
	expect_cancel();
	loader = standby_with(-1);
	cr_assert_eq(load->state, JOB_RUNNING);
	cr_expect(told("running"));
	cr_expect_eq(told("skipped"), 0);
	next_tag(loader);
	finish_and_go_on(0);
	cr_expect(job_ended(load));
	cr_expect_str_eq(next_tag(loader), "v1");
	cr_expect_eq(told("passes"), 0);
	finish_and_go_on(0);
	cr_expect_eq(told("passes"), 1);
}

/* It was done before it heard. */
ScrubTest(that_gives_way_too_late_has_read_the_part, 1)
{
	ready("a", "v1");
	next_tag(loader);
	new_job();
	finish(loader, 0);
	loader = standby_with(-1);
	next_tag(loader);
	finish_and_go_on(0);
	TURN_UNTIL(told("passes") == 1);
}

/* Of three loaders one runs a load and one stands by: the third may be had, not the last. */
ScrubTest(leaves_the_last_loader_alone, 2)
{
	struct job *load;
	int second, third;

	ready("a", "v1");
	load = new_job();
	second = standby_with(-1);
	TURN_UNTIL(told("running"));
	turn();
	cr_expect(loader_pool_standby(server->work.loaders));
	finish(loader, 0);
	cr_expect(job_ended(load));
	cr_expect_str_eq(next_tag(second), "v1");
	third = standby_with(-1);
	cr_expect(loader_pool_standby(server->work.loaders));
	finish(second, 0);
	loader = third;
	TURN_UNTIL(told("passes") == 1);
}

/* A check may not have the last loader either, so it needs the scrub's place. */
ScrubTest(gives_way_to_a_verify, 2)
{
	int second;

	ready("a", "v1");
	next_tag(loader);
	second = standby_with(-1);
	cr_assert_eq(ASK(admin, "verify", TEXT("ref", "a")), 0);
	expect_cancel();
	next_tag(second);
	cr_expect_not(answer_has("permille"), "the operator's");
	loader = standby_with(-1);
	finish(second, 0);
	cr_expect_str_eq(next_tag(loader), "v1");
	cr_expect(answer_has("permille"));
	finish_and_go_on(0);
}

static struct job *load_to(struct device *device)
{
	struct job *load = new_load("/models/m", "v1", 0);

	cr_assert_eq(job_add_device(load, device), 0);
	loader_pool_turn(server->work.loaders);
	return load;
}

ScrubTest(gives_way_where_its_context_is_in_the_way, 3)
{
	struct device *gpu = full_gpu(900);
	struct job *load;
	int second;

	next_tag(loader);
	second = standby_with(-1);
	cr_expect_eq(gpu->contexts, 900);
	load = load_to(gpu);
	cr_expect_eq(load->state, JOB_QUEUED);
	expect_cancel();
	TURN_UNTIL(load->state == JOB_RUNNING);
	loader = standby_with(-1);
	say_progress(second);
	close(second);
	TURN_UNTIL(job_ended(load));
}

/* There is room for its context beside the load's, but not for the load's bytes beside both. */
ScrubTest(gives_way_to_the_bytes_of_a_load, 3)
{
	struct device *gpu = full_gpu(300);
	struct job *load;
	int second, third;

	next_tag(loader);
	second = standby_with(-1);
	load = load_to(gpu);
	third = standby_with(-1);
	cr_assert_eq(load->state, JOB_RUNNING);
	cr_assert_eq(gpu->contexts, 600);
	TURN_UNTIL(comes(second));
	SEND(second, 4, "publish_begin", TEXT("name", "m@v1"), TEXT("device", gpu->id), NUMBER("bytes", 400));
	expect_cancel();
	cr_assert_eq(answered(second), 0, "%s", message.error.message);
	cr_expect_geq(gpu->used, 700);
	close(second);
	TURN_UNTIL(job_ended(load));
	close(third);
	loader = -1;
}

ScrubTest(is_ended_by_an_operator_for_this_pass, 1)
{
	struct error reason;

	ready("a", "v1");
	next_tag(loader);
	error_set(&reason, -ECANCELED, NULL, "cancelled by an operator");
	job_cancel(&server->work, server->work.jobs.first, &reason);
	finish_and_go_on(-ECANCELED);
	TURN_UNTIL(told("passes") == 1);
	cr_expect_eq(told("skipped"), 1);
}

ScrubTest(lets_go_of_what_is_retired, 1)
{
	struct version *version = ready("a", "v1");

	next_tag(loader);
	registry_remove_aliases(server->ledger.registry);
	cr_assert_eq(versions_retire(&server->work, version, &error), 0);
	expect_cancel();
	loader = standby_with(-1);
	TURN_UNTIL(told("passes") == 1);
	cr_expect_eq(told("skipped"), 0);
}

ScrubTest(begins_nothing_while_gpuwmd_drains, 1)
{
	ready("a", "v1");
	server->work.draining = true;
	TURN_UNTIL(told("running"));
	turn();
	cr_expect_eq(server->work.jobs.running, 0);
	server->work.draining = false;
}

/* ---- configuration, events ---- */

ScrubTest(is_switched_off_and_on, 1)
{
	ready("a", "v1");
	next_tag(loader);
	config.scrub_interval = 0;
	scrub_configure(server->work.scrub);
	cr_expect_not(told("running"));
	finish_and_go_on(0);
	cr_expect_eq(told("passes"), 0, "it was given up");
	config.scrub_interval = 1;
	scrub_configure(server->work.scrub);
	next_tag(loader);
	finish_and_go_on(0);
	cr_expect_eq(told("passes"), 1);
}

ScrubTest(is_quiet_where_all_is_well, 1)
{
	uint64_t seq;

	ready("a", "v1");
	seq = event_last(server->ledger.events);
	next_tag(loader);
	finish_and_go_on(0);
	TURN_UNTIL(told("passes") == 1);
	cr_expect_eq(event_last(server->ledger.events), seq);
	job_table_prune(&server->work.jobs);
	cr_expect_null(server->work.jobs.first);
	next_tag(loader);
	finish_and_go_on(-EBADMSG);
	cr_expect_eq(event_last(server->ledger.events), seq + 2, "tainted, and the job");
}

/* The pool is not started, so that the test may ask in its place. */
Test(scrub, without_memory_skips_the_part)
{
	struct job *job;
	unsigned n = 0;

	ready("a", "v1");
	config.scrub_interval = 1;
	scrub_configure(server->work.scrub);
	admin = greeted(SESSION_ADMIN);
	do {
		TURN_UNTIL(told("running"));
		fail_alloc_arm(++n);
		job = scrub_next(server->work.scrub);
		cr_assert_eq(fail_alloc_disarm(), !job);
		cr_expect_eq(told("skipped"), !job);
		cr_expect_eq(told("passes"), job ? n - 1 : n);
		cr_expect_eq(server->work.jobs.queued, job != NULL);
	} while (!job);
	cr_expect_gt(n, 3);
	end();
}

ScrubTest(that_takes_longer_than_its_interval_is_one_pass, 1)
{
	struct version *retiring = ready("a", "v1");
	uint64_t began = clock_steady_ms();

	ready("b", "v2");
	cr_assert_eq(versions_pin(&server->work, retiring, "look", &error), 0);
	registry_remove_aliases(server->ledger.registry);
	cr_assert_eq(versions_retire(&server->work, retiring, &error), 0);
	cr_expect_str_eq(next_tag(loader), "v2", "what retires is left alone");
	TURN_UNTIL(clock_steady_ms() - began > 2500);
	scrub_configure(server->work.scrub); /* the same interval: the times stay */
	finish_and_go_on(0);
	TURN_UNTIL(told("passes") == 1);
	cr_assert_eq(versions_unpin(&server->work, retiring, "look", &error), 0);
}
