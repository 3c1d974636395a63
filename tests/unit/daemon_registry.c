#include "tests/support/daemon/ledger.h"

static int add(const char *model, const char *tag, uint32_t world, struct version **ret)
{
	return registry_add(ledger.registry, &(struct version_wish){model, tag, world, LEDGER_UID, {0}}, ret,
			    &ledger.error);
}

LedgerTest(registry, adds_a_version_in_building)
{
	static const struct version_id none;
	struct version *version = NULL;

	cr_assert_eq(add("m", "v1", 3, &version), 0);
	cr_expect_eq(version->state, VERSION_BUILDING);
	cr_expect_str_eq(version->tag, "v1");
	cr_expect_str_eq(model_name(version->model), "m");
	cr_expect_eq(version->world, 3);
	cr_expect_eq(version->owner, LEDGER_UID);
	cr_expect_gt(version->created_ms, 1700000000000);
	cr_expect_not(version_id_equal(&version->id, &none));
	cr_expect_not(version_id_equal(&version->publish, &none));
	cr_expect_not(version_id_equal(&version->id, &version->publish));
	cr_expect_eq(registry_counts(ledger.registry).versions, 1);
}

LedgerTest(registry, finds_by_tag_alias_id_and_publish)
{
	struct version *version = ledger_ready("m", "v1");
	struct version_id unknown = {.bytes = {1}};
	char id[VERSION_ID_TEXT];

	hex128_format(version->id.bytes, id);
	cr_expect_eq(ledger_find("m@v1"), version);
	cr_expect_eq(ledger_find("m"), version);
	cr_expect_eq(ledger_find("m@current"), version);
	cr_expect_eq(ledger_find(id), version);
	cr_expect_eq(registry_by_publish(ledger.registry, &version->publish), version);
	cr_expect_null(registry_by_publish(ledger.registry, &unknown));
	cr_expect_null(registry_by_publish(ledger.registry, &version->id));
}

LedgerTest(registry, tells_the_generation_of_an_alias_only)
{
	struct version *version = ledger_ready("m", "v1"), *found;
	struct ref by_tag = {.model = "m", .name = "v1"}, by_alias = {.model = "m", .name = "current"};
	struct ref by_id = {.has_id = true, .id = version->id};
	uint64_t generation = 9;

	cr_assert_eq(registry_find(ledger.registry, &by_tag, &found, &generation, NULL), 0);
	cr_expect_eq(generation, 0);
	cr_assert_eq(registry_find(ledger.registry, &by_alias, &found, &generation, NULL), 0);
	cr_expect_eq(generation, 1);
	cr_assert_eq(registry_find(ledger.registry, &by_id, &found, &generation, NULL), 0);
	cr_expect_eq(generation, 0);
}

LedgerTest(registry, says_which_part_of_a_reference_is_missing)
{
	ledger_building("m", "v1");
	ledger_ready("n", "v1");
	cr_expect_null(ledger_find("x@v1"));
	cr_expect_str_eq(ledger.error.message, "no model \"x\"");
	cr_expect_str_eq(ledger.error.detail, "there are m, n");
	cr_expect_null(ledger_find("m@v2"));
	cr_expect_str_eq(ledger.error.message, "model \"m\" has no tag or alias \"v2\"");
	cr_expect_str_eq(ledger.error.detail, "there is v1");
	cr_expect_null(ledger_find("m"));
	cr_expect_str_eq(ledger.error.message, "model \"m\" has no tag or alias \"current\"");
	cr_expect_null(ledger_find("00000000000000000000000000000001"));
	cr_expect_str_eq(ledger.error.message, "no version 00000000000000000000000000000001");
	cr_expect_eq(ledger.error.code, -ENOENT);
}

LedgerTest(registry, lists_eight_names_at_most)
{
	char tag[16];

	for (int i = 1; i <= 10; i++) {
		snprintf(tag, sizeof(tag), "v%d", i);
		ledger_building("m", tag);
	}
	cr_expect_null(ledger_find("m"));
	cr_expect_str_eq(ledger.error.detail, "there are v1, v2, v3, v4, v5, v6, v7, v8 and more");
}

