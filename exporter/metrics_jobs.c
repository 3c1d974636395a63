/* Metrics of jobs. */

#include "limits.h"
#include "snapshot.h"
#include "prom.h"

static const struct fold_family families[] = {
	{"gpuwm_jobs", PROM_GAUGE, "Jobs. gpuwmd lists ended ones for an hour, the last 1,000 of them.", false},
	{"gpuwm_jobs_done_bytes", PROM_GAUGE, "What these jobs have done of their current phase.", false},
	{"gpuwm_jobs_total_bytes", PROM_GAUGE, "What the current phases of these jobs have to do.", false},
};

void metrics_jobs(FILE *out, const struct snapshot *snapshot)
{
	static const char *const labels[] = {"kind", "state", NULL};
	const json_t *jobs = json_object_get(snapshot->answers[ASK_JOBS], "jobs"), *job;
	uint64_t oldest_ms = snapshot->wall_ms;
	struct fold fold = {0};
	size_t i;

	if (!jobs)
		return;
	json_array_foreach(jobs, i, job) {
		if (member_is(job, "state", "queued") && member_number(job, "created_ms") < oldest_ms)
			oldest_ms = member_number(job, "created_ms");
	}
	prom_single_us(out, "gpuwm_oldest_queued_job_seconds", PROM_GAUGE,
		       "How long the oldest queued job has waited; 0 if none waits.",
		       (snapshot->wall_ms - oldest_ms) * 1000);
	json_array_foreach(jobs, i, job)
		fold_add(&fold,
			 &(struct fold_row){
				 .labels = {member_text(job, "kind"), member_text(job, "state")},
				 .values = {1, member_number(job, "done"), member_number(job, "total")}});
	fold_end(&fold, JOB_ROWS_MAX, 2);
	fold_write(out, &fold, labels, families, sizeof(families) / sizeof(*families));
	fold_clear(&fold);
}
