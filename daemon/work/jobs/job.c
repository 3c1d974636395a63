#include "job.h"
#include "../../../base/clock.h"
#include "../../base/probe.h"
#include "../work.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Progress events of one job: four a second are smooth for a bar. */
#define JOB_EVENT_MS 250

const char *job_kind_name(enum job_kind kind)
{
	static const char *const names[] = {
		[JOB_LOAD] = "load",     [JOB_CHECK] = "check", [JOB_VERIFY] = "verify",
		[JOB_REGION] = "region", [JOB_MOVE] = "move",   [JOB_HOLD] = "hold"};

	return names[kind];
}

const char *job_state_name(enum job_state state)
{
	static const char *const names[] = {
		[JOB_QUEUED] = "queued", [JOB_RUNNING] = "running",     [JOB_DONE] = "done",
		[JOB_FAILED] = "failed", [JOB_CANCELLED] = "cancelled",
	};
	return names[state];
}

const char *job_state_told(const struct job *job)
{
	return job->state == JOB_RUNNING && job->cancelled ? "cancelling" : job_state_name(job->state);
}

/* ---- the table ---- */

void job_table_init(struct job_table *table, const struct job_actions *const actions[JOB_KINDS])
{
	*table = (struct job_table){.actions = actions, .end = &table->first};
}

void job_release_contexts(struct job *job)
{
	for (size_t i = 0; job->contexts && i < job->device_count; i++)
		budget_release(&job->contexts[i]);
	free(job->contexts);
	job->contexts = NULL;
}

static void job_clear(struct job *job)
{
	if (job->actions->clear)
		job->actions->clear(job);
}

static void job_free(struct job *job)
{
	job_release_contexts(job);
	job_clear(job);
	if (job->actions->free)
		job->actions->free(job);
	free(job->devices);
	free(job->error);
	job_record_clear(&job->record);
	free(job);
}

void job_table_clear(struct job_table *table)
{
	while (table->first) {
		struct job *job = table->first;

		table->first = job->next;
		job_free(job);
	}
	job_table_init(table, table->actions);
}

bool job_ended(const struct job *job)
{
	return job->state > JOB_RUNNING;
}

/* A part that the scrub found to be as it was, or left for later; the check of a version that nobody but its users knows; or the memory
 * of a region, which is told when it is there. */
static bool is_routine(const struct job *job)
{
	return job->kind == JOB_REGION || (job->is_routine && job->state != JOB_FAILED);
}

/* If there are too many ended jobs, those that failed go too if `failures` is set. */
static void prune(struct job_table *table, bool failures)
{
	uint64_t now = clock_steady_ms(), kept = UINT64_C(1000) * JOB_KEPT_SECONDS;
	struct job **link = &table->first;

	while (*link) {
		struct job *job = *link;
		bool surplus = table->kept > JOBS_KEPT_MAX && (failures || job->state != JOB_FAILED);

		if (job_ended(job) && (is_routine(job) || surplus || now > job->ended_steady_ms + kept)) {
			*link = job->next;
			table->kept--;
			job_free(job);
		} else {
			link = &job->next;
		}
	}
	table->end = link;
}

void job_table_prune(struct job_table *table)
{
	prune(table, false);
	prune(table, true);
}

int job_check_share(const struct share_table *table, const struct share_held *held, uid_t uid, bool by_operator,
		    struct error *error)
{
	if (!by_operator)
		return share_check(table, held, uid, 1, error);
	if (held->operators + held->others < table->all)
		return 0;
	return error_set(error, -EDQUOT, table->remedy,
			 "gpuwmd has all %llu %s that it may have: operators have %llu, and users %llu",
			 (unsigned long long)table->all, table->noun, (unsigned long long)held->operators,
			 (unsigned long long)held->others);
}

