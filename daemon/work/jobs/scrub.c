#include "verify.h"
#include "../../../base/clock.h"
#include "../../restart/keeping.h"
#include "job.h"
#include "../work.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct scrub {
	struct work *work;
	uv_timer_t timer;
	uint64_t interval; /* seconds, as configured */
	uint64_t begun_ms; /* since 1970: the pass that runs, or the last one */
	uint64_t pass; /* numbers passes; a part has that of the last one that read it */
	bool running; /* a pass */
	struct job *job; /* of the part that is read now */
	bool gives_way; /* it was told to end for another job */
	uint64_t passes, last_ms; /* that came to their end; when the last one did, since 1970 */
	uint64_t skipped; /* parts that this pass, or the last one, could not read */
};

struct scrub *scrub_new(struct work *work)
{
	struct scrub *scrub = calloc(1, sizeof(*scrub));

	if (!scrub)
		return NULL;
	scrub->work = work;
	work->ledger->scrub_from_ms = clock_wall_ms();
	scrub->timer.data = scrub;
	uv_timer_init(work->loop, &scrub->timer);
	uv_unref((uv_handle_t *)&scrub->timer);
	return scrub;
}

static void on_scrub_closed(uv_handle_t *handle)
{
	free(handle->data);
}

struct scrub *scrub_free(struct scrub *scrub)
{
	if (scrub)
		uv_close((uv_handle_t *)&scrub->timer, on_scrub_closed);
	return NULL;
}

/* ---- passes ---- */

/* One that still goes on at the time of the next is not begun anew. */
static void on_scrub_due(uv_timer_t *timer)
{
	struct scrub *scrub = timer->data;

	if (scrub->running)
		return;
	scrub->running = true;
	scrub->begun_ms = clock_wall_ms();
	scrub->pass++;
	scrub->skipped = 0;
	work_later(scrub->work, LATER_TURN);
}

/* What lies ahead of a clock that was set back since counts as now. */
static void set_timer(struct scrub *scrub)
{
	uint64_t now = clock_wall_ms(), ms = scrub->interval * 1000, since;
	uint64_t *from_ms = &scrub->work->ledger->scrub_from_ms;

	if (*from_ms > now)
		*from_ms = now;
	since = now - *from_ms;
	uv_timer_start(&scrub->timer, on_scrub_due, since < ms ? ms - since : 0, ms);
}

void scrub_configure(struct scrub *scrub)
{
	uint64_t interval = scrub->work->config->scrub_interval;

	if (interval == scrub->interval)
		return;
	scrub->interval = interval;
	if (interval > 0) {
		set_timer(scrub);
		return;
	}
	uv_timer_stop(&scrub->timer);
	scrub->running = false;
}

void scrub_begin(struct scrub *scrub)
{
	if (scrub->interval > 0)
		set_timer(scrub);
}

/* ---- parts ---- */

static void note_read(const struct scrub *scrub, struct replica *part, bool of_copy)
{
	if (of_copy)
		part->copy_scrubbed = scrub->pass;
	else
		part->scrubbed = scrub->pass;
}

/* The first one is logged, the others are counted. */
static void skip(struct scrub *scrub, const struct version *version, struct replica *part, bool of_copy,
		 const struct error *why)
{
	note_read(scrub, part, of_copy);
	if (scrub->skipped++ == 0)
		log_warning(
			"the scrub could not read %s@%s on %s (status counts what else it can't in this pass): %s",
			model_name(version->model), version->tag, part->device->id, why->message);
}

/* While the version of the part is still there. */
static void part_ended(struct scrub *scrub, const struct job *job, const struct error *error)
{
	struct version *version = job->reads;
	struct replica *part = &version->replicas[job->replica];
	const bool of_copy = verify_job_of(job)->of_copy;
	bool gave_way;

	if (!scrub || scrub->job != job)
		return;
	gave_way = scrub->gives_way && error && error->code == -ECANCELED;
	scrub->job = NULL;
	scrub->gives_way = false;
	if (gave_way)
		return;
	note_read(scrub, part, of_copy);
	if (error && error->code != -EBADMSG && version->state == VERSION_READY)
		skip(scrub, version, part, of_copy, error);
}

