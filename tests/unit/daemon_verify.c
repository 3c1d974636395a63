/* verify: what a loader is told and handed, what its answer means, and who waits for whom. */
#include "daemon/ledger/relocation.h"
#include "daemon/work/jobs/verify.h"
#include "daemon/work/tiers/host_copies.h"
#include "tests/support/any/between.h"
#include "tests/support/daemon/service.h"
#include "tests/support/fail_alloc.h"

#include <sys/stat.h>

TestSuite(verify, .init = open_service, .fini = close_service, .timeout = 120);

static int admin = -1, loader = -1;
static struct error error;

/* m@v1, which is ready. */
static struct version *v1;
static struct version_id v1_id;
static struct job *job;

/* An operator, and a loader that stands by. */
static void begin(void)
{
	listen_for(SOCK_SEQPACKET, 8);
	pool_start();
	loader = standby_with(-1);
	admin = greeted(SESSION_ADMIN);
}

/* Nothing is left of the version either. */
static void end(void)
{
	versions_retire_all(&server->work);
	close(admin);
	close(loader);
	TURN_UNTIL(registry_counts(server->ledger.registry).fds == 0);
	leave();
}

static void next_loader(void)
{
	close(loader);
	loader = standby_with(-1);
}

/* A test between begin and end, which has m@v1. */
static void begin_with_v1(void)
{
	begin();
	v1 = ready("m", "v1");
	v1_id = v1->id;
}
#define VerifyTest(name) TestBetween(verify, name, begin_with_v1(), end())

/* Asks for verify of that version, with more parameters. */
#define VERIFY(sock, name, ...) ASK(sock, "verify", TEXT("ref", name), ##__VA_ARGS__)

/* How many jobs the answer names. */
static uint32_t job_count(void)
{
	struct fields f;
	uint32_t count;

	fields_of(&f, message.body);
	fields_array(&f, "jobs", &count);
	cr_assert_eq(f.error.code, 0);
	return count;
}

/* One verify of the version's one part; the job that was begun. */
static struct job *verify(const char *ref)
{
	cr_assert_eq(VERIFY(admin, ref), 0, "%s", message.error.message);
	cr_assert_eq(job_count(), 1);
	return job_find(&server->work.jobs, server->work.jobs.last_id);
}

static ino_t inode(int fd)
{
	struct stat is;

	cr_assert_eq(fstat(fd, &is), 0);
	return is.st_ino;
}

static void retire(struct version *version)
{
	registry_remove_aliases(server->ledger.registry);
	cr_assert_eq(versions_retire(&server->work, version, &error), 0, "%s", error.message);
}

static bool is_there(const struct version_id *id)
{
	struct ref ref = {.has_id = true, .id = *id};
	struct version *version;
	uint64_t generation;

	return registry_find(server->ledger.registry, &ref, &version, &generation, NULL) == 0;
}

static uint64_t used(void)
{
	return device_find(&server->ledger.devices, DEVICE_HOST)->used;
}

/* ---- the loader's part ---- */

Test(verify, gives_a_loader_the_part)
{
	struct version *version = ready_with("m", "v1", 4);
	struct fields f, segment;
	const msgpack_object *segments;
	uint32_t count;

	begin();
	job = verify("m");
	cr_expect_eq(job->state, JOB_RUNNING);
	cr_expect_eq(version->readers, 1);
	cr_assert(comes(loader));
	cr_assert_str_eq(message.method, "job");
	cr_expect_str_eq(answer_text("kind"), "verify");
	cr_expect_str_eq(answer_text("model"), "m");
	cr_expect_str_eq(answer_text("tag"), "v1");
	cr_expect_str_eq(answer_text("device"), DEVICE_HOST);
	cr_expect_eq(answer_u64("job"), job->id);
	cr_expect_eq(answer_u64("rank"), 0);
	cr_expect_eq(answer_u64("world"), 1);
	cr_expect_eq(answer_u64("index_bytes"), 100);
	cr_expect_not(answer_has("permille"), "nobody asked for a pace");
	cr_expect_not(answer_has("chunk"));
	cr_assert_eq(packet.fd_count, 5);
	cr_expect_eq(inode(packet.fds[answer_u64("index")]), inode(version->replicas[0].index.fd));
	fields_of(&f, message.body);
	segments = fields_array(&f, "segments", &count);
	cr_assert_eq(count, 4);
	for (uint32_t i = 0; i < count; i++) {
		fields_of(&segment, &segments[i]);
		cr_expect_eq(inode(packet.fds[fields_u64(&segment, "fd")]),
			     inode(version->replicas[0].segments[i].segment->fd));
		cr_expect_eq(fields_u64(&segment, "bytes"), 1024);
	}
	loader_ends(loader, 0, "");
	cr_expect_eq(job->state, JOB_DONE);
	cr_expect_eq(version->readers, 0);
	cr_expect_not(version->tainted);
	end();
}

