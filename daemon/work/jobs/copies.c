#include "copies.h"
#include "../versions/leases.h"
#include "../loaders/loader.h"
#include "../versions/versions.h"
#include "../../../base/clock.h"

#include <errno.h>
#include <string.h>

/* ---- the job of one: a loader makes it in memory of cuMemAlloc, and stays as long as the copy is needed ---- */

struct hold_job {
	struct job job;
	struct ipc_copy *copy; /* NULL: it has ended */
};

/* Returns the copy that the job makes, or NULL. */
static struct ipc_copy *copy_of(const struct job *job)
{
	return job->kind == JOB_HOLD ? ((const struct hold_job *)job)->copy : NULL;
}

static int add_job(struct work *work, struct ipc_copy *copy, struct error *error)
{
	struct version *version = copy->version;
	const struct replica *part = &version->replicas[copy->replica];
	struct job *job;
	int r = job_new(
		work, &(struct job_wish){JOB_HOLD, model_name(version->model), version->tag, copy->uid, false},
		&job, error);

	if (r < 0)
		return r;
	if (job_add_device(job, part->device) < 0) {
		job_drop(&work->jobs, job);
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	}
	job->version = version->id;
	job->reads = version;
	job->replica = copy->replica;
	job->rank = part->rank;
	job->world = version->world;
	((struct hold_job *)job)->copy = copy;
	work_later(work, LATER_TURN);
	return 0;
}

/* ---- ending ---- */

static void copy_cancel_job(struct work *work, const struct ipc_copy *copy, const struct error *why)
{
	struct job *job = work->jobs.first;

	while (job && copy_of(job) != copy)
		job = job->next;
	if (!job)
		return;
	((struct hold_job *)job)->copy = NULL;
	if (job->loader) /* it may have the memory until its process is gone */
		loader_keep(job->loader, shared_charge_use(copy->charge));
	job_cancel(work, job, why);
}

/* A lease that can't be revoked for lack of memory ends without a word. When gpuwmd stops, its holder asks the next one. */
static void revoke_leases(struct work *work, struct ipc_copy *copy)
{
	struct version *version = copy->version;
	struct lease *lease = version->leases, *next;
	struct error unused;

	for (; lease && copy->lease_count > 0; lease = next) {
		next = lease->next_of_version;
		if (lease->copy != copy)
			continue;
		if (work->net->stopping)
			ipc_copy_leave(lease, clock_steady_ms());
		else if (revoked_add(work, lease, &unused) < 0)
			leases_end(work, lease);
	}
	versions_free_unused(work, version);
}

/* The pointer is invalid then. Of a copy that was being filled, those who wait are woken and refused. Its holder ends, if it is there. */
static void end_copy(struct work *work, struct ipc_copy *copy, const struct error *why)
{
	const uint64_t leases = copy->lease_count;

	if (leases > 0 && copy->state != COPY_FILLING && !work->net->stopping)
		log_warning("the copy of %s@%s for uid %u is gone (leases: %llu): %s",
			    model_name(copy->version->model), copy->version->tag, (unsigned)copy->uid,
			    (unsigned long long)leases, why->message);
	copy->state = COPY_ENDED;
	copy->error = *why;
	copy_cancel_job(work, copy, why);
	waiters_wake(work->clients, WAIT_COPY, NULL);
	revoke_leases(work, copy);
	loader_let_go(work->loaders, copy);
	ipc_copy_free(&work->ledger->copies, copy);
	work_later(work, LATER_ROOM);
	if (leases > 0)
		revoked_tell(work, why->message, NULL);
}

/* ---- its job ---- */

int copies_filled(struct job *job, struct ipc_handle *handles, uint32_t count, const struct ipc_handle *event,
		  struct error *error)
{
	struct ipc_copy *copy = copy_of(job);

	if (!copy)
		return error_set(error, -ECANCELED, NULL, "nobody waits for the copy any more");
	if (count != copy->version->replicas[copy->replica].segment_count)
		return error_set(error, -EINVAL, NULL, "the copy has %u segments, its part has %u", count,
				 copy->version->replicas[copy->replica].segment_count);
	copy->handles = handles;
	copy->event = *event;
	return 0;
}

bool copies_job_filled(const struct job *job)
{
	const struct ipc_copy *copy = copy_of(job);

	return copy && copy->handles;
}

/* If the job succeeded (`error` is NULL), its loader becomes the holder, and sessions that wait with WAIT_COPY are woken. Else the copy
 * ends. */
static void conclude_copy(struct work *work, struct job *job, const struct error *error)
{
	struct ipc_copy *copy = copy_of(job);
	struct loader *maker = loader_of(work->loaders, job);
	struct error unfinished;

	((struct hold_job *)job)->copy = NULL;
	if (!copy)
		return;
	if (!error && !copy->handles)
		error_set(&unfinished, -EIO, "use gpuwm-loader and gpuwmd of one release",
			  "gpuwm-loader ended its job without the copy");
	if (!error && copy->handles) {
		copy->state = COPY_READY;
		loader_holds(maker, copy);
		waiters_wake(work->clients, WAIT_COPY, NULL);
		return;
	}
	if (maker) /* it may still have the memory */
		loader_keep(maker, shared_charge_use(copy->charge));
	end_copy(work, copy, error ? error : &unfinished);
}