static void scrub_job_end(struct work *work, struct job *job, const struct error *error)
{
	part_ended(work->scrub, job, error);
	verify_end(work, job, error);
}

static const struct job_actions scrub_job = {
	.size = sizeof(struct verify_job),
	.is_of_part = true,
	.put = verify_put,
	.begin = verify_begin,
	.end = scrub_job_end,
};

/* -EAGAIN: there is no room for its context now. */
static int begin_part(struct scrub *scrub, struct version *version, uint32_t position, bool of_copy,
		      struct error *error)
{
	struct work *work = scrub->work;
	const struct replica *part = &version->replicas[position];
	struct budget_charge context;
	struct job *job;
	int r = budget_charge_context(of_copy ? part->spares_on : part->lies_on, &context, error);

	if (r < 0)
		return r;
	budget_release(&context); /* there is room for it now: that is all that was asked */
	if (of_copy)
		r = verify_new_of_copy(work, version, position, geteuid(), &job, error);
	else
		r = verify_new(work, version, position, geteuid(), &job, error);
	if (r < 0)
		return r;
	job->is_routine = true;
	job->actions = &scrub_job;
	verify_job_of(job)->chunk = SCRUB_CHUNK_BYTES;
	verify_job_of(job)->permille = (uint32_t)work->config->scrub_duty * 10;
	r = job_charge_contexts(job, NULL, error);
	if (r < 0)
		job_drop(&work->jobs, job);
	else
		scrub->job = job;
	return r;
}

/* True: nothing more has to be looked at now. */
static bool look_at_part(struct scrub *scrub, struct version *version, uint32_t position, bool *later)
{
	struct replica *part = &version->replicas[position];
	const bool of_copy = part->scrubbed == scrub->pass;
	struct error error;
	int r;

	if (of_copy && (!part->spares || part->copy_scrubbed == scrub->pass))
		return false;
	r = begin_part(scrub, version, position, of_copy, &error);
	if (r == -EAGAIN)
		*later = true;
	else if (r < 0)
		skip(scrub, version, part, of_copy, &error);
	return r == 0;
}

struct job *scrub_next(struct scrub *scrub)
{
	struct version *version = NULL;
	bool later = false;

	if (!scrub || !scrub->running || scrub->job || scrub->work->draining)
		return NULL;
	while ((version = registry_next_version(scrub->work->ledger->registry, NULL, version))) {
		const bool is_here = tier_has_memory(version->tier) && version->moving_to == version->tier;

		/* What is known to be damaged needs no proof. What has no name is gone soon, and nobody has checked an index of given
		 * memory: each one that can't be read would be a failed job of every pass. */
		if (version->state != VERSION_READY || !is_here || version->tainted ||
		    version_is_nameless(version))
			continue;
		for (uint32_t i = 0; i < version->replica_count; i++) {
			if (look_at_part(scrub, version, i, &later))
				return scrub->job;
		}
	}
	if (later)
		return NULL;
	scrub->running = false;
	scrub->passes++;
	scrub->last_ms = clock_wall_ms();
	scrub->work->ledger->scrub_from_ms = scrub->begun_ms;
	keeping_save(scrub->work->keeping);
	return NULL;
}

bool scrub_waits(const struct scrub *scrub)
{
	return scrub && scrub->running && !scrub->job;
}

void scrub_give_way(struct scrub *scrub)
{
	struct error reason;

	if (!scrub || !scrub->job || scrub->gives_way)
		return;
	scrub->gives_way = true;
	error_set(&reason, -ECANCELED, NULL, "the scrub gives way to other jobs");
	job_cancel(scrub->work, scrub->job, &reason);
}

struct scrub_told scrub_tell(const struct scrub *scrub)
{
	return (struct scrub_told){
		.passes = scrub->passes,
		.last_ms = scrub->last_ms ? &scrub->last_ms : NULL,
		.running = scrub->running,
		.skipped = scrub->skipped,
	};
}
