#include "methods.h"
#include "../clients/audit.h"
#include "../clients/access.h"
#include "../../base/clock.h"
#include "../restart/keeping.h"
#include "../work/loaders/loader.h"
#include "../work/jobs/job_load.h"
#include "../work/versions/sharing.h"
#include "../../proto/wire/reference.h"
#include "../../service/peers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- load ---- */

struct load {
	struct load_params params;
	struct device *devices[PARTS_PER_VERSION_MAX];
	size_t device_count;
	struct version *shares; /* NULL: none */
};

static bool beneath(const char *path, const char *root)
{
	size_t n = strlen(root);

	return strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == '\0' || (n == 1 && root[0] == '/'));
}

static bool goes_up(const char *path)
{
	while ((path = strstr(path, "/..")) != NULL) {
		path += strlen("/..");
		if (*path == '/' || *path == '\0')
			return true;
	}
	return false;
}

/* By its text only: the loader, which opens it, resolves it beneath a root. */
int params_source(const struct config *config, const char *source, struct error *error)
{
	if (source[0] != '/')
		return error_set(error, -EINVAL, NULL, "the source \"%s\" is no absolute path", source);
	if (goes_up(source))
		return error_set(error, -EACCES, "write the path without it",
				 "the source %.512s has a \"..\" in it", source);
	for (size_t i = 0; i < config->root_count; i++) {
		if (beneath(source, config->roots[i]))
			return 0;
	}
	return error_set(error, -EACCES,
			 config->root_count
				 ? "status lists the roots; root in [loader] of gpuwmd's configuration adds one"
				 : "there are none; root in [loader] of gpuwmd's configuration adds one",
			 "the source %.512s is beneath no configured root", source);
}

/* A copy is exact. */
static int check_copy(const struct load_wish *wish, struct error *error)
{
	const char *chosen = record_first_given(&load_choice_record, &wish->choice);

	if (wish->key.count > 0)
		return error_set(error, -EINVAL, "leave it out: the version brings the key that it has",
				 "a version of a peer can't get another key");
	if (wish->segment_bytes || wish->share_with)
		return error_set(error, -EINVAL, "leave segment_bytes and share_with out",
				 "a version of a peer has the segments that it has there");
	if (chosen)
		return error_set(error, -EINVAL, "load from the model's files, or take all of the version",
				 "a version of a peer has the tensors and ranks that it has there, and is "
				 "not cut: `%s` is for files",
				 chosen);
	if (wish->fingerprint && !peer_fingerprint(wish->fingerprint))
		return error_set(error, -EINVAL, "64 hexadecimal digits, as gpuwmctl ls --peers shows them",
				 "\"%s\" is no fingerprint", wish->fingerprint);
	return 0;
}

static int check_source(const struct config *config, const struct load_params *params, struct error *error)
{
	const struct load_wish *wish = &params->wish;

	if (params->files)
		return load_files_check(wish, error);
	if (!peer_source(wish->source)) {
		if (wish->fingerprint)
			return error_set(error, -EINVAL, "leave it out, or load from peer://HOST/MODEL@TAG",
					 "only versions of a peer have a fingerprint");
		return params_source(config, wish->source, error);
	}
	if (!peer_settings_on(&config->peers))
		return error_set(error, -EACCES,
				 "[peers] of gpuwmd's configuration switches them on: see gpuwmd.conf(5)",
				 "this node takes nothing from peers: it has no keys for them");
	if (check_copy(wish, error) < 0)
		return error->code;
	return peer_source_parse(wish->source, &(struct peer_source){0}, error);
}

static int default_device(const struct server *server, struct load *load, struct error *error)
{
	struct device *cuda = NULL;

	for (size_t i = 0; i < server->ledger.devices.count; i++) {
		struct device *device = server->ledger.devices.devices[i];

		if (cuda && device->kind->is_gpu)
			return error_set(error, -EINVAL,
					 "name one (gpuwmctl load --device); gpuwmctl status lists them",
					 "there are several GPUs, and no device is named");
		if (device->kind->is_gpu)
			cuda = device;
	}
	load->device_count = 1;
	if (!cuda)
		return params_device((struct server *)server, DEVICE_HOST, &load->devices[0], error);
	load->devices[0] = cuda;
	return 0;
}