LedgerTest(registry, cuts_a_list_of_the_longest_names)
{
	char tag[NAME_BYTES_MAX + 1];

	memset(tag, 'x', NAME_BYTES_MAX);
	tag[NAME_BYTES_MAX] = '\0';
	for (char c = 'a'; c < 'a' + 9; c++) {
		tag[0] = c;
		ledger_building("m", tag);
	}
	cr_expect_null(ledger_find("m"));
	cr_expect_eq(strlen(ledger.error.detail), TEXT_BYTES_MAX);
}

LedgerTest(registry, refuses_wrong_names_and_worlds)
{
	struct version *version = NULL;

	expect_error(add("", "v1", 1, &version), -EINVAL, "the model's name is empty");
	expect_error(add("m@x", "v1", 1, &version), -EINVAL, "the model's name ");
	expect_error(add("m", "../v1", 1, &version), -EINVAL, "the tag ");
	expect_error(add("m", "current", 1, &version), -EINVAL, "\"current\" can't be a tag");
	expect_error(add("m", "previous", 1, &version), -EINVAL, "\"previous\" can't be a tag");
	expect_error(add("m", "v1", 0, &version), -EINVAL, "world is 0, not 1 to 64");
	expect_error(add("m", "v1", PARTS_PER_VERSION_MAX + 1, &version), -EINVAL, "world is 65, not 1 to 64");
	cr_expect_null(version);
	cr_expect_null(registry_next_version(ledger.registry, NULL, NULL), "no model is left behind");
}

LedgerTest(registry, refuses_a_tag_that_is_taken)
{
	struct version *v1 = ledger_building("m", "v1"), *version = NULL;

	expect_error(add("m", "v1", 1, &version), -EEXIST, "m@v1 is there already (building)");
	ledger_make_ready(v1);
	expect_error(add("m", "v1", 1, &version), -EEXIST, "m@v1 is there already (ready)");
	cr_assert_eq(ledger_swap("m", "prod", v1), 0);
	expect_error(add("m", "prod", 1, &version), -EEXIST, "\"prod\" is an alias of model \"m\"");
	cr_expect_null(version);
	cr_expect_eq(add("n", "v1", 1, &version), 0, "another model has names of its own");
}

LedgerTest(registry, refuses_versions_above_the_limit)
{
	struct version *version = NULL;
	char tag[16];

	for (int i = 0; i < VERSIONS_MAX; i++) {
		snprintf(tag, sizeof(tag), "v%d", i);
		cr_assert_eq(add("m", tag, 1, &version), 0);
	}
	expect_error(add("m", "one-more", 1, &version), -EDQUOT, "there are 1024 versions");
	ledger_fail(version);
	cr_expect_eq(add("m", "one-more", 1, &version), 0, "a failed one does not count");
}

LedgerTest(registry, keeps_a_failed_version_until_its_tag_is_used_anew)
{
	struct version *failed = ledger_building("m", "v1"), *anew = NULL;
	struct version_id id = failed->id, publish = failed->publish;

	ledger_fail(failed);
	cr_expect_eq(failed->state, VERSION_FAILED);
	cr_expect_str_eq(failed->error.message, "the loader died");
	cr_expect_eq(ledger_find("m@v1"), failed);
	cr_expect_eq(registry_counts(ledger.registry).versions, 0);
	cr_assert_eq(add("m", "v1", 1, &anew), 0);
	cr_expect_eq(ledger_find("m@v1"), anew);
	cr_expect_not(version_id_equal(&anew->id, &id));
	cr_expect_null(registry_by_publish(ledger.registry, &publish));
	cr_expect_eq(registry_next_version(ledger.registry, "m", NULL), anew);
	cr_expect_null(registry_next_version(ledger.registry, "m", anew));
}

LedgerTest(registry, forgets_the_oldest_failed_version_above_the_limit)
{
	struct version *version;
	char tag[16];

	for (int i = 0; i <= FAILED_KEPT_MAX; i++) {
		snprintf(tag, sizeof(tag), "v%d", i);
		version = ledger_building("m", tag);
		cr_assert(ledger_find("m@v0"));
		ledger_fail(version);
	}
	cr_expect_null(ledger_find("m@v0"));
	cr_expect(ledger_find("m@v1"));
	cr_expect_eq(ledger_find("m@v64"), version);
}

