/* Which versions leave a device so that others have room. */
#include "tests/support/daemon/ledger.h"

#include "daemon/ledger/eviction.h"

#define NOW 1000000
#define MIN_RESIDENT 1000

static struct eviction_plan plan;
static enum tier goes_to;
static uint64_t host_left;
static struct eviction_before before;
static char said[EVICTION_TEXT];

static bool may_go(void *data, const struct version *version, enum tier *ret)
{
	(void)version;
	*ret = goes_to;
	return data == NULL;
}

/* One segment of so many GiB. */
static void add_part(struct version *version, struct device *device, uint64_t gib)
{
	struct replica part = {.device = device, .lies_on = device, .index = {.fd = -1, .bytes = 8}};

	part.segments = calloc(1, sizeof(*part.segments));
	part.segments[0].segment = segment_new(-1, GIB(gib), 0);
	part.segment_count = 1;
	part.bytes = GIB(gib);
	cr_assert_eq(version_adopt_replica(version, &part, &ledger.error), 0, "%s", ledger.error.message);
}

/* A ready version with one segment of so many GiB on a device. */
static struct version *resident(const char *tag, struct device *device, uint64_t gib, uint64_t used_ms)
{
	struct version like = {.state = VERSION_READY, .world = 1, .owner = LEDGER_UID, .by_operator = true};
	struct version *version;

	snprintf(like.tag, sizeof(like.tag), "%s", tag);
	cr_assert_eq(version_id_new(&like.id) | version_id_new(&like.publish), 0);
	cr_assert_eq(registry_adopt(ledger.registry, "m", &like, &version, &ledger.error), 0, "%s",
		     ledger.error.message);
	add_part(version, device, gib);
	version->last_used_ms = used_ms;
	return version;
}

static int choose(uint64_t gib, const struct device *device, void *data)
{
	int r;

	free(plan.list);
	r = eviction_choose(ledger.registry,
			    &(struct eviction_wish){.device = device,
						    .bytes = GIB(gib),
						    .host_left = host_left,
						    .before = &before,
						    .now_ms = NOW,
						    .min_resident_ms = MIN_RESIDENT,
						    .may_go = may_go,
						    .data = data},
			    &plan);
	eviction_explain(&plan, said);
	return r;
}

static void open_all(void)
{
	goes_to = ON_HOST;
	host_left = UINT64_MAX;
	ledger_open();
}

static void close_all(void)
{
	struct version *version = NULL;

	free(plan.list);
	while ((version = registry_next_version(ledger.registry, NULL, version)))
		version_let_go(version);
	ledger_close();
}

#define EvictionTest(name) TestBetween(eviction, name, open_all(), close_all())

EvictionTest(the_least_recently_used_go_first)
{
	struct version *old, *older;

	resident("new", ledger.gpu, 4, 30);
	old = resident("old", ledger.gpu, 4, 20);
	older = resident("older", ledger.gpu, 4, 10);
	cr_assert_eq(choose(4, ledger.gpu, NULL), 0);
	cr_assert_eq(plan.count, 1);
	cr_expect_eq(plan.list[0].version, older);
	cr_expect_eq(plan.list[0].to, ON_HOST);
	cr_assert_eq(choose(5, ledger.gpu, NULL), 0);
	cr_assert_eq(plan.count, 2);
	cr_expect_eq(plan.list[0].version, older);
	cr_expect_eq(plan.list[1].version, old);
	cr_expect_eq(plan.bytes, GIB(8));
}

EvictionTest(not_more_go_than_are_needed)
{
	struct version *large;

	resident("small", ledger.gpu, 1, 10);
	large = resident("large", ledger.gpu, 8, 20);
	cr_assert_eq(choose(8, ledger.gpu, NULL), 0);
	cr_assert_eq(plan.count, 1);
	cr_expect_eq(plan.list[0].version, large);
}