static int find_devices(struct server *server, struct load *load, struct error *error)
{
	const struct load_wish *wish = &load->params.wish;
	const char *remedy = wish->choice.ranks ? "name one device for each rank, or one for all of them"
						: "a device has one replica: name each device once";
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < wish->devices.count; i++) {
		const char *id = wish->devices.items[i];

		r = params_device(server, id, &load->devices[i], error);
		for (uint32_t j = 0; r == 0 && j < i; j++)
			if (load->devices[j] == load->devices[i])
				r = error_set(error, -EINVAL, remedy, "the device %s is named twice", id);
	}
	load->device_count = wish->devices.count;
	return r;
}

/* The segments are as small as those that can be shared, unless the request says otherwise. */
static int find_shared(struct request *request, struct load *load, struct error *error)
{
	static const uint64_t small = SEGMENT_BYTES_SHARED;
	struct load_wish *wish = &load->params.wish;
	struct ref ref;
	uint64_t generation;
	int r;

	if (!wish->share_with)
		return 0;
	r = reference_parse(wish->share_with, "share_with", &ref, error);
	if (r == 0)
		r = access_find(request->session, &ref, &load->shares, &generation, error);
	if (r == 0)
		r = sharing_check(&request->server->work, load->shares, load->params.name.ref.model,
				  load->devices, load->device_count, error);
	if (r == 0 && !wish->segment_bytes)
		wish->segment_bytes = &small;
	return r;
}

static int check_load(struct server *server, struct load *load, struct error *error)
{
	const uint64_t *given = load->params.wish.segment_bytes;
	const uint64_t segment = given ? *given : SEGMENT_BYTES_MIN;
	int r;

	if (segment < SEGMENT_BYTES_MIN || segment > SEGMENT_BYTES_MAX || segment % SEGMENT_BYTES_MIN != 0)
		return error_set(error, -EINVAL, "a multiple of 2 MiB up to 1 TiB",
				 "segments can't be of %llu bytes", (unsigned long long)segment);
	r = find_devices(server, load, error);
	if (r == 0)
		r = check_source(server->config, &load->params, error);
	if (r == 0 && load->device_count == 0)
		r = default_device(server, load, error);
	for (size_t i = 0; r == 0 && i < load->device_count; i++)
		r = device_check_there(load->devices[i], error);
	return r;
}

/* What would fail after minutes of loading fails now. */
static int check_names(struct server *server, const struct load_params *load, struct error *error)
{
	const struct ref *name = &load->name.ref;
	const char *alias = load->wish.alias;
	int r = registry_tag_allowed(server->ledger.registry, name, error);

	if (r < 0)
		return r;
	if (!alias)
		return load->expect || load->retire_old
			       ? error_set(error, -EINVAL, "alias says of which",
					   "expect and retire_old are about an alias, and none is given")
			       : 0;
	if (strcmp(alias, name->name) == 0)
		return error_set(error, -EINVAL, "tags and aliases share one name space; take another alias",
				 "the alias \"%s\" is the tag itself", alias);
	return registry_swap_allowed(server->ledger.registry, name->model, alias, load->expect, error);
}

