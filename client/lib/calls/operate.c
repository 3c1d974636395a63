/* What operators ask for: load, swap, pin, retire, drain, reload. */
#include "../request/call.h"
#include "load_files.h"
#include "../json.h"
#include "../key.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

/* 0 when the client can be asked and `text`, a required parameter, is there. */
static int operate_check(struct gpuwm_client *client, const char *text, const char *what, struct error *error)
{
	int r = client_check(client, error);

	if (r == 0 && !text)
		r = error_set(error, -EINVAL, NULL, "%s was not given", what);
	return r;
}

/* ---- load, swap, pin and the others ---- */

static int load(struct gpuwm_client *client, const struct gpuwm_load_options *options, struct load_files *files,
		uint64_t *ret_job, struct error *error)
{
	struct key_pair key[KEY_FIELDS_MAX];
	struct version_id expect = {{0}}, belongs_to = {{0}};
	const uint64_t ranks = options->ranks;
	const struct load_params params = {
		.wish =
			{
				.source = options->source,
				.devices = {options->devices,
					    options->devices ? (uint32_t)options->device_count : 0},
				.alias = options->alias,
				.dry_run = options->dry_run,
				.key = {options->key_count > 0 ? key : NULL, (uint32_t)options->key_count},
				.share_with = options->share_with,
				.segment_bytes = options->segment_bytes ? &options->segment_bytes : NULL,
				.choice = {options->ranks ? &ranks : NULL,
					   options->cut,
					   {options->only_count > 0 ? options->only : NULL,
					    (uint32_t)options->only_count}},
				.fingerprint = options->fingerprint,
				.companion_of = options->companion_of ? &belongs_to : NULL,
			},
		.name.text = options->name,
		.expect = options->expect ? &expect : NULL,
		.retire_old = options->retire_old,
		.files = files->count > 0,
	};
	struct load_result result;
	struct reply reply;
	struct call call;
	int r = client_take_id(options->expect, "expect", &expect, error);

	if (r == 0)
		r = client_take_id(options->companion_of, "companion_of", &belongs_to, error);
	if (r < 0)
		return r;
	for (size_t i = 0; i < options->key_count; i++)
		key[i] = (struct key_pair){options->key[i].name, options->key[i].value};
	call_begin(&call, client, &form_load, &params);
	r = call_run(&call, 0, &reply, error);
	if (r < 0)
		return r;
	r = reply_read(&reply, &form_load, &result, error);
	if (r == 0 && files->count > 0)
		r = load_files_send(files, &reply.packet, result.files, error);
	if (r == 0)
		*ret_job = result.job;
	reply_clear(&reply);
	return r;
}

int gpuwm_load(struct gpuwm_client *client, const struct gpuwm_load_options *given, uint64_t *ret_job)
{
	struct gpuwm_load_options options;
	struct load_files files = {0};
	struct error error;
	int r = client_take_options(given, &options, sizeof(options), &error);

	if (r == 0)
		r = operate_check(client, options.source, "the source of a load", &error);
	if (r == 0)
		r = key_check(options.key, options.key_count, &error);
	if (r == 0 && (options.only_count > LOAD_GLOBS_MAX || (options.only_count > 0 && !options.only)))
		r = error_set(&error, -EINVAL, "\"model.layers.3.*\"",
			      "only_count is %zu: between 0 and %d are possible, with globs in only",
			      options.only_count, LOAD_GLOBS_MAX);
	if (r == 0)
		r = load_files_prepare(&files, options.files, options.file_count, &error);
	if (r == 0)
		r = load(client, &options, &files, ret_job, &error);
	if (files.count > 0)
		message_writer_clear(&files.message);
	return r < 0 ? client_fail(&error) : 0;
}

