/* What is made of a snapshot: metrics, the state of the page, and whether a version is ready. */
#include "daemon/base/metrics.h"
#include "daemon/base/quota.h"
#include "exporter/source.h"
#include "exporter/limits.h"
#include "exporter/snapshot.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct tally tally;
static struct snapshot *snapshot;

static void begin(void)
{
	snapshot = snapshot_new(&tally);
	snapshot->up = true;
	snapshot->wall_ms = 10000;
}

static void end(void)
{
	snapshot_unref(snapshot);
}

TestSuite(exporter_snapshot, .init = begin, .fini = end);

static void answer(enum question question, const char *json)
{
	json_decref(snapshot->answers[question]);
	snapshot->answers[question] = json_loads(json, 0, NULL);
	cr_assert_not_null(snapshot->answers[question], "%s", json);
	snapshot->sees[question] = true;
}

static void has(const char *line)
{
	size_t bytes;

	cr_expect_not_null(strstr(snapshot_metrics(snapshot, &bytes), line), "%s\nis not in\n%s", line,
			   snapshot_metrics(snapshot, &bytes));
}

static size_t lines_with(const char *name)
{
	size_t bytes, count = 0;
	const char *text = snapshot_metrics(snapshot, &bytes);

	for (text = strstr(text, name); text; text = strstr(text + 1, name))
		count++;
	return count;
}

/* ---- metrics ------------------------------------------------------------- */

Test(exporter_snapshot, without_gpuwmd_there_is_up_and_the_exporter_itself)
{
	size_t bytes;

	snapshot->up = false;
	strcpy(snapshot->why, "nobody\nlistens");
	cr_expect_eq(strncmp(snapshot_metrics(snapshot, &bytes), "# nobody listens\n", 17), 0);
	has("\ngpuwm_up 0\n");
	has("\ngpuwm_exporter_sees{method=\"clients\"} 0\n");
	cr_expect_eq(lines_with("gpuwm_leases"), 0);
}

Test(exporter_snapshot, all_histograms_of_gpuwmd_are_told)
{
	/* attach, attach_waited, and the phases without a row of their own */
	cr_expect_geq(HISTOGRAM_ROWS_MAX, METRICS_METHODS_MAX + METRICS_PHASES_MAX + 3);
}

Test(exporter_snapshot, memory_that_several_holders_may_map_is_given_up_once)
{
	answer(ASK_CLIENTS,
	       "{\"clients\":[{\"leases\":["
	       "{\"version\":\"1\",\"model\":\"m\",\"tag\":\"v\",\"device\":\"host\",\"rank\":0,\"freed\":true,\"bytes\":5},"
	       "{\"version\":\"1\",\"model\":\"m\",\"tag\":\"v\",\"device\":\"host\",\"rank\":1,\"freed\":true,\"bytes\":7}]},"
	       "{\"leases\":["
	       "{\"version\":\"1\",\"model\":\"m\",\"tag\":\"v\",\"device\":\"host\",\"rank\":0,\"freed\":true,\"bytes\":5},"
	       "{\"version\":\"2\",\"model\":\"m\",\"tag\":\"v\",\"device\":\"host\",\"rank\":0,\"freed\":true,\"bytes\":100},"
	       "{\"version\":\"3\",\"model\":\"m\",\"tag\":\"v\",\"device\":\"host\",\"rank\":0,\"bytes\":1000}]}]}");
	has("\ngpuwm_version_given_up_bytes{model=\"m\",tag=\"v\",device=\"host\"} 112\n");
}

Test(exporter_snapshot, a_version_of_the_same_name_is_no_second_time_series)
{
	answer(ASK_LIST,
	       "{\"versions\":["
	       "{\"model\":\"m\",\"tag\":\"v\",\"state\":\"retiring\",\"leases\":1,\"parts\":[{\"device\":\"host\",\"bytes\":5}]},"
	       "{\"model\":\"m\",\"tag\":\"v\",\"state\":\"ready\",\"leases\":2,\"parts\":[{\"device\":\"host\",\"bytes\":7,\"shared_bytes\":3}]},"
	       "{\"model\":\"m\",\"tag\":\"v\",\"state\":\"failed\",\"parts\":[{\"device\":\"host\",\"bytes\":100}]}]}");
	has("\ngpuwm_version_held_bytes{model=\"m\",tag=\"v\",device=\"host\"} 12\n");
	has("\ngpuwm_version_shared_bytes{model=\"m\",tag=\"v\",device=\"host\"} 3\n");
	has("\ngpuwm_version_leases{model=\"m\",tag=\"v\",state=\"retiring\"} 1\n");
	has("\ngpuwm_version_state{model=\"m\",tag=\"v\",state=\"failed\"} 1\n");
	cr_expect_eq(lines_with("\ngpuwm_version_held_bytes"), 1);
}

