#include "methods.h"
#include "../base/clock.h"
#include "../work/loader.h"
#include "../work/losses.h"
#include "../ledger/closing.h"
#include "../work/sharing.h"
#include "../work/versions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- hello and devices ---- */

static int take_device(struct server *server, const msgpack_object *object, struct error *error)
{
	struct device device = {0};
	struct fields f;
	char kind[16];
	int r;

	fields_of(&f, object);
	fields_text(&f, "device", device.id, sizeof(device.id));
	fields_text(&f, "kind", kind, sizeof(kind));
	fields_text(&f, "name", device.name, sizeof(device.name));
	device.total = fields_u64(&f, "total");
	device.free = fields_u64_or(&f, "free", 0);
	device.granularity = fields_u64(&f, "granularity");
	device.context = fields_u64_or(&f, "context", 0);
	r = params_check(&f, error);
	if (r < 0)
		return r;
	device.kind = memory_kind_find(kind);
	if (!device.kind)
		return error_set(error, -EINVAL, "use gpuwm-loader and gpuwmd of one release",
				 "the device %s is of the unknown kind \"%s\"", device.id, kind);
	/* Without NVML, and of a GPU that is lost, a loader does not know what is free. */
	r = device_table_report(&server->ledger.devices, &device,
				fields_have(&f, "free") ? clock_steady_ms() : 0);
	return r < 0 ? error_set(error, r, NULL, "the device %s was not taken: %s", device.id, strerror(-r))
		     : 0;
}

static int take_devices(struct server *server, struct fields *params, struct error *error)
{
	uint32_t count;
	const msgpack_object *devices = fields_array(params, "devices", &count);
	int r = params_check(params, error);

	for (uint32_t i = 0; r == 0 && i < count; i++)
		r = take_device(server, &devices[i], error);
	return r;
}

/* Of devices that gpuwmd told the loader. */
static int take_lost(struct server *server, struct fields *params, struct error *error)
{
	uint32_t count = 0;
	const msgpack_object *lost = fields_have(params, "lost") ? fields_array(params, "lost", &count) : NULL;
	int r = params_check(params, error);

	for (uint32_t i = 0; r == 0 && i < count; i++) {
		char id[DEVICE_BYTES_MAX + 1];
		struct device *device;
		struct error why = {0};
		struct fields f;

		fields_of(&f, &lost[i]);
		fields_text(&f, "device", id, sizeof(id));
		fields_error(&f, "error", &why);
		r = params_check(&f, error);
		device = r == 0 ? device_find(&server->ledger.devices, id) : NULL;
		if (device && device->kind->is_gpu)
			losses_note(&server->work, device, &why);
	}
	return r;
}

static int take_back(struct server *server, struct fields *params, struct error *error)
{
	uint32_t count = 0;
	const msgpack_object *back = fields_have(params, "back") ? fields_array(params, "back", &count) : NULL;

	for (uint32_t i = 0; i < count; i++) {
		char id[DEVICE_BYTES_MAX + 1];
		struct device *device;

		fields_text_at(params, &back[i], "back", id, sizeof(id));
		device = params->error.code ? NULL : device_find(&server->ledger.devices, id);
		if (device)
			losses_end(&server->work, device);
	}
	return params_check(params, error);
}

static int introduce(struct request *request, struct fields *params, struct error *error)
{
	struct loader *loader = request->session->client->loader;
	uint64_t pid = fields_u64_or(params, "pid", 0), position = fields_u64_or(params, "pidfd", 0);
	int pidfd = -1, r = params_check(params, error);

	if (r < 0 || !loader)
		return r;
	if (fields_have(params, "pidfd") && packet_take_fd(request->packet, position, &pidfd) < 0)
		return error_set(error, -EBADMSG, NULL, "the pidfd came without its descriptor");
	r = loader_introduce(loader, pid, pidfd);
	return r < 0 ? error_set(error, r, NULL, "the pidfd can't be watched: %s", strerror(-r)) : 0;
}

int method_loader_hello(struct request *request, void *params, struct error *error)
{
	struct session *session = request->session;
	uint64_t min = fields_u64(params, "protocol_min"), max = fields_u64(params, "protocol_max");
	struct message_writer w;
	int r = params_check(params, error);

	if (r == 0 && (min > PROTOCOL_MAX || max < PROTOCOL_MIN))
		r = error_set(error, -EPROTONOSUPPORT, "use gpuwm-loader and gpuwmd of one release",
			      "the loader speaks protocol %llu to %llu, gpuwmd %d to %d",
			      (unsigned long long)min, (unsigned long long)max, PROTOCOL_MIN, PROTOCOL_MAX);
	if (r == 0)
		r = take_devices(request->server, params, error);
	if (r == 0)
		r = introduce(request, params, error);
	if (r < 0)
		return r;
	session->client->greeted = true;
	request_result(request, &w);
	message_put_u64(&w, "protocol", max < PROTOCOL_MAX ? max : PROTOCOL_MAX);
	put_version_id(&w, "instance", &request->server->instance);
	device_table_put(&w, &request->server->ledger.devices);
	request_answer(request, &w);
	if (session->client->loader)
		loader_is_standby(session->client->loader);
	return 0;
}