/* Begins one of v1 that rests between pieces. */
static void verify_paced(unsigned permille)
{
	cr_assert_eq(verify_new(&server->work, v1, 0, 0, &job, &error), 0);
	verify_job_of(job)->chunk = MIB(256);
	verify_job_of(job)->permille = permille;
	loader_pool_turn(server->work.loaders);
}

VerifyTest(is_done_at_a_pace)
{
	verify_paced(10);
	cr_assert(comes(loader));
	cr_expect_eq(answer_u64("chunk"), MIB(256));
	cr_expect_eq(answer_u64("permille"), 10);
	loader_ends(loader, 0, "");
}

Test(verify, makes_a_job_for_each_replica)
{
	struct device gpu = {.id = "GPU-1", .name = "gpu", .kind = &kind_cuda, .total = GIB(1)};
	const char *devices[] = {DEVICE_HOST, "GPU-1", DEVICE_HOST};
	struct version_id id = {{7}};
	struct version like = {.id = id, .publish = id, .state = VERSION_READY, .world = 2, .tag = "v1"};
	struct version *version;

	begin();
	cr_assert_eq(device_table_report(&server->ledger.devices, &gpu, 1), 0);
	cr_assert_eq(registry_adopt(server->ledger.registry, "m", &like, &version, &error), 0);
	for (uint32_t i = 0; i < 3; i++) {
		struct replica part = {.rank = i / 2,
				       .device = device_find(&server->ledger.devices, devices[i])};

		part.index.fd = memfd_create("index", MFD_CLOEXEC);
		cr_assert_eq(version_adopt_replica(version, &part, &error), 0);
	}
	cr_expect_eq(VERIFY(admin, "m@v1"), 0);
	cr_expect_eq(job_count(), 3);
	cr_expect_eq(VERIFY(admin, "m@v1", NUMBER("rank", 0)), 0);
	cr_expect_eq(job_count(), 2);
	cr_expect_eq(VERIFY(admin, "m@v1", TEXT("device", DEVICE_HOST)), 0);
	cr_expect_eq(job_count(), 2);
	cr_expect_eq(VERIFY(admin, "m@v1", TEXT("device", "GPU-1"), NUMBER("rank", 0)), 0);
	cr_expect_eq(job_count(), 1);
	cr_expect_eq(VERIFY(admin, "m@v1", TEXT("device", "GPU-1"), NUMBER("rank", 1)), -ENODEV);
	cr_expect_str_eq(message.error.message, "m@v1 has no such part on GPU-1");
	cr_expect_eq(VERIFY(admin, "m@v1", NUMBER("rank", 2)), -EINVAL);
	cr_expect_str_eq(message.error.message, "m@v1 has no rank 2: its world is 2");
	cr_expect_eq(server->work.jobs.queued + server->work.jobs.running, 8);
	server->work.jobs.queued += JOBS_QUEUED_MAX - 8; /* room for one */
	cr_expect_eq(VERIFY(admin, "m@v1"), -EDQUOT);
	server->work.jobs.queued -= JOBS_QUEUED_MAX - 8;
	cr_expect_eq(server->work.jobs.queued + server->work.jobs.running, 8, "all of them or none");
	end();
}

Test(verify, is_of_what_is_there)
{
	struct publish_part *part;
	struct publish *publish = building("m", "v1", &part);
	struct error reason = {.code = -EIO, .message = "no"};
	struct version *version;
	int worker;

	begin();
	cr_expect_eq(VERIFY(admin, "m@v1"), -EINVAL);
	cr_expect_str_eq(message.error.message, "m@v1 is building");
	versions_fail(&server->work, publish, &reason, NULL);
	cr_expect_eq(VERIFY(admin, "m@v1"), -EINVAL);
	cr_expect_str_eq(message.error.message, "m@v1 is failed");
	cr_expect_eq(VERIFY(admin, "m@v9"), -ENOENT);
	cr_expect_eq(VERIFY(admin, "m@@"), -EINVAL);
	version = ready("m", "v2");
	cr_expect_eq(VERIFY(admin, "m@v2", TEXT("device", "GPU-7")), -ENODEV);
	worker = greeted(SESSION_WORKER);
	cr_expect_eq(VERIFY(worker, "m@v2"), -EACCES);
	close(worker);
	version->freeing = true;
	cr_expect_eq(VERIFY(admin, "m@v2"), -EINVAL);
	cr_expect_str_eq(message.error.message, "m@v2 is being freed");
	version->freeing = false;
	server->work.draining = true;
	cr_expect_eq(VERIFY(admin, "m@v2"), -ESHUTDOWN);
	cr_expect_eq(server->work.jobs.queued + server->work.jobs.running, 0);
	end();
}

