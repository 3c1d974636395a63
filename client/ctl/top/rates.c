#include "view.h"

#include "../answer.h"

#include <stdint.h>
#include <string.h>

#define BOUNDS_MAX 64

static uint64_t counter(const json_t *metrics, const char *name)
{
	const json_t *item;
	uint64_t sum = 0;
	size_t i;

	json_array_foreach(json_object_get(metrics, "counters"), i, item) {
		if (strcmp(answer_text(item, "name"), name) == 0)
			sum += answer_number(item, "value");
	}
	return sum;
}

static uint64_t sum_of(const json_t *metrics, const char *list, const char *key)
{
	const json_t *item;
	uint64_t sum = 0;
	size_t i;

	json_array_foreach(json_object_get(metrics, list), i, item) {
		sum += answer_number(item, key);
	}
	return sum;
}

static uint64_t element(const json_t *object, const char *key, size_t position)
{
	return (uint64_t)json_integer_value(json_array_get(json_object_get(object, key), position));
}

/* The time that this share of them took at most, interpolated within its bucket; -1 without any. The last bucket has no
 * upper bound: then it is that bucket's lower one. */
static double quantile(const json_t *shape, const uint64_t *counts, size_t buckets, double share)
{
	double total = 0, before = 0;

	for (size_t i = 0; i < buckets; i++)
		total += (double)counts[i];
	for (size_t i = 0; total > 0 && i < buckets; i++) {
		double low = i ? (double)element(shape, "bounds_us", i - 1) : 0;
		double high = i + 1 < buckets ? (double)element(shape, "bounds_us", i) : low;

		if (counts[i] > 0 && before + (double)counts[i] >= share * total)
			return low + (high - low) * (share * total - before) / (double)counts[i];
		before += (double)counts[i];
	}
	return -1;
}

bool rates_fit(const json_t *before, const json_t *now)
{
	return before && now && answer_number(before, "since_ms") == answer_number(now, "since_ms");
}

void rates_of(const json_t *before, const json_t *now, double seconds, struct rates *ret)
{
	const json_t *then = answer_find(before, "histograms", "name", "attach"),
		     *shape = answer_find(now, "histograms", "name", "attach");
	const size_t all = json_array_size(json_object_get(shape, "counts"));
	const size_t buckets = all < BOUNDS_MAX ? all : BOUNDS_MAX;
	uint64_t counts[BOUNDS_MAX] = {0};

	if (seconds <= 0)
		seconds = 1;
	ret->attaches = (double)(counter(now, "attaches") - counter(before, "attaches")) / seconds;
	ret->requests =
		(double)(sum_of(now, "users", "requests") - sum_of(before, "users", "requests")) / seconds;
	ret->refused =
		(double)(sum_of(now, "refusals", "count") - sum_of(before, "refusals", "count")) / seconds;
	for (size_t i = 0; i < buckets; i++)
		counts[i] = element(shape, "counts", i) - element(then, "counts", i);
	ret->p50_us = quantile(shape, counts, buckets, 0.5);
	ret->p99_us = quantile(shape, counts, buckets, 0.99);
}