static size_t job_hold_put(struct message_writer *w, const struct job *job, const struct config *config,
			   int ret_fds[PACKET_FDS_MAX])
{
	const struct replica *replica = &job->reads->replicas[job->replica];
	struct part part;

	(void)config;
	record_put(w, form_job_hold.params,
		   &(struct job_hold_params){
			   .model = job->model,
			   .tag = job->tag,
			   .place = {job->rank, job->world, replica->device->id},
		   });
	replica_list(replica, &part);
	return part_write(w, &part, ret_fds);
}

/* The loader reads the version until it has copied it. */
static bool job_hold_begin(struct job *job)
{
	job->reads->readers++;
	return false;
}

static void job_hold_end(struct work *work, struct job *job, const struct error *error)
{
	struct version *version = job->reads;
	const bool has_begun = job->loader;

	job->reads = NULL;
	conclude_copy(work, job, error);
	if (!has_begun)
		return;
	version->readers--;
	versions_free_unused(work, version);
}

const struct job_actions job_hold = {
	.size = sizeof(struct hold_job),
	.is_of_part = true,
	.put = job_hold_put,
	.begin = job_hold_begin,
	.end = job_hold_end,
};

/* ---- idle ones, and making one ---- */

/* The first copy from this one on that is idle, or NULL. */
static struct ipc_copy *next_idle(struct ipc_copy *copy)
{
	while (copy && copy->lease_count > 0)
		copy = copy->next;
	return copy;
}

static void end_idle(struct work *work, struct ipc_copy *copy)
{
	struct error why;

	error_set(&why, -ECANCELED, NULL, "nobody has a lease of the copy");
	end_copy(work, copy, &why);
}

/* Whether the idle copy is in the way of another one of this user on the device, which was refused with `code`. */
static bool is_in_the_way(const struct work *work, const struct ipc_copy *copy, const struct device *device,
			  uid_t uid, int code)
{
	if (code == -ENOSPC)
		return ipc_copy_device(copy) == device;
	return code == -EDQUOT && (copy->uid == uid || work->ledger->copies.count >= COPIES_MAX);
}

static bool end_those_in_the_way(struct work *work, const struct device *device, uid_t uid, int code)
{
	struct ipc_copy *copy = work->ledger->copies.first, *next;
	bool any = false;

	for (; (copy = next_idle(copy)); copy = next) {
		next = copy->next;
		if (!is_in_the_way(work, copy, device, uid, code))
			continue;
		end_idle(work, copy);
		any = true;
	}
	return any;
}

int copies_make(struct work *work, struct version *version, uint32_t replica, uid_t uid,
		struct ipc_copy **ret_copy, struct error *error)
{
	struct ipc_copy_table *table = &work->ledger->copies;
	struct device *device = version->replicas[replica].device;
	struct ipc_copy *copy;
	int r = ipc_copy_add(table, version, replica, uid, &copy, error);

	if (r < 0 && end_those_in_the_way(work, device, uid, r))
		r = ipc_copy_add(table, version, replica, uid, &copy, error);
	if (r < 0)
		return r;
	r = add_job(work, copy, error);
	if (r < 0)
		ipc_copy_free(table, copy);
	else
		*ret_copy = copy;
	return r;
}

void copies_lose(struct work *work)
{
	struct ipc_copy *copy = work->ledger->copies.first;
	struct error why;

	while (copy) {
		if (copy->state == COPY_READY && device_check_there(ipc_copy_device(copy), &why) < 0) {
			loader_fail_copy(work->loaders, copy, &why);
			copy = work->ledger->copies.first;
		} else {
			copy = copy->next;
		}
	}
}

static bool is_awaited(const struct work *work, const struct device *device)
{
	for (const struct waiter *w = work->clients->waiters[WAIT_ROOM]; w; w = w->next) {
		if (strcmp(w->device, device->id) == 0)
			return true;
	}
	for (const struct job *job = work->jobs.first; job; job = job->next) {
		if (job_is_crowded_on(job, device))
			return true;
	}
	return false;
}

void copies_give_way(struct work *work)
{
	struct ipc_copy *copy = work->ledger->copies.first, *next;

	for (; (copy = next_idle(copy)); copy = next) {
		next = copy->next;
		if (is_awaited(work, ipc_copy_device(copy)))
			end_idle(work, copy);
	}
}

static void on_due(uv_timer_t *timer)
{
	struct work *work = timer->data;

	work_later(work, LATER_COPIES);
}

void copies_settle(struct work *work)
{
	struct ipc_copy *copy = work->ledger->copies.first, *next;
	const uint64_t now = clock_steady_ms();
	uint64_t wait = UINT64_MAX;

	if (!work_is_due(work, LATER_COPIES) || work->net->stopping)
		return;
	work_done(work, LATER_COPIES);
	for (; copy; copy = next) {
		const struct error why = copy->error;

		next = copy->next;
		if (copy->state == COPY_LOST)
			end_copy(work, copy, &why);
	}
	/* For those whose lease was revoked meanwhile. */
	waiters_wake(work->clients, WAIT_COPY, NULL);
	copy = work->ledger->copies.first;
	for (; (copy = next_idle(copy)); copy = next) {
		const struct version *version = copy->version;
		const uint64_t due = copy->idle_ms + 1000 * work->config->keep_copy_s;

		next = copy->next;
		/* A copy that nobody waits for any more is not filled, and none stays on a device that its version has left. */
		if (due <= now || copy->state == COPY_FILLING || version->freeing ||
		    !version_is_resident(version))
			end_idle(work, copy);
		else if (due - now < wait)
			wait = due - now;
	}
	uv_timer_stop(&work->copies_timer);
	if (wait < UINT64_MAX)
		uv_timer_start(&work->copies_timer, on_due, wait, 0);
}
