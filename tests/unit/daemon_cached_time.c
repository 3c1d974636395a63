/* When gpuwmd retires cached versions by itself. */
#include "tests/support/daemon/access.h"
#include "base/clock.h"

TestSuite(cached_time, .init = server_open, .fini = server_close, .timeout = 60);

#define HOUR_MS UINT64_C(3600000)

static struct version *cached(const char *tag, uint64_t ttl_ms, uint32_t keep_last)
{
	struct publish_part *part;
	struct publish *publish = building("m", tag, &part);

	publish->version->cache =
		(struct version_cache){.cached = true, .ttl_ms = ttl_ms, .keep_last = keep_last};
	return complete(publish, part, 1);
}

static uint64_t left_ms(const struct version *version)
{
	return clock_due_in_ms(version->expire_due_ms);
}

Test(cached_time, is_not_cut_short_by_newer_versions_while_an_alias_names_it)
{
	int admin = greeted(SESSION_ADMIN);
	struct version *old = cached("a", 2 * HOUR_MS, 0);

	cr_assert_eq(swap(admin, "m", "a"), 0);
	cached("b", 0, 1);
	cr_expect_eq(old->state, VERSION_READY);
	cr_expect_gt(left_ms(old), HOUR_MS);
}

Test(cached_time, is_never_more_than_the_whole_after_a_restart)
{
	struct version *version = cached("a", HOUR_MS, 0);

	version->expire_due_ms = 0;
	version->ready_ms += 10 * HOUR_MS; /* the clock was set back */
	version->expire_at_ms += 10 * HOUR_MS;
	versions_cache_begin(&server->work);
	cr_expect(left_ms(version) > HOUR_MS / 2 && left_ms(version) < HOUR_MS + 1000, "%llu ms",
		  (unsigned long long)left_ms(version));
	version->ready_ms -= 11 * HOUR_MS; /* it was over while no gpuwmd was there */
	version->expire_at_ms -= 11 * HOUR_MS;
	versions_cache_begin(&server->work);
	cr_expect_leq(left_ms(version), 1);
}

Test(cached_time, of_a_companion_is_over_if_its_version_did_not_come_back)
{
	struct version *version = cached("a", 0, 0), *kept = cached("b", 0, 0);

	version->cache.companion_of = (struct version_id){{1}};
	kept->cache.companion_of = version->id;
	versions_cache_begin(&server->work);
	cr_expect_leq(left_ms(version), 1);
	cr_expect_neq(version->expire_due_ms, 0);
	cr_expect_eq(kept->expire_due_ms, 0);
}
