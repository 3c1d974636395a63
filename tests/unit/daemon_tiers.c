/* Versions that move: what a loader is told, what its answer means, who pays, and who waits for whom. */
#include "daemon/work/tiers/moves.h"
#include "tests/support/any/between.h"
#include "tests/support/daemon/service.h"
#include "tests/support/fail_alloc.h"

TestSuite(tiers, .init = open_service, .fini = close_service, .timeout = 120);

#define SEGMENTS 4
#define SEGMENT_BYTES 1024
#define BYTES ((uint64_t)SEGMENTS * SEGMENT_BYTES)

static const struct tiers_who operator= {.by_operator = true};
static int admin = -1, loader = -1;
static struct error error;
static struct version *v1; /* m@v1, on host, of /models/m */

static struct device *host(void)
{
	return device_find(&server->ledger.devices, DEVICE_HOST);
}

static void describe(struct version *version)
{
	version_describe(version, description_new(&(struct description){.source = "/models/m"}));
}

static void begin(void)
{
	listen_for(SOCK_SEQPACKET, 8);
	pool_start();
	loader = standby_with(-1);
	admin = greeted(SESSION_ADMIN);
	v1 = ready_with("m", "v1", SEGMENTS);
	describe(v1);
}

static void end(void)
{
	versions_retire_all(&server->work);
	close(admin);
	close(loader);
	TURN_UNTIL(registry_counts(server->ledger.registry).fds == 0);
	TURN_UNTIL(host()->used == 0);
	cr_expect_null(server->work.moves);
	leave();
}

#define TierTest(name) TestBetween(tiers, name, begin(), end())

static void next_loader(void)
{
	close(loader);
	loader = standby_with(-1);
}

/* ---- the loader's part ---- */

static int moved(uint32_t count, uint64_t bytes)
{
	return loader_moves(loader, count, bytes);
}

static void get_job(void)
{
	TURN_UNTIL(comes(loader) && strcmp(message.method, "job") == 0);
}

/* The job that moves it now. */
static struct job *job_of(const struct version *version)
{
	return version->move ? version->move->parts[0].job : NULL;
}

static void demote(void)
{
	cr_assert_eq(ASK(admin, "demote", TEXT("ref", "m@v1"), TEXT("to", "files")), 0, "%s",
		     message.error.message);
	get_job();
	cr_assert_eq(moved(0, 0), 0);
	loader_ends(loader, 0, "");
	next_loader();
	TURN_UNTIL(host()->used == 0);
}

static void promote(void)
{
	cr_assert_eq(ASK(admin, "promote", TEXT("ref", "m@v1")), 0, "%s", message.error.message);
	get_job();
}

TierTest(a_loader_gets_the_index_and_the_files)
{
	cr_assert_eq(ASK(admin, "demote", TEXT("ref", "m"), TEXT("to", "files")), 0);
	get_job();
	cr_expect_str_eq(answer_text("kind"), "move");
	cr_expect_str_eq(answer_text("from"), "device");
	cr_expect_str_eq(answer_text("to"), "files");
	cr_expect_str_eq(answer_text("source"), "/models/m");
	cr_expect_str_eq(answer_text("device"), DEVICE_HOST);
	cr_expect_eq(packet.fd_count, 1, "the index has the digests");
	cr_expect_eq(moved(0, 0), 0);
	cr_expect_eq(v1->tier, ON_FILES);
	loader_ends(loader, 0, "");
	next_loader();
	TURN_UNTIL(host()->used == 0);
	cr_expect_eq(registry_fds(server->ledger.registry), 1, "the index stays");
	promote();
	cr_expect_str_eq(answer_text("from"), "files");
	cr_expect_str_eq(answer_text("to"), "device");
	cr_expect_eq(host()->used, BYTES, "the memory is charged before it is made");
	cr_expect_eq(moved(SEGMENTS, SEGMENT_BYTES), 0);
	cr_expect_eq(v1->tier, ON_DEVICE);
	loader_ends(loader, 0, "");
	cr_expect_eq(registry_fds(server->ledger.registry), SEGMENTS + 1);
}

/* The move has failed, the version lies on files, and nothing is charged. */
static void expect_unmoved(int code, const char *says)
{
	TURN_UNTIL(!v1->move);
	cr_expect_eq(v1->tier, ON_FILES);
	cr_assert_not_null(v1->promotion_error);
	cr_expect_eq(v1->promotion_error->code, code);
	cr_expect(strstr(v1->promotion_error->message, says), "%s", v1->promotion_error->message);
	TURN_UNTIL(host()->used == 0 && registry_fds(server->ledger.registry) == 1);
}