int method_loader_devices(struct request *request, void *params, struct error *error)
{
	struct server *server = request->server;
	int r = take_devices(server, params, error);

	if (r == 0)
		r = take_lost(server, params, error);
	return r < 0 ? r : take_back(server, params, error);
}

int method_loader_warm(struct request *request, void *params, struct error *error)
{
	struct error failed = {0};
	int r;

	if (fields_have(params, "error"))
		fields_error(params, "error", &failed);
	r = params_check(params, error);
	if (r == 0 && request->session->client->loader)
		loader_is_warm(request->session->client->loader, failed.code ? &failed : NULL);
	return r;
}

/* ---- the job ---- */

static int current_job(const struct request *request, struct job **ret, struct error *error)
{
	const struct session *session = request->session;
	struct job *job = session->client->loader ? loader_job(session->client->loader) : NULL;

	if (!job)
		return error_set(error, -EINVAL, NULL, "this loader has no job");
	*ret = job;
	return 0;
}

int method_loader_progress(struct request *request, void *params, struct error *error)
{
	uint64_t done = fields_u64(params, "done"), total = fields_u64(params, "total");
	char phase[JOB_PHASE_BYTES + 1], note[TEXT_BYTES_MAX + 1];
	struct job *job = NULL;
	int r;

	fields_text(params, "phase", phase, sizeof(phase));
	fields_text_or(params, "note", note, sizeof(note), "");
	r = params_check(params, error);
	if (r == 0)
		r = current_job(request, &job, error);
	if (r < 0)
		return r;
	loader_has_begun(request->session->client->loader);
	job_progress(&request->server->work, job, phase, done, total);
	if (note[0])
		job_remark(&request->server->work, job, note);
	return 0;
}

int method_loader_resident(struct request *request, void *params, struct error *error)
{
	char device[DEVICE_BYTES_MAX + 1];
	const struct replica *replica = NULL;
	uint64_t rank = fields_u64(params, "rank");
	int fds[PACKET_FDS_MAX];
	struct message_writer w;
	struct job *job = NULL;
	struct part part;
	size_t fd_count;
	int r;

	fields_text(params, "device", device, sizeof(device));
	r = params_check(params, error);
	if (r == 0)
		r = current_job(request, &job, error);
	if (r == 0)
		r = sharing_part(job, rank, device, &replica, error);
	if (r < 0)
		return r;
	replica_list(replica, &part);
	request_result(request, &w);
	fd_count = part_write(&w, &part, fds);
	request_answer_lease(request, &w, fds, fd_count, 0);
	return 0;
}

/* A dry run ends with a plan, or failed. */
static int take_plan(struct fields *params, struct job *job, struct error *failed, struct error *error)
{
	if (!job->dry_run || failed->code)
		return 0;
	if (fields_have(params, "plan"))
		return job_plan_take(job, fields_map(params, "plan"), &job->plan, error);
	error_set(failed, -EIO, "use gpuwm-loader and gpuwmd of one release",
		  "gpuwm-loader ended the dry run without a plan");
	return 0;
}

int method_loader_done(struct request *request, void *params, struct error *error)
{
	struct server *server = request->server;
	struct loader *loader = request->session->client->loader;
	struct error failed = {0};
	struct message_writer w;
	struct fields inner;
	bool keeps, stays;
	char code[32];
	struct job *job = NULL;
	int r = current_job(request, &job, error);

	if (r < 0)
		return r;
	if (fields_have(params, "error")) {
		fields_of(&inner, fields_map(params, "error"));
		fields_text(&inner, "code", code, sizeof(code));
		fields_text(&inner, "message", failed.message, sizeof(failed.message));
		fields_text_or(&inner, "detail", failed.detail, sizeof(failed.detail), "");
		failed.code = error_code(code);
	}
	keeps = fields_bool_or(params, "keeps", false);
	job->found_segment = fields_have(params, "segment");
	job->damaged_segment = (uint32_t)fields_u64_or(params, "segment", 0);
	r = params_check(params, error);
	if (r == 0)
		r = take_plan(params, job, &failed, error);
	if (r < 0)
		return r;
	stays = keeps && !failed.code && loader_may_stay(loader);
	request_result(request, &w);
	if (stays)
		message_put_bool(&w, "stay", true);
	request_answer(request, &w);
	job_end(&server->work, job, failed.code ? &failed : NULL);
	stays ? loader_stays(loader) : loader_is_leaving(loader);
	loader_pool_report(server->work.loaders);
	loader_pool_turn(server->work.loaders);
	return 0;
}

