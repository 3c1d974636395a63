#include "tests/support/daemon/ledger.h"

static int publisher, other, checker;
static const struct digest content_a = {{1}}, content_b = {{2}};
static struct publish *publish;
static struct publish_part *part;

static struct publish_request request_of(const char *tag, uint32_t rank, uint32_t world)
{
	return (struct publish_request){
		.model = "m",
		.tag = tag,
		.alias = "",
		.device = ledger.gpu,
		.rank = rank,
		.world = world,
		.bytes = 1000,
		.publisher = &publisher,
		.uid = LEDGER_UID,
	};
}

static int begin(const struct publish_request *of)
{
	int r = publish_begin(ledger.publishes, ledger.registry, ledger.quota, of, &part, &ledger.error);

	if (r == 0)
		publish = part->publish;
	return r;
}

static int commit(void *by, const struct digest *content)
{
	return publish_commit(publish, part, by, content, &ledger.error);
}

/* What a checker of `count` segments of `bytes` bytes each hands over. */
static struct publish_checked checked_of(uint32_t count, uint64_t bytes, const struct digest *content)
{
	struct publish_checked checked = {
		.part = {.index = {100, 64}, .segment_count = count}, .tensors = 5, .content = *content};

	for (uint32_t i = 0; i < count; i++)
		checked.part.segments[i] = (struct part_fd){(int)(101 + i), bytes};
	return checked;
}

static int check(uint32_t count, uint64_t bytes, const struct digest *content)
{
	struct publish_checked checked = checked_of(count, bytes, content);
	int r = publish_checked(ledger.registry, publish, part, &checked, &ledger.error);

	if (r == 0) {
		for (uint32_t i = 0; i < count; i++)
			cr_expect_eq(checked.part.segments[i].fd, -1, "what was taken is gone from the caller");
		cr_expect_eq(checked.part.index.fd, -1);
	}
	return r;
}

static void give_up(void)
{
	struct version *version = publish->version;

	publish_end(ledger.publishes, publish);
	ledger_fail(version);
}

/* A test of `publish`, which `request` began as m@v1. */
static struct publish_request request;

static void begin_v1(void)
{
	ledger_open();
	request = request_of("v1", 0, 1);
	cr_assert_eq(begin(&request), 0);
}

#define BegunTest(name) TestBetween(publish, name, begin_v1(), (give_up(), ledger_close()))

BegunTest(begins_with_charges_and_a_building_version)
{
	cr_expect_eq(publish->version->state, VERSION_BUILDING);
	cr_expect_eq(ledger_find("m@v1"), publish->version);
	cr_expect_eq(part->publisher, &publisher);
	cr_expect_eq(publish->part_count, 1);
	cr_expect_eq(ledger.gpu->used, 1000);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_PUBLISHES), 1);
	cr_expect_eq(publish_count(ledger.publishes), 1);
	cr_expect_eq(publish_find(ledger.publishes, &publish->id), publish);
	cr_expect_eq(registry_by_publish(ledger.registry, &publish->id), publish->version);
	cr_expect_eq(publish_part_find(publish, 0, ledger.gpu), part);
	cr_expect_null(publish_part_find(publish, 0, ledger.host));
	cr_expect_null(publish_part_find(publish, 1, ledger.gpu));
}

LedgerTest(publish, becomes_ready_when_committed_then_checked)
{
	struct replica *replica;
	bool current;

	request = request_of("v1", 0, 1);
	begin(&request);
	cr_assert_eq(commit(&publisher, &content_a), 0);
	cr_expect_eq(publish->version->state, VERSION_CHECKING);
	cr_expect_null(part->publisher);
	cr_expect_not(version_complete(publish->version));
	cr_assert_eq(check(2, 300, &content_a), 0);
	replica = &publish->version->replicas[0];
	cr_expect_eq(replica->bytes, 600);
	cr_expect_eq(replica->segment_count, 2);
	cr_expect_eq(replica->segments[1].segment->fd, 102);
	cr_expect_eq(replica->index.fd, 100);
	cr_expect_eq(replica->tensors, 5);
	cr_expect_eq(ledger.gpu->used, 600, "the charge shrinks to what is used");
	cr_expect_eq(registry_ready(ledger.registry, publish->version, &current, NULL), 0);
	publish_end(ledger.publishes, publish);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_PUBLISHES), 0);
}