VerifyTest(without_memory_leaves_nothing)
{
	unsigned n = 1;

	for (; fail_alloc_arm(n), verify_new(&server->work, v1, 0, 0, &job, &error) < 0; n++) {
		cr_assert(fail_alloc_disarm());
		cr_expect_eq(error.code, -ENOMEM);
		cr_assert_eq(server->work.jobs.queued, 0);
		cr_assert_null(server->work.jobs.first);
	}
	cr_assert_not(fail_alloc_disarm());
	cr_expect_gt(n, 2);
	job_drop(&server->work.jobs, job);
}

/* ---- host copies ---- */

/* m@v1 lies on a GPU, and what it had in host memory is its host copy. */
static void begin_with_copy(void)
{
	struct device gpu = {.id = "GPU-1", .name = "gpu", .kind = &kind_cuda, .total = 1 << 20};
	struct relocated stays = {0}, memory = {.moves = true, .keeps_copy = true};
	struct part arrived = {.segment_count = 1, .segments[0] = {memfd_create("gpu", MFD_CLOEXEC), 4096}};

	begin_with_v1();
	cr_assert_eq(device_table_report(&server->ledger.devices, &gpu, 1), 0);
	memory.onto = v1->replicas[0].device = device_find(&server->ledger.devices, "GPU-1");
	version_relocate(v1, ON_HOST, &stays);
	budget_adopt(memory.onto, 4096, &memory.charge);
	cr_assert_eq(relocated_take(&v1->replicas[0], &memory, &arrived, &error), 0, "%s", error.message);
	version_relocate(v1, ON_DEVICE, &memory);
	relocated_clear(&memory);
	cr_assert_gt(version_host_copy_bytes(v1), 0);
}
#define CopyTest(name) TestBetween(verify, name, begin_with_copy(), end())

/* The job that the loader has, of the host copy. */
static void verify_copy(void)
{
	struct fields f, segment;
	const msgpack_object *segments;
	uint32_t count;

	cr_assert_eq(VERIFY(admin, "m", TEXT("device", DEVICE_HOST)), 0, "%s", message.error.message);
	cr_assert_eq(job_count(), 1);
	job = job_find(&server->work.jobs, server->work.jobs.last_id);
	cr_assert(comes(loader));
	cr_expect_str_eq(answer_text("device"), DEVICE_HOST);
	fields_of(&f, message.body);
	segments = fields_array(&f, "segments", &count);
	cr_assert_eq(count, 1);
	fields_of(&segment, &segments[0]);
	cr_expect_eq(inode(packet.fds[fields_u64(&segment, "fd")]),
		     inode(v1->replicas[0].spares[0].segment->fd));
}

CopyTest(reads_the_host_copy_too)
{
	verify_copy();
	loader_ends(loader, 0, "");
	cr_expect_eq(job->state, JOB_DONE);
	cr_expect_gt(version_host_copy_bytes(v1), 0);
	next_loader();
	cr_assert_eq(VERIFY(admin, "m", TEXT("device", "GPU-1")), 0, "%s", message.error.message);
	cr_expect_eq(job_count(), 1);
	cr_assert_eq(VERIFY(admin, "m"), 0, "%s", message.error.message);
	cr_expect_eq(job_count(), 2, "both places");
}

CopyTest(a_damaged_host_copy_goes_and_its_version_is_sound)
{
	verify_copy();
	loader_ends(loader, -EBADMSG, "tensor \"t\" differs");
	cr_expect_eq(job->state, JOB_FAILED);
	cr_expect_not(v1->tainted);
	TURN_UNTIL(version_host_copy_bytes(v1) == 0);
	cr_expect_eq(v1->readers, 0);
	cr_expect_eq(VERIFY(admin, "m", TEXT("device", DEVICE_HOST)), -ENODEV);
}

CopyTest(a_host_copy_that_is_read_makes_room_all_the_same)
{
	verify_copy();
	cr_assert(host_copy_drop(&server->work, v1));
	cr_expect_eq(version_host_copy_bytes(v1), 0);
	cr_assert(comes(loader));
	cr_expect_str_eq(message.method, "cancel");
	loader_ends(loader, -EBADMSG, "whatever it finds");
	cr_expect_not(v1->tainted, "it was not the version's memory");
}

