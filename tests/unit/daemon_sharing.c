/* Segments that several versions hold: in the ledger and in a snapshot. */
#include "tests/support/daemon/snapshot.h"
#include "tests/support/fail_alloc.h"

static const struct digest content = {{1}};

/* ---- the ledger ---- */

static struct publish *publish;
static struct publish_part *part;

static void begin(const char *tag)
{
	static int publisher;
	const struct publish_request request = {.model = "m",
						.tag = tag,
						.alias = "",
						.device = ledger.gpu,
						.world = 1,
						.bytes = 1000,
						.publisher = &publisher,
						.uid = LEDGER_UID,
						.by_operator = true};

	cr_assert_eq(publish_begin(ledger.publishes, ledger.registry, NULL, &request, &part, &ledger.error), 0);
	publish = part->publish;
	cr_assert_eq(publish_commit(publish, part, &publisher, &content, &ledger.error), 0);
}

/* Two segments of 300 bytes. */
static struct publish_checked two(struct segment *first, struct segment *second)
{
	struct publish_checked checked = {.part = {.index = {100, 64}, .segment_count = 2},
					  .content = content,
					  .resident = {first, second}};

	for (uint32_t i = 0; i < 2; i++)
		checked.part.segments[i] = (struct part_fd){(int)(101 + i), 300};
	return checked;
}

static int check(struct segment *first, struct segment *second)
{
	struct publish_checked checked = two(first, second);

	return publish_checked(ledger.registry, publish, part, &checked, &ledger.error);
}

/* The open publish is ready. */
static struct version *end(void)
{
	struct version *version = publish->version;
	bool current;

	cr_assert_eq(registry_ready(ledger.registry, version, &current, &ledger.error), 0, "%s",
		     ledger.error.message);
	publish_end(ledger.publishes, publish);
	return version;
}

static struct segment *segment_of(const struct version *version, uint32_t position)
{
	return version->replicas[0].segments[position].segment;
}

/* m@v1, and m@v2 with the first of its segments. */
static void make(struct version *ret[2])
{
	begin("v1");
	cr_assert_eq(check(NULL, NULL), 0);
	ret[0] = end();
	begin("v2");
	cr_assert_eq(check(segment_of(ret[0], 0), NULL), 0, "%s", ledger.error.message);
	ret[1] = end();
}

static void expect_counts(uint64_t segments, uint64_t fds, uint64_t bytes)
{
	struct registry_counts counts = registry_counts(ledger.registry);

	cr_expect_eq(counts.segments, segments, "%lu segments", counts.segments);
	cr_expect_eq(counts.fds, fds, "%lu descriptors", counts.fds);
	cr_expect_eq(counts.bytes, bytes, "%lu bytes", counts.bytes);
}

LedgerTest(sharing, is_counted_and_charged_once)
{
	struct version *versions[2];

	make(versions);
	cr_expect_eq(segment_of(versions[0], 0), segment_of(versions[1], 0));
	cr_expect(segment_is_shared(segment_of(versions[0], 0)));
	cr_expect_not(segment_is_shared(segment_of(versions[0], 1)));
	cr_expect_eq(versions[1]->replicas[0].bytes, 600);
	expect_counts(3, 5, 900);
	cr_expect_eq(registry_counts(ledger.registry).shared_bytes, 300);
	cr_expect_eq(ledger.gpu->used, 900);
}

static void drop(struct version *version)
{
	registry_remove_aliases(ledger.registry);
	cr_assert_eq(registry_retire(ledger.registry, version, &ledger.error), 0, "%s", ledger.error.message);
	version_let_go(version);
	registry_remove(ledger.registry, version);
}

static void drop_both(unsigned first)
{
	struct version *versions[2];

	make(versions);
	drop(versions[first]);
	expect_counts(2, 3, 600);
	cr_expect_eq(registry_counts(ledger.registry).shared_bytes, 0);
	cr_expect_eq(ledger.gpu->used, 600);
	cr_expect_eq(segment_of(versions[!first], 0)->fd, 101);
	drop(versions[!first]);
	expect_counts(0, 0, 0);
	cr_expect_eq(ledger.gpu->used, 0);
}

LedgerTest(sharing, ends_in_either_order)
{
	drop_both(0);
	drop_both(1);
}

