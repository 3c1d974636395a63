/* Rates and quantiles from two answers of `metrics`. */
#include "client/ctl/top/view.h"

#include <criterion/criterion.h>
#include <math.h>

static json_t *metrics(int since, int attaches, int requests, const char *counts)
{
	json_t *list = json_loads(counts, 0, NULL);

	return json_pack(
		"{s:i, s:[{s:s, s:i}, {s:s, s:i}], s:[{s:s, s:i}], s:[{s:s, s:[i, i, i], s:o}], s:[{s:i}, {s:i}]}",
		"since_ms", since, "counters", "name", "attaches", "value", attaches, "name", "swaps", "value",
		7, "refusals", "code", "ENOENT", "count", requests / 10, "histograms", "name", "attach",
		"bounds_us", 100, 200, 400, "counts", list, "users", "requests", requests, "requests", 0);
}

static bool is_near(double a, double b)
{
	return fabs(a - b) < 0.01;
}

Test(ctl_top_rates, are_differences_by_time)
{
	json_t *before = metrics(5, 100, 1000, "[9, 0, 0, 0]"), *now = metrics(5, 140, 1200, "[9, 20, 0, 0]");
	struct rates rates;

	cr_assert(rates_fit(before, now));
	rates_of(before, now, 10, &rates);
	cr_assert(is_near(rates.attaches, 4) && is_near(rates.requests, 20) && is_near(rates.refused, 2));
	/* Twenty in the bucket from 100 to 200: the tenth is in its middle. */
	cr_assert(is_near(rates.p50_us, 150) && is_near(rates.p99_us, 199));
	json_decref(before);
	json_decref(now);
}

Test(ctl_top_rates, without_an_earlier_answer_are_since_the_start)
{
	json_t *now = metrics(5, 30, 0, "[10, 0, 10, 0]");
	struct rates rates;

	rates_of(NULL, now, 0, &rates); /* no time has passed */
	cr_assert(is_near(rates.attaches, 30) && is_near(rates.refused, 0));
	cr_assert(is_near(rates.p50_us, 100) && is_near(rates.p99_us, 396), "%f", rates.p99_us);
	json_decref(now);
}

Test(ctl_top_rates, of_nothing_are_told_so)
{
	json_t *now = metrics(5, 0, 0, "[0, 0, 0, 0]"), *above = metrics(5, 1, 0, "[0, 0, 0, 1]"),
	       *none = json_object();
	struct rates rates;

	rates_of(now, now, 1, &rates);
	cr_assert(rates.p50_us < 0 && rates.p99_us < 0);
	rates_of(now, above, 1, &rates);
	cr_assert(is_near(rates.p50_us, 400), "above all bounds: at least the last one");
	rates_of(NULL, none, 1, &rates);
	cr_assert(rates.p50_us < 0 && is_near(rates.attaches, 0));
	json_decref(now);
	json_decref(above);
	json_decref(none);
}

Test(ctl_top_rates, of_two_gpuwmds_do_not_fit)
{
	json_t *one = metrics(5, 0, 0, "[0, 0, 0, 0]"), *other = metrics(6, 0, 0, "[0, 0, 0, 0]");

	cr_assert(!rates_fit(one, other) && !rates_fit(NULL, one) && !rates_fit(one, NULL));
	json_decref(one);
	json_decref(other);
}