Test(exporter_snapshot, many_versions_are_few_time_series_with_the_same_sum)
{
	static char json[400000] = "{\"versions\":[";
	char *end = json + strlen(json);

	for (int i = 0; i < 1024; i++)
		end += sprintf(
			end,
			"%s{\"model\":\"m\",\"tag\":\"v%d\",\"state\":\"ready\",\"parts\":[{\"device\":\"host\","
			"\"bytes\":%d}]}",
			i ? "," : "", i, i + 1);
	strcpy(end, "]}");
	answer(ASK_LIST, json);
	cr_expect_eq(lines_with("\ngpuwm_version_held_bytes"), VERSION_ROWS_MAX + 1);
	has("\ngpuwm_version_held_bytes{model=\"m\",tag=\"v1023\",device=\"host\"} 1024\n");
	has("\ngpuwm_version_held_bytes{model=\"(other)\",tag=\"(other)\",device=\"host\"} 295296\n");
	has("\ngpuwm_owner_held_bytes{uid=\"0\",by=\"user\",device=\"host\"} 524800\n");
}

Test(exporter_snapshot, a_histogram_is_told_in_seconds_with_sums_of_counts)
{
	answer(ASK_METRICS,
	       "{\"histograms\":[{\"name\":\"load_phase\",\"label\":\"copying\",\"bounds_us\":[10,2000000],"
	       "\"counts\":[1,2,4],\"sum_us\":5000000}],"
	       "\"counters\":[{\"name\":\"attaches\",\"value\":3},{\"name\":\"operators_busy_us\",\"value\":1500000},"
	       "{\"name\":\"bad name\",\"value\":1}],"
	       "\"refusals\":[{\"method\":\"load\",\"code\":\"EACCES\",\"count\":2}],"
	       "\"users\":[{\"uid\":7,\"requests\":3,\"busy_us\":1},{\"requests\":9}]}");
	has("\ngpuwm_load_phase_seconds_bucket{phase=\"copying\",le=\"0.000010\"} 1\n");
	has("\ngpuwm_load_phase_seconds_bucket{phase=\"copying\",le=\"2.000000\"} 3\n");
	has("\ngpuwm_load_phase_seconds_bucket{phase=\"copying\",le=\"+Inf\"} 7\n");
	has("\ngpuwm_load_phase_seconds_sum{phase=\"copying\"} 5.000000\n");
	has("\ngpuwm_load_phase_seconds_count{phase=\"copying\"} 7\n");
	has("\ngpuwm_attaches_total 3\n");
	has("\ngpuwm_operators_busy_seconds_total 1.500000\n");
	has("\ngpuwm_refusals_total{method=\"load\",code=\"EACCES\"} 2\n");
	has("\ngpuwm_user_requests_total{uid=\"7\"} 3\n");
	has("\ngpuwm_user_requests_total{uid=\"(other)\"} 9\n");
	cr_expect_eq(lines_with("bad name"), 0);
}

Test(exporter_snapshot, every_quota_of_gpuwmd_is_told)
{
#define NAME(KIND, name, unit, all, most, noun, help) name,
	static const char *const quotas[] = {QUOTAS(NAME)};
	char line[100];

	answer(ASK_CLIENTS, "{\"users\":[{\"uid\":7}]}");
	for (size_t i = 0; i < sizeof(quotas) / sizeof(*quotas); i++) {
		snprintf(line, sizeof(line), "\ngpuwm_user_%s{uid=\"7\"} 0\n", quotas[i]);
		has(line);
	}
	cr_expect_eq(lines_with("{uid=\"7\"}"), sizeof(quotas) / sizeof(*quotas));
}