LedgerTest(registry, forgets_a_failed_version_from_the_middle)
{
	struct version *version = NULL;

	ledger_fail(ledger_building("m", "v1"));
	ledger_fail(ledger_building("m", "v2"));
	ledger_fail(ledger_building("m", "v3"));
	cr_assert_eq(add("m", "v2", 1, &version), 0);
	cr_expect_str_eq(registry_next_version(ledger.registry, "m", NULL)->tag, "v1");
	ledger_fail(version);
	cr_expect_str_eq(version->previous_in_model->tag, "v3");
}

LedgerTest(registry, goes_through_versions_by_model_and_age)
{
	static const char *const expected[] = {"a@z", "a@b", "b@x", "c@y"};
	struct version *version = NULL;
	char text[NAME_BYTES_MAX * 2 + 2];
	size_t i = 0;

	ledger_building("b", "x");
	ledger_building("a", "z");
	ledger_building("c", "y");
	ledger_building("a", "b");
	while ((version = registry_next_version(ledger.registry, NULL, version))) {
		snprintf(text, sizeof(text), "%s@%s", model_name(version->model), version->tag);
		cr_assert_lt(i, 4);
		cr_expect_str_eq(text, expected[i++]);
	}
	cr_expect_eq(i, 4);
	version = registry_next_version(ledger.registry, "a", NULL);
	cr_expect_str_eq(version->tag, "z");
	version = registry_next_version(ledger.registry, "a", version);
	cr_expect_str_eq(version->tag, "b");
	cr_expect_null(registry_next_version(ledger.registry, "a", version));
	cr_expect_null(registry_next_version(ledger.registry, "unknown", NULL));
}

LedgerTest(replica, is_added_once_for_a_rank_and_device)
{
	struct budget_charge charge = {0};
	struct version *version = NULL;
	uint32_t position = 9;

	cr_assert_eq(add("m", "v1", 2, &version), 0);
	cr_assert_eq(budget_charge(ledger.gpu, 100, &charge, NULL), 0);
	cr_assert_eq(version_add_replica(version, 1, ledger.gpu, &charge, &position, NULL), 0);
	cr_expect_eq(position, 0);
	cr_expect_null(charge.device, "the charge moved in");
	cr_expect_eq(version->replicas[0].index.fd, -1);
	cr_expect_eq(version->replicas[0].charge.bytes, 100);
	cr_expect_eq(version_add_replica(version, 1, ledger.host, &charge, &position, NULL), 0);
	cr_expect_eq(version_add_replica(version, 0, ledger.gpu, &charge, &position, NULL), 0);
	cr_expect_eq(position, 2);
	cr_assert_eq(budget_charge(ledger.gpu, 50, &charge, NULL), 0);
	expect_error(version_add_replica(version, 1, ledger.gpu, &charge, &position, &ledger.error), -EEXIST,
		     "rank 1 of m@v1 is on " LEDGER_GPU " already");
	cr_expect_eq(charge.bytes, 50, "on errors the charge stays the caller's");
	budget_release(&charge);
}

LedgerTest(replica, is_refused_out_of_place)
{
	struct version *version = ledger_building("m", "v1"), *wide = NULL;
	struct budget_charge none = {0};
	uint32_t position;

	expect_error(version_add_replica(version, 1, ledger.gpu, &none, &position, &ledger.error), -EINVAL,
		     "rank 1 of m@v1, whose world is 1");
	ledger_make_ready(version);
	expect_error(version_add_replica(version, 0, ledger.gpu, &none, &position, &ledger.error), -EBUSY,
		     "m@v1 is ready, no longer building");
	cr_assert_eq(add("m", "wide", PARTS_PER_VERSION_MAX, &wide), 0);
	for (uint32_t rank = 0; rank < PARTS_PER_VERSION_MAX; rank++)
		cr_assert_eq(version_add_replica(wide, rank, ledger.gpu, &none, &position, NULL), 0);
	expect_error(version_add_replica(wide, 0, ledger.host, &none, &position, &ledger.error), -EDQUOT,
		     "m@wide has 64 parts");
}