/* ---- checked ---- */

struct checked {
	struct version_id publish;
	char device[DEVICE_BYTES_MAX + 1];
	uint64_t rank;
	struct publish_checked what;
	struct sharing_pair pairs[PART_SEGMENTS_MAX]; /* segments that are another version's */
	uint32_t pair_count;
};

/* What has not moved into the version. */
static void drop(struct server *server, const struct part *part)
{
	int fds[PART_SEGMENTS_MAX + 1] = {part->index.fd};

	for (uint32_t i = 0; i < part->segment_count; i++)
		fds[i + 1] = part->segments[i].fd;
	closing_fds(&server->loop, fds, part->segment_count + 1);
}

/* Errors stick to the params. */
static void read_pairs(struct fields *params, struct checked *checked)
{
	uint32_t count = 0;
	const msgpack_object *array =
		fields_have(params, "shared") ? fields_array(params, "shared", &count) : NULL;

	if (count > PART_SEGMENTS_MAX)
		error_set(&params->error, -EINVAL, NULL, "%u shared segments; a part has at most %d", count,
			  PART_SEGMENTS_MAX);
	for (uint32_t i = 0; i < count && !params->error.code; i++) {
		uint64_t to, from;
		struct fields f;

		fields_of(&f, &array[i]);
		to = fields_u64(&f, "segment");
		from = fields_u64(&f, "resident");
		checked->pairs[checked->pair_count++] =
			(struct sharing_pair){to < UINT32_MAX ? (uint32_t)to : UINT32_MAX,
					      from < UINT32_MAX ? (uint32_t)from : UINT32_MAX};
		if (f.error.code)
			params->error = f.error;
	}
}

static int checked_fields(struct request *request, struct fields *params, struct checked *checked,
			  struct error *error)
{
	struct publish_checked *what = &checked->what;

	fields_hex128(params, "publish", checked->publish.bytes);
	fields_text(params, "device", checked->device, sizeof(checked->device));
	checked->rank = fields_u64(params, "rank");
	fields_hex128(params, "content", what->content.bytes);
	fields_hex128(params, "layout", what->layout.bytes);
	what->tensors = fields_u64(params, "tensors");
	part_read(params, request->packet, &what->part);
	read_pairs(params, checked);
	if (params->error.code)
		*error = params->error;
	return params->error.code;
}

/* A loader speaks for its own job only. */
static int find_part(struct server *server, const struct job *job, const struct checked *checked,
		     struct publish **ret_publish, struct publish_part **ret_part, struct error *error)
{
	struct publish *publish = publish_find(server->ledger.publishes, &checked->publish);
	const struct device *device = device_find(&server->ledger.devices, checked->device);
	struct publish_part *part = NULL;

	if (publish && device && checked->rank < PARTS_PER_VERSION_MAX)
		part = publish_part_find(publish, (uint32_t)checked->rank, device);
	if (!part || (part->checker != job && part->publisher != job))
		return error_set(error, -ENOENT, "it failed, was aborted, or is another loader's",
				 "no such part to hand in");
	*ret_publish = publish;
	*ret_part = part;
	return 0;
}

static int hand_over(struct server *server, struct job *job, struct checked *checked, struct error *error)
{
	struct publish *publish = NULL;
	struct publish_part *part = NULL;
	int r = find_part(server, job, checked, &publish, &part, error);

	if (r < 0)
		return r;
	if (job->kind == JOB_LOAD)
		r = publish_commit(publish, part, job, &checked->what.content, error);
	if (r == 0 && checked->pair_count > 0)
		r = sharing_take(job, checked->device, checked->rank, checked->pairs, checked->pair_count,
				 &checked->what, error);
	if (r == 0)
		r = publish_checked(server->ledger.registry, publish, part, &checked->what, error);
	if (r < 0) {
		versions_fail(&server->work, publish, error, NULL);
		return r;
	}
	server->work.room_came = true; /* what was granted and is not needed, or is shared */
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

int method_loader_checked(struct request *request, void *params, struct error *error)
{
	struct server *server = request->server;
	struct checked checked = {0};
	struct waiter *waiter = NULL;
	struct job *job = NULL;
	int r = current_job(request, &job, error);

	if (r == 0)
		r = waiter_new(request, WAIT_STORED, -1, wake_stored, &waiter, error);
	if (r < 0)
		return r;
	r = checked_fields(request, params, &checked, error);
	waiter->id = checked.publish;
	if (r == 0)
		r = hand_over(server, job, &checked, error);
	drop(server, &checked.what.part);
	if (r < 0)
		waiter_free(waiter);
	else
		wake_stored(waiter, NULL, false);
	return r < 0 ? r : 0;
}