BegunTest(becomes_ready_when_checked_then_committed)
{
	cr_assert_eq(check(1, 1000, &content_a), 0);
	cr_expect_eq(publish->version->state, VERSION_BUILDING);
	expect_error(commit(&publisher, &content_b), -EBADMSG,
		     "rank 0 of m@v1 on " LEDGER_GPU " has the content 01");
	cr_expect_eq(publish->version->state, VERSION_BUILDING);
	cr_assert_eq(commit(&publisher, &content_a), 0);
	cr_expect(version_complete(publish->version));
	cr_expect_eq(publish->version->state, VERSION_CHECKING);
}

LedgerTest(publish, counts_what_is_held_until_it_is_gone)
{
	request = request_of("v1", 0, 1);
	begin(&request);
	check(3, 10, &content_a);
	cr_expect_eq(registry_counts(ledger.registry).segments, 3);
	cr_expect_eq(registry_counts(ledger.registry).fds, 4);
	cr_expect_eq(registry_counts(ledger.registry).bytes, 30);
	give_up();
	cr_expect_eq(registry_counts(ledger.registry).segments, 0);
	cr_expect_eq(registry_counts(ledger.registry).fds, 0);
	cr_expect_eq(registry_counts(ledger.registry).bytes, 0);
}

BegunTest(commit_is_the_publishers_alone_and_repeatable)
{
	expect_error(commit(&other, &content_a), -EACCES,
		     "rank 0 of m@v1 on " LEDGER_GPU " is another publisher's");
	cr_assert_eq(commit(&publisher, &content_a), 0);
	cr_expect_eq(commit(&publisher, &content_a), 0);
	cr_expect_eq(commit(&other, &content_a), 0, "after a reconnect the publisher is another session");
	expect_error(commit(&publisher, &content_b), -EBADMSG, "has the content 01");
}

LedgerTest(publish, ranks_join_by_the_publishes_id)
{
	struct publish *first;

	request = request_of("v1", 0, 2);
	begin(&request);
	first = publish;
	cr_assert_eq(commit(&publisher, &content_a), 0);
	cr_assert_eq(check(1, 10, &content_a), 0);
	cr_expect_eq(publish->version->state, VERSION_BUILDING, "rank 1 is still to come");
	request = request_of("v1", 1, 2);
	request.join = &first->id;
	request.publisher = &other;
	cr_assert_eq(begin(&request), 0);
	cr_expect_eq(publish, first);
	cr_expect_eq(part->replica, 1);
	cr_expect_eq(publish_part_find(publish, 1, ledger.gpu), part);
	cr_expect_eq(ledger.gpu->used, 1010);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_PUBLISHES), 1);
	cr_assert_eq(commit(&other, &content_b), 0);
	cr_expect_eq(publish->version->state, VERSION_CHECKING);
	cr_assert_eq(check(1, 10, &content_b), 0);
	cr_expect(version_complete(publish->version));
	give_up();
}

LedgerTest(publish, join_refuses_what_does_not_fit)
{
	struct version_id unknown = {{9}};
	struct publish *first;

	request = request_of("v1", 0, 2);
	request.alias = "prod";
	begin(&request);
	first = publish;
	request.join = &unknown;
	expect_error(begin(&request), -ENOENT, "no open publish 09");
	request.join = &first->id;
	expect_error(begin(&request), -EEXIST, "rank 0 of m@v1 is on " LEDGER_GPU " already");
	request.rank = 2;
	expect_error(begin(&request), -EINVAL, "rank 2 of m@v1, whose world is 2");
	request.rank = 1;
	request.tag = "v2";
	expect_error(begin(&request), -EINVAL, "this publish makes m@v1, not m@v2");
	request.tag = "v1";
	request.model = "n";
	expect_error(begin(&request), -EINVAL, "this publish makes m@v1, not n@v1");
	request.model = "m";
	request.world = 3;
	expect_error(begin(&request), -EINVAL, "the world of m@v1 is 2, not 3");
	request.world = 2;
	request.alias = "test";
	expect_error(begin(&request), -EINVAL, "the alias of m@v1 is \"prod\", not \"test\"");
	request.alias = "";
	request.bytes = GIB(1000);
	expect_error(begin(&request), -ENOSPC, "no room on " LEDGER_GPU);
	cr_expect_eq(ledger.gpu->used, 1000, "refusals leave nothing behind");
	cr_expect_eq(first->part_count, 1);
	publish = first;
	give_up();
}

BegunTest(join_ends_with_the_last_commit)
{
	commit(&publisher, &content_a);
	request.join = &publish->id;
	request.device = ledger.host;
	expect_error(begin(&request), -EBUSY, "m@v1 is checking, no longer building");
	cr_expect_eq(ledger.host->used, 0);
}