TierTest(other_memory_than_the_versions_is_refused)
{
	demote();
	promote();
	cr_expect_eq(moved(SEGMENTS - 1, SEGMENT_BYTES), -EBADMSG);
	cr_expect_str_eq(message.error.message, "the moved part has 3 segments, not 4");
	loader_ends(loader, -EBADMSG, "it was refused");
	next_loader();
	expect_unmoved(-EBADMSG, "the moved part has 3 segments, not 4");
	promote();
	cr_expect_eq(moved(SEGMENTS, SEGMENT_BYTES / 2), -EBADMSG);
	cr_expect_str_eq(message.error.message, "segment 0 of the moved part has 512 bytes, not 1024");
	loader_ends(loader, -EBADMSG, "it was refused");
	next_loader();
	expect_unmoved(-EBADMSG, "has 512 bytes");
	cr_expect_not(v1->tainted, "nothing is wrong with the version");
}

TierTest(what_is_not_to_come_is_refused)
{
	cr_assert_eq(ASK(admin, "demote", TEXT("ref", "m@v1"), TEXT("to", "files")), 0);
	get_job();
	cr_expect_eq(moved(1, SEGMENT_BYTES), -EBADMSG);
	cr_expect_str_eq(message.error.message, "1 segments came, and none were to come");
	cr_expect_eq(moved(0, 0), -EBADMSG, "its move has failed");
	loader_ends(loader, -EBADMSG, "it was refused");
	next_loader();
	TURN_UNTIL(!v1->move);
	cr_expect_eq(v1->tier, ON_DEVICE);
	cr_assert_eq(ASK(admin, "verify", TEXT("ref", "m@v1")), 0);
	get_job();
	cr_expect_eq(moved(0, 0), -EINVAL);
	cr_expect_str_eq(message.error.message,
			 "this loader's job belongs to no move, or to one that has ended");
	loader_ends(loader, 0, "");
}

TierTest(a_loader_that_ends_without_a_part_moves_nothing)
{
	demote();
	promote();
	loader_ends(loader, 0, "");
	next_loader();
	expect_unmoved(-EIO, "ended its job without finishing it");
	promote();
	say_progress(loader);
	close(loader);
	expect_unmoved(-EIO, "");
	loader = standby_with(-1);
}

TierTest(a_loader_that_dies_before_it_has_begun_is_replaced)
{
	struct job *job;

	demote();
	promote();
	job = job_of(v1);
	next_loader();
	get_job();
	cr_expect_eq(job_of(v1), job);
	cr_expect_eq(moved(SEGMENTS, SEGMENT_BYTES), 0);
	loader_ends(loader, 0, "");
	cr_expect_eq(v1->tier, ON_DEVICE);
}

static struct device *add_gpu(void)
{
	struct device gpu = {.id = "GPU-1", .name = "gpu", .kind = &kind_cuda, .total = GIB(1)};

	cr_assert_eq(device_table_report(&server->ledger.devices, &gpu, 1), 0);
	return device_find(&server->ledger.devices, gpu.id);
}

/* Memory, not files: the version is a GPU's here, whose memory a loader has read. */
TierTest(memory_that_differs_taints)
{
	struct replica *part = &v1->replicas[0];

	part->device = part->lies_on = add_gpu();
	cr_assert_eq(ASK(admin, "demote", TEXT("ref", "m@v1"), TEXT("to", "host")), 0, "%s",
		     message.error.message);
	get_job();
	cr_expect_eq(packet.fd_count, SEGMENTS + 1);
	cr_expect_eq(host()->used, 2 * BYTES, "beside the old memory");
	loader_ends(loader, -EBADMSG, "tensor w differs");
	next_loader();
	TURN_UNTIL(!v1->move && host()->used == BYTES);
	cr_assert_not_null(v1->tainted);
	cr_expect_str_eq(v1->tainted->message, "tensor w differs");
	cr_expect_eq(ASK(admin, "demote", TEXT("ref", "m@v1"), TEXT("to", "host")), -EBADMSG);
}

/* A GPU that is lost takes nothing that lies in host memory. */
TierTest(a_lost_gpu_leaves_what_is_in_host_memory)
{
	struct error lost = {.code = -ENODEV, .message = "it fell off the bus"};
	struct replica *part = &v1->replicas[0];
	struct device *device = add_gpu();

	part->device = device;
	v1->tier = v1->moving_to = ON_HOST;
	device->lost = lost;
	versions_lose(&server->work, device);
	cr_expect_null(v1->tainted);
	cr_expect_eq(ASK(admin, "promote", TEXT("ref", "m@v1")), -ENODEV);
	cr_expect_eq(ASK(admin, "verify", TEXT("ref", "m@v1")), 0);
	get_job();
	cr_expect_str_eq(answer_text("device"), DEVICE_HOST);
	loader_ends(loader, 0, "");
}

