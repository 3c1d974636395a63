#include "exporter/source.h"

#include <criterion/criterion.h>
#include <stdio.h>

static struct timeline timeline;

static void begin(void)
{
	timeline_begin(&timeline);
}

static void end(void)
{
	timeline_clear(&timeline);
}

TestSuite(exporter_timeline, .init = begin, .fini = end);

static json_int_t seq_of(const json_t *events, size_t at)
{
	return json_integer_value(json_object_get(json_array_get(events, at), "seq"));
}

static void add(const char *kind, int seq)
{
	char json[100];

	snprintf(json, sizeof(json), "{\"seq\":%d,\"kind\":\"%s\"}", seq, kind);
	timeline_add(&timeline, kind, json);
}

Test(exporter_timeline, noise_does_not_push_swaps_out)
{
	json_t *swaps, *others;

	add("swapped", 1);
	for (int i = 2; i < 1000; i++)
		add("peer_lost", i);
	swaps = timeline_swaps(&timeline);
	others = timeline_others(&timeline);
	cr_expect_eq(json_array_size(swaps), 1);
	cr_assert_eq(json_array_size(others), TIMELINE_OTHERS_MAX);
	cr_expect_eq(seq_of(others, 0), 1000 - TIMELINE_OTHERS_MAX);
	cr_expect_eq(seq_of(others, TIMELINE_OTHERS_MAX - 1), 999);
	json_decref(swaps);
	json_decref(others);
}

Test(exporter_timeline, noise_does_not_push_changes_out)
{
	json_t *others;

	add("audit", 1);
	for (int i = 2; i < 1000; i++)
		add("announced", i);
	others = timeline_others(&timeline);
	cr_assert_eq(json_array_size(others), 1 + TIMELINE_OTHERS_MAX);
	cr_expect_eq(seq_of(others, 0), 1);
	json_decref(others);
}

Test(exporter_timeline, publishes_do_not_push_failures_out)
{
	json_t *others;

	timeline_add(&timeline, "job", "{\"seq\":1,\"kind\":\"job\",\"state\":\"failed\"}");
	timeline_add(&timeline, "version_failed", "{\"seq\":2,\"kind\":\"version_failed\",\"error\":{}}");
	for (int i = 3; i < 1000; i++)
		add("version_ready", i);
	others = timeline_others(&timeline);
	cr_assert_eq(json_array_size(others), 2 + TIMELINE_OTHERS_MAX);
	cr_expect_eq(seq_of(others, 0), 1);
	cr_expect_eq(seq_of(others, 1), 2);
	json_decref(others);
}

Test(exporter_timeline, of_jobs_only_their_end_is_told)
{
	json_t *others;

	timeline_add(&timeline, "job", "{\"seq\":1,\"kind\":\"job\",\"state\":\"running\"}");
	timeline_add(&timeline, "job", "{\"seq\":2,\"kind\":\"job\",\"state\":\"failed\"}");
	others = timeline_others(&timeline);
	cr_assert_eq(json_array_size(others), 1);
	cr_expect_eq(seq_of(others, 0), 2);
	json_decref(others);
}

Test(exporter_timeline, lost_events_are_told_and_garbage_is_not)
{
	json_t *others;

	timeline_add(&timeline, "lost", "{\"from\":1,\"to\":7}");
	timeline_add(&timeline, "version_ready", "{\"seq\":");
	others = timeline_others(&timeline);
	cr_assert_eq(json_array_size(others), 1);
	cr_expect_str_eq(json_string_value(json_object_get(json_array_get(others, 0), "kind")), "lost");
	json_decref(others);
	timeline_clear(&timeline);
	others = timeline_others(&timeline);
	cr_expect_eq(json_array_size(others), 0);
	json_decref(others);
}
