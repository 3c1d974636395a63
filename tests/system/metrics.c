/* What gpuwmd counts while it works, as an exporter asks for it. */
#include "harness.h"

SYSTEM_SUITE(metrics);

/* The entry of the array `array` whose `name`, and `label` if it is not NULL, are these. */
static const json_t *find(const json_t *metrics, const char *array, const char *name, const char *label)
{
	const json_t *entry;
	size_t i;

	json_array_foreach(json_object_get(metrics, array), i, entry) {
		const char *its = json_string_value(json_object_get(entry, "label"));

		if (strcmp(json_string_value(json_object_get(entry, "name")), name) == 0 &&
		    (!label || (its && strcmp(its, label) == 0)))
			return entry;
	}
	return NULL;
}

static uint64_t counter(const json_t *metrics, const char *name)
{
	const json_t *entry = find(metrics, "counters", name, NULL);

	cr_assert(entry, "%s", name);
	return (uint64_t)json_integer_value(json_object_get(entry, "value"));
}

static uint64_t times(const json_t *metrics, const char *name, const char *label)
{
	const json_t *entry = find(metrics, "histograms", name, label), *count;
	const json_t *counts = json_object_get(entry, "counts"), *bounds = json_object_get(entry, "bounds_us");
	uint64_t sum = 0;
	size_t i;

	cr_assert(entry, "%s %s", name, label ? label : "");
	cr_expect_eq(json_array_size(counts), json_array_size(bounds) + 1);
	json_array_foreach(counts, i, count)
		sum += (uint64_t)json_integer_value(count);
	return sum;
}

GPUWMD_TEST(metrics, loads_and_attaches_are_counted_and_timed)
{
	json_t *before = query(d->admin, "metrics", NULL), *after;

	load_small(d, 2);
	load_try(d, "/nowhere/at/all", "m@v3");
	worker_reads(d, "m@v1", 1);
	cr_assert_eq(publish_version(d->admin, d->device, "p@v1", SMALL(3)), 0);
	after = query(d->admin, "metrics", NULL);
	cr_expect_eq(json_integer_value(json_object_get(before, "since_ms")),
		     json_integer_value(json_object_get(after, "since_ms")));
	cr_expect_eq(counter(after, "loads"), 2);
	cr_expect_eq(counter(after, "loads_failed"), 0, "it was refused, and began no load");
	cr_expect_eq(counter(after, "publishes"), 1, "a load is no publish");
	cr_expect_geq(counter(after, "attaches"), 1);
	cr_expect_eq(times(after, "attach", NULL), counter(after, "attaches"));
	cr_expect_eq(times(after, "load_phase", "waiting"), 2, "each load waits for its loader");
	cr_expect_geq(times(after, "request", "load"), 3);
	cr_expect_gt(counter(after, "connects"), 0);
	cr_expect_eq(counter(before, "freed"), 0);
	json_decref(before);
	json_decref(after);
	DROP(d, "m@v1", "m@v2", "p@v1");
	cr_expect(EVENTUALLY(SOON_MS, ({
				     after = query(d->admin, "metrics", NULL);
				     uint64_t freed = counter(after, "freed");
				     json_decref(after);
				     freed == 3;
			     })));
}