/* What holds a socket counts there. */
static int check_queued(const struct job_table *table, const struct job_wish *wish, struct error *error)
{
	static const struct share_table share = {.all = JOBS_QUEUED_MAX,
						 .most = SHARE_NONE,
						 .noun = "waiting jobs",
						 .remedy = "wait for some to end, or cancel some"};
	struct share_held held = {0};
	uint64_t sockets = 0, all;

	for (const struct job *job = table->first; job; job = job->next) {
		if (job->state != JOB_QUEUED || job->hand_in)
			continue;
		if (job->holds_socket)
			sockets++;
		else if (job->asked_by_operator)
			held.operators++;
		else if (!wish->asked_by_operator && job->uid == wish->uid)
			held.own++;
	}
	all = table->queued - sockets;
	held.others = all - held.operators - held.own;
	return job_check_share(&share, &held, wish->uid, wish->asked_by_operator, error);
}

int job_new(struct work *work, const struct job_wish *wish, struct job **ret_job, struct error *error)
{
	struct job_table *table = &work->jobs;
	struct job *job;

	int r = wish->kind == JOB_CHECK ? job_check_sockets(table, wish->uid, wish->asked_by_operator, error)
					: check_queued(table, wish, error);

	if (r < 0)
		return r;
	job_table_prune(table);
	job = calloc(1, table->actions[wish->kind]->size);
	if (!job)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	job->id = ++table->last_id;
	job->kind = wish->kind;
	job->actions = table->actions[wish->kind];
	job->uid = wish->uid;
	job->asked_by_operator = wish->asked_by_operator;
	job->created_ms = clock_wall_ms();
	job->publisher_sock = -1;
	job->holds_socket = wish->kind == JOB_CHECK;
	snprintf(job->model, sizeof(job->model), "%s", wish->model);
	snprintf(job->tag, sizeof(job->tag), "%s", wish->tag);
	snprintf(job->phase, sizeof(job->phase), "waiting for a loader");
	job_record_phase(&job->record, "waiting", clock_steady_ms());
	*table->end = job;
	table->end = &job->next;
	table->queued++;
	*ret_job = job;
	return 0;
}

void job_drop(struct job_table *table, struct job *job)
{
	struct job **link = &table->first;

	while (*link != job)
		link = &(*link)->next;
	*link = job->next;
	if (!*link)
		table->end = link;
	if (!job->hand_in)
		table->queued--;
	job_free(job);
}

void job_awaits_publisher(struct job_table *table, struct job *job)
{
	table->queued--;
	snprintf(job->phase, sizeof(job->phase), "waiting for the publisher");
}

void job_handed_in(struct job_table *table, struct job *job)
{
	table->queued++;
	snprintf(job->phase, sizeof(job->phase), "waiting for a loader");
}

int job_add_device(struct job *job, struct device *device)
{
	struct device **devices = reallocarray(job->devices, job->device_count + 1, sizeof(*devices));

	if (!devices)
		return -ENOMEM;
	devices[job->device_count++] = device;
	job->devices = devices;
	return 0;
}

struct job *job_find(const struct job_table *table, uint64_t id)
{
	struct job *job = table->first;

	while (job && job->id != id)
		job = job->next;
	return job;
}

struct job *job_queued(const struct job_table *table, const struct job *after, bool checks)
{
	struct job *job = after ? after->next : table->queued ? table->first : NULL;

	while (job && (job->state != JOB_QUEUED || job->hand_in || (!checks && !job_is_operators(job))))
		job = job->next;
	return job;
}

bool job_is_operators(const struct job *job)
{
	return (job->kind == JOB_LOAD || job->kind == JOB_MOVE) && !job->takes_turns;
}

struct job *job_awaiting(const struct job_table *table)
{
	struct job *job = table->first;

	while (job && !job->hand_in)
		job = job->next;
	return job;
}

bool job_is_like(const struct job *job, const struct job *other)
{
	return job->kind == other->kind && job->uid == other->uid && job->takes_turns == other->takes_turns;
}

