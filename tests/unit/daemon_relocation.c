/* A version comes to lie on another tier: what it holds, what is counted and charged, and what a restart finds. */
#include "daemon/ledger/relocation.h"
#include "tests/support/daemon/snapshot.h"
#include "tests/support/fail_alloc.h"

#define SEGMENTS 2
#define SEGMENT_BYTES 1000

/* Of a GPU. */
static const struct description cut_in_two = {.source = "/models/m",
					      .choice = {.ranks = &(const uint64_t){2}, .cut = "* copy"}};
static struct version *v1;

static void begin(void)
{
	ledger_open();
	v1 = fake_ready("m", "v1");
	v1->replicas[0].device = v1->replicas[0].lies_on = ledger.gpu;
	for (uint32_t i = 0; i < SEGMENTS; i++) {
		struct budget_charge *charge = &v1->replicas[0].segments[i].segment->charge;

		budget_release(charge);
		budget_adopt(ledger.gpu, SEGMENT_BYTES, charge);
	}
}

static void end(void)
{
	back_clear();
	ledger_close();
}
#define RelocationTest(name) TestBetween(relocation, name, begin(), end())

static struct replica *part(void)
{
	return &v1->replicas[0];
}

/* As a loader brings it. */
static void arrive(struct relocated *new, struct device *onto)
{
	struct part arrived = {.segment_count = SEGMENTS};

	*new = (struct relocated){.moves = true, .onto = onto};
	for (uint32_t i = 0; i < SEGMENTS; i++)
		arrived.segments[i] = (struct part_fd){70 + (int)i, SEGMENT_BYTES};
	budget_adopt(onto, SEGMENTS * SEGMENT_BYTES, &new->charge);
	cr_assert_eq(relocated_take(part(), new, &arrived, &ledger.error), 0, "%s", ledger.error.message);
	cr_expect_eq(arrived.segments[0].fd, -1);
	for (uint32_t i = 0; i < SEGMENTS; i++)
		new->segments[i].segment->name = fake_next_name++;
}

static void go(enum tier tier, struct device *onto)
{
	struct relocated memory = {.moves = true};

	if (onto)
		arrive(&memory, onto);
	else
		cr_assert_eq(replica_sizes(part(), &memory.sizes), 0);
	version_relocate(v1, tier, &memory);
	relocated_clear(&memory);
}

RelocationTest(its_memory_is_counted_and_charged_where_it_is)
{
	const uint64_t bytes = SEGMENTS * SEGMENT_BYTES;
	struct registry_counts counts;

	cr_expect_eq(ledger.gpu->used, bytes);
	go(ON_HOST, ledger.host);
	cr_expect_eq(part()->lies_on, ledger.host);
	cr_expect_eq(part()->device, ledger.gpu);
	cr_expect(ledger.gpu->used == 0 && ledger.host->used == bytes);
	counts = registry_counts(ledger.registry);
	cr_expect(counts.segments == SEGMENTS && counts.fds == SEGMENTS + 1 && counts.bytes == bytes);
	go(ON_FILES, NULL);
	cr_expect_null(part()->lies_on);
	cr_expect_eq(part()->bytes, bytes, "as large as ever");
	cr_expect(ledger.gpu->used == 0 && ledger.host->used == 0);
	counts = registry_counts(ledger.registry);
	cr_expect(counts.segments == 0 && counts.fds == 1 && counts.bytes == 0);
	cr_expect_eq(counts.demoted, 1);
	cr_expect_eq(replica_count_segments(part()), SEGMENTS);
	go(ON_DEVICE, ledger.gpu);
	cr_expect_eq(ledger.gpu->used, bytes);
	cr_expect_null(part()->sizes);
	cr_expect_eq(registry_counts(ledger.registry).demoted, 0);
	counts = registry_counts(ledger.registry);
	cr_expect(counts.segments == SEGMENTS && counts.fds == SEGMENTS + 1 && counts.bytes == bytes);
}

RelocationTest(its_owner_pays_once)
{
	struct budget_charge *charge = &part()->segments[0].segment->charge;

	cr_assert_eq(budget_charge_user(charge, ledger.quota, LEDGER_UID, &ledger.error), 0);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_BYTES), SEGMENT_BYTES);
	go(ON_HOST, ledger.host);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_BYTES), SEGMENT_BYTES);
	go(ON_FILES, NULL);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_BYTES), 0);
}

/* From host memory onto its device, and its host copy stays. */
static void go_back_with_copy(void)
{
	struct relocated memory;

	arrive(&memory, ledger.gpu);
	memory.keeps_copy = true;
	version_relocate(v1, ON_DEVICE, &memory);
	cr_expect(!memory.segments && memory.count == 0, "nothing leaves");
	relocated_clear(&memory);
}