EvictionTest(what_host_has_no_room_for_stays)
{
	struct version *small;

	resident("large", ledger.gpu, 8, 10);
	resident("tiny", ledger.gpu, 1, 20);
	small = resident("small", ledger.gpu, 4, 30);
	host_left = GIB(4);
	cr_assert_eq(choose(4, ledger.gpu, NULL), 0);
	cr_assert_eq(plan.count, 1, "without the tiny one there is room for the small one");
	cr_expect_eq(plan.list[0].version, small);
	cr_expect_eq(choose(5, ledger.gpu, NULL), -ENOSPC);
	cr_expect_eq(plan.count, 0);
	cr_expect(strstr(said, "that the budget of host has no room for"), "%s", said);
	host_left = GIB(5);
	cr_expect_eq(choose(5, ledger.gpu, NULL), 0);
	cr_expect_eq(plan.count, 2);
	goes_to = ON_FILES;
	cr_expect_eq(choose(8, ledger.gpu, NULL), -ENOSPC, "nobody knows their files");
}

EvictionTest(where_all_together_are_not_enough_nobody_goes)
{
	resident("a", ledger.gpu, 4, 10);
	cr_expect_eq(choose(5, ledger.gpu, NULL), -ENOSPC);
	cr_expect_eq(plan.count, 0);
	cr_expect_str_empty(said);
}

EvictionTest(leased_and_pinned_versions_stay)
{
	struct version *leased = resident("leased", ledger.gpu, 2, 10);
	struct version *pinned = resident("pinned", ledger.gpu, 3, 20);
	struct lease *leases = NULL;
	struct lease *lease = ledger_lease(leased, &leases, &leases);

	cr_assert_eq(version_pin(pinned, "p", &ledger.error), 0);
	cr_expect_eq(choose(1, ledger.gpu, NULL), -ENOSPC);
	cr_expect_str_eq(said, "2.0 GiB leased, 3.0 GiB pinned");
	lease_release(ledger.registry, lease);
	cr_assert_eq(choose(1, ledger.gpu, NULL), 0);
	cr_expect_eq(plan.list[0].version, leased);
}

EvictionTest(what_is_read_damaged_or_retiring_stays)
{
	struct version *version = resident("a", ledger.gpu, 2, 10);

	version->readers = 1;
	cr_expect_eq(choose(1, ledger.gpu, NULL), -ENOSPC);
	cr_expect_str_eq(said, "2.0 GiB in use by jobs");
	version->readers = 0;
	cr_assert_eq(choose(1, ledger.gpu, NULL), 0);
	version_taint(version, &(struct error){.code = -EBADMSG});
	cr_expect_eq(choose(1, ledger.gpu, NULL), -ENOSPC);
}

EvictionTest(the_rule_decides_where_to)
{
	struct version *version = resident("a", ledger.gpu, 2, 10);

	cr_expect_eq(choose(1, ledger.gpu, &plan), -ENOSPC);
	cr_expect_str_eq(said, "2.0 GiB not to be evicted for this (evict)");
	goes_to = ON_FILES;
	cr_expect_eq(choose(1, ledger.gpu, NULL), -ENOSPC);
	cr_expect_str_eq(said, "2.0 GiB of versions without files");
	version->description = description_new(&(struct description){.source = "/models/m"});
	cr_assert_eq(choose(1, ledger.gpu, NULL), 0);
	cr_expect_eq(plan.list[0].to, ON_FILES);
}

EvictionTest(what_lies_on_host_goes_to_files_only)
{
	struct version *version = resident("a", ledger.host, 2, 10);

	version->description = description_new(&(struct description){.source = "/models/m"});
	cr_expect_eq(choose(1, ledger.host, NULL), -ENOSPC);
	cr_expect_str_eq(said, "2.0 GiB not to be evicted for this (evict)");
	goes_to = ON_FILES;
	cr_expect_eq(choose(1, ledger.host, NULL), 0);
	cr_expect_eq(choose(1, ledger.gpu, NULL), -ENOSPC);
	version->tier = ON_FILES;
	cr_expect_eq(choose(1, ledger.host, NULL), -ENOSPC);
}

EvictionTest(a_version_stays_for_min_resident)
{
	struct version *version = resident("a", ledger.gpu, 2, 10);

	version->resident_ms = NOW - MIN_RESIDENT + 1;
	cr_expect_eq(choose(1, ledger.gpu, NULL), -ENOSPC);
	cr_expect_eq(plan.recent_until_ms, NOW + 1);
	cr_expect_str_eq(said, "2.0 GiB not resident for long enough (min_resident)");
	version->resident_ms = NOW - MIN_RESIDENT;
	cr_expect_eq(choose(1, ledger.gpu, NULL), 0);
	version->resident_ms = NOW + 50; /* the clock was set back */
	cr_expect_eq(choose(1, ledger.gpu, NULL), 0);
}

