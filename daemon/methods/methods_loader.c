#include "methods.h"
#include "../base/clock.h"
#include "../work/loader.h"
#include "../work/losses.h"
#include "../ledger/segment.h"
#include "../work/versions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Read by hand, key by key. */
static struct fields fields_of_request(const struct request *request)
{
	struct fields given;

	fields_of(&given, request->message->body);
	return given;
}

static int check_fields(const struct fields *fields, struct error *error)
{
	if (fields->error.code)
		*error = fields->error;
	return fields->error.code;
}

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
	r = check_fields(&f, error);
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
	int r = check_fields(params, error);

	for (uint32_t i = 0; r == 0 && i < count; i++)
		r = take_device(server, &devices[i], error);
	return r;
}

/* Of devices that gpuwmd told the loader. */
static int take_lost(struct server *server, struct fields *params, struct error *error)
{
	uint32_t count = 0;
	const msgpack_object *lost = fields_have(params, "lost") ? fields_array(params, "lost", &count) : NULL;
	int r = check_fields(params, error);

	for (uint32_t i = 0; r == 0 && i < count; i++) {
		char id[DEVICE_BYTES_MAX + 1];
		struct device *device;
		struct error why = {0};
		struct fields f;

		fields_of(&f, &lost[i]);
		fields_text(&f, "device", id, sizeof(id));
		fields_error(&f, "error", &why);
		r = check_fields(&f, error);
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
	return check_fields(params, error);
}

static int introduce(struct request *request, struct fields *params, struct error *error)
{
	struct loader *loader = request->session->client->loader;
	uint64_t pid = fields_u64_or(params, "pid", 0), position = fields_u64_or(params, "pidfd", 0);
	int pidfd = -1, r = check_fields(params, error);

	if (r < 0 || !loader)
		return r;
	if (fields_have(params, "pidfd") && packet_take_fd(request->packet, position, &pidfd) < 0)
		return error_set(error, -EBADMSG, NULL, "the pidfd came without its descriptor");
	r = loader_introduce(loader, pid, pidfd);
	return r < 0 ? error_set(error, r, NULL, "the pidfd can't be watched: %s", strerror(-r)) : 0;
}

int method_loader_hello(struct request *request, const void *unread __attribute__((unused)),
			struct error *error)
{
	struct fields given = fields_of_request(request), *params = &given;
	struct session *session = request->session;
	uint64_t min = fields_u64(params, "protocol_min"), max = fields_u64(params, "protocol_max");
	struct message_writer w;
	int r = check_fields(params, error);

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

int method_loader_devices(struct request *request, const void *unread __attribute__((unused)),
			  struct error *error)
{
	struct fields given = fields_of_request(request), *params = &given;
	struct server *server = request->server;
	int r = take_devices(server, params, error);

	if (r == 0)
		r = take_lost(server, params, error);
	return r < 0 ? r : take_back(server, params, error);
}

int method_loader_warm(struct request *request, const void *unread __attribute__((unused)), struct error *error)
{
	struct fields given = fields_of_request(request), *params = &given;
	struct error failed = {0};
	int r;

	if (fields_have(params, "error"))
		fields_error(params, "error", &failed);
	r = check_fields(params, error);
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

int method_loader_progress(struct request *request, const void *unread __attribute__((unused)),
			   struct error *error)
{
	struct fields given = fields_of_request(request), *params = &given;
	uint64_t done = fields_u64(params, "done"), total = fields_u64(params, "total");
	char phase[JOB_PHASE_BYTES + 1], note[TEXT_BYTES_MAX + 1];
	struct job *job = NULL;
	int r;

	fields_text(params, "phase", phase, sizeof(phase));
	fields_text_or(params, "note", note, sizeof(note), "");
	r = check_fields(params, error);
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

int method_loader_done(struct request *request, const void *unread __attribute__((unused)), struct error *error)
{
	struct fields given = fields_of_request(request), *params = &given;
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
	r = check_fields(params, error);
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
};

static void drop(struct server *server, struct publish_checked *checked)
{
	segment_close_fds(&server->loop, checked->index, checked->segments, checked->segment_count);
	*checked = (struct publish_checked){.index = {.fd = -1}};
}

static int take_segments(struct request *request, struct fields *params, struct publish_checked *checked,
			 struct error *error)
{
	uint32_t count;
	const msgpack_object *array = fields_array(params, "segments", &count);
	struct fields f;

	if (count > PART_SEGMENTS_MAX)
		return error_set(error, -EDQUOT, "make fewer and larger ones",
				 "%u segments; a part has at most %d", count, PART_SEGMENTS_MAX);
	checked->segments = calloc((size_t)count + 1, sizeof(*checked->segments));
	if (!checked->segments)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	for (uint32_t i = 0; i < count; i++) {
		struct held_fd *segment = &checked->segments[i];

		segment->fd = -1;
		checked->segment_count = i + 1;
		fields_of(&f, &array[i]);
		segment->bytes = fields_u64(&f, "bytes");
		if (packet_take_fd(request->packet, fields_u64(&f, "fd"), &segment->fd) < 0 || f.error.code)
			return error_set(error, -EBADMSG, NULL, "segment %u came without its descriptor", i);
	}
	return 0;
}

static int checked_fields(struct request *request, struct fields *params, struct checked *checked,
			  struct error *error)
{
	struct publish_checked *what = &checked->what;
	uint64_t index;
	int r;

	what->index.fd = -1;
	fields_hex128(params, "publish", checked->publish.bytes);
	fields_text(params, "device", checked->device, sizeof(checked->device));
	checked->rank = fields_u64(params, "rank");
	fields_hex128(params, "content", what->content.bytes);
	fields_hex128(params, "layout", what->layout.bytes);
	what->tensors = fields_u64(params, "tensors");
	index = fields_u64(params, "index");
	what->index.bytes = fields_u64(params, "index_bytes");
	r = check_fields(params, error);
	if (r < 0)
		return r;
	if (packet_take_fd(request->packet, index, &what->index.fd) < 0)
		return error_set(error, -EBADMSG, NULL, "the index came without its descriptor");
	r = take_segments(request, params, what, error);
	return r < 0 ? r : check_fields(params, error);
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
	if (r == 0)
		r = publish_checked(server->ledger.registry, publish, part, &checked->what, error);
	if (r < 0) {
		versions_fail(&server->work, publish, error, NULL);
		return r;
	}
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

int method_loader_checked(struct request *request, const void *unread __attribute__((unused)),
			  struct error *error)
{
	struct fields given = fields_of_request(request), *params = &given;
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
	drop(server, &checked.what);
	if (r < 0)
		waiter_free(waiter);
	else
		wake_stored(waiter, NULL, false);
	return r < 0 ? r : 0;
}