LedgerTest(publish, refused_begin_leaves_nothing_behind)
{
	request = request_of("v1", 1, 1);
	expect_error(begin(&request), -EINVAL, "rank 1 of a world of 1");
	request = request_of("current", 0, 1);
	expect_error(begin(&request), -EINVAL, "can't be a tag");
	request = request_of("v1", 0, 1);
	request.bytes = GIB(91);
	expect_error(begin(&request), -ENOSPC, "no room on " LEDGER_GPU ": 91.0 GiB asked for");
	request.bytes = 1;
	request.alias = "v1";
	expect_error(begin(&request), -EINVAL, "the alias \"v1\" is the tag itself");
	request.alias = "previous";
	expect_error(begin(&request), -EINVAL, "gpuwmd alone moves the alias \"previous\"");
	cr_expect_eq(publish_count(ledger.publishes), 0);
	cr_expect_null(registry_next_version(ledger.registry, NULL, NULL));
	cr_expect_eq(ledger.gpu->used, 0);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_PUBLISHES), 0);
}

LedgerTest(publish, open_ones_are_limited_per_user)
{
	char tag[16];

	request = request_of("v1", 0, 1);
	request.tag = tag;
	for (int i = 0; i < PUBLISHES_PER_UID_MAX; i++) {
		snprintf(tag, sizeof(tag), "v%d", i);
		cr_assert_eq(begin(&request), 0);
	}
	snprintf(tag, sizeof(tag), "more");
	expect_error(begin(&request), -EDQUOT, "uid 1000 has all 8 open publishes");
	request.uid = LEDGER_UID + 1;
	cr_expect_eq(begin(&request), 0);
}

BegunTest(check_refuses_more_bytes_than_were_granted)
{
	expect_error(check(1, 1001, &content_a), -EBADMSG, "the segments exceed the 1000 B that were granted");
	expect_error(check(2, 501, &content_a), -EBADMSG, "exceed");
	expect_error(check(2, UINT64_MAX / 2 + 2, &content_a), -EBADMSG, "exceed");
	cr_expect_eq(ledger.gpu->used, 1000);
	cr_expect_not(publish->version->replicas[0].checked);
	cr_expect_eq(check(0, 0, &content_a), 0, "a version without bytes is a version");
	cr_expect_eq(ledger.gpu->used, 0);
}

BegunTest(check_refuses_a_sum_above_64_bits)
{
	struct publish_checked checked = checked_of(2, 10, &content_a);

	checked.part.segments[1].bytes = UINT64_MAX;
	expect_error(publish_checked(ledger.registry, publish, part, &checked, &ledger.error), -EBADMSG,
		     "exceed");
	cr_expect_eq(checked.part.segments[0].fd, 101, "what was refused stays the caller's");
	cr_expect_eq(checked.part.index.fd, 100);
}

BegunTest(check_refuses_another_content_than_promised)
{
	commit(&publisher, &content_a);
	expect_error(check(1, 10, &content_b), -EBADMSG,
		     "has the content 02000000000000000000000000000000, not 01");
	cr_expect_eq(registry_counts(ledger.registry).fds, 0);
	cr_assert_eq(check(1, 10, &content_a), 0);
	expect_error(check(1, 10, &content_a), -EEXIST, "rank 0 of m@v1 on " LEDGER_GPU " was checked already");
}

LedgerTest(publish, check_refuses_too_many_descriptors)
{
	char tag[16];

	request = request_of("v0", 0, 1);
	request.by_operator = true;
	begin(&request);
	cr_assert_eq(check(PART_SEGMENTS_MAX, 1, &content_a), 0);
	request.tag = tag;
	for (int i = 1; i < 8; i++) {
		snprintf(tag, sizeof(tag), "v%d", i);
		begin(&request);
		cr_assert_eq(check(PART_SEGMENTS_MAX, 1, &content_a), 0);
	}
	snprintf(tag, sizeof(tag), "last");
	request.uid = LEDGER_UID + 1;
	cr_assert_eq(begin(&request), 0);
	expect_error(
		check(24, 1, &content_a), -EDQUOT,
		"24 segments and an index do not fit: 2024 of the 2048 descriptors that can be kept are taken");
	cr_expect_eq(check(23, 1, &content_a), 0);
	cr_expect_eq(registry_counts(ledger.registry).fds, STORE_FDS_MAX);
}