/* ---- who may ---- */

TierTest(what_may_not_be_demoted)
{
	struct lease *lease, *list = NULL;
	const struct lease_holder holder = {
		.holder = server->net.sessions, .leases = &list, .quota = server->ledger.quota};

	cr_expect_eq(ASK(admin, "demote", TEXT("ref", "m@v1"), TEXT("to", "device")), -EINVAL);
	cr_expect_eq(ASK(admin, "demote", TEXT("ref", "m@v1"), TEXT("to", "host")), -EINVAL);
	v1->cache.cached = true;
	cr_expect_eq(ASK(admin, "demote", TEXT("ref", "m@v1"), TEXT("to", "files")), -EINVAL);
	v1->cache.cached = false;
	cr_assert_eq(lease_grant(server->ledger.registry, v1, 0, &holder, &lease, &error), 0);
	cr_expect_eq(ASK(admin, "demote", TEXT("ref", "m@v1"), TEXT("to", "files")), -EBUSY);
	cr_expect(strstr(message.error.detail, "(pid "), "%s", message.error.detail);
	lease_release(server->ledger.registry, lease);
	cr_expect_gt(v1->last_used_ms, 0);
	server->work.draining = true;
	cr_expect_eq(tiers_demote(&server->work, v1, ON_FILES, &operator, "", &error), -ESHUTDOWN);
	cr_expect_eq(tiers_promote(&server->work, v1, &operator, "", &error), 0, "it lies there");
	server->work.draining = false;
	version_describe(v1, NULL);
	cr_expect_eq(ASK(admin, "demote", TEXT("ref", "m@v1"), TEXT("to", "files")), -EINVAL);
	describe(v1);
	cr_expect_null(server->work.jobs.first);
}

TierTest(one_move_at_a_time)
{
	cr_assert_eq(ASK(admin, "demote", TEXT("ref", "m@v1"), TEXT("to", "files")), 0);
	cr_expect_eq(ASK(admin, "demote", TEXT("ref", "m@v1"), TEXT("to", "files")), 0, "the same one");
	cr_expect_eq(ASK(admin, "verify", TEXT("ref", "m@v1")), -EBUSY);
	cr_expect_eq(tiers_describe(&server->work, v1, v1->description, &operator, & error), -EBUSY);
	cr_expect(strstr(error.message, "m@v1 is on its way from device to files"), "%s", error.message);
	cr_expect_eq(ASK(admin, "promote", TEXT("ref", "m@v1")), 0, "which ends the demotion");
	cr_expect_eq(answer_count("jobs"), 0, "and waits for none of its jobs");
	get_job();
	loader_ends(loader, -ECANCELED, "cancelled");
	next_loader();
	TURN_UNTIL(!v1->move);
	cr_expect_eq(v1->tier, ON_DEVICE);
}

TierTest(full_tables_change_nothing)
{
	const uint64_t most = registry_fds_max(server->ledger.registry);

	demote();
	server->work.jobs.queued += JOBS_QUEUED_MAX;
	cr_expect_eq(ASK(admin, "promote", TEXT("ref", "m@v1")), -EDQUOT);
	server->work.jobs.queued -= JOBS_QUEUED_MAX;
	registry_set_fds_max(server->ledger.registry, 2);
	cr_expect_eq(ASK(admin, "promote", TEXT("ref", "m@v1")), -EDQUOT);
	registry_set_fds_max(server->ledger.registry, most);
	cr_expect_eq(host()->used, 0);
	cr_expect_eq(registry_fds(server->ledger.registry), 1);
}

TierTest(without_memory_leaves_nothing)
{
	unsigned n = 1;

	demote();
	for (; fail_alloc_arm(n), tiers_promote(&server->work, v1, &operator, "x", &error) < 0; n++) {
		cr_assert(fail_alloc_disarm());
		cr_expect_eq(error.code, -ENOMEM);
		cr_assert_null(server->work.moves);
		cr_assert_null(v1->move);
		cr_assert_eq(host()->used, 0);
		cr_assert_eq(server->work.jobs.queued, 0);
	}
	cr_assert_not(fail_alloc_disarm());
	cr_expect_gt(n, 3);
}

/* ---- who pays ---- */

