/* Whose a model is, across a restart too, and whose version somebody wants. */
#include "daemon/clients/access.h"
#include "tests/support/daemon/snapshot.h"

static struct version *ready_by(const char *tag, uid_t uid, bool by_operator)
{
	struct version *version = fake_ready("m", tag);

	version->owner = uid;
	version->by_operator = by_operator;
	return version;
}

static struct model_owner owner_of(const struct registry *registry)
{
	const struct model *model = registry_model(registry, "m");

	return model ? model_owner(model) : (struct model_owner){0};
}

/* Retired and freed, as nobody holds it. */
static void drop(struct version *version)
{
	registry_forget_before(version);
	registry_remove_aliases(ledger.registry);
	cr_assert_eq(registry_retire(ledger.registry, version, &ledger.error), 0, "%s", ledger.error.message);
	registry_remove(ledger.registry, version);
}

static struct version *building_by(const char *tag, uid_t uid)
{
	struct version *version = ledger_building("m", tag);

	version->owner = uid;
	return version;
}

LedgerTest(owner, is_who_made_the_first_that_became_ready)
{
	struct version *late = building_by("v1", 1001), *first = building_by("v2", 1002);

	cr_expect_not(owner_of(ledger.registry).known, "what is being built makes no owner");
	ledger_make_ready(first);
	cr_expect(owner_of(ledger.registry).known);
	cr_expect_eq(owner_of(ledger.registry).uid, 1002);
	ledger_make_ready(late);
	cr_expect_eq(owner_of(ledger.registry).uid, 1002);
}

LedgerTest(owner, is_not_made_by_what_failed)
{
	ledger_fail(building_by("v1", 1001));
	cr_expect_not(owner_of(ledger.registry).known);
	ledger_make_ready(building_by("v1", 1002));
	cr_expect_eq(owner_of(ledger.registry).uid, 1002);
}

LedgerTest(owner, stays_while_a_version_is_there_and_ends_with_the_last)
{
	struct version *first = building_by("v1", 1001), *second = building_by("v2", 1002);

	ledger_make_ready(first);
	drop(first);
	cr_expect_eq(owner_of(ledger.registry).uid, 1001, "v2 is being built");
	ledger_make_ready(second);
	cr_expect_eq(owner_of(ledger.registry).uid, 1001);
	ledger_fail(building_by("v3", 1003));
	drop(second);
	cr_assert(registry_model(ledger.registry, "m"), "v3 is kept as failed");
	cr_expect_not(owner_of(ledger.registry).known);
}

LedgerTest(owner, is_told_to_be_an_operator)
{
	struct version *version = building_by("v1", 0);

	version->by_operator = true;
	ledger_make_ready(version);
	cr_expect(owner_of(ledger.registry).by_operator);
}

/* What a ledger of two versions tells the next gpuwmd. */
static struct model_owner after_restart(bool first_is_there)
{
	struct version *first = ready_by("v1", 1001, true), *second = ready_by("v2", 1002, false);

	cr_assert_eq(registry_adopt_owner(ledger.registry, "m", &(struct model_owner){true, true, 1001},
					  &ledger.error),
		     0);
	cr_assert_eq(ledger_swap("m", "current", second), 0);
	if (!first_is_there)
		drop(first);
	back_from_ledger();
	return owner_of(back.registry);
}

SnapshotTest(owner, comes_back_after_a_restart)
{
	struct model_owner owner = after_restart(true);

	cr_expect(owner.known && owner.by_operator && owner.uid == 1001);
	cr_expect(back_find("m@v1")->by_operator);
	cr_expect_not(back_find("m@v2")->by_operator);
}

SnapshotTest(owner, comes_back_when_the_version_that_made_it_is_gone)
{
	struct model_owner owner = after_restart(false);

	cr_expect(owner.known && owner.by_operator && owner.uid == 1001);
	cr_expect_eq(back_find("m@v2")->owner, 1002);
}

/* The state says only owners that do not follow from the versions. */
SnapshotTest(owner, of_a_state_that_does_not_tell_made_the_oldest_ready_version)
{
	struct version *late = ready_by("v1", 1001, false), *early = ready_by("v2", 1002, false);

	late->ready_ms = 2000;
	early->ready_ms = 1000;
	cr_assert_eq(registry_adopt_owner(ledger.registry, "m", &(struct model_owner){true, false, 1002},
					  &ledger.error),
		     0);
	back_from_ledger();
	cr_expect_eq(owner_of(back.registry).uid, 1002);
}

SnapshotTest(owner, keeps_a_model_of_which_no_version_came_back)
{
	struct version *version;

	cr_assert_eq(
		registry_adopt_owner(ledger.registry, "m", &(struct model_owner){true, true, 0}, &ledger.error),
		0);
	cr_expect(model_is_reserved(registry_model(ledger.registry, "m")));
	back_from_ledger();
	cr_expect(model_is_reserved(registry_model(back.registry, "m")));
	cr_expect(owner_of(back.registry).by_operator);
	cr_expect_null(registry_next_version(back.registry, NULL, NULL));
	version = ready_by("v1", 1001, false);
	cr_expect_not(model_is_reserved(version->model));
	cr_expect(owner_of(ledger.registry).by_operator, "it stays the operators'");
	drop(version);
	cr_expect_null(registry_model(ledger.registry, "m"));
}

SnapshotTest(owner, keeps_its_model_when_the_descriptors_are_lost)
{
	ready_by("v1", 1001, true);
	cr_assert_eq(registry_adopt_owner(ledger.registry, "m", &(struct model_owner){true, true, 1001},
					  &ledger.error),
		     0);
	fake_all_missing = true;
	back_from_ledger();
	fake_all_missing = false;
	cr_expect_eq(back.lost, 1);
	cr_expect(model_is_reserved(registry_model(back.registry, "m")));
	cr_expect(owner_of(back.registry).by_operator);
}

/* ---- wishes ---- */

static int check(const struct owner_wish *wish, const struct version *version)
{
	ledger.error = (struct error){0};
	return owner_check(wish, version, &ledger.error);
}

LedgerTest(owner, a_wish_takes_what_it_names)
{
	const struct version *mine = ready_by("v1", 1001, false), *loaded = ready_by("v2", 0, true);

	cr_expect_eq(check(&(struct owner_wish){0}, mine), 0);
	cr_expect_eq(check(&(struct owner_wish){.count = 2, .uids = {5, 1001}}, mine), 0);
	cr_expect_eq(check(&(struct owner_wish){.operators = true}, loaded), 0);
	cr_expect_eq(check(&(struct owner_wish){.count = 1, .uids = {0}}, loaded), 0);
}

LedgerTest(owner, a_wish_refuses_others_and_says_whose_it_is)
{
	const struct version *mine = ready_by("v1", 1001, false), *loaded = ready_by("v2", 0, true);

	cr_expect_eq(check(&(struct owner_wish){.operators = true, .count = 1, .uids = {5}}, mine), -EACCES);
	cr_expect_str_eq(ledger.error.message,
			 "m@v1 was made by uid 1001; the request accepts only versions of an operator, uid 5");
	cr_expect_eq(check(&(struct owner_wish){.count = 1, .uids = {5}}, loaded), -EACCES);
	cr_expect_str_eq(ledger.error.message,
			 "m@v2 was made by an operator, uid 0; the request accepts only versions of uid 5");
}
