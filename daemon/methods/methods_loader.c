#include "methods.h"
#include "../../base/clock.h"
#include "../config/roots.h"
#include "../work/loaders/loader.h"
#include "../work/tiers/departures.h"
#include "../ledger/closing.h"
#include "../work/versions/sharing.h"
#include "../work/jobs/copies.h"
#include "../work/jobs/job_load.h"
#include "../work/versions/versions.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- hello and devices ---- */

static int take_device(struct server *server, const struct device_found *found, struct error *error)
{
	struct device device = {.total = found->total,
				.free = found->free ? *found->free : 0,
				.granularity = found->granularity,
				.context = found->context,
				.kind = memory_kind_find(found->kind)};
	int r;

	snprintf(device.id, sizeof(device.id), "%s", found->device);
	snprintf(device.name, sizeof(device.name), "%s", found->name);
	if (!device.kind)
		return error_set(error, -EINVAL, "use gpuwm-loader and gpuwmd of one release",
				 "the device %s is of the unknown kind \"%s\"", device.id, found->kind);
	/* Without NVML, and of a GPU that is lost, a loader does not know what is free. */
	r = device_table_report(&server->ledger.devices, &device, found->free ? clock_steady_ms() : 0);
	return r < 0 ? error_set(error, r, NULL, "the device %s was not taken: %s", device.id, strerror(-r))
		     : 0;
}

static int take_devices(struct server *server, const struct device_found *found, uint32_t count,
			struct error *error)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < count; i++)
		r = take_device(server, &found[i], error);
	departures_reported(&server->work);
	return r;
}

int method_loader_hello(struct request *request, const void *given, struct error *error)
{
	const struct loader_hello_params *params = given;
	const uint64_t min = params->protocol_min, max = params->protocol_max;
	struct server *server = request->server;
	struct client *client = request->session->client;
	struct device_known known[DEVICES_MAX];
	int pidfd = -1, r;

	if (min > PROTOCOL_MAX || max < PROTOCOL_MIN)
		return error_set(error, -EPROTONOSUPPORT, "use gpuwm-loader and gpuwmd of one release",
				 "the loader speaks protocol %llu to %llu, gpuwmd " GPUWM_VERSION
				 " speaks %d to %d",
				 (unsigned long long)min, (unsigned long long)max, PROTOCOL_MIN, PROTOCOL_MAX);
	r = take_devices(server, params->devices.items, params->devices.count, error);
	if (r < 0)
		return r;
	if (client->loader) {
		if (params->pidfd && packet_take_fd(request->packet, *params->pidfd, &pidfd) < 0)
			return error_set(error, -EBADMSG, NULL, "the pidfd came without its descriptor");
		r = loader_introduce(client->loader, params->pid ? *params->pid : 0, pidfd);
		if (r < 0)
			return error_set(error, r, NULL, "the pidfd can't be watched: %s", strerror(-r));
	}
	client->greeted = true;
	request_tell(request, &(struct loader_hello_result){
				      .protocol = max < PROTOCOL_MAX ? max : PROTOCOL_MAX,
				      .instance = &server->instance,
				      .devices = {known, device_table_known(&server->ledger.devices, known)},
				      .roots = {(const char *const *)server->config->roots,
						roots_to_judge(server->config)},
			      });
	if (client->loader)
		loader_is_standby(client->loader);
	return 0;
}

int method_loader_roots(struct request *request, const void *given, struct error *error)
{
	const struct loader_roots_params *params = given;
	const struct loader *loader = request->session->client->loader;
	int r = roots_take(request->server->roots, loader ? loader_pid(loader) : 0, params->roots.items,
			   params->roots.count);

	return r < 0 ? error_set(error, r, NULL, "gpuwmd is out of memory") : 0;
}

int method_loader_devices(struct request *request, const void *given, struct error *error)
{
	const struct loader_devices_params *params = given;
	struct server *server = request->server;
	int r = take_devices(server, params->devices.items, params->devices.count, error);

	if (r < 0)
		return r;
	/* Of devices that gpuwmd told the loader. */
	for (uint32_t i = 0; i < params->lost.count; i++) {
		struct device *device = device_find(&server->ledger.devices, params->lost.items[i].device);

		if (device && device->kind->is_gpu)
			losses_note(&server->work, device, params->lost.items[i].error);
	}
	for (uint32_t i = 0; i < params->back.count; i++) {
		struct device *device = device_find(&server->ledger.devices, params->back.items[i]);

		if (device)
			losses_end(&server->work, device);
	}
	return 0;
}