LedgerTest(version, is_complete_when_every_rank_is_committed_and_checked)
{
	struct budget_charge none = {0};
	struct version *version = NULL;
	uint32_t position;

	cr_assert_eq(add("m", "v1", 2, &version), 0);
	cr_expect_not(version_complete(version), "no parts");
	version_add_replica(version, 0, ledger.host, &none, &position, NULL);
	version->replicas[0].checked = true;
	cr_expect_not(version_complete(version), "not committed");
	version->replicas[0].committed = true;
	cr_expect_not(version_complete(version), "rank 1 is missing");
	version_add_replica(version, 1, ledger.host, &none, &position, NULL);
	version->replicas[1].committed = true;
	cr_expect_not(version_complete(version), "not checked");
	version->replicas[1].checked = true;
	cr_expect(version_complete(version));
}

LedgerTest(version, becomes_ready_only_when_complete)
{
	struct version *version = ledger_building("m", "v1");
	bool current = false;

	expect_error(registry_ready(ledger.registry, version, &current, &ledger.error), -EINVAL,
		     "m@v1 is building and not complete");
	version_move(version, VERSION_CHECKING);
	expect_error(registry_ready(ledger.registry, version, &current, &ledger.error), -EINVAL,
		     "m@v1 is checking and not complete");
	version->replicas[0].checked = version->replicas[0].committed = true;
	cr_assert_eq(registry_ready(ledger.registry, version, &current, NULL), 0);
	cr_expect(current);
	cr_expect_eq(version->state, VERSION_READY);
	cr_expect_geq(version->ready_ms, version->created_ms);
}

LedgerTest(version, has_a_name_for_every_state)
{
	static const char *const names[] = {"building", "checking", "ready", "retiring", "freed", "failed"};

	for (int state = 0; state < VERSION_STATES; state++)
		cr_expect_str_eq(version_state_name((enum version_state)state), names[state]);
}

LedgerTest(version, retires_once_it_is_ready)
{
	struct version *version = ledger_building("m", "v1");

	expect_error(registry_retire(ledger.registry, version, &ledger.error), -EINVAL, "m@v1 is building");
	version_move(version, VERSION_CHECKING);
	expect_error(registry_retire(ledger.registry, version, &ledger.error), -EINVAL, "m@v1 is checking");
	ledger_fail(version);
	expect_error(registry_retire(ledger.registry, version, &ledger.error), -EINVAL, "m@v1 is failed");
	version = ledger_ready("m", "v2");
	expect_error(registry_retire(ledger.registry, version, &ledger.error), -EBUSY,
		     "m@v2 is named by 1 alias");
	cr_expect_str_eq(ledger.error.detail, "move or remove first: current");
	ledger_swap("m", "current", NULL);
	cr_expect_eq(registry_retire(ledger.registry, version, NULL), 0);
	cr_expect_eq(version->state, VERSION_RETIRING);
	cr_expect_eq(registry_retire(ledger.registry, version, NULL), 0, "again: nothing");
}

LedgerTest(version, lists_the_aliases_that_keep_it)
{
	struct version *v1 = ledger_ready("m", "v1"), *v2 = ledger_ready("m", "v2");
	char alias[NAME_BYTES_MAX + 1];

	ledger_swap("m", "prod", v1);
	ledger_swap("m", "other", v2);
	ledger_swap("m", "current", v2);
	ledger_swap("m", "test", v1);
	cr_expect_eq(ledger_find("m@previous"), v1);
	expect_error(registry_retire(ledger.registry, v1, &ledger.error), -EBUSY, "m@v1 is named by 2 aliases");
	cr_expect_str_eq(ledger.error.detail, "move or remove first: prod, test");
	memset(alias, 'x', NAME_BYTES_MAX);
	alias[NAME_BYTES_MAX] = '\0';
	for (char c = 'a'; c < 'a' + 9; c++) {
		alias[0] = c;
		cr_assert_eq(ledger_swap("m", alias, v2), 0);
	}
	expect_error(registry_retire(ledger.registry, v2, &ledger.error), -EBUSY, "11 aliases");
}