/* ---- what its answer means ---- */

static bool has_tainted(const char *says)
{
	const msgpack_object *versions;
	struct fields f, version, tainted;
	char text[TEXT_BYTES_MAX + 1];
	uint32_t count;

	cr_assert_eq(ask(admin, "list"), 0);
	fields_of(&f, message.body);
	versions = fields_array(&f, "versions", &count);
	cr_assert_eq(count, 1);
	fields_of(&version, versions);
	if (!fields_have(&version, "tainted"))
		return false;
	fields_of(&tainted, fields_map(&version, "tainted"));
	fields_text(&tainted, "message", text, sizeof(text));
	cr_expect_str_eq(text, says);
	return true;
}

static int get(int sock, const char *ref)
{
	send_get(sock, 5, ref, 0);
	return answered(sock);
}

/* The next event of this kind. */
static void expect_event(int sock, const char *kind)
{
	TURN_UNTIL(comes(sock) && strcmp(answer_text("kind"), kind) == 0);
}

VerifyTest(that_finds_damage_taints)
{
	int worker = greeted(SESSION_WORKER), watcher = greeted(SESSION_WORKER);

	cr_assert_eq(get(worker, "m"), 0);
	cr_assert_eq(ask(watcher, "subscribe"), 0);
	cr_expect_not(has_tainted(""));
	job = verify("m");
	cr_assert(comes(loader));
	loader_ends(loader, -EBADMSG, "tensor w has the digest 12, not 34");
	cr_expect_eq(job->state, JOB_FAILED);
	cr_expect_eq(job->error->code, -EBADMSG);
	cr_expect(has_tainted("tensor w has the digest 12, not 34"));
	expect_event(watcher, "tainted");
	cr_expect_str_eq(answer_text("tag"), "v1");
	cr_expect_str_eq(answer_text("device"), DEVICE_HOST);
	cr_expect_eq(answer_u64("rank"), 0);
	cr_expect(answer_has("error"));
	cr_expect_eq(get(worker, "m"), -EBADMSG);
	cr_expect_str_eq(message.error.message, "m@v1 is tainted: tensor w has the digest 12, not 34");
	cr_expect_str_eq(message.error.detail,
			 "gpuwmctl swap m to another version, or load it again under another tag");
	cr_expect_eq(leases(), 1, "the worker that had it keeps it");
	cr_expect_eq(v1->state, VERSION_READY);
	cr_assert_eq(versions_pin(&server->work, v1, "look", &error), 0);
	cr_assert_eq(versions_unpin(&server->work, v1, "look", &error), 0);
	close(worker);
	close(watcher);
	retire(v1);
	TURN_UNTIL(!is_there(&v1_id));
	close(loader); /* what it had mapped */
	loader = -1;
	TURN_UNTIL(used() == 0);
}

static int swap(const char *alias)
{
	return versions_swap(&server->work, &(struct versions_swap){.model = "m", .alias = alias, .to = v1},
			     &(struct swap_result){0}, &(struct error){0}, &error);
}

/* Whoever waits for a name that moves to what is tainted waits in vain. */
VerifyTest(that_finds_damage_ends_a_wait)
{
	int worker = greeted(SESSION_WORKER);

	send_get(worker, 5, "m@prod", -1);
	cr_assert_not(comes(worker));
	cr_assert_eq(swap("prod"), 0);
	cr_assert_eq(answered(worker), 0);
	send_get(worker, 6, "m@next", -1);
	cr_assert_not(comes(worker));
	error_set(&error, -EBADMSG, NULL, "it differs");
	versions_taint(&server->work, v1, &v1->replicas[0], &error);
	cr_assert_eq(swap("next"), -EBADMSG);
	cr_expect_not(comes(worker), "nothing moved");
	close(worker);
}

VerifyTest(that_fails_otherwise_taints_nothing)
{
	job = verify("m");
	loader_ends(loader, -EIO, "the driver says no");
	cr_expect_eq(job->state, JOB_FAILED);
	next_loader();
	job = verify("m");
	close(loader); /* it dies */
	TURN_UNTIL(job_ended(job));
	cr_expect_eq(job->state, JOB_FAILED);
	cr_expect_eq(job->error->code, -EIO);
	cr_expect_eq(v1->readers, 0);
	loader = standby_with(-1);
	job = verify("m");
	error_set(&error, -ECANCELED, NULL, "cancelled by an operator");
	job_cancel(&server->work, job, &error);
	loader_ends(loader, -ECANCELED, "cancelled");
	cr_expect_eq(job->state, JOB_CANCELLED);
	cr_expect_not(v1->tainted);
	cr_expect_eq(v1->readers, 0);
}

