/* Metrics: the exporter itself, jobs, regions, and the text with all groups. */
#include "snapshot.h"

#include "limits.h"
#include "prom.h"

#include <stdlib.h>

void metrics_exporter(FILE *out, const struct snapshot *snapshot)
{
	const struct tally *tally = snapshot->tally;

	prom_single(out, "gpuwm_up", PROM_GAUGE, "1 if gpuwmd answered, 0 if it is away or hangs.",
		    snapshot->up);
	prom_family(out, "gpuwm_exporter_info", PROM_GAUGE, "The version of gpuwm-exporter.");
	prom_u64(out, "gpuwm_exporter_info", 1, "version", GPUWM_VERSION, PROM_END);
	prom_family(
		out, "gpuwm_exporter_sees", PROM_GAUGE,
		"1 if gpuwmd answers this method to the exporter. 0: gpuwmd is away or refuses; metrics made "
		"of the answer are missing.");
	for (size_t i = 0; i < QUESTIONS; i++)
		prom_u64(out, "gpuwm_exporter_sees", snapshot->sees[i], "method", question_names[i], PROM_END);
	prom_single_us(out, "gpuwm_exporter_ask_seconds", PROM_GAUGE,
		       "How long gpuwmd took to answer all questions of this snapshot.", snapshot->asked_us);
	prom_single_us(out, "gpuwm_exporter_snapshot_seconds", PROM_GAUGE,
		       "The shortest time between two snapshots; all scrapes in between get the same one.",
		       SNAPSHOT_MS * 1000);
	prom_single_us(out, "gpuwm_exporter_snapshot_timestamp_seconds", PROM_GAUGE,
		       "When the exporter began to ask for this snapshot.", snapshot->wall_ms * 1000);
	prom_single(out, "gpuwm_exporter_scrapes_total", PROM_COUNTER, "Requests for /metrics.",
		    tally->scrapes);
	prom_single(out, "gpuwm_exporter_pages_total", PROM_COUNTER,
		    "Requests for the status page and its state.", tally->pages);
	prom_single(out, "gpuwm_exporter_refused_total", PROM_COUNTER,
		    "Requests over HTTP that were answered with an error.", tally->refused);
	prom_single(out, "gpuwm_exporter_cut_total", PROM_COUNTER,
		    "Connections over HTTP that were ended because they were slow.", tally->cut);
	prom_single(out, "gpuwm_exporter_snapshots_total", PROM_COUNTER, "How often gpuwmd was asked.",
		    tally->snapshots);
	prom_single(out, "gpuwm_exporter_errors_total", PROM_COUNTER,
		    "How often gpuwmd did not answer, or not in time.", tally->failed + tally->late);
	prom_single(out, "gpuwm_exporter_connects_total", PROM_COUNTER, "Connections to gpuwmd.",
		    tally->connects);
}

/* ---- jobs ---- */

static const struct fold_family job_families[] = {
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
	fold_write(out, &fold, labels, job_families, sizeof(job_families) / sizeof(*job_families));
	fold_clear(&fold);
}

/* ---- regions ---- */

static const struct fold_family region_families[] = {
	{"gpuwm_region_bytes", PROM_GAUGE, "Memory of the region; regions without a name are one row.", false},
	{"gpuwm_region_used_bytes", PROM_GAUGE, "Those of gpuwm_region_bytes that are in use.", false},
	{"gpuwm_region_processes", PROM_GAUGE, "Processes that use the region.", false},
	{"gpuwm_region_waiting", PROM_GAUGE, "Requests that wait for the region's scratch memory.", false},
};

void metrics_regions(FILE *out, const struct snapshot *snapshot)
{
	static const char *const labels[] = {"region", "kind", "device"};
	const json_t *regions = json_object_get(snapshot->answers[ASK_REGIONS], "regions"), *region;
	struct fold fold = {0};
	size_t i;

	json_array_foreach(regions, i, region)
		fold_add(&fold,
			 &(struct fold_row){.labels = {member_text(region, "name"), member_text(region, "kind"),
						       member_text(region, "device")},
					    .values = {member_number(region, "bytes"),
						       member_number(region, "bytes_used"),
						       json_array_size(json_object_get(region, "users")),
						       member_number(region, "waiting")}});
	fold_end(&fold, REGION_ROWS_MAX, 1);
	fold_write(out, &fold, labels, region_families, sizeof(region_families) / sizeof(*region_families));
	fold_clear(&fold);
}

/* ---- all groups ---- */

static metrics_part *const parts[] = {
	metrics_exporter, metrics_server, metrics_devices, metrics_versions,
	metrics_users,    metrics_jobs,   metrics_regions, metrics_counted,
};

char *metrics_make(const struct snapshot *snapshot, size_t *ret_bytes)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, ret_bytes);
	int failed;

	if (!out)
		return NULL;
	if (!snapshot->up)
		prom_comment(out, snapshot->why);
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		parts[i](out, snapshot);
	failed = ferror(out);
	if (fclose(out) == 0 && !failed)
		return text;
	free(text);
	return NULL;
}