static int get(int sock, const char *ref)
{
	send_get(sock, 5, ref, 0);
	return answered(sock);
}

static void limit_bytes(uint64_t bytes)
{
	struct quota_limits limits = quota_defaults;

	limits.per_uid[QUOTA_BYTES] = bytes;
	quota_set_limits(server->ledger.quota, &limits);
}

TierTest(an_attach_promotes_within_its_users_quota)
{
	int worker = greeted(SESSION_WORKER);

	v1->by_operator = true;
	demote();
	limit_bytes(BYTES - 1);
	cr_expect_eq(get(worker, "m"), -EDQUOT);
	cr_expect(strstr(message.error.message, "m@v1 lies on files, and is not promoted: "), "%s",
		  message.error.message);
	cr_expect_null(v1->move);
	limit_bytes(BYTES);
	cr_expect_eq(get(worker, "m"), -ETIMEDOUT);
	cr_expect_str_eq(message.error.message, "m@v1 lies on files, and its promotion has begun");
	cr_expect_eq(quota_used(server->ledger.quota, geteuid(), QUOTA_BYTES), BYTES);
	get_job();
	cr_expect_eq(moved(SEGMENTS, SEGMENT_BYTES), 0);
	loader_ends(loader, 0, "");
	cr_expect_eq(quota_used(server->ledger.quota, geteuid(), QUOTA_BYTES), 0,
		     "it was for the promotion alone");
	cr_expect_eq(get(worker, "m"), 0);
	close(worker);
	TURN_UNTIL(leases() == 0);
}

/* Neither begins an attach a promotion of it, nor does it wait for one that goes on. */
TierTest(what_is_tainted_is_refused_on_each_tier)
{
	int worker = greeted(SESSION_WORKER);

	demote();
	promote();
	cr_assert_not_null(v1->move);
	error_set(&error, -EBADMSG, NULL, "tensor w");
	versions_taint(&server->work, v1, &v1->replicas[0], &error);
	send_get(worker, 5, "m", -1);
	cr_expect_eq(answered(worker), -EBADMSG);
	cr_expect_str_eq(message.error.message, "m@v1 is tainted: tensor w");
	loader_ends(loader, -ENOENT, "no file");
	next_loader();
	cr_assert_null(v1->move);
	cr_expect_eq(get(worker, "m"), -EBADMSG);
	cr_expect_str_eq(message.error.message, "m@v1 is tainted: tensor w");
	cr_expect_null(v1->move);
	close(worker);
}

TierTest(nobody_makes_a_copy_of_what_is_tainted)
{
	int worker = greeted(SESSION_WORKER);
	struct replica *part = &v1->replicas[0];

	part->device = part->lies_on = add_gpu();
	error_set(&error, -EBADMSG, NULL, "tensor w");
	versions_taint(&server->work, v1, part, &error);
	cr_expect_eq(ASK(worker, "get_handles", TEXT("ref", "m"), TEXT("transport", "cuda_ipc")), -EBADMSG);
	cr_expect_str_eq(message.error.message, "m@v1 is tainted: tensor w");
	cr_expect_eq(server->work.jobs.queued + server->work.jobs.running, 0);
	cr_expect_eq(server->ledger.copies.count, 0);
	cr_expect_eq(leases(), 0);
	close(worker);
}

/* Without a copy there is no lease either. */
TierTest(a_copy_that_does_not_fit_leaves_no_lease)
{
	int worker = greeted(SESSION_WORKER);
	struct replica *part = &v1->replicas[0];

	part->device = part->lies_on = add_gpu();
	part->device->budget = part->device->used;
	cr_expect_eq(ASK(worker, "get_handles", TEXT("ref", "m"), TEXT("transport", "cuda_ipc")), -ENOSPC);
	cr_expect_eq(server->ledger.copies.count, 0);
	cr_expect_eq(leases(), 0);
	close(worker);
}

TierTest(a_user_begins_a_few_promotions_at_once)
{
	struct version *others[PROMOTIONS_PER_UID_MAX + 1];
	int worker = greeted(SESSION_WORKER);
	char name[16];

	for (unsigned i = 0; i <= PROMOTIONS_PER_UID_MAX; i++) {
		snprintf(name, sizeof(name), "v%u", i + 2);
		others[i] = ready("m", name);
		describe(others[i]);
		others[i]->by_operator = true;
		others[i]->tier = others[i]->moving_to = ON_FILES;
		cr_assert_eq(replica_sizes(&others[i]->replicas[0], &others[i]->replicas[0].sizes), 0);
		others[i]->replicas[0].size_count = 1;
		others[i]->replicas[0].lies_on = NULL;
		snprintf(name, sizeof(name), "m@v%u", i + 2);
		cr_expect_eq(get(worker, name), i < PROMOTIONS_PER_UID_MAX ? -ETIMEDOUT : -EDQUOT);
	}
	cr_expect(strstr(message.error.message, "promotions that go on, and one user may have no more"), "%s",
		  message.error.message);
	cr_expect_eq(tiers_promote(&server->work, others[PROMOTIONS_PER_UID_MAX], &operator, "", &error), 0,
		     "an operator may");
	close(worker);
}

