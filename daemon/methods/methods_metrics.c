/* metrics: what gpuwmd counted and timed since its start, for an exporter. */
#include "methods.h"
#include "../base/metrics.h"

#define OTHER "other"
#define NS_PER_US 1000

static void put_counter(struct message_writer *w, const char *name, uint64_t value)
{
	record_put_map(w, NULL, &counter_told_record, &(struct counter_told){.name = name, .value = value});
}

static void put_counters(struct message_writer *w, const struct server *server, const struct metrics *metrics)
{
	message_begin_array(w, "counters");
	for (int metric = 0; metric < METRICS; metric++)
		put_counter(w, metric_name((enum metric)metric), metrics->counters[metric]);
	put_counter(w, "events", event_count(server->ledger.events));
	put_counter(w, "operators_busy_us", metrics->operators.busy_ns / NS_PER_US);
	put_counter(w, "operators_turns", metrics->operators.turns);
	message_end(w);
}

static void put_refusals(struct message_writer *w, const struct metrics *metrics)
{
	message_begin_array(w, "refusals");
	for (size_t i = 0; i < metrics->refusal_count; i++) {
		const struct refusals *row = &metrics->refusals[i];

		record_put_map(w, NULL, &refusal_told_record,
			       &(struct refusal_told){row->method, error_name(row->code), row->count});
	}
	if (metrics->other_refusals > 0)
		record_put_map(w, NULL, &refusal_told_record,
			       &(struct refusal_told){OTHER, OTHER, metrics->other_refusals});
	message_end(w);
}

/* label NULL: none. */
static void put_histogram(struct message_writer *w, const char *name, const char *label,
			  const struct histogram *histogram)
{
	record_put_map(w, NULL, &histogram_told_record,
		       &(struct histogram_told){
			       .name = name,
			       .label = label,
			       .bounds_us = {histogram->bounds_us, HISTOGRAM_BOUNDS},
			       .counts = {histogram->counts, HISTOGRAM_BOUNDS + 1},
			       .sum_us = histogram->sum_ns / NS_PER_US,
		       });
}

static void put_histograms(struct message_writer *w, const struct metrics *metrics)
{
	message_begin_array(w, "histograms");
	put_histogram(w, "attach", NULL, &metrics->attach);
	put_histogram(w, "attach_waited", NULL, &metrics->attach_waited);
	for (size_t i = 0; i < METRICS_METHODS_MAX; i++) {
		if (metrics->methods[i].name)
			put_histogram(w, "request", metrics->methods[i].name, &metrics->methods[i].histogram);
	}
	for (size_t i = 0; i < metrics->phase_count; i++)
		put_histogram(w, "load_phase", metrics->phases[i].name, &metrics->phases[i].histogram);
	if (metrics->phase_count == METRICS_PHASES_MAX)
		put_histogram(w, "load_phase", OTHER, &metrics->other_phases);
	message_end(w);
}

/* uid NULL: of the rest. */
static void put_user(struct message_writer *w, const struct user_times *user, const uint64_t *uid)
{
	record_put_map(w, NULL, &user_counted_record,
		       &(struct user_counted){
			       .uid = uid,
			       .requests = user->requests,
			       .refused = user->refused,
			       .busy_us = user->busy_ns / NS_PER_US,
			       .turns = user->turns,
			       .waited = user->waited,
		       });
}

static void put_users(struct message_writer *w, const struct metrics *metrics)
{
	message_begin_array(w, "users");
	for (const struct user_times *user = metrics->users; user; user = user->hh.next) {
		const uint64_t uid = user->uid;

		put_user(w, user, &uid);
	}
	if (metrics->rest.turns > 0)
		put_user(w, &metrics->rest, NULL);
	message_end(w);
}

int method_metrics(struct request *request, const void *params, struct error *error)
{
	const struct metrics *metrics = request->server->net.metrics;
	struct message_writer w;

	(void)params;
	(void)error;
	request_result(request, &w);
	record_put(&w, request->form->result, &(struct metrics_result){metrics->since_ms});
	put_counters(&w, request->server, metrics);
	put_refusals(&w, metrics);
	put_histograms(&w, metrics);
	put_users(&w, metrics);
	request_answer(request, &w);
	return 0;
}
