/* Host copies that gpuwmd makes in the background (host_copy = yes): when, with what room, and what happens to others meanwhile. */
#include "daemon/work/tiers/moves.h"
#include "tests/support/any/between.h"
#include "tests/support/daemon/service.h"
#include "tests/support/fail_alloc.h"

TestSuite(host_copies, .init = open_service, .fini = close_service, .timeout = 120);

#define SEGMENTS 4
#define SEGMENT_BYTES 1024
#define BYTES ((uint64_t)SEGMENTS * SEGMENT_BYTES)

static int admin = -1, loader = -1;
static struct error error;
static struct device *gpu;
static struct version *v1; /* m@v1, on a GPU, of /models/m */

static struct device *host(void)
{
	return device_find(&server->ledger.devices, DEVICE_HOST);
}

static struct device *add_gpu(void)
{
	struct device like = {.id = "GPU-1", .name = "gpu", .kind = &kind_cuda, .total = GIB(1)};

	cr_assert_eq(device_table_report(&server->ledger.devices, &like, 1), 0);
	return device_find(&server->ledger.devices, like.id);
}

static void begin(void)
{
	listen_for(SOCK_SEQPACKET, 8);
	pool_start();
	loader = standby_with(-1);
	admin = greeted(SESSION_ADMIN);
	v1 = ready_with("m", "v1", SEGMENTS);
	version_describe(v1, description_new(&(struct description){.source = "/models/m"}));
	v1->replicas[0].device = v1->replicas[0].lies_on = gpu = add_gpu();
	for (uint32_t i = 0; i < SEGMENTS; i++) {
		struct budget_charge *charge = &v1->replicas[0].segments[i].segment->charge;

		budget_release(charge);
		budget_adopt(gpu, SEGMENT_BYTES, charge);
	}
}

static void end(void)
{
	versions_retire_all(&server->work);
	close(admin);
	close(loader);
	TURN_UNTIL(registry_counts(server->ledger.registry).fds == 0);
	TURN_UNTIL(host()->used == 0 && gpu->used == 0);
	cr_expect_null(server->work.moves);
	leave();
}

#define CopyTest(name) TestBetween(host_copies, name, begin(), end())

static void next_loader(void)
{
	close(loader);
	loader = standby_with(-1);
}

/* The rule is there, and the loop looks. */
static void want_copies(void)
{
	struct rule *rule = rules_section(&server->config->rules, 1);

	snprintf(rule->match, sizeof(rule->match), "m");
	rule->tiers.host_copy = HOST_COPY_YES;
	server->clients.rules_generation++;
	work_later(&server->work, LATER_TURN);
}

static void get_job(void)
{
	TURN_UNTIL(comes(loader) && strcmp(message.method, "job") == 0);
}

/* Whatever was to be begun has begun. */
static void look_again(void)
{
	work_later(&server->work, LATER_TURN);
	for (int turn = 0; turn < 3; turn++)
		cr_assert_eq(ask(admin, "status"), 0);
}

static void begin_copy(void)
{
	want_copies();
	get_job();
	cr_assert(v1->copying);
}

CopyTest(is_made_while_the_version_is_in_use)
{
	struct lease *lease, *list = NULL;
	const struct lease_holder holder = {
		.holder = server->net.sessions, .leases = &list, .quota = server->ledger.quota};

	cr_assert_eq(lease_grant(server->ledger.registry, v1, 0, &holder, &lease, &error), 0);
	begin_copy();
	cr_expect_str_eq(answer_text("kind"), "move");
	cr_expect_str_eq(answer_text("from"), "device");
	cr_expect_str_eq(answer_text("to"), "host");
	cr_expect_eq(v1->moving_to, ON_DEVICE);
	cr_expect_eq(host()->used, BYTES, "charged before it is made");
	cr_expect_eq(loader_moves(loader, SEGMENTS, SEGMENT_BYTES), 0);
	loader_ends(loader, 0, "");
	next_loader();
	cr_expect_eq(v1->tier, ON_DEVICE);
	cr_expect_eq(version_host_copy_bytes(v1), BYTES);
	cr_expect_eq(v1->stale_leases, 0, "whoever has it keeps it");
	cr_expect_eq(registry_fds(server->ledger.registry), 2 * SEGMENTS + 1);
	cr_expect(!v1->copying && !v1->move);
	lease_release(server->ledger.registry, lease);
	look_again();
	cr_expect_null(v1->move, "it is made once");
}

CopyTest(becomes_the_memory_of_a_version_that_leaves_meanwhile)
{
	begin_copy();
	cr_assert_eq(ASK(admin, "demote", TEXT("ref", "m@v1"), TEXT("to", "host")), 0, "%s",
		     message.error.message);
	cr_expect(!v1->copying && v1->moving_to == ON_HOST);
	cr_expect_eq(loader_moves(loader, SEGMENTS, SEGMENT_BYTES), 0);
	cr_expect_eq(v1->tier, ON_HOST);
	cr_expect_eq(version_host_copy_bytes(v1), 0);
	loader_ends(loader, 0, "");
	next_loader();
	TURN_UNTIL(gpu->used == 0);
	cr_expect_eq(host()->used, BYTES);
}

/* A load of a GPU that is full. */
static int make_room(void)
{
	const struct tiers_need need = {.device = gpu, .bytes = GIB(1), .who = {.by_operator = true}};

	gpu->budget = need.bytes;
	gpu->context = 0;
	server->config->min_resident_s = 0;
	return evictions_make_room(&server->work, &need, &error);
}