static int verify(struct gpuwm_client *client, const struct verify_params *params,
		  uint64_t ret_jobs[GPUWM_VERIFY_JOBS_MAX], size_t *ret_count)
{
	struct verify_result result;
	struct call call;
	struct reply reply;
	struct error error;
	int r = operate_check(client, params->ref.text, "the ref to verify", &error);

	if (r < 0)
		return client_fail(&error);
	call_begin(&call, client, &form_verify, params);
	r = call_run(&call, 0, &reply, &error);
	if (r < 0)
		return client_fail(&error);
	r = reply_read(&reply, &form_verify, &result, &error);
	if (r == 0) {
		memcpy(ret_jobs, result.jobs.items, result.jobs.count * sizeof(*ret_jobs));
		*ret_count = result.jobs.count;
	}
	reply_clear(&reply);
	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_verify(struct gpuwm_client *client, const char *ref, const char *device,
		 uint64_t ret_jobs[GPUWM_VERIFY_JOBS_MAX], size_t *ret_count)
{
	return verify(client, &(struct verify_params){.ref.text = ref, .device = device}, ret_jobs, ret_count);
}

int gpuwm_verify_source(struct gpuwm_client *client, const char *ref, const char *device,
			uint64_t ret_jobs[GPUWM_VERIFY_JOBS_MAX], size_t *ret_count)
{
	return verify(client, &(struct verify_params){.ref.text = ref, .device = device, .source = true},
		      ret_jobs, ret_count);
}

/* What the end of a job means, from its own error. 1: done, but there is one. */
static int job_outcome(const struct job_told *job, struct error *error)
{
	const struct error *why = job->error;

	if (why)
		*error = *why;
	if (strcmp(job->state, "done") == 0)
		return why ? 1 : 0;
	if (strcmp(job->state, "cancelled") == 0)
		return error_set(error, -ECANCELED, why ? why->detail : NULL, "%s",
				 why ? why->message : "the job was cancelled");
	if (strcmp(job->state, "failed") == 0)
		return error_set(error, why ? why->code : -EIO, why ? why->detail : NULL, "%s",
				 why ? why->message : "the job failed");
	return error_set(error, -ETIMEDOUT, NULL, "job %llu is still %s", (unsigned long long)job->job,
			 job->state);
}

static int read_job(const struct reply *reply, uint64_t number, struct error *error)
{
	const msgpack_object *jobs;
	struct job_told job;
	struct fields f;
	uint32_t count;
	struct error why;
	int r;

	fields_of(&f, reply->message.body);
	jobs = fields_array(&f, "jobs", &count);
	if (count != 1)
		return error_set(error, -EPROTO, NULL, "jobs: %u answers for job %llu", count,
				 (unsigned long long)number);
	r = record_read_map(&job_told_record, jobs, reply->message.zone, &job, &why);
	if (r < 0)
		return error_set(error, r == -ENOMEM ? r : -EPROTO, NULL, "jobs: %s", why.message);
	return job_outcome(&job, error);
}

int gpuwm_job_wait(struct gpuwm_client *client, uint64_t job, int64_t wait_ms)
{
	struct call call;
	struct reply reply;
	struct error error;
	int r = client_check(client, &error);

	if (r < 0)
		return client_fail(&error);
	call_begin(&call, client, &form_jobs, &(struct jobs_params){.job = &job});
	r = call_run(&call, wait_ms, &reply, &error);
	if (r == -ENOENT && call.taken)
		error_set(&error, -ECONNABORTED, "list tells whether its version became ready",
			  "job %llu ended with the gpuwmd that ran it", (unsigned long long)job);
	if (r < 0)
		return client_fail(&error);
	r = read_job(&reply, job, &error);
	reply_clear(&reply);
	if (r != 0)
		client_fail(&error);
	return r;
}

int gpuwm_job_cancel(struct gpuwm_client *client, uint64_t job)
{
	struct call call;
	struct error error;
	int r = client_check(client, &error);

	if (r < 0)
		return client_fail(&error);
	call_begin(&call, client, &form_cancel, &(struct cancel_params){job});
	/* A version on its way into the fd store comes to its end first. */
	r = call_run(&call, STORE_CONFIRM_MS, NULL, &error);
	return r < 0 ? client_fail(&error) : 0;
}

/* 1: the alias moved, and *error says why the old version was not retired. */
static int swap_read(const struct reply *reply, char old[VERSION_ID_TEXT], struct error *error)
{
	struct hot_swap_result result;
	int r = reply_read(reply, &form_hot_swap, &result, error);

	if (r < 0)
		return r;
	old[0] = 0;
	if (result.old)
		hex128_format(result.old->bytes, old);
	if (result.retire_error)
		*error = *result.retire_error;
	return result.retire_error != NULL;
}

static int swap(struct gpuwm_client *client, const struct gpuwm_swap_options *options,
		char old[VERSION_ID_TEXT], struct error *error)
{
	struct version_id expect = {{0}};
	struct hot_swap_params params = {.model = options->model,
					 .alias = options->alias,
					 .to = options->to,
					 .expect = options->expect ? &expect : NULL,
					 .retire_old = options->retire_old};
	struct call call;
	struct reply reply;
	int r = client_take_id(options->expect, "expect", &expect, error);

	if (r < 0)
		return r;
	call_begin(&call, client, &form_hot_swap, &params);
	r = call_run(&call, 0, &reply, error);
	if (r < 0)
		return r;
	r = swap_read(&reply, old, error);
	reply_clear(&reply);
	return r;
}

int gpuwm_swap(struct gpuwm_client *client, const struct gpuwm_swap_options *given, char ret_old[33])
{
	struct gpuwm_swap_options options;
	char old[VERSION_ID_TEXT];
	struct error error;
	int r = client_take_options(given, &options, sizeof(options), &error);

	if (r == 0)
		r = operate_check(client, options.model, "the model of a swap", &error);
	if (r == 0)
		r = swap(client, &options, old, &error);
	if (r != 0)
		client_fail(&error);
	if (r >= 0 && ret_old)
		strcpy(ret_old, old);
	return r;
}

static int pin(struct gpuwm_client *client, const struct message_form *form, const char *ref, const char *name)
{
	const struct pin_params params = {.ref.text = ref, .pin = name};
	struct error error;
	int r = operate_check(client, ref, "the ref of a pin", &error);

	if (r == 0)
		r = call_plain(client, form, &params, &error);
	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_pin(struct gpuwm_client *client, const char *ref, const char *name)
{
	return pin(client, &form_pin_version, ref, name);
}

int gpuwm_unpin(struct gpuwm_client *client, const char *ref, const char *name)
{
	return pin(client, &form_unpin_version, ref, name);
}

/* after_ms NULL: whoever has a lease keeps it. */
static int retire(struct gpuwm_client *client, const char *ref, const uint64_t *after_ms, int64_t wait_ms)
{
	const struct retire_params params = {
		.ref.text = ref, .force = after_ms, .after_ms = after_ms ? *after_ms : 0};
	struct call call;
	struct error error;
	int r = operate_check(client, ref, "the ref to retire", &error);

	if (r < 0)
		return client_fail(&error);
	call_begin(&call, client, &form_retire, &params);
	r = call_run(&call, wait_ms, NULL, &error);
	/* One that stopped had retired it; by now it is freed. */
	if (r == -ENOENT && call.taken)
		return 0;
	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_retire(struct gpuwm_client *client, const char *ref, int64_t wait_ms)
{
	return retire(client, ref, NULL, wait_ms);
}

int gpuwm_retire_by_force(struct gpuwm_client *client, const char *ref, uint64_t after_ms, int64_t wait_ms)
{
	return retire(client, ref, &after_ms, wait_ms);
}

int gpuwm_remove(struct gpuwm_client *client, const char *ref)
{
	struct error error;
	int r = operate_check(client, ref, "the ref to remove", &error);

	if (r == 0)
		r = call_plain(client, &form_remove, &(struct remove_params){.ref.text = ref}, &error);
	return r < 0 ? client_fail(&error) : 0;
}

static int kick(struct gpuwm_client *client, const struct kick_params *params, char **ret_json,
		struct error *error)
{
	struct call call;
	struct reply reply;
	int r;

	call_begin(&call, client, &form_kick, params);
	r = call_run(&call, 0, &reply, error);
	if (r < 0)
		return r;
	if (ret_json)
		*ret_json = json_text(reply.message.body);
	reply_clear(&reply);
	return ret_json && !*ret_json
		       ? error_set(error, -ENOMEM, NULL, "the leases are revoked; out of memory to tell them")
		       : 0;
}

int gpuwm_kick(struct gpuwm_client *client, enum gpuwm_kick_by by, uint64_t number, char **ret_json)
{
	const struct kick_params params = {
		.lease = by == GPUWM_KICK_LEASE ? &number : NULL,
		.pid = by == GPUWM_KICK_PID ? &number : NULL,
		.uid = by == GPUWM_KICK_UID ? &number : NULL,
	};
	struct error error;
	int r = client_check(client, &error);

	if (r == 0 && !params.lease && !params.pid && !params.uid)
		r = error_set(&error, -EINVAL, "a lease, a pid or a uid", "nothing is kicked by %d", (int)by);
	if (r == 0)
		r = kick(client, &params, ret_json, &error);
	return r < 0 ? client_fail(&error) : 0;
}

/* device NULL: of everything. */
static int drain(struct gpuwm_client *client, const char *device)
{
	struct error error;
	int r = client_check(client, &error);

	if (r == 0)
		r = call_plain(client, &form_drain, &(struct drain_params){.device = device}, &error);
	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_reload(struct gpuwm_client *client)
{
	struct error error;
	int r = client_check(client, &error);

	if (r == 0)
		r = call_plain(client, &form_reload, NULL, &error);
	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_drain(struct gpuwm_client *client)
{
	return drain(client, NULL);
}

int gpuwm_drain_device(struct gpuwm_client *client, const char *device)
{
	struct error error;

	if (device)
		return drain(client, device);
	error_set(&error, -EINVAL, "gpuwmctl status names the devices", "no device was named");
	return client_fail(&error);
}