/* What a version lets go stays in the counts until it is gone: until then the store may have it. */
LedgerTest(sharing, counts_what_leaves_until_its_version_is_gone)
{
	struct version *versions[2];

	make(versions);
	version_let_go(versions[0]);
	expect_counts(3, 5, 900);
	cr_expect_not(versions[0]->replicas[0].segments[0].last);
	cr_expect(versions[0]->replicas[0].segments[1].last);
	version_let_go(versions[1]);
	version_let_go(versions[1]);
	cr_expect(versions[1]->replicas[0].segments[0].last);
	expect_counts(3, 5, 900);
	drop(versions[0]);
	expect_counts(2, 3, 600);
	drop(versions[1]);
	expect_counts(0, 0, 0);
}

LedgerTest(sharing, leaves_a_failed_check_as_it_was)
{
	struct version *first;
	struct publish_checked checked;
	unsigned failed = 0;

	begin("v1");
	cr_assert_eq(check(NULL, NULL), 0);
	first = end();
	begin("v2");
	checked = two(segment_of(first, 0), NULL);
	checked.part.segments[0].bytes = 299;
	expect_error(publish_checked(ledger.registry, publish, part, &checked, &ledger.error), -EBADMSG,
		     "segment 0 has 299 bytes, the resident one in its place has 300");
	for (int r = -ENOMEM; r < 0; failed++) {
		fail_alloc_arm(failed + 1);
		r = check(segment_of(first, 0), NULL);
		if (!fail_alloc_disarm())
			break;
		cr_expect_eq(r, -ENOMEM);
		cr_expect_eq(ledger.gpu->used, 1600);
		expect_counts(2, 3, 600);
		cr_expect_not(segment_is_shared(segment_of(first, 0)));
	}
	cr_expect_eq(failed, 3);
	cr_expect_eq(ledger.gpu->used, 900);
	end();
}

LedgerTest(sharing, of_a_publish_that_fails_ends_with_it)
{
	struct version *first;

	begin("v1");
	cr_assert_eq(check(NULL, NULL), 0);
	first = end();
	begin("v2");
	cr_assert_eq(check(segment_of(first, 0), segment_of(first, 1)), 0);
	cr_expect_eq(ledger.gpu->used, 600, "nothing is new");
	expect_counts(2, 4, 600);
	ledger_fail(publish->version);
	publish_end(ledger.publishes, publish);
	expect_counts(2, 3, 600);
	cr_expect_eq(ledger.gpu->used, 600);
	cr_expect_not(segment_is_shared(segment_of(first, 0)));
}

/* ---- a snapshot ---- */

SnapshotTest(sharing, comes_back_with_a_snapshot)
{
	struct version *versions[2], *again[2];

	make(versions);
	fake_store(versions[0]);
	fake_store(versions[1]);
	back_from_ledger();
	cr_expect_eq(fake_taken, 5);
	again[0] = back_find("m@v1");
	again[1] = back_find("m@v2");
	cr_assert(again[0] && again[1]);
	cr_expect_eq(segment_of(again[0], 0), segment_of(again[1], 0));
	cr_expect_eq(segment_of(again[0], 0)->fd, FAKE_FD(segment_of(versions[0], 0)->name));
	cr_expect_eq(segment_of(again[0], 0)->uses, 2);
	cr_expect_eq(registry_counts(back.registry).segments, 3);
	cr_expect_eq(registry_counts(back.registry).fds, 5);
	cr_expect_eq(registry_counts(back.registry).bytes, 900);
	cr_expect_eq(registry_counts(back.registry).shared_bytes, 300);
	cr_expect_eq(device_find(&back.devices, LEDGER_GPU)->used, 900);
}

/* Without its own segment v2 is lost, and what it shares is v1's alone. Without the shared one both are. */
SnapshotTest(sharing, is_lost_with_its_segment)
{
	struct version *versions[2];

	make(versions);
	fake_store(versions[0]);
	fake_store(versions[1]);
	fake_missing[0] = segment_of(versions[1], 1)->name;
	back_from_ledger();
	cr_expect_eq(back.lost, 1);
	cr_expect_eq(back_find("m@v2")->error.code, -ESTALE);
	cr_expect_not(segment_is_shared(segment_of(back_find("m@v1"), 0)));
	cr_expect_eq(device_find(&back.devices, LEDGER_GPU)->used, 600);
	fake_missing[0] = segment_of(versions[0], 0)->name;
	back_from_ledger();
	cr_expect_eq(back.lost, 2);
	cr_expect_eq(fake_taken, 0);
}
