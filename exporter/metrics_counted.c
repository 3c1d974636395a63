/* Metrics that gpuwmd counted itself: what docs/protocol.md says of `metrics`. */

#include "limits.h"
#include "snapshot.h"
#include "prom.h"

#include <inttypes.h>
#include <string.h>

#define NAME_MAX_BYTES 200

/* What a histogram's `label` is, and what it measures. gpuwmd may have others in its next version. */
static const struct {
	const char *name, *label, *help;
} known[] = {
	{"attach", "label",
	 "From the arrival of a get_handles to the sending of its answer, if gpuwmd answered at once."},
	{"attach_waited", "label", "The same for those that waited for a version."},
	{"request", "method", "From the arrival of a request until gpuwmd answered it or let it wait."},
	{"load_phase", "phase", "How long loads that are done spent in the phase."},
};

static size_t known_find(const char *name)
{
	size_t i = 0;

	while (i < sizeof(known) / sizeof(*known) && strcmp(known[i].name, name) != 0)
		i++;
	return i;
}

static const char *label_of(const char *name)
{
	size_t i = known_find(name);

	return i < sizeof(known) / sizeof(*known) ? known[i].label : "label";
}

/* ---- histograms ---------------------------------------------------------- */

static void bucket_write(FILE *out, const char *family, const json_t *histogram, const char *le, uint64_t count)
{
	const char *label = member_text(histogram, "label");

	if (*label)
		prom_u64(out, family, count, label_of(member_text(histogram, "name")), label, "le", le,
			 PROM_END);
	else
		prom_u64(out, family, count, "le", le, PROM_END);
}

static void buckets_write(FILE *out, const char *name, const json_t *histogram)
{
	const json_t *bounds = json_object_get(histogram, "bounds_us"),
		     *counts = json_object_get(histogram, "counts");
	size_t count = json_array_size(bounds) < HISTOGRAM_BUCKETS_MAX ? json_array_size(bounds)
								       : HISTOGRAM_BUCKETS_MAX;
	const char *label = *member_text(histogram, "label") ? label_of(member_text(histogram, "name")) : NULL;
	char family[NAME_MAX_BYTES + 8], le[32];
	uint64_t sum = 0;
	size_t i;

	snprintf(family, sizeof(family), "%s_bucket", name);
	for (i = 0; i < count; i++) {
		uint64_t us = (uint64_t)json_integer_value(json_array_get(bounds, i));

		sum += (uint64_t)json_integer_value(json_array_get(counts, i));
		snprintf(le, sizeof(le), "%" PRIu64 ".%06" PRIu64, us / 1000000, us % 1000000);
		bucket_write(out, family, histogram, le, sum);
	}
	for (; i < json_array_size(counts); i++)
		sum += (uint64_t)json_integer_value(json_array_get(counts, i));
	bucket_write(out, family, histogram, "+Inf", sum);
	snprintf(family, sizeof(family), "%s_sum", name);
	prom_us(out, family, member_number(histogram, "sum_us"), label, member_text(histogram, "label"),
		PROM_END);
	snprintf(family, sizeof(family), "%s_count", name);
	prom_u64(out, family, sum, label, member_text(histogram, "label"), PROM_END);
}

/* All rows of one name are one family, which must be whole: the first row writes all of them. */
static bool is_first(const json_t *rows, size_t at)
{
	const char *name = member_text(json_array_get(rows, at), "name");

	for (size_t i = 0; i < at; i++) {
		if (member_is(json_array_get(rows, i), "name", name))
			return false;
	}
	return true;
}

static void histograms_write(FILE *out, const json_t *histograms)
{
	const json_t *first, *row;
	char name[NAME_MAX_BYTES];
	size_t i, k, known_at;

	json_array_foreach(histograms, i, first) {
		if (i >= HISTOGRAM_ROWS_MAX || !is_first(histograms, i) ||
		    !prom_is_name(member_text(first, "name")))
			continue;
		known_at = known_find(member_text(first, "name"));
		snprintf(name, sizeof(name), "gpuwm_%s_seconds", member_text(first, "name"));
		prom_family(out, name, PROM_HISTOGRAM,
			    known_at < sizeof(known) / sizeof(*known) ? known[known_at].help
								      : "A time that gpuwmd measured.");
		json_array_foreach(histograms, k, row) {
			if (k < HISTOGRAM_ROWS_MAX && member_is(row, "name", member_text(first, "name")))
				buckets_write(out, name, row);
		}
	}
}

/* ---- counters ------------------------------------------------------------ */

static void counters_write(FILE *out, const json_t *counters)
{
	const json_t *first, *row;
	char name[NAME_MAX_BYTES];
	size_t i, k;

	json_array_foreach(counters, i, first) {
		const char *counted = member_text(first, "name");
		size_t length = strlen(counted);
		bool is_time = length > 3 && strcmp(counted + length - 3, "_us") == 0;

		if (i >= COUNTER_ROWS_MAX || !is_first(counters, i) || !prom_is_name(counted))
			continue;
		/* "operators_busy_us" becomes gpuwm_operators_busy_seconds_total. */
		snprintf(name, sizeof(name), "gpuwm_%.*s%s_total", (int)(is_time ? length - 3 : length),
			 counted, is_time ? "_seconds" : "");
		prom_family(out, name, PROM_COUNTER,
			    "Counted by gpuwmd since its start: see protocol.md, metrics.");
		json_array_foreach(counters, k, row) {
			const char *text = member_text(row, "label"), *label = *text ? "label" : NULL;

			if (k >= COUNTER_ROWS_MAX || !member_is(row, "name", counted))
				continue;
			if (is_time)
				prom_us(out, name, member_number(row, "value"), label, text, PROM_END);
			else
				prom_u64(out, name, member_number(row, "value"), label, text, PROM_END);
		}
	}
}

/* ---- refusals ------------------------------------------------------------ */

static const struct fold_family refusal_family = {"gpuwm_refusals_total", PROM_COUNTER,
						  "Answers with an error, by method and code.", false};

static void refusals_write(FILE *out, const json_t *refusals)
{
	static const char *const labels[] = {"method", "code", NULL};
	struct fold fold = {0};
	const json_t *row;
	size_t i;

	json_array_foreach(refusals, i, row)
		fold_add(&fold,
			 &(struct fold_row){.labels = {member_text(row, "method"), member_text(row, "code")},
					    .values = {member_number(row, "count")}});
	fold_end(&fold, REFUSAL_ROWS_MAX, 2);
	fold_write(out, &fold, labels, &refusal_family, 1);
	fold_clear(&fold);
}

void metrics_counted(FILE *out, const struct snapshot *snapshot)
{
	const json_t *metrics = snapshot->answers[ASK_METRICS];

	counters_write(out, json_object_get(metrics, "counters"));
	histograms_write(out, json_object_get(metrics, "histograms"));
	refusals_write(out, json_object_get(metrics, "refusals"));
}
