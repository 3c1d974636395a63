#include "job.h"
#include "../../../proto/wire/messages.h"
#include "../../base/metrics.h"
#include "../../base/probe.h"
#include "../work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool phase_runs(const struct job_record *record, size_t phase)
{
	return record->since_ms && phase == record->current;
}

static uint64_t phase_ms(const struct job_record *record, size_t phase, uint64_t now_ms)
{
	return record->phases[phase].ms + (phase_runs(record, phase) ? now_ms - record->since_ms : 0);
}

static uint64_t phase_bytes(const struct job_record *record, size_t phase)
{
	return record->phases[phase].bytes + (phase_runs(record, phase) ? record->done : 0);
}

/* Its place; a new one where there is room. */
static size_t phase_find(struct job_record *record, const char *name)
{
	size_t i = 0;

	while (i < record->phase_count && strcmp(record->phases[i].name, name) != 0)
		i++;
	if (i == JOB_PHASES_MAX)
		return JOB_PHASES_MAX - 1;
	if (i == record->phase_count) {
		strcpy(record->phases[i].name, name);
		record->phase_count++;
	}
	return i;
}

void job_record_phase(struct job_record *record, const char *phase, uint64_t now_ms)
{
	char name[JOB_PHASE_NAME_BYTES + 1];
	size_t next;

	snprintf(name, sizeof(name), "%.*s", JOB_PHASE_NAME_BYTES, phase);
	next = phase_find(record, name);
	if (record->since_ms && next == record->current)
		return;
	job_record_end(record, true, now_ms);
	record->current = next;
	record->since_ms = now_ms;
}

void job_record_bytes(struct job_record *record, uint64_t done, uint64_t total)
{
	record->done = done;
	record->total = total;
}

void job_record_end(struct job_record *record, bool complete, uint64_t now_ms)
{
	struct job_phase *phase = &record->phases[record->current];

	if (record->since_ms) {
		if (complete)
			record->done = record->total;
		phase->bytes = phase_bytes(record, record->current);
		phase->ms = phase_ms(record, record->current, now_ms);
	}
	record->since_ms = record->done = record->total = 0;
}

bool job_record_note(struct job_record *record, const char *note)
{
	char *copy;

	for (size_t i = 0; i < record->note_count; i++)
		if (strcmp(record->notes[i], note) == 0)
			return false;
	copy = record->note_count < JOB_NOTES_MAX ? strdup(note) : NULL;
	if (copy)
		record->notes[record->note_count++] = copy;
	return copy;
}

void job_record_clear(struct job_record *record)
{
	while (record->note_count > 0)
		free(record->notes[--record->note_count]);
}

void job_record_put_phases(struct message_writer *w, const struct job_record *record, uint64_t now_ms)
{
	message_begin_array(w, "phases");
	for (size_t i = 0; i < record->phase_count; i++)
		record_put_map(w, NULL, &job_phase_told_record,
			       &(struct job_phase_told){record->phases[i].name, phase_ms(record, i, now_ms),
							phase_bytes(record, i)});
	message_end(w);
}

/* ---- what loads add to the metrics ---- */

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