int method_loader_warm(struct request *request, const void *given, struct error *error)
{
	const struct loader_warm_params *params = given;
	struct loader *loader = request->session->client->loader;

	(void)error;
	if (loader)
		loader_is_warm(loader, params->error);
	return 0;
}

/* ---- the job ---- */

/* A loader that says something of its job has begun it. */
int current_job(const struct request *request, struct job **ret, struct error *error)
{
	const struct session *session = request->session;
	struct job *job = session->client->loader ? loader_job(session->client->loader) : NULL;

	if (!job)
		return error_set(error, -EINVAL, NULL, "this loader has no job");
	loader_has_begun(session->client->loader);
	*ret = job;
	return 0;
}

int method_loader_progress(struct request *request, const void *given, struct error *error)
{
	const struct loader_progress_params *params = given;
	struct work *work = &request->server->work;
	struct job *job = NULL;
	int r = current_job(request, &job, error);

	if (r < 0)
		return r;
	job_progress(work, job, params->phase, params->done, params->total);
	if (params->note && params->note[0])
		job_remark(work, job, params->note);
	return 0;
}

int method_loader_resident(struct request *request, const void *given, struct error *error)
{
	const struct loader_resident_params *params = given;
	const struct replica *replica = NULL;
	int fds[PACKET_FDS_MAX];
	struct message_writer w;
	struct job *job = NULL;
	struct part part;
	size_t fd_count;
	int r = current_job(request, &job, error);

	if (r == 0)
		r = sharing_part(job, params->rank, params->device, &replica, error);
	if (r < 0)
		return r;
	replica_list(replica, &part);
	request_result(request, &w);
	fd_count = part_write(&w, &part, fds);
	r = request_copy_fds(fds, fd_count, error);
	if (r == 0)
		request_answer_fds(request, &w, fds, fd_count);
	else
		message_writer_clear(&w);
	return r;
}

/* A loader that stood by has the groups and the roots of its start, and an operator may just have given it others. */
static bool is_for_a_fresh_loader(const struct job *job, int code)
{
	return code == -EACCES && job->kind == JOB_LOAD && !job->holds_socket && !job_has_version(job) &&
	       !job->cancelled && job->given_back < LOAD_AGAIN_MAX;
}

/* A dry run ends with a plan, or fails: then *ret_failed says why. */
static int take_plan(struct job *job, const struct plan_params *plan, struct error *ret_failed,
		     struct error *error)
{
	if (plan)
		return job_plan_take(load_job_of(job), plan, error);
	error_set(ret_failed, -EIO, "use gpuwm-loader and gpuwmd of one release",
		  "gpuwm-loader ended the dry run without a plan");
	return 0;
}

int method_loader_done(struct request *request, const void *given, struct error *error)
{
	const struct loader_done_params *params = given;
	struct server *server = request->server;
	struct loader *loader = request->session->client->loader;
	struct error failed = {0};
	struct job *job = NULL;
	bool stays, holds;
	int r = current_job(request, &job, error);

	if (r < 0)
		return r;
	if (params->error)
		failed = *params->error;
	job->found_segment = params->segment;
	/* No part has as many. */
	job->damaged_segment =
		params->segment && *params->segment < UINT32_MAX ? (uint32_t)*params->segment : UINT32_MAX;
	if (job->dry_run && !failed.code)
		r = take_plan(job, params->plan, &failed, error);
	if (r < 0)
		return r;
	holds = !failed.code && copies_job_filled(job);
	stays = job->kind != JOB_HOLD && params->keeps && !failed.code && loader_may_stay(loader);
	request_tell(request, &(struct loader_done_result){stays || holds});
	if (is_for_a_fresh_loader(job, failed.code)) {
		log_info("job %llu goes to a fresh loader, once: %s", (unsigned long long)job->id,
			 failed.message);
		job_again(&server->work, job);
		loader_is_leaving(loader);
		loader_pool_renew(server->work.loaders);
		return 0;
	}
	job_end(&server->work, job, failed.code ? &failed : NULL);
	if (stays)
		loader_stays(loader);
	else if (!holds)
		loader_is_leaving(loader);
	loader_pool_report(server->work.loaders);
	loader_pool_turn(server->work.loaders);
	return 0;
}

