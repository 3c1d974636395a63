/* What gpuwmd counts and times, and how it tells it. */
#include "daemon/base/metrics.h"
#include "proto/wire/messages.h"
#include "tests/support/daemon/server.h"

/* ---- the tables ---- */

static struct metrics *metrics;

static void make(void)
{
	metrics = metrics_new();
	cr_assert(metrics);
}

static void drop(void)
{
	metrics = metrics_free(metrics);
}

TestSuite(metrics, .init = make, .fini = drop);

Test(metrics, a_time_counts_up_to_its_bound)
{
	histogram_add(&metrics->attach, 0);
	histogram_add(&metrics->attach, 5000);
	histogram_add(&metrics->attach, 5001);
	histogram_add(&metrics->attach, UINT64_C(100000000));
	histogram_add(&metrics->attach, UINT64_C(100000001));
	cr_expect_eq(metrics->attach.counts[0], 2);
	cr_expect_eq(metrics->attach.counts[1], 1);
	cr_expect_eq(metrics->attach.counts[HISTOGRAM_BOUNDS - 1], 1);
	cr_expect_eq(metrics->attach.counts[HISTOGRAM_BOUNDS], 1, "above all bounds");
	cr_expect_eq(metrics->attach.sum_ns, UINT64_C(200010002));
}

Test(metrics, bounds_go_up)
{
	for (size_t i = 1; i < HISTOGRAM_BOUNDS; i++) {
		cr_expect_lt(request_bounds_us[i - 1], request_bounds_us[i]);
		cr_expect_lt(load_bounds_us[i - 1], load_bounds_us[i]);
	}
}

Test(metrics, every_counter_has_a_name)
{
	for (int metric = 0; metric < METRICS; metric++)
		cr_expect(metric_name((enum metric)metric), "%d", metric);
}

Test(metrics, phases_beyond_the_limit_count_together)
{
	char name[32];

	for (int i = 0; i < METRICS_PHASES_MAX + 2; i++) {
		snprintf(name, sizeof(name), "phase %d", i);
		metrics_phase(metrics, name, 1);
	}
	metrics_phase(metrics, "phase 0", 2);
	cr_expect_eq(metrics->phase_count, METRICS_PHASES_MAX);
	cr_expect_eq(metrics->phases[0].histogram.counts[0], 1);
	cr_expect_eq(metrics->phases[0].histogram.counts[1], 1);
	cr_expect_eq(metrics->other_phases.counts[0], 2);
}

Test(metrics, refusals_beyond_the_limit_count_together)
{
	for (int code = 1; code <= METRICS_REFUSALS_MAX; code++)
		metrics_refused(metrics, refused_packet, -code);
	metrics_refused(metrics, refused_packet, -1);
	metrics_refused(metrics, refused_connect, -1);
	cr_expect_eq(metrics->refusal_count, METRICS_REFUSALS_MAX);
	cr_expect_eq(metrics->refusals[0].count, 2);
	cr_expect_eq(metrics->other_refusals, 1);
}

Test(metrics, users_beyond_the_limit_are_one)
{
	struct user_times *first = metrics_user(metrics, 0);

	for (uid_t uid = 1; uid < METRICS_USERS_MAX; uid++)
		cr_assert_neq(metrics_user(metrics, uid), &metrics->rest);
	cr_expect_eq(metrics_user(metrics, METRICS_USERS_MAX), &metrics->rest);
	cr_expect_eq(metrics_user(metrics, 0), first);
}

/* ---- what is told ---- */

TestSuite(metrics_told, .init = server_open, .fini = server_close, .timeout = 60);

/* The map in the array `array` whose `key` is `name`, and whose label, if it has one, is `label`. */
static bool find(const char *array, const char *key, const char *name, const char *label, struct fields *ret)
{
	const msgpack_object_array *all = NULL;
	const msgpack_object_map *body = &message.body->via.map;
	char text[64];

	for (uint32_t i = 0; i < body->size; i++) {
		if (strncmp(body->ptr[i].key.via.str.ptr, array, body->ptr[i].key.via.str.size) == 0)
			all = &body->ptr[i].val.via.array;
	}
	cr_assert(all, "%s", array);
	for (uint32_t i = 0; i < all->size; i++) {
		fields_of(ret, &all->ptr[i]);
		fields_text(ret, key, text, sizeof(text));
		if (strcmp(text, name) != 0)
			continue;
		if (label)
			fields_text(ret, "label", text, sizeof(text));
		if (!label || strcmp(text, label) == 0)
			return true;
	}
	return false;
}

static uint64_t counter(const char *name)
{
	struct fields f;

	cr_assert(find("counters", "name", name, NULL, &f), "%s", name);
	return fields_u64(&f, "value");
}

static uint64_t refusals(const char *method)
{
	struct fields f;

	return find("refusals", "method", method, NULL, &f) ? fields_u64(&f, "count") : 0;
}

static void look(int admin)
{
	cr_assert_eq(ask(admin, "metrics"), 0, "%s", message.error.message);
}

