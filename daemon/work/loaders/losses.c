#include "loader.h"
#include "../../restart/keeping.h"
#include "../jobs/copies.h"
#include "../regions/regions.h"
#include "../../../service/log.h"
#include "../work.h"
#include "../versions/versions.h"
#include "../../../proto/wire/messages.h"

void losses_note(struct work *work, struct device *device, const struct error *why)
{
	if (device->lost.code)
		return;
	error_set(&device->lost, -ENODEV, why->detail, "%s", why->message);
	log_error("%s is lost: %s", device->id, why->message);
	event_emit(work->ledger->events, &event_device_lost, &(struct device_event){device->id, &device->lost},
		   NULL);
	versions_lose(work, device);
	regions_end_all(work, device, &device->lost);
	work_later(work, LATER_LOSSES);
	work_later(work, LATER_ROOM); /* who waits for room there waits in vain */
	work_later(work, LATER_REPORT);
}

void losses_end(struct work *work, struct device *device)
{
	if (!device->lost.code)
		return;
	device->lost = (struct error){0};
	log_info("%s can be used again; versions that were lost with it stay tainted", device->id);
	keeping_save(work->keeping);
	event_emit(work->ledger->events, &event_device_back, &(struct device_event){device->id, NULL}, NULL);
	work_later(work, LATER_LOSSES);
	work->standbys_stale = true;
}

static const struct device *lost_of(const struct job *job)
{
	for (size_t i = 0; i < job->device_count; i++) {
		if (job->devices[i]->lost.code)
			return job->devices[i];
	}
	return NULL;
}

/* A job that has not ended and needs a lost device. One whose loader has gone waits for the fd store. */
static struct job *losses_next_job(struct work *work)
{
	struct job *job = work->jobs.first;

	while (job && (job_ended(job) || (job->state == JOB_RUNNING && !job->loader) || !lost_of(job)))
		job = job->next;
	return job;
}

/* A loader may hang in a call to a GPU that is lost, so it is killed. Each end may end or forget others. */
static void end_jobs(struct work *work)
{
	struct error why;
	struct job *job;

	while ((job = losses_next_job(work))) {
		device_check_there(lost_of(job), &why);
		if (job->loader)
			loader_fail(job->loader, &why);
		else
			job_end(work, job, &why);
	}
}

void losses_settle(struct work *work)
{
	if (!work_is_due(work, LATER_LOSSES) || work->net->stopping)
		return;
	work_done(work, LATER_LOSSES);
	end_jobs(work);
	copies_lose(work);
	versions_fail_lost(work);
	if (work->standbys_stale)
		loader_pool_renew(work->loaders);
	else
		loader_pool_turn(work->loaders); /* contexts on lost GPUs are not kept */
	work->standbys_stale = false;
}