/* ---- checked ---- */

/* What has not moved into the version. */
void part_drop(struct server *server, const struct part *part)
{
	int fds[PART_SEGMENTS_MAX + 1] = {part->index.fd};

	for (uint32_t i = 0; i < part->segment_count; i++)
		fds[i + 1] = part->segments[i].fd;
	closing_fds(&server->loop, fds, part->segment_count + 1);
}

static int take_checked(const struct request *request, const struct loader_checked_params *params,
			struct publish_checked *checked, struct error *error)
{
	struct fields f;

	checked->content = *params->content;
	checked->layout = *params->layout;
	checked->tensors = params->tensors;
	fields_of(&f, request->message->body);
	if (part_read(&f, request->packet, &checked->part) < 0)
		*error = f.error;
	return f.error.code;
}

/* A loader speaks for its own job only. */
static int find_part(struct server *server, const struct job *job, const struct loader_checked_params *params,
		     struct publish **ret_publish, struct publish_part **ret_part, struct error *error)
{
	struct publish *publish = publish_find(server->ledger.publishes, params->publish);
	const struct device *device = device_find(&server->ledger.devices, params->device);
	struct publish_part *part = NULL;

	if (publish && device && params->rank < PARTS_PER_VERSION_MAX)
		part = publish_part_find(publish, (uint32_t)params->rank, device);
	if (!part || (part->checker != job && part->publisher != job))
		return error_set(error, -ENOENT, "it failed, was aborted, or is another loader's",
				 "no such part to hand in");
	*ret_publish = publish;
	*ret_part = part;
	return 0;
}

static int loader_hand_over(struct server *server, struct job *job, const struct loader_checked_params *params,
			    struct publish_checked *checked, struct error *error)
{
	const struct sharing_pairs shared = {params->shared.items, params->shared.count};
	const struct replica *shared_part = NULL;
	struct publish *publish = NULL;
	struct publish_part *part = NULL;
	int r = find_part(server, job, params, &publish, &part, error);

	if (r < 0)
		return r;
	if (job->kind == JOB_LOAD)
		r = publish_commit(publish, part, job, &checked->content, error);
	if (r == 0 && shared.count > 0) {
		r = sharing_part(job, params->rank, params->device, &shared_part, error);
		if (r == 0)
			r = sharing_take(&server->work, job, shared_part, &shared, checked, error);
	}
	if (r == 0)
		r = publish_checked(server->ledger.registry, publish, part, checked, error);
	if (r < 0) {
		versions_fail(&server->work, publish, error, NULL);
		return r;
	}
	work_later(&server->work, LATER_ROOM); /* what was granted and is not needed, or is shared */
	if (!version_complete(publish->version)) {
		waiters_wake(&server->clients, WAIT_CHECKED, publish->version);
		return 0;
	}
	return versions_complete(&server->work, publish, error);
}

/* The last part's answer comes when the version is ready: a load is done then. */
static void wake_stored(struct waiter *waiter, const struct version *changed, bool expired)
{
	struct version *version = registry_by_publish(waiter->request.server->ledger.registry, &waiter->id);

	(void)changed;
	(void)expired;
	if (version && version->storing)
		return;
	if (version && version->state == VERSION_FAILED)
		request_refuse(&waiter->request, &version->error);
	else
		request_done(&waiter->request);
	waiter_free(waiter);
}

int method_loader_checked(struct request *request, const void *given, struct error *error)
{
	const struct loader_checked_params *params = given;
	struct server *server = request->server;
	struct publish_checked checked = {0};
	struct waiter *waiter = NULL;
	struct job *job = NULL;
	int r = current_job(request, &job, error);

	if (r == 0)
		r = waiter_new(request, WAIT_STORED, -1, wake_stored, &waiter, error);
	if (r < 0)
		return r;
	waiter->id = *params->publish;
	r = take_checked(request, params, &checked, error);
	if (r == 0)
		r = loader_hand_over(server, job, params, &checked, error);
	part_drop(server, &checked.part);
	if (r < 0)
		waiter_free(waiter);
	else
		wake_stored(waiter, NULL, false);
	return r < 0 ? r : 0;
}