Test(metrics_told, an_attach_counts_and_is_timed)
{
	int worker = greeted(SESSION_WORKER), admin = greeted(SESSION_ADMIN);
	struct fields f;

	ready("m", "v1");
	send_get(worker, 1, "m@v1", 0);
	cr_assert_eq(answered(worker), 0);
	look(admin);
	cr_expect_eq(counter("attaches"), 1);
	cr_expect_eq(counter("publishes"), 1);
	cr_expect_gt(counter("operators_turns"), 0);
	cr_expect_gt(counter("events"), 0);
	cr_assert(find("histograms", "name", "attach", NULL, &f));
	cr_expect_lt(fields_u64(&f, "sum_us"), UINT64_C(10000000));
	cr_expect_eq(server->net.metrics->attach.counts[HISTOGRAM_BOUNDS], 0);
	cr_expect(find("histograms", "name", "request", "get_handles", &f));
	cr_expect_not(find("histograms", "name", "request", "pin_version", &f), "nobody called it");
	cr_expect_not(find("histograms", "name", "load_phase", "other", &f));
}

Test(metrics_told, an_attach_that_waits_has_times_of_its_own)
{
	int worker = greeted(SESSION_WORKER);
	const struct metrics *m = server->net.metrics;

	send_get(worker, 1, "m@v1", -1);
	cr_assert_not(comes(worker));
	ready("m", "v1");
	cr_assert_eq(answered(worker), 0);
	cr_expect_eq(m->counters[METRIC_ATTACHES], 1);
	cr_expect_eq(m->attach.sum_ns, 0);
	cr_expect_gt(m->attach_waited.sum_ns, 0);
}

Test(metrics_told, leases_count_however_they_end)
{
	int worker = greeted(SESSION_WORKER), lost = greeted(SESSION_WORKER), admin = greeted(SESSION_ADMIN);
	uint64_t lease;

	ready("m", "v1");
	send_get(worker, 1, "m@v1", 0);
	cr_assert_eq(answered(worker), 0);
	lease = answer_u64("lease");
	cr_assert_eq(ASK(worker, "release", NUMBER("lease", lease)), 0);
	send_get(worker, 1, "m@v1", 0);
	cr_assert_eq(answered(worker), 0);
	cr_assert_eq(ASK(admin, "kick", NUMBER("lease", answer_u64("lease"))), 0);
	send_get(lost, 1, "m@v1", 0);
	cr_assert_eq(answered(lost), 0);
	close(lost);
	turn();
	cr_assert_eq(ASK(admin, "retire", TEXT("ref", "m@v1")), -EBUSY, "current keeps it");
	cr_assert_eq(ASK(admin, "hot_swap", TEXT("model", "m"), TEXT("alias", "current")), 0, "%s",
		     message.error.message);
	cr_assert_eq(ASK(admin, "retire", TEXT("ref", "m@v1")), 0, "%s", message.error.message);
	TURN_UNTIL(server->net.metrics->counters[METRIC_FREED] == 1);
	look(admin);
	cr_expect_eq(counter("attaches"), 3);
	cr_expect_eq(counter("releases"), 1);
	cr_expect_eq(counter("leases_revoked"), 1);
	cr_expect_eq(counter("leases_lost"), 1);
	cr_expect_eq(counter("swaps"), 2, "the first version's, and the one that ended it");
	cr_expect_eq(refusals("retire"), 1);
}

Test(metrics_told, refusals_by_method_and_code)
{
	int worker = greeted(SESSION_WORKER), admin = greeted(SESSION_ADMIN);
	struct fields f;

	cr_assert_eq(ask(worker, "drain"), -EACCES);
	cr_assert_eq(ask(worker, "dance"), -ENOSYS);
	cr_assert_eq(ask(worker, "dance"), -ENOSYS);
	cr_assert_eq(packet_send(worker, "?", 1, NULL, 0), 0);
	cr_assert_eq(answered(worker), -EPROTO);
	look(admin);
	cr_expect_eq(refusals("drain"), 1);
	cr_expect_eq(refusals("unknown"), 2);
	cr_expect_eq(refusals("packet"), 1);
	cr_assert(find("refusals", "method", "drain", NULL, &f));
	cr_expect(find("refusals", "code", "EACCES", NULL, &f));
}

Test(metrics_told, a_user_who_is_turned_away_counts)
{
	int admin = greeted(SESSION_ADMIN);
	uint64_t uid = getuid();

	ask(admin, "dance");
	look(admin);
	cr_assert_eq(server->net.metrics->users->uid, uid);
	cr_expect_eq(server->net.metrics->users->refused, 1);
	cr_expect_eq(server->net.metrics->users->requests, 3, "hello, dance, metrics");
}

Test(metrics_told, only_to_operators_and_observers)
{
	int worker = greeted(SESSION_WORKER);

	cr_expect_eq(ask(worker, "metrics"), -EACCES);
}