uint64_t job_queued_like(const struct job_table *table, const struct job *before)
{
	uint64_t count = 0;

	for (const struct job *job = table->first; job && job != before; job = job->next)
		count += job->state == JOB_QUEUED && !job->hand_in && job_is_like(job, before);
	return count;
}

bool job_is_crowded_on(const struct job *job, const struct device *device)
{
	size_t i = 0;

	while (i < job->device_count && job->devices[i] != device)
		i++;
	return i < job->device_count && job->state == JOB_QUEUED && job->crowded;
}

/* ---- its life ---- */

/* note NULL: none. */
static void tell_with(struct work *work, struct job *job, const char *note)
{
	const struct model *model;
	struct event_about about = {.model = job->model};

	if (is_routine(job))
		return;
	model = registry_model(work->ledger->registry, job->model);
	if (model) /* it need not be there yet, or any more */
		about.owner = model_owner(model);
	event_emit(work->ledger->events, &event_job,
		   &(struct job_event){
			   .job = job->id,
			   .state = job_state_told(job),
			   .phase = job->phase,
			   .done = job->done,
			   .total = job->total,
			   .model = job->model,
			   .tag = job->tag,
			   .note = note,
		   },
		   &about);
	job->told_ms = clock_steady_ms();
}

static void job_tell(struct work *work, struct job *job)
{
	tell_with(work, job, NULL);
}

void job_waits(struct work *work, struct job *job, const char *why)
{
	char phase[sizeof(job->phase)];

	snprintf(phase, sizeof(phase), "waiting for a loader%s%.220s", why[0] ? ": " : "", why);
	if (strcmp(job->phase, phase) == 0)
		return;
	strcpy(job->phase, phase);
	job_tell(work, job);
}

void job_start(struct work *work, struct job *job, struct loader *loader)
{
	job->state = JOB_RUNNING;
	job->loader = loader;
	job->started_ms = clock_wall_ms();
	snprintf(job->phase, sizeof(job->phase), "starting");
	job_record_phase(&job->record, job->phase, clock_steady_ms());
	work->jobs.queued--;
	work->jobs.running++;
	if (job->kind == JOB_LOAD)
		PROBE4(load_begin, job->id, job->model, job->tag, job->source);
	job_tell(work, job);
}

void job_has_begun(struct job *job)
{
	job_clear(job);
}

void job_again(struct work *work, struct job *job)
{
	job_release_contexts(job);
	job->given_back++;
	job->state = JOB_QUEUED;
	job->loader = NULL;
	job->started_ms = job->watched_ms = 0;
	snprintf(job->phase, sizeof(job->phase), "waiting for a loader");
	job_record_phase(&job->record, "waiting", clock_steady_ms());
	work->jobs.running--;
	work->jobs.queued++;
	job_tell(work, job);
}

void job_progress(struct work *work, struct job *job, const char *phase, uint64_t done, uint64_t total)
{
	bool phased = strcmp(job->phase, phase) != 0;
	bool moved = phased || (total > 0 && done != job->done);

	snprintf(job->phase, sizeof(job->phase), "%s", phase);
	job_record_phase(&job->record, phase, clock_steady_ms());
	if (total > 0) { /* a phase that counts nothing leaves the figures of the last that did */
		job->done = done;
		job->total = total;
		job_record_bytes(&job->record, done, total);
	} else if (phased) {
		job->done = job->total; /* the last of them may not have been told */
	}
	if ((job->kind != JOB_LOAD && job->kind != JOB_MOVE) || moved)
		job_watch(job);
	if (phased || clock_steady_ms() - job->told_ms >= JOB_EVENT_MS)
		job_tell(work, job);
}

void job_remark(struct work *work, struct job *job, const char *note)
{
	if (job_record_note(&job->record, note))
		tell_with(work, job, note);
}

void job_watch(struct job *job)
{
	job->watched_ms = clock_steady_ms();
}