LedgerTest(publish, of_a_load_counts_for_no_user)
{
	request = request_of("v1", 0, 1);
	request.by_operator = true;
	cr_assert_eq(publish_begin(ledger.publishes, ledger.registry, NULL, &request, &part, &ledger.error), 0);
	publish = part->publish;
	for (int kind = 0; kind < QUOTA_KINDS; kind++)
		cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, (enum quota_kind)kind), 0);
	give_up();
}

LedgerTest(publish, indices_have_a_limit_in_all)
{
	struct publish_checked checked = checked_of(1, 1, &content_a);

	request = request_of("v1", 0, 1);
	request.by_operator = true;
	begin(&request);
	checked.part.index.bytes = INDICES_BYTES_MAX - 64;
	cr_assert_eq(publish_checked(ledger.registry, publish, part, &checked, &ledger.error), 0);
	cr_expect_eq(registry_counts(ledger.registry).index_bytes, INDICES_BYTES_MAX - 64);
	request.tag = "v2";
	begin(&request);
	checked = checked_of(1, 1, &content_a);
	checked.part.index.bytes = 65;
	expect_error(publish_checked(ledger.registry, publish, part, &checked, &ledger.error), -EDQUOT,
		     "of 4.0 GiB for indices are held");
	cr_expect_eq(check(1, 1, &content_a), 0);
	give_up();
	cr_expect_eq(registry_counts(ledger.registry).index_bytes, INDICES_BYTES_MAX - 64);
}

LedgerTest(publish, table_goes_through_open_ones)
{
	struct publish *first;

	request = request_of("v1", 0, 1);
	cr_expect_null(publish_next(ledger.publishes, NULL));
	begin(&request);
	first = publish;
	request.tag = "v2";
	begin(&request);
	cr_expect_eq(publish_next(ledger.publishes, NULL), publish);
	cr_expect_eq(publish_next(ledger.publishes, publish), first);
	cr_expect_null(publish_next(ledger.publishes, first));
	publish_end(ledger.publishes, first);
	cr_expect_null(publish_next(ledger.publishes, publish));
	cr_expect_eq(publish_count(ledger.publishes), 1);
	cr_expect_null(publish_find(ledger.publishes, &(struct version_id){{9}}));
	publish->parts[0].checker = &checker;
}

LedgerTest(publish, charges_its_owner_until_it_has_failed)
{
	request = request_of("v1", 0, 1);
	begin(&request);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_VERSIONS), 1);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_BYTES), request.bytes);
	cr_assert_eq(check(2, 10, &content_a), 0);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_BYTES), 20, "what was not used returns");
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_FDS), 3);
	give_up();
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_VERSIONS), 0);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_FDS), 0);
}

LedgerTest(publish, charges_its_descriptors_when_it_begins)
{
	request = request_of("v1", 0, 2);
	request.segments = 4;
	begin(&request);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_FDS), 5, "four segments and an index");
	cr_assert_eq(check(2, 10, &content_a), 0);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_FDS), 3, "what was not used returns");
	request = request_of("v1", 1, 2);
	request.join = &publish->id;
	request.segments = 1;
	begin(&request);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_FDS), 5);
	cr_expect_eq(begin(&request), -EEXIST);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_FDS), 5, "what was refused charges nothing");
	cr_assert_eq(check(3, 10, &content_a), 0);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_FDS), 7, "one segment, and two more");
	give_up();
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_FDS), 0);
}

LedgerTest(publish, joined_by_another_user_charges_its_owner)
{
	struct publish_request joining = request_of("v1", 1, 2);

	request = request_of("v1", 0, 2);
	begin(&request);
	joining.join = &publish->id;
	joining.uid = LEDGER_UID + 1;
	cr_assert_eq(begin(&joining), 0);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_BYTES), 2 * request.bytes);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID + 1, QUOTA_BYTES), 0);
	give_up();
}

LedgerTest(publish, above_a_quota_leaves_nothing_behind)
{
	struct quota_limits limits = quota_defaults;
	request = request_of("v1", 0, 1);
	limits.per_uid[QUOTA_BYTES] = request.bytes - 1;
	quota_set_limits(ledger.quota, &limits);
	expect_error(begin(&request), -EDQUOT, "of memory; it has 0 B");
	cr_expect_null(registry_next_version(ledger.registry, NULL, NULL));
	for (int kind = 0; kind < QUOTA_KINDS; kind++)
		cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, (enum quota_kind)kind), 0);
}