RelocationTest(its_host_copy_stays_and_is_its_memory_again)
{
	const uint64_t bytes = SEGMENTS * SEGMENT_BYTES;
	struct relocated memory = {.moves = true, .onto = ledger.host, .from_copy = true};
	struct registry_counts counts;

	cr_assert_eq(budget_charge_user(&part()->segments[0].segment->charge, ledger.quota, LEDGER_UID,
					&ledger.error),
		     0);
	go(ON_HOST, ledger.host);
	go_back_with_copy();
	counts = registry_counts(ledger.registry);
	cr_expect(counts.host_copies == 1 && counts.segments == 2 * SEGMENTS && counts.bytes == 2 * bytes);
	cr_expect(ledger.gpu->used == bytes && ledger.host->used == bytes);
	cr_expect_eq(version_host_copy_bytes(v1), part()->bytes);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_BYTES), SEGMENT_BYTES, "its owner pays once");
	cr_expect_eq(segment_hold_part(&part()->spares[1]), part());
	cr_expect(segment_is_spare(part()->spares[0].segment) &&
		  !segment_is_spare(part()->segments[0].segment));
	version_relocate(v1, ON_HOST, &memory);
	relocated_clear(&memory);
	counts = registry_counts(ledger.registry);
	cr_expect(counts.host_copies == 0 && counts.segments == SEGMENTS && counts.bytes == bytes);
	cr_expect(ledger.gpu->used == 0 && ledger.host->used == bytes);
	cr_expect_eq(part()->lies_on, ledger.host);
	cr_expect(!segment_is_spare(part()->segments[0].segment));
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_BYTES), SEGMENT_BYTES);
}

RelocationTest(its_host_copy_goes)
{
	struct relocated memory = {0};

	go(ON_HOST, ledger.host);
	go_back_with_copy();
	version_take_host_copy(v1, &memory);
	cr_expect(memory.count == SEGMENTS && memory.segments[0].last);
	relocated_clear(&memory);
	cr_expect(version_host_copy_bytes(v1) == 0 && ledger.host->used == 0);
	cr_expect_eq(registry_counts(ledger.registry).host_copies, 0);
	cr_expect_eq(registry_counts(ledger.registry).fds, SEGMENTS + 1);
}

RelocationTest(what_another_version_holds_stays_where_it_is)
{
	struct segment *shared = part()->segments[0].segment;
	struct version *other = fake_ready("m", "v2");
	struct replica *holder = &other->replicas[0];
	struct registry_counts counts;

	/* In place of one of its own. */
	segment_let_go(&holder->segments[0]);
	segment_drop(holder->segments[0].segment);
	segment_hold(&holder->segments[0], shared, other);
	counts = registry_counts(ledger.registry);
	go(ON_HOST, ledger.host);
	cr_expect_eq(shared->holds, &holder->segments[0]);
	cr_expect_null(shared->holds->next);
	cr_expect_eq(shared->charge.device, ledger.gpu);
	cr_expect_eq(registry_counts(ledger.registry).bytes, counts.bytes + SEGMENT_BYTES,
		     "two new ones for the one that only it held");
}

RelocationTest(leases_of_before_are_stale)
{
	struct lease *list = NULL;
	struct lease *lease = ledger_lease(v1, &list, &list);
	uint64_t id = lease->id;
	const struct lease_holder holder = {.holder = &list, .leases = &list, .quota = ledger.quota};

	lease_release(ledger.registry, lease);
	go(ON_FILES, NULL);
	cr_expect_eq(v1->stale_leases, id);
	expect_error(lease_grant(ledger.registry, v1, 0, &holder, &lease, &ledger.error), -EINVAL,
		     "m@v1 lies on files, and not on its devices");
	expect_error(ledger_swap("m", "other", v1), -EAGAIN, "m@v1 lies on files, and not on its devices");
	cr_expect_eq(ledger_swap("m", "current", v1), 0, "it names that already");
	go(ON_DEVICE, ledger.gpu);
	cr_expect_eq(v1->stale_leases, id, "it is another memory");
}

RelocationTest(memory_of_another_shape_is_not_taken)
{
	struct part arrived = {.segment_count = 1, .segments = {{70, SEGMENT_BYTES}}};
	struct relocated new = {.moves = true, .onto = ledger.host};

	expect_error(relocated_take(part(), &new, &arrived, &ledger.error), -EBADMSG, "has 1 segments, not 2");
	arrived.segment_count = 2;
	arrived.segments[1] = (struct part_fd){71, SEGMENT_BYTES + 1};
	expect_error(relocated_take(part(), &new, &arrived, &ledger.error), -EBADMSG,
		     "segment 1 of the moved part has 1001 bytes, not 1000");
	cr_expect_eq(arrived.segments[0].fd, 70, "it is the caller's");
	arrived.segments[1].bytes = SEGMENT_BYTES;
	for (unsigned n = 1; n <= 3; n++) {
		fail_alloc_arm(n);
		expect_error(relocated_take(part(), &new, &arrived, &ledger.error), -ENOMEM, "out of memory");
		cr_assert(fail_alloc_disarm());
		cr_assert(new.count == 0 && !new.segments);
	}
}

/* ---- what a restart finds ---- */