int method_load(struct request *request, const void *given, struct error *error)
{
	struct load load = {.params = *(const struct load_params *)given};
	struct server *server = request->server;
	const bool by_operator = access_roles(request->session) & ROLE_OPERATOR;
	struct load_job *job = NULL;
	int sock = -1, r = params_open(server, error);

	if (r == 0)
		r = load_rights(request, &load.params, by_operator, error);
	if (r == 0)
		r = check_load(server, &load, error);
	if (r == 0)
		r = find_shared(request, &load, error);
	if (r == 0)
		r = check_names(server, &load.params, error);
	if (r == 0)
		r = load_job_new(&server->work, &load.params, request->session->peer.uid, by_operator, &job,
				 error);
	if (r < 0)
		return r;
	for (size_t i = 0; r == 0 && i < load.device_count; i++)
		r = job_add_device(&job->job, load.devices[i]);
	if (r == 0 && !by_operator)
		r = load_as_publisher(job, request);
	if (r < 0)
		error_set(error, r, NULL, "gpuwmd is out of memory");
	if (r == 0 && load.params.files)
		r = load_take_files(&server->work.jobs, &job->job, &sock, error);
	if (r < 0) {
		job_drop(&server->work.jobs, &job->job);
		return r;
	}
	if (load.shares)
		sharing_begin(job, load.shares);
	audit_outcome(request->audit, "job %llu", (unsigned long long)job->job.id);
	load_answer(request, &job->job, sock);
	loader_pool_turn(server->work.loaders);
	return 0;
}

/* ---- jobs ---- */

static void put_job(struct message_writer *w, const struct server *server, const struct job *job)
{
	static const struct version_id none;
	const char *devices[PARTS_PER_VERSION_MAX];
	const struct load_job *load = load_job_of(job);
	const uint64_t rank = job->rank;

	for (size_t i = 0; i < job->device_count; i++)
		devices[i] = job->devices[i]->id;
	message_begin_map(w, NULL);
	record_put(w, &job_told_record,
		   &(struct job_told){
			   .job = job->id,
			   .kind = job_kind_name(job->kind),
			   .state = job_state_told(job),
			   .phase = job->phase,
			   .model = job->model,
			   .tag = job->tag,
			   .source = job->source,
			   .devices = {devices, (uint32_t)job->device_count},
			   .notes = {(const char *const *)job->record.notes, (uint32_t)job->record.note_count},
			   .version = version_id_equal(&job->version, &none) ? NULL : &job->version,
			   .rank = job->actions->is_of_part ? &rank : NULL,
			   .uid = job->uid,
			   .done = job->done,
			   .total = job->total,
			   .dry_run = job->dry_run,
			   .created_ms = job->created_ms,
			   .started_ms = job->started_ms ? &job->started_ms : NULL,
			   .ended_ms = job->ended_ms ? &job->ended_ms : NULL,
			   .error = job->error,
		   });
	job_record_put_phases(w, &job->record, clock_steady_ms());
	if (load && load->plan)
		job_plan_put(w, &server->work, load);
	message_end(w);
}

/* job NULL: all. */
static void answer_jobs(const struct request *request, const struct job *job)
{
	const struct job *first = job ? job : request->server->work.jobs.first;
	struct message_writer w;

	request_result(request, &w);
	message_begin_array(&w, "jobs");
	for (const struct job *j = first; j; j = job ? NULL : j->next)
		put_job(&w, request->server, j);
	message_end(&w);
	request_answer(request, &w);
}

static int no_job(const struct server *server, uint64_t id, struct error *error)
{
	char detail[64];

	if (id > 0 && id <= (keeping_epoch(server->keeping) - 1) * JOBS_PER_EPOCH)
		return error_set(error, -ENOENT, "jobs end with the gpuwmd that runs them",
				 "no job %llu: it was of an earlier start of gpuwmd", (unsigned long long)id);
	snprintf(detail, sizeof(detail), "gpuwmd lists ended jobs for an hour, the last %d of them",
		 JOBS_KEPT_MAX);
	return error_set(error, -ENOENT, detail, "no job %llu", (unsigned long long)id);
}

static void wake_job(struct waiter *waiter, const struct version *changed, bool expired)
{
	const struct job *job = job_find(&waiter->request.server->work.jobs, waiter->job);
	struct error error;

	(void)changed;
	if (job && !job_ended(job) && !expired)
		return;
	if (job && job_ended(job)) {
		answer_jobs(&waiter->request, job);
	} else {
		if (job)
			error_set(&error, -ETIMEDOUT, "it goes on", "time ran out: job %llu is %s",
				  (unsigned long long)job->id, job_state_told(job));
		else
			no_job(waiter->request.server, waiter->job, &error);
		request_refuse(&waiter->request, &error);
	}
	waiter_free(waiter);
}