/* ---- waiting ---- */

TierTest(who_waits_is_told_the_end)
{
	int worker = greeted(SESSION_WORKER);

	demote();
	send_get(worker, 5, "m", -1);
	get_job();
	loader_ends(loader, -ENOENT, "no file");
	next_loader();
	cr_expect_eq(answered_later(worker), -ENOENT);
	cr_expect_str_eq(message.error.message, "m@v1 lies on files, and is not promoted: no file");
	cr_expect_eq(server->work.jobs.queued + server->work.jobs.running, 0, "it is not tried again");
	send_get(worker, 5, "m", -1);
	get_job();
	cr_expect_eq(moved(SEGMENTS, SEGMENT_BYTES), 0);
	cr_expect_eq(answered_later(worker), 0);
	loader_ends(loader, 0, "");
	cr_expect_null(v1->promotion_error);
	close(worker);
	TURN_UNTIL(leases() == 0);
}

static int room_calls;
static bool room_comes;

static int room(struct work *work, const struct tiers_need *need, struct error *why)
{
	(void)work;
	(void)why;
	room_calls++;
	cr_expect_eq(need->device, host());
	cr_expect_eq(need->bytes, BYTES);
	cr_expect_eq(need->version, v1);
	return room_comes ? 0 : -ENOSPC;
}

TierTest(a_promotion_waits_for_room_that_comes)
{
	uint64_t budget = host()->budget;

	demote();
	host()->budget = BYTES - 1;
	cr_expect_eq(ASK(admin, "promote", TEXT("ref", "m@v1")), -ENOSPC);
	cr_expect(strstr(message.error.message, "no room on host: 4.0 KiB asked for"), "%s",
		  message.error.message);
	tiers_make_room(&server->work, room);
	cr_expect_eq(ASK(admin, "promote", TEXT("ref", "m@v1")), -ENOSPC);
	room_comes = true;
	cr_expect_eq(ASK(admin, "promote", TEXT("ref", "m@v1")), 0);
	cr_expect_eq(v1->moving_to, ON_DEVICE);
	cr_expect_null(job_of(v1));
	work_later(&server->work, LATER_ROOM);
	turn();
	cr_expect_eq(room_calls, 3, "there is not enough yet");
	host()->budget = budget;
	work_later(&server->work, LATER_ROOM);
	get_job();
	cr_expect_eq(moved(SEGMENTS, SEGMENT_BYTES), 0);
	loader_ends(loader, 0, "");
	cr_expect_eq(v1->tier, ON_DEVICE);
}

/* The promotion of v1 waits, because room on host is to come. */
static void begin_to_wait(void)
{
	demote();
	host()->budget = BYTES - 1;
	tiers_make_room(&server->work, room);
	room_comes = true;
	cr_expect_eq(ASK(admin, "promote", TEXT("ref", "m@v1")), 0);
}

TierTest(a_promotion_that_waits_for_room_ends_without_it)
{
	begin_to_wait();
	room_comes = false;
	work_later(&server->work, LATER_ROOM);
	turn();
	expect_unmoved(-ENOSPC, "no room on host");
}

TierTest(a_retire_ends_a_promotion_that_waits)
{
	struct ref ref = {.has_id = true, .id = v1->id};
	struct version *found;
	uint64_t generation;

	begin_to_wait();
	registry_remove_aliases(server->ledger.registry);
	cr_assert_eq(versions_retire(&server->work, v1, &error), 0);
	work_settle(&server->work);
	cr_expect_null(server->work.moves);
	cr_expect_not_null(server->work.freeing, "the end of the move comes after this step");
	cr_expect_eq(uv_backend_timeout(&server->loop), 0, "the loop does not sleep on it");
	work_settle(&server->work);
	cr_expect_null(server->work.freeing);
	TURN_UNTIL(registry_find(server->ledger.registry, &ref, &found, &generation, NULL) < 0);
	cr_expect_null(server->work.moves);
}