/* ---- time ---- */

VerifyTest(that_says_nothing_is_ended)
{
	config.check_stall_ms = 100;
	job = verify("m");
	TURN_UNTIL(job_ended(job));
	cr_expect_eq(job->error->code, -ETIMEDOUT);
	cr_expect_not(v1->tainted);
	cr_expect_eq(v1->readers, 0);
}

VerifyTest(at_a_pace_may_be_silent_for_longer)
{
	uint64_t began = clock_steady_ms();

	config.check_stall_ms = 100;
	verify_paced(200);
	TURN_UNTIL(job_ended(job));
	cr_expect_eq(job->error->code, -ETIMEDOUT);
	cr_expect_geq(clock_steady_ms() - began, 500);
}

/* ---- what goes meanwhile ---- */

VerifyTest(of_what_is_retired_ends_and_then_it_is_freed)
{
	job = verify("m");
	cr_assert(comes(loader));
	retire(v1);
	cr_assert(comes(loader));
	cr_assert_str_eq(message.method, "cancel");
	cr_expect(is_there(&v1_id), "the loader has it");
	cr_expect_eq(used(), 4096);
	loader_ends(loader, -ECANCELED, "cancelled");
	cr_expect_eq(job->state, JOB_CANCELLED);
	close(loader);
	loader = -1;
	TURN_UNTIL(!is_there(&v1_id));
	TURN_UNTIL(used() == 0);
}

/* What its descriptors kept is still mapped by the loader when they are closed. */
Test(verify, holds_the_budget_until_the_process_is_gone)
{
	int pidfd = child_pidfd();

	listen_for(SOCK_SEQPACKET, 8);
	pool_start();
	loader = standby_with(pidfd);
	close(pidfd);
	admin = greeted(SESSION_ADMIN);
	v1 = ready("m", "v1");
	v1_id = v1->id;
	verify("m");
	loader_ends(loader, 0, "");
	retire(v1);
	TURN_UNTIL(!is_there(&v1_id));
	cr_expect_eq(used(), 4096);
	child_dies();
	TURN_UNTIL(used() == 0);
	end();
}

VerifyTest(that_waits_ends_when_its_version_goes)
{
	struct version *second = ready("m", "v2");
	struct version_id id = second->id;
	struct job *running, *queued;

	running = verify("m@v1");
	queued = verify("m@v2");
	cr_assert_eq(queued->state, JOB_QUEUED);
	retire(second);
	cr_expect_eq(queued->state, JOB_CANCELLED);
	cr_expect_str_eq(queued->error->message, "m@v2 is being freed");
	TURN_UNTIL(!is_there(&id));
	cr_expect_eq(running->state, JOB_RUNNING);
	cr_expect_eq(v1->readers, 1);
	loader_ends(loader, 0, "");
}

/* A lease holds it, so there is no hurry. */
VerifyTest(of_a_leased_version_that_retires_goes_on)
{
	int worker = greeted(SESSION_WORKER);

	cr_assert_eq(get(worker, "m"), 0);
	job = verify("m");
	cr_assert(comes(loader));
	retire(v1);
	cr_expect_not(comes(loader));
	cr_expect_eq(job->state, JOB_RUNNING);
	loader_ends(loader, -EBADMSG, "tensor w");
	cr_expect(v1->tainted);
	cr_expect(is_there(&v1_id));
	close(worker);
	TURN_UNTIL(!is_there(&v1_id));
}

VerifyTest(reads_what_retires_too)
{
	cr_assert_eq(versions_pin(&server->work, v1, "look", &error), 0);
	retire(v1);
	job = verify("m@v1");
	loader_ends(loader, -EBADMSG, "tensor w");
	cr_expect(job_ended(job) && v1->tainted);
	cr_assert_eq(versions_unpin(&server->work, v1, "look", &error), 0);
}

/* Of two loaders one is left to loads. */
Test(verify, leaves_the_last_loader_to_loads)
{
	struct job *first, *second, *load;
	int other;

	ready("m", "v1");
	config.loaders = 2;
	begin();
	first = verify("m");
	other = standby_with(-1);
	second = verify("m");
	cr_expect_eq(first->state, JOB_RUNNING);
	cr_expect_eq(second->state, JOB_QUEUED);
	load = new_job();
	cr_expect_eq(load->state, JOB_RUNNING);
	loader_ends(loader, 0, "");
	next_loader();
	cr_expect_eq(second->state, JOB_RUNNING);
	say_progress(other);
	close(other);
	TURN_UNTIL(job_ended(load));
	end();
}