size_t job_put(struct message_writer *w, const struct job *job, const struct config *config,
	       int ret_fds[PACKET_FDS_MAX])
{
	record_put(w, &job_head_record, &(struct job_head){job->id, job_kind_name(job->kind)});
	return job->actions->put(w, job, config, ret_fds);
}

void job_set_error(struct job *job, const struct error *error)
{
	if (!job->error)
		job->error = malloc(sizeof(*job->error));
	if (job->error)
		*job->error = *error;
}

bool job_has_version(const struct job *job)
{
	static const struct version_id none;

	return !version_id_equal(&job->version, &none);
}

bool job_is_storing(const struct work *work, const struct job *job)
{
	const struct ref ref = {.has_id = true, .id = job->version};
	struct version *version;
	uint64_t generation;

	if (job->actions->is_storing)
		return job->actions->is_storing(job);
	return registry_find(work->ledger->registry, &ref, &version, &generation, NULL) == 0 &&
	       version->storing;
}

void job_end(struct work *work, struct job *job, const struct error *error)
{
	if (job_ended(job))
		return;
	/* The job ends with the version (jobs_conclude), or with the move. */
	if ((job->kind == JOB_LOAD || job->kind == JOB_MOVE) && job_is_storing(work, job)) {
		job->loader = NULL;
		return;
	}
	if (job->made)
		error = NULL;
	if (job->state == JOB_RUNNING)
		work->jobs.running--;
	else if (!job->hand_in)
		work->jobs.queued--;
	work->jobs.kept++;
	job->state = !error                                        ? JOB_DONE
		     : job->cancelled || error->code == -ECANCELED ? JOB_CANCELLED
								   : JOB_FAILED;
	job->ended_ms = clock_wall_ms();
	job->ended_steady_ms = clock_steady_ms();
	job_record_end(&job->record, !error, job->ended_steady_ms);
	job_into_metrics(work->net->metrics, job);
	if (error)
		job_set_error(job, error);
	else
		job->done = job->total; /* the last progress may not have been told */
	job_clear(job);
	job_release_contexts(job);
	job->actions->end(work, job, error);
	job->loader = NULL;
	if (job->state == JOB_FAILED && job->kind == JOB_LOAD && !job->dry_run && !job_has_version(job))
		log_warning("job %llu (%s %s@%s) failed: %s", (unsigned long long)job->id,
			    job_kind_name(job->kind), job->model, job->tag, error->message);
	job_tell(work, job);
	waiters_wake(work->clients, WAIT_JOB, NULL);
}

void jobs_conclude(struct work *work, const struct version_id *version, const struct error *error)
{
	for (struct job *job = work->jobs.first; job; job = job->next) {
		if (job->kind != JOB_LOAD || job_ended(job) || !version_id_equal(&job->version, version))
			continue;
		job->made = !error;
		if (!job->loader)
			job_end(work, job, error);
	}
}

void job_note(struct job_table *table, const struct version_id *version, const struct error *error)
{
	for (struct job *job = table->first; job; job = job->next) {
		if (version_id_equal(&job->version, version))
			job_set_error(job, error);
	}
}

void job_cancel(struct work *work, struct job *job, const struct error *reason)
{
	if (job_ended(job) || job->cancelled)
		return;
	if (job->state == JOB_RUNNING && !job->loader) /* its version is being stored: that decides */
		return;
	job->cancelled = true;
	if (job->state == JOB_QUEUED) {
		job_end(work, job, reason);
		return;
	}
	job_tell(work, job);
	work_later(work, LATER_CANCELS);
}

void jobs_cancel_readers(struct work *work, const struct version *version)
{
	struct error reason;

	error_set(&reason, -ECANCELED, NULL, "%s@%s is being freed", model_name(version->model), version->tag);
	for (struct job *job = work->jobs.first; job; job = job->next) {
		if (job->reads == version)
			job_cancel(work, job, &reason);
	}
}