static void comes_back_on(enum tier tier)
{
	const struct replica *again;
	struct version *back_v1;

	v1->restores = tier == ON_FILES;
	back_from_ledger();
	back_v1 = back_find("m@v1");
	cr_assert_not_null(back_v1);
	again = &back_v1->replicas[0];
	cr_expect_eq(back_v1->tier, tier);
	cr_expect_eq(back_v1->moving_to, tier);
	cr_expect_eq(back_v1->stale_leases, v1->stale_leases);
	cr_expect_eq(back_v1->last_used_ms, v1->last_used_ms);
	cr_expect_eq(back_v1->restores, v1->restores);
	cr_expect_eq(again->bytes, part()->bytes);
	cr_expect_eq(again->segment_count, part()->segment_count);
	cr_expect_eq(again->size_count, part()->size_count);
	cr_expect_eq(again->device, device_find(&back.devices, LEDGER_GPU));
	cr_expect_eq(device_find(&back.devices, LEDGER_GPU)->used, ledger.gpu->used);
	cr_expect_eq(device_find(&back.devices, "host")->used, ledger.host->used);
	cr_expect_eq(registry_counts(back.registry).demoted, tier != ON_DEVICE);
	cr_expect_eq(registry_counts(back.registry).fds, registry_counts(ledger.registry).fds);
	if (v1->description) {
		cr_assert_not_null(back_v1->description);
		cr_expect_str_eq(back_v1->description->source, "/models/m");
		cr_expect_str_eq(back_v1->description->choice.cut, "* copy");
		cr_expect_eq(*back_v1->description->choice.ranks, 2);
	}
	expect_same_bytes();
}

RelocationTest(each_tier_comes_back)
{
	struct lease *list = NULL;

	lease_release(ledger.registry, ledger_lease(v1, &list, &list));
	comes_back_on(ON_DEVICE);
	version_describe(v1, description_new(&cut_in_two));
	comes_back_on(ON_DEVICE);
	go(ON_HOST, ledger.host);
	comes_back_on(ON_HOST);
	cr_expect_eq(fake_looked_sealed > 0, true, "memfds are looked at");
	go(ON_FILES, NULL);
	comes_back_on(ON_FILES);
	go(ON_DEVICE, ledger.gpu);
	comes_back_on(ON_DEVICE);
}

RelocationTest(a_restart_finds_both_places)
{
	const struct version *again;

	go(ON_HOST, ledger.host);
	go_back_with_copy();
	comes_back_on(ON_DEVICE);
	again = back_find("m@v1");
	cr_expect_eq(version_host_copy_bytes(again), part()->bytes);
	cr_expect_eq(again->replicas[0].spares[1].segment->fd, FAKE_FD(part()->spares[1].segment->name));
	cr_expect_eq(registry_counts(back.registry).host_copies, 1);
	cr_expect_eq(device_find(&back.devices, "host")->used, SEGMENTS * SEGMENT_BYTES);
}

/* It costs nothing but itself, and its other descriptors leave the store. */
RelocationTest(a_host_copy_that_is_not_whole_is_dropped)
{
	const struct version *again;

	go(ON_HOST, ledger.host);
	go_back_with_copy();
	fake_missing[0] = part()->spares[1].segment->name;
	fake_taken = 0;
	back_from_ledger();
	fake_missing[0] = 0;
	again = back_find("m@v1");
	cr_assert(again && again->state == VERSION_READY);
	cr_expect_eq(version_host_copy_bytes(again), 0);
	cr_expect_eq(fake_taken, SEGMENTS + 1);
	cr_expect_eq(device_find(&back.devices, "host")->used, 0);
	cr_expect_eq(back.lost, 0);
}

/* A gpuwmd of before tiers would hand memfds out as memory of a GPU: names of 0 stop it. */
RelocationTest(an_older_gpuwmd_refuses_the_state)
{
	const char zero[] = "\xa4name\x00", *at;
	struct message_writer w;
	unsigned zeros = 0;

	go(ON_HOST, ledger.host);
	fake_put(&w);
	for (at = w.buffer.data; (at = memmem(at, w.buffer.size - (size_t)(at - w.buffer.data), zero, 6)); at++)
		zeros++;
	cr_expect_eq(zeros, SEGMENTS);
	message_writer_clear(&w);
}

RelocationTest(files_without_a_description_are_refused)
{
	struct message_writer w;

	go(ON_FILES, NULL);
	fake_put(&w);
	back_open();
	cr_expect_eq(back_take(w.buffer.data, w.buffer.size), 0);
	cr_assert(back.unread.first);
	cr_expect(strstr(back.unread.first->why.message, "it lies on files, but has no source"), "%s",
		  back.unread.first->why.message);
	message_writer_clear(&w);
}

RelocationTest(descriptions_need_memory)
{
	fail_alloc_arm(1);
	cr_expect_null(description_new(&cut_in_two));
	cr_assert(fail_alloc_disarm());
	cr_expect_null(description_free(NULL));
}

RelocationTest(tiers_have_names)
{
	enum tier tier;

	for (enum tier each = 0; each < TIERS; each++) {
		cr_assert_eq(tier_find(tier_name(each), &tier), 0);
		cr_expect_eq(tier, each);
	}
	cr_expect_eq(tier_find("disk", &tier), -EINVAL);
}
