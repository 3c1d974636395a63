/* Segments that two versions hold, in the fd store. */
#include "daemon/work/versions/versions.h"
#include "tests/support/daemon/storing.h"

static struct error error;

static void open_store(void)
{
	storing_begin("100");
}

TestSuite(sharing_store, .init = open_store, .fini = storing_end, .timeout = 120);

static struct segment *segment_of(const struct version *version, uint32_t position)
{
	return version->replicas[0].segments[position].segment;
}

/* m@TAG with two segments, of which the first is `shared`. */
static struct version *sharing(const char *tag, struct segment *shared)
{
	struct publish_checked checked = {.part = {.segment_count = 2}, .resident = {shared}};
	struct publish_part *of;
	struct publish *to = building("m", tag, &of);

	to->version->by_operator = true;
	checked.part.index = (struct part_fd){memfd_create("index", MFD_CLOEXEC), 100};
	for (uint32_t i = shared ? 1 : 0; i < 2; i++)
		checked.part.segments[i].fd = memfd_create("segment", MFD_CLOEXEC);
	checked.part.segments[0].bytes = checked.part.segments[1].bytes = 2048;
	cr_assert_eq(publish_commit(to, of, of->publisher, &checked.content, &error), 0);
	cr_assert_eq(publish_checked(server->ledger.registry, to, of, &checked, &error), 0, "%s",
		     error.message);
	cr_assert_eq(versions_complete(&server->work, to, &error), 0, "%s", error.message);
	return to->version;
}

static void store_both(struct version *ret[2])
{
	ret[0] = sharing("v1", NULL);
	TURN_UNTIL(ret[0]->state == VERSION_READY);
	ret[1] = sharing("v2", segment_of(ret[0], 0));
	TURN_UNTIL(ret[1]->state == VERSION_READY);
	registry_remove_aliases(server->ledger.registry);
}

static uint64_t used(void)
{
	return device_find(&server->ledger.devices, DEVICE_HOST)->used;
}

static void retire_both(unsigned first)
{
	struct version *versions[2];
	int fds = fd_count();

	store_both(versions);
	cr_expect_eq(manager_keeps(&manager, NULL), 6, "the state, two indices, three segments");
	cr_expect_eq(used(), 3 * 2048);
	cr_assert_eq(versions_retire(&server->work, versions[first], &error), 0);
	TURN_UNTIL(registry_counts(server->ledger.registry).versions == 1);
	cr_expect_eq(manager_keeps(&manager, NULL), 4);
	cr_expect_eq(used(), 2 * 2048);
	cr_assert_eq(versions_retire(&server->work, versions[!first], &error), 0);
	TURN_UNTIL(registry_counts(server->ledger.registry).versions == 0);
	cr_expect_eq(manager_keeps(&manager, NULL), 1);
	cr_expect_eq(used(), 0);
	cr_expect_eq(fd_count(), fds);
}

Test(sharing_store, has_a_segment_once_until_the_last_version_is_gone)
{
	retire_both(0);
	retire_both(1);
}

/* Neither knows of the other's removal when it begins. */
Test(sharing_store, lets_two_versions_go_at_once)
{
	struct version *versions[2];

	store_both(versions);
	cr_assert_eq(versions_retire(&server->work, versions[0], &error), 0);
	cr_assert_eq(versions_retire(&server->work, versions[1], &error), 0);
	TURN_UNTIL(registry_counts(server->ledger.registry).versions == 0);
	cr_expect_eq(manager_keeps(&manager, NULL), 1);
	cr_expect_eq(used(), 0);
}

/* What is stored for a version that fails leaves the store, but for the segment of the version that stays. */
Test(sharing_store, keeps_a_segment_when_the_second_version_fails)
{
	struct version *first = sharing("v1", NULL), *second;

	TURN_UNTIL(first->state == VERSION_READY);
	manager.answer = "28 g5\nEND\n"; /* it has no room for the new segment */
	second = sharing("v2", segment_of(first, 0));
	TURN_UNTIL(second->state == VERSION_FAILED);
	manager.answer = NULL;
	TURN_UNTIL(used() == 2 * 2048);
	cr_expect_eq(second->error.code, -EDQUOT, "%s", second->error.message);
	cr_expect_eq(manager_keeps(&manager, NULL), 4);
	cr_expect_eq(segment_of(first, 0)->uses, 1);
}