Test(exporter_snapshot, the_oldest_queued_job)
{
	answer(ASK_JOBS,
	       "{\"jobs\":[{\"kind\":\"load\",\"state\":\"running\",\"created_ms\":1000,\"done\":3,\"total\":4},"
	       "{\"kind\":\"load\",\"state\":\"queued\",\"created_ms\":7500},{\"kind\":\"load\",\"state\":\"queued\",\"created_ms\":9000}]}");
	has("\ngpuwm_oldest_queued_job_seconds 2.500000\n");
	has("\ngpuwm_jobs{kind=\"load\",state=\"queued\"} 2\n");
	has("\ngpuwm_jobs_done_bytes{kind=\"load\",state=\"running\"} 3\n");
}

/* ---- what is asked again when -------------------------------------------- */

Test(exporter_snapshot, a_slow_answer_is_used_for_longer)
{
	cr_expect_eq(gpuwmd_ask_again_us(ASK_JOBS, 1000, 1000 + 50000), 1000 + 50000 * ASK_SHARE);
	cr_expect_eq(gpuwmd_ask_again_us(ASK_JOBS, 1000, 5000000), 1000 + ASK_AGAIN_US_MAX);
	cr_expect_eq(gpuwmd_ask_again_us(ASK_STATUS, 1000, 5000000), 5000000,
		     "whether gpuwmd answers is asked each time");
}

/* ---- the state of the page ----------------------------------------------- */

Test(exporter_snapshot, the_state_has_the_largest_versions_and_says_what_it_leaves_out)
{
	static char json[400000] = "{\"versions\":[";
	char *end = json + strlen(json);
	json_t *state, *versions;
	size_t bytes;

	for (int i = 0; i < 1024; i++)
		end += sprintf(end, "%s{\"state\":\"%s\",\"bytes\":%d}", i ? "," : "",
			       i == 1023 ? "failed" : "ready", i);
	strcpy(end, "]}");
	answer(ASK_LIST, json);
	state = json_loads(snapshot_state(snapshot, &bytes), 0, NULL);
	versions = json_object_get(state, "versions");
	cr_assert_eq(json_array_size(versions), STATE_VERSIONS_MAX);
	cr_expect_eq(json_integer_value(json_object_get(json_array_get(versions, 0), "bytes")),
		     1023 - STATE_VERSIONS_MAX);
	cr_expect_eq(json_integer_value(json_object_get(json_object_get(state, "left_out"), "versions")),
		     1024 - STATE_VERSIONS_MAX);
	json_decref(state);
}

Test(exporter_snapshot, a_client_is_told_with_its_first_leases)
{
	static char json[4000] = "{\"clients\":[{\"pid\":5,\"leases\":[0";
	json_t *state, *client;
	size_t bytes;

	for (int i = 1; i < 100; i++)
		strcat(json, ",1");
	strcat(json, "]}]}");
	answer(ASK_CLIENTS, json);
	state = json_loads(snapshot_state(snapshot, &bytes), 0, NULL);
	client = json_array_get(json_object_get(state, "clients"), 0);
	cr_expect_eq(json_array_size(json_object_get(client, "leases")), STATE_LEASES_MAX);
	cr_expect_eq(json_integer_value(json_object_get(client, "lease_count")), 100);
	json_decref(state);
}

static json_int_t total(const char *of, const char *name, const char *key)
{
	size_t bytes;
	json_t *state = json_loads(snapshot_state(snapshot, &bytes), 0, NULL);
	json_t *found = json_object_get(json_object_get(state, "totals"), of);
	json_int_t value;

	if (name)
		found = json_object_get(found, name);
	value = json_integer_value(key ? json_object_get(found, key) : found);
	json_decref(state);
	return value;
}

Test(exporter_snapshot, totals_count_what_the_lists_leave_out)
{
	static char json[400000] = "{\"versions\":[";
	char *end = json + strlen(json);

	for (int i = 0; i < 1022; i++)
		end += sprintf(
			end,
			"%s{\"state\":\"%s\",\"bytes\":5,\"shared_bytes\":2,\"parts\":["
			"{\"device\":\"g0\",\"bytes\":3,\"shared_bytes\":1},{\"device\":\"g0\",\"bytes\":2}]}",
			i ? "," : "", i == 7 ? "failed" : "ready");
	strcpy(end, "]}");
	answer(ASK_LIST, json);
	cr_expect_eq(total("versions", "ready", NULL), 1021);
	cr_expect_eq(total("versions", "failed", NULL), 1);
	cr_expect_eq(total("shared_bytes", NULL, NULL), 2044);
	cr_expect_eq(total("devices", "g0", "versions"), 1021, "a failed version holds nothing");
	cr_expect_eq(total("devices", "g0", "bytes"), 5 * 1021);
	cr_expect_eq(total("devices", "g0", "shared_bytes"), 1021);
}