CopyTest(keeps_nobody_from_making_room)
{
	begin_copy();
	cr_expect_eq(make_room(), -ENOSPC, "no rule lets it go");
	server->config->rules.list[0]->tiers.evict = ON_HOST;
	cr_expect_eq(make_room(), 0);
	cr_expect(!v1->copying && v1->moving_to == ON_HOST);
	cr_expect_eq(loader_moves(loader, SEGMENTS, SEGMENT_BYTES), 0);
	loader_ends(loader, 0, "");
	next_loader();
	TURN_UNTIL(gpu->used == 0);
}

CopyTest(ends_before_its_version_goes_to_files_for_others)
{
	begin_copy();
	server->config->rules.list[0]->tiers.evict = ON_FILES;
	cr_expect_eq(make_room(), 0, "it is asked again when room is given back");
	cr_expect_eq(v1->move->error.code, -ECANCELED);
	cr_expect_eq(v1->demote_again_ms, 0);
	loader_ends(loader, -ECANCELED, "cancelled");
	next_loader();
	TURN_UNTIL(!v1->move);
	cr_expect_eq(make_room(), 0);
	cr_expect_eq(v1->moving_to, ON_FILES);
	get_job();
	cr_expect_eq(loader_moves(loader, 0, 0), 0);
	loader_ends(loader, 0, "");
	next_loader();
	TURN_UNTIL(gpu->used == 0);
}

CopyTest(makes_way_for_a_demotion_to_files)
{
	begin_copy();
	cr_assert_eq(ASK(admin, "demote", TEXT("ref", "m@v1"), TEXT("to", "files")), -EBUSY);
	cr_expect_str_eq(message.error.message, "a host copy of m@v1 is being made");
	loader_ends(loader, -ECANCELED, "cancelled");
	next_loader();
	TURN_UNTIL(!v1->move && host()->used == 0);
	look_again();
	cr_expect_null(v1->move, "the next one is made later");
	cr_assert_eq(ASK(admin, "demote", TEXT("ref", "m@v1"), TEXT("to", "files")), 0, "%s",
		     message.error.message);
	get_job();
	cr_expect_eq(loader_moves(loader, 0, 0), 0);
	loader_ends(loader, 0, "");
	next_loader();
	TURN_UNTIL(gpu->used == 0);
}

CopyTest(that_failed_is_made_again_a_minute_later)
{
	begin_copy();
	loader_ends(loader, -EIO, "it broke");
	next_loader();
	TURN_UNTIL(!v1->move && host()->used == 0);
	cr_expect_gt(v1->copy_again_ms, clock_wall_ms());
	cr_expect_eq(v1->demote_again_ms, 0, "which keeps it from nothing else");
	look_again();
	cr_expect_null(v1->move);
	cr_expect(uv_is_active((uv_handle_t *)&server->work.host_copies_timer));
	v1->copy_again_ms = clock_wall_ms();
	begin_copy();
	cr_expect_eq(loader_moves(loader, SEGMENTS, SEGMENT_BYTES), 0);
	loader_ends(loader, 0, "");
	next_loader();
	cr_expect_eq(version_host_copy_bytes(v1), BYTES);
}

CopyTest(takes_only_room_that_nobody_has)
{
	const uint64_t budget = host()->budget, fds = registry_fds_max(server->ledger.registry);

	host()->budget = BYTES;
	want_copies();
	look_again();
	cr_expect_null(v1->move, "an eighth of the budget stays free");
	host()->budget = budget;
	registry_set_fds_max(server->ledger.registry, 2 * SEGMENTS + 1);
	look_again();
	cr_expect_null(v1->move, "and of the store");
	registry_set_fds_max(server->ledger.registry, fds);
	look_again();
	cr_assert_not_null(v1->move);
	get_job();
	loader_ends(loader, -ECANCELED, "");
	next_loader();
}

CopyTest(gives_way_to_other_jobs)
{
	server->config->loaders = 1;
	begin_copy();
	cr_assert_eq(ASK(admin, "verify", TEXT("ref", "m@v1")), 0);
	cr_expect_eq(v1->move->error.code, -ECANCELED);
	loader_ends(loader, -ECANCELED, "cancelled");
	close(loader);
	loader = standby_with(-1);
	get_job();
	cr_expect_str_eq(answer_text("kind"), "verify");
	loader_ends(loader, 0, "");
	next_loader();
}

CopyTest(is_not_made_of_what_has_no_use_for_it)
{
	struct error damaged = {.code = -EBADMSG, .message = "tensor w differs"};

	v1->cache.cached = true;
	want_copies();
	look_again();
	cr_expect_null(v1->move);
	v1->cache.cached = false;
	v1->replicas[0].device = host();
	look_again();
	cr_expect_null(v1->move, "its device is host");
	v1->replicas[0].device = v1->replicas[0].lies_on;
	version_taint(v1, &damaged);
	look_again();
	cr_expect_null(v1->move);
}

CopyTest(without_memory_leaves_nothing)
{
	static const struct tiers_who by_rule = {.by_operator = true};
	unsigned n = 1;

	for (; fail_alloc_arm(n), tiers_copy(&server->work, v1, &by_rule, &error) < 0; n++) {
		cr_assert(fail_alloc_disarm());
		cr_expect_eq(error.code, -ENOMEM);
		cr_expect(!v1->move && !v1->copying);
		cr_expect_eq(host()->used, 0);
	}
	fail_alloc_disarm();
	cr_expect_gt(n, 3);
	get_job();
	loader_ends(loader, -ECANCELED, "");
	next_loader();
}