LedgerTest(version, is_unused_without_leases_and_pins)
{
	struct version *version = ledger_ready("m", "v1");
	struct lease *leases = NULL, *lease = ledger_lease(version, &leases, &leases);

	cr_assert_eq(version_pin(version, "keep", NULL), 0);
	cr_expect_not(version_unused(version), "ready");
	ledger_swap("m", "current", NULL);
	registry_retire(ledger.registry, version, NULL);
	cr_expect_not(version_unused(version), "leased and pinned");
	cr_expect_eq(lease_release(ledger.registry, lease), version);
	cr_expect_not(version_unused(version), "pinned");
	cr_assert_eq(version_unpin(version, "keep", NULL), 0);
	cr_expect(version_unused(version));
	registry_remove(ledger.registry, version);
	cr_expect_null(ledger_find("m@v1"));
	cr_expect_str_eq(ledger.error.message, "no model \"m\"");
}

LedgerTest(pin, has_a_name_once)
{
	struct version *version = ledger_ready("m", "v1");

	cr_assert_eq(version_pin(version, "a", NULL), 0);
	cr_assert_eq(version_pin(version, "b", NULL), 0);
	cr_assert_eq(version_pin(version, "c", NULL), 0);
	cr_expect_eq(registry_counts(ledger.registry).pins, 3);
	expect_error(version_pin(version, "b", &ledger.error), -EEXIST, "m@v1 has a pin \"b\" already");
	expect_error(version_unpin(version, "d", &ledger.error), -ENOENT, "m@v1 has no pin \"d\"");
	cr_assert_eq(version_unpin(version, "b", NULL), 0);
	cr_expect_eq(version->pin_count, 2);
	cr_expect_str_eq(version->pins[0], "a");
	cr_expect_str_eq(version->pins[1], "c");
	cr_expect_eq(registry_counts(ledger.registry).pins, 2);
}

LedgerTest(pin, is_refused_where_it_cannot_be)
{
	struct version *version = ledger_building("m", "v1");
	char pin[16];

	expect_error(version_pin(version, "a", &ledger.error), -EINVAL, "m@v1 is building");
	ledger_make_ready(version);
	expect_error(version_pin(version, ".a", &ledger.error), -EINVAL, "the pin's name ");
	for (int i = 0; i < PINS_PER_VERSION_MAX; i++) {
		snprintf(pin, sizeof(pin), "p%d", i);
		cr_assert_eq(version_pin(version, pin, NULL), 0);
	}
	expect_error(version_pin(version, "more", &ledger.error), -EDQUOT, "m@v1 has 64 pins");
}

LedgerTest(registry, is_freed_with_all_that_is_in_it)
{
	struct version *version = ledger_ready("m", "v1");
	static struct lease *leases; /* still there when the registry is freed */

	ledger_fail(ledger_building("m", "v2"));
	ledger_ready("n", "v1");
	version_pin(version, "a", NULL);
	ledger_lease(version, &leases, &leases);
	ledger_lease(version, &leases, &leases);
	cr_expect_null(registry_free(NULL));
	cr_expect_null(publish_table_free(NULL));
}

/* Of so many segments of one byte. */
static struct replica adopted_part(uint32_t rank, uint32_t segments)
{
	struct replica part = {
		.rank = rank, .device = ledger.gpu, .segment_count = segments, .bytes = segments};

	part.segments = calloc(segments, sizeof(*part.segments));
	for (uint32_t i = 0; i < segments; i++)
		part.segments[i].segment = segment_new(7, 1, 1);
	return part;
}

/* What snapshots say wrong is in daemon_snapshot_bad.c. */
LedgerTest(adopted, parts_are_charged_up_to_the_most_descriptors)
{
	struct version like = {.state = VERSION_READY, .tag = "v1", .world = 9}, *version;
	struct replica part;

	cr_assert_eq(registry_adopt(ledger.registry, "m", &like, &version, &ledger.error), 0);
	for (uint32_t rank = 0; rank < 8; rank++) {
		part = adopted_part(rank, PART_SEGMENTS_MAX);
		cr_assert_eq(version_adopt_replica(version, &part, &ledger.error), 0);
		cr_expect_eq(ledger.gpu->used, PART_SEGMENTS_MAX * (rank + 1));
	}
	part = adopted_part(8, 24);
	expect_error(version_adopt_replica(version, &part, &ledger.error), -EDQUOT,
		     "more than 2048 descriptors");
	part.segment_count = 23;
	segment_free_unused(part.segments[23].segment);
	cr_assert_eq(version_adopt_replica(version, &part, &ledger.error), 0);
	cr_expect_eq(registry_counts(ledger.registry).fds, 2048);
	cr_expect(version_complete(version));
}
