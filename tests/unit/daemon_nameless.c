/* Versions without a name in the registry. */
#include "tests/support/daemon/ledger.h"

static int publisher;

static struct version *begin(void)
{
	const struct publish_request request = {
		.alias = "",
		.device = ledger.host,
		.world = 1,
		.bytes = 100,
		.publisher = &publisher,
		.uid = LEDGER_UID,
	};
	struct publish_part *part;

	cr_assert_eq(
		publish_begin(ledger.publishes, ledger.registry, ledger.quota, &request, &part, &ledger.error),
		0, "%s", ledger.error.message);
	return part->publish->version;
}

static struct version *made(void)
{
	struct version *version = begin();

	publish_end(ledger.publishes, publish_find(ledger.publishes, &version->publish));
	ledger_make_ready(version);
	return version;
}

static const char *id_text(const struct version_id *id)
{
	static char text[VERSION_ID_TEXT];

	hex128_format(id->bytes, text);
	return text;
}

LedgerTest(nameless, is_called_by_its_user_and_its_id)
{
	struct version *version = begin();
	const char *id = id_text(&version->id);

	cr_expect(version_is_nameless(version));
	cr_expect_str_eq(model_name(version->model), "~1000");
	cr_expect_str_eq(version->tag, id);
	cr_expect_eq(ledger_find(id), version);
	publish_end(ledger.publishes, publish_find(ledger.publishes, &version->publish));
	ledger_fail(version);
}

LedgerTest(nameless, takes_no_named_ones_place)
{
	begin();
	cr_expect_eq(registry_counts(ledger.registry).versions, 0);
	cr_expect_eq(registry_counts(ledger.registry).nameless, 1);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_VERSIONS), 0);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_NAMELESS), 1);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_BYTES), 100);
}

LedgerTest(nameless, gets_no_alias_current)
{
	cr_expect(version_unwanted(made()), "nobody has a lease");
	cr_expect_eq(registry_counts(ledger.registry).aliases, 0);
}

LedgerTest(nameless, can_get_no_alias)
{
	struct version *version = made();

	expect_error(ledger_swap("~1000", "current", version), -EINVAL, "can't have an alias");
	expect_error(ledger_swap("~1000", "current", NULL), -EINVAL, "can't have an alias");
	expect_error(registry_adopt_alias(ledger.registry, version, "prod", 1, &ledger.error), -EINVAL,
		     "can't have an alias");
	cr_expect_eq(registry_counts(ledger.registry).aliases, 0);
}

LedgerTest(nameless, is_wanted_as_long_as_it_has_a_lease_or_a_pin)
{
	struct version *version = made();
	struct lease *leases = NULL;
	struct lease *lease = ledger_lease(version, &publisher, &leases);

	cr_expect_not(version_unwanted(version));
	cr_assert_eq(version_pin(version, "night", &ledger.error), 0);
	lease_release(ledger.registry, lease);
	cr_expect_not(version_unwanted(version));
	cr_assert_eq(version_unpin(version, "night", &ledger.error), 0);
	cr_expect(version_unwanted(version));
}

LedgerTest(nameless, of_another_that_failed_none_is_counted)
{
	struct version *version = begin();

	publish_end(ledger.publishes, publish_find(ledger.publishes, &version->publish));
	ledger_fail(version);
	cr_expect_eq(registry_counts(ledger.registry).nameless, 0);
}

static struct version *failed(void)
{
	struct version *version = begin();

	publish_end(ledger.publishes, publish_find(ledger.publishes, &version->publish));
	ledger_fail(version);
	return version;
}

LedgerTest(nameless, that_failed_pushes_out_none_with_a_name)
{
	struct version_id first, second;

	ledger_fail(ledger_building("m", "v1"));
	first = failed()->id;
	second = failed()->id;
	for (int i = 2; i <= FAILED_KEPT_MAX; i++)
		failed();
	cr_expect(ledger_find("m@v1"));
	cr_expect_null(ledger_find(id_text(&first)));
	cr_expect(ledger_find(id_text(&second)));
}

LedgerTest(nameless, has_a_limit_of_its_own)
{
	struct version *version;

	for (int i = 0; i < NAMELESS_MAX; i++)
		cr_assert_eq(registry_add_nameless(ledger.registry, LEDGER_UID, &version, &ledger.error), 0);
	expect_error(registry_add_nameless(ledger.registry, LEDGER_UID, &version, &ledger.error), -EDQUOT,
		     "there are 512 versions without a name");
	cr_expect_not_null(ledger_building("m", "v1"));
}

/* ---- what a restart finds ---- */

static struct version like(uint8_t first)
{
	struct version version = {.id = {{first}},
				  .publish = {{first, 1}},
				  .world = 1,
				  .owner = LEDGER_UID,
				  .state = VERSION_READY};

	hex128_format(version.id.bytes, version.tag);
	return version;
}

LedgerTest(nameless, comes_back_without_a_name)
{
	const struct version kept = like(1);
	struct version *version;

	cr_assert_eq(registry_adopt(ledger.registry, "~1000", &kept, &version, &ledger.error), 0, "%s",
		     ledger.error.message);
	cr_expect(version_is_nameless(version));
	cr_assert_eq(version_adopt_charges(version, ledger.quota, &ledger.error), 0);
	cr_expect_eq(quota_used(ledger.quota, LEDGER_UID, QUOTA_VERSIONS), 0);
	expect_error(registry_adopt(ledger.registry, "~1000", &kept, &version, &ledger.error), -EEXIST,
		     "is there already");
}

LedgerTest(nameless, comes_back_only_up_to_the_limit)
{
	const struct version kept = like(1);
	struct version *version;

	for (int i = 0; i < NAMELESS_MAX; i++)
		cr_assert_eq(registry_add_nameless(ledger.registry, LEDGER_UID, &version, &ledger.error), 0);
	expect_error(registry_adopt(ledger.registry, "~1000", &kept, &version, &ledger.error), -EDQUOT,
		     "versions without a name");
}