static bool is_users_load(const struct job *job, uid_t uid)
{
	return job->kind == JOB_LOAD && job->takes_turns && job->uid == uid;
}

/* Who began a verify, by `operate` of a section, waits for it, and so does who asked for a copy, or passed the files of a load. Nobody
 * else learns whether there is such a job. */
static int may_look(struct session *session, const struct job *job, struct error *error)
{
	char remedy[REMEDY_BYTES];

	if (access_roles(session) & (ROLE_OPERATOR | ROLE_OBSERVER) ||
	    (job && job->actions->is_of_part && job->uid == session->peer.uid) ||
	    (job && is_users_load(job, session->peer.uid)))
		return 0;
	return error_set(
		error, -EACCES, remedy_observer(session->client->clients, remedy),
		"jobs needs the role operator or observer, but for a verify, a hold or a load of files that this user began");
}

int method_jobs(struct request *request, const void *given, struct error *error)
{
	const struct jobs_params *params = given;
	struct server *server = request->server;
	struct waiter *waiter;
	const struct job *job;
	int r;

	job_table_prune(&server->work.jobs);
	job = params->job ? job_find(&server->work.jobs, *params->job) : NULL;
	r = may_look(request->session, job, error);
	if (r < 0)
		return r;
	if (!params->job) {
		answer_jobs(request, NULL);
		return 0;
	}
	if (!job)
		return no_job(server, *params->job, error);
	if (job_ended(job) || params->wait_ms == 0) {
		answer_jobs(request, job);
		return 0;
	}
	r = waiter_new(request, WAIT_JOB, params->wait_ms, wake_job, &waiter, error);
	if (r == 0)
		waiter->job = *params->job;
	return r;
}

/* ---- cancel ---- */

static int ended_already(const struct job *job, struct error *error)
{
	return error_set(error, -ENOENT, "only a queued or running job can be cancelled",
			 "job %llu is %s already", (unsigned long long)job->id, job_state_name(job->state));
}

/* A load whose version was ready, or that was being stored, may have come to its own end meanwhile. */
static void wake_cancelled(struct waiter *waiter, const struct version *changed, bool expired)
{
	const struct job *job = job_find(&waiter->request.server->work.jobs, waiter->job);
	struct error error;

	(void)changed;
	(void)expired;
	if (job && !job_ended(job))
		return;
	if (job && job->state == JOB_CANCELLED) {
		request_done(&waiter->request);
	} else {
		if (job)
			ended_already(job, &error);
		else
			no_job(waiter->request.server, waiter->job, &error);
		request_refuse(&waiter->request, &error);
	}
	waiter_free(waiter);
}

/* The answer comes when the job has ended: until then its loader may go on copying. */
int method_cancel(struct request *request, const void *given, struct error *error)
{
	const uint64_t id = ((const struct cancel_params *)given)->job;
	struct server *server = request->server;
	struct job *job = job_find(&server->work.jobs, id);
	const bool by_operator = access_roles(request->session) & ROLE_OPERATOR;
	char remedy[REMEDY_BYTES];
	struct waiter *waiter;
	struct error reason;
	int r;

	if (!by_operator && !(job && is_users_load(job, request->session->peer.uid)))
		return error_set(
			error, -EACCES, remedy_operator(&server->clients, remedy),
			"cancel needs the role operator, but for a load of files that this user began");
	if (!job)
		return no_job(server, id, error);
	if (job_ended(job))
		return ended_already(job, error);
	r = waiter_new(request, WAIT_JOB, -1, wake_cancelled, &waiter, error);
	if (r < 0)
		return r;
	waiter->job = id;
	error_set(&reason, -ECANCELED, NULL, "cancelled by %s", by_operator ? "an operator" : "its user");
	job_cancel(&server->work, job, &reason);
	return 0;
}