EvictionTest(a_demotion_that_failed_is_not_repeated_at_once)
{
	struct version *version = resident("a", ledger.gpu, 2, 10);

	version->demote_again_ms = NOW + 1;
	cr_expect_eq(choose(1, ledger.gpu, NULL), -ENOSPC);
	cr_expect_str_eq(said, "2.0 GiB of versions whose demotion failed");
	version->demote_again_ms = NOW;
	cr_expect_eq(choose(1, ledger.gpu, NULL), 0);
}

EvictionTest(what_leaves_already_counts)
{
	struct version *version = resident("a", ledger.gpu, 4, 10);

	resident("b", ledger.gpu, 4, 20);
	version->move = (struct tier_move *)version; /* nobody looks into it */
	version->moving_to = ON_HOST;
	cr_assert_eq(choose(4, ledger.gpu, NULL), 0);
	cr_expect_eq(plan.count, 0);
	cr_expect_eq(plan.coming, GIB(4));
	cr_assert_eq(choose(5, ledger.gpu, NULL), 0);
	cr_expect_eq(plan.count, 1);
	cr_expect_eq(choose(9, ledger.gpu, NULL), -ENOSPC);
	version->moving_to = ON_DEVICE;
	cr_assert_eq(choose(4, ledger.gpu, NULL), 0);
	cr_expect_eq(plan.count, 1);
	version->move = NULL;
}

/* A load needs room on host first, then on the GPU. */
EvictionTest(what_leaves_for_another_device_counts)
{
	struct version *both = resident("both", ledger.host, 4, 20);
	struct eviction_plan first;

	add_part(both, ledger.gpu, 4);
	both->description = description_new(&(struct description){.source = "/models/m"});
	resident("older", ledger.gpu, 4, 10);
	goes_to = ON_FILES;
	cr_assert_eq(choose(4, ledger.host, NULL), 0);
	cr_assert_eq(plan.list[0].version, both);
	first = plan;
	plan.list = NULL;
	before = (struct eviction_before){.plans = &first, .count = 1};
	goes_to = ON_HOST;
	cr_assert_eq(choose(4, ledger.gpu, NULL), 0);
	cr_expect_eq(plan.count, 0, "the first one frees enough");
	cr_expect_eq(plan.coming, GIB(4));
	cr_assert_eq(choose(5, ledger.gpu, NULL), 0);
	cr_assert_eq(plan.count, 1);
	cr_expect_str_eq(plan.list[0].version->tag, "older");
	free(first.list);
	before = (struct eviction_before){0};
}

EvictionTest(what_leaves_before_takes_and_frees_host_memory)
{
	struct version *down = resident("down", ledger.gpu, 4, 10), *out = resident("out", ledger.host, 2, 10);
	struct eviction list[] = {{.version = down, .to = ON_HOST}, {.version = out, .to = ON_FILES}};
	const struct eviction_plan plans[] = {{.list = &list[0], .count = 1}, {.list = &list[1], .count = 1}};
	const struct eviction_before both = {.plans = plans, .count = 2, .host_bytes = GIB(1)};

	cr_expect_eq(eviction_host_taken(&both), GIB(5));
	cr_expect_eq(eviction_host_freed(&both, ledger.host), GIB(2));
}

EvictionTest(a_segment_that_two_versions_hold_does_not_come_free)
{
	struct version *version = resident("a", ledger.gpu, 4, 10);
	struct version *other = resident("b", ledger.gpu, 1, 20);
	struct segment_hold also = {0};

	segment_hold(&also, version->replicas[0].segments[0].segment, other);
	cr_expect_eq(eviction_bytes(version, ledger.gpu), 0);
	cr_expect_eq(choose(2, ledger.gpu, NULL), -ENOSPC);
	segment_let_go(&also);
	segment_drop(version->replicas[0].segments[0].segment);
	cr_expect_eq(eviction_bytes(version, ledger.gpu), GIB(4));
}