Test(exporter_snapshot, totals_count_all_jobs_and_workers)
{
	static char jobs[200000] = "{\"jobs\":[{\"state\":\"failed\",\"job\":1}",
		    clients[100000] = "{\"clients\":[{}";
	char *job = jobs + strlen(jobs), *client = clients + strlen(clients);
	json_t *state;
	size_t bytes;

	for (int i = 0; i < 5000; i++)
		job += sprintf(job, ",{\"state\":\"done\",\"job\":%d}", i + 2);
	for (int i = 0; i < 500; i++)
		client += sprintf(client, ",{\"leases\":[0]}");
	strcpy(job, "]}");
	strcpy(client, "]}");
	answer(ASK_JOBS, jobs);
	answer(ASK_CLIENTS, clients);
	cr_expect_eq(total("jobs", "done", NULL), 5000);
	cr_expect_eq(total("jobs", "failed", NULL), 1);
	cr_expect_eq(total("workers", NULL, NULL), 500);
	state = json_loads(snapshot_state(snapshot, &bytes), 0, NULL);
	cr_expect_str_eq(
		json_string_value(json_object_get(json_array_get(json_object_get(state, "jobs"), 0), "state")),
		"failed", "5,000 jobs that went well do not push it out");
	json_decref(state);
}

Test(exporter_snapshot, each_version_that_is_told_has_its_aliases)
{
	static char json[400000] = "{\"versions\":[{\"version\":\"v\",\"bytes\":9}],\"aliases\":[";
	char *end = json + strlen(json);
	json_t *state, *aliases;
	size_t bytes;

	for (int i = 0; i < 1000; i++)
		end += sprintf(end, "{\"alias\":\"a\",\"version\":\"%d\"},", i);
	strcpy(end, "{\"alias\":\"current\",\"version\":\"v\"}]}");
	answer(ASK_LIST, json);
	state = json_loads(snapshot_state(snapshot, &bytes), 0, NULL);
	aliases = json_object_get(state, "aliases");
	cr_assert_eq(json_array_size(aliases), 1);
	cr_expect_eq(json_integer_value(json_object_get(json_object_get(state, "left_out"), "aliases")), 1000);
	json_decref(state);
}

/* ---- readiness ----------------------------------------------------------- */

static void is_ready(const char *reference, bool expected, const char *expected_why)
{
	char why[READY_WHY_BYTES];

	cr_expect_eq(ready_is(snapshot, reference, why), expected, "%s", reference);
	cr_expect_str_eq(why, expected_why);
}

Test(exporter_snapshot, why_a_version_is_not_ready)
{
	answer(ASK_LIST,
	       "{\"aliases\":[{\"model\":\"m\",\"alias\":\"current\",\"version\":\"1\"}],\"versions\":["
	       "{\"version\":\"1\",\"model\":\"m\",\"tag\":\"v1\",\"state\":\"ready\",\"parts\":[{\"device\":\"g0\"},{\"device\":\"g1\"}]},"
	       "{\"version\":\"2\",\"model\":\"m\",\"tag\":\"v2\",\"state\":\"building\"},"
	       "{\"version\":\"3\",\"model\":\"m\",\"tag\":\"v3\",\"state\":\"failed\",\"error\":{\"message\":\"no room\"}},"
	       "{\"version\":\"4\",\"model\":\"m\",\"tag\":\"v4\",\"state\":\"ready\",\"tainted\":{\"message\":\"a bit\"}}]}");
	answer(ASK_JOBS,
	       "{\"jobs\":[{\"kind\":\"load\",\"model\":\"m\",\"tag\":\"v5\",\"state\":\"queued\"}]}");
	is_ready("m", true, "m@v1 is ready on g0, g1");
	is_ready("m@v2", false, "m@v2 is building");
	is_ready("m@v3", false, "m@v3 failed: no room");
	is_ready("m@v4", false, "m@v4 is damaged: a bit");
	is_ready("m@v5", false, "the load of m@v5 is queued");
	is_ready("m@v6", false, "there is no version m@v6, or none that the exporter's user may attach to");
	answer(ASK_STATUS, "{\"draining\":true}");
	is_ready("m", false, "gpuwmd is draining: it gives no new leases");
	snapshot->up = false;
	is_ready("m", false, "gpuwmd does not answer: ");
}
