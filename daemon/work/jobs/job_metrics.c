/* What jobs add to the metrics. */
#include "../../base/metrics.h"
#include "../../base/probe.h"
#include "../work.h"

/* What a load that somebody cancelled, or that only made a plan, took says nothing of loads. */
void job_into_metrics(struct metrics *metrics, const struct job *job)
{
	const struct job_record *record = &job->record;

	if (job->kind != JOB_LOAD)
		return;
	PROBE5(load_end, job->id, job->model, job->tag, job_state_name(job->state),
	       job->ended_ms - job->created_ms);
	if (job->dry_run || job->state == JOB_CANCELLED)
		return;
	metrics_count(metrics, job->state == JOB_DONE ? METRIC_LOADS : METRIC_LOADS_FAILED, 1);
	for (size_t i = 0; i < record->phase_count && job->state == JOB_DONE; i++)
		metrics_phase(metrics, record->phases[i].name, record->phases[i].ms);
}

bool jobs_load(const struct job_table *table, const struct version *version)
{
	for (const struct job *job = version_is_nameless(version) ? NULL : table->first; job; job = job->next) {
		if (job->kind == JOB_LOAD && version_id_equal(&job->version, &version->id))
			return true;
	}
	return false;
}
