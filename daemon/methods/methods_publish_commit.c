/* publish_commit and publish_abort: how a part that was begun ends. */
#include "methods.h"
#include "../base/metrics.h"
#include "../work/versions/publishers.h"
#include "../work/loaders/loader.h"
#include "../work/versions/versions.h"

#include <errno.h>
#include <stdio.h>

/* ---- commit ---- */

struct commit {
	struct version_id publish;
	struct device *device;
	uint32_t rank;
	struct digest content;
	const struct digest *layout; /* NULL: not said */
	const uint64_t *tensors; /* likewise */
	bool attach;
};

/* Nobody else knows a version without a name yet: without its maker's lease it would be freed. One that has a name is there all the
 * same: without a lease of the commit its maker asks for one, and hears why there is none. */
static int lease_to_maker(const struct request *request, struct version *version, const struct commit *commit,
			  struct lease **ret, struct error *error)
{
	const struct lease_holder holder = lease_holder_of(request);
	const bool nameless = version_is_nameless(version);
	int r = 0;

	*ret = NULL;
	if (version->state != VERSION_READY || !(nameless || commit->attach))
		return 0;
	if (!nameless)
		r = access_attach(request->session, version->model, error);
	if (r == 0)
		r = lease_grant(
			request->server->ledger.registry, version,
			(uint32_t)(version_replica(version, commit->rank, commit->device) - version->replicas),
			&holder, ret, error);
	return nameless ? r : 0;
}

static void answer_commit(const struct request *request, struct version *version, const struct commit *commit)
{
	bool ready = version->state == VERSION_READY || version->state == VERSION_RETIRING;
	struct publish_commit_result result = {
		.version = &version->id,
		.state = ready ? "ready" : "checking",
		.alias_error = version->error.code ? &version->error : NULL,
	};
	struct message_writer w;
	struct lease *lease;
	struct error error;

	if (lease_to_maker(request, version, commit, &lease, &error) < 0) {
		request_refuse(request, &error);
		return;
	}
	if (!lease) {
		request_tell(request, &result);
		return;
	}
	result.lease = &lease->id;
	request_result(request, &w);
	record_put(&w, request->form->result, &result);
	metrics_count(request->server->net.metrics, METRIC_ATTACHES, 1);
	request_answer_lease(request, &w, NULL, 0, lease->id);
}

static int no_part(const struct commit *commit, struct error *error)
{
	return error_set(error, -ENOENT, "publish_begin makes them", "this publish has no rank %u on %s",
			 commit->rank, commit->device->id);
}

static int not_yours(struct error *error)
{
	return error_set(error, -ENOENT,
			 "who began a part commits or aborts it, on the connection that began it",
			 "no such publish of this connection");
}

/* 1: the part is checked, answer; 0: not yet; negative: the version failed, or there is no such thing. */
static int look_at_part(const struct request *request, const struct commit *commit, struct version **ret,
			struct error *error)
{
	struct version *version = registry_by_publish(request->server->ledger.registry, &commit->publish);
	const struct replica *replica;

	if (!version || !may_take_part(request->session, version))
		return error_set(error, -ENOENT, "it was freed, forgotten, or never was", "no such publish");
	if (version->state == VERSION_FAILED) {
		*error = version->error;
		return error->code;
	}
	replica = version_replica(version, commit->rank, commit->device);
	if (!replica)
		return no_part(commit, error);
	if (replica->committed && !digest_equal(&replica->promised, &commit->content))
		return error_set(error, -EBADMSG, NULL, "this part was committed with another content");
	*ret = version;
	return replica->committed && replica->checked;
}

static void wake_checked(struct waiter *waiter, const struct version *changed, bool expired)
{
	struct server *server = waiter->request.server;
	struct commit commit = {.publish = waiter->id,
				.rank = waiter->rank,
				.content = waiter->content,
				.attach = waiter->attach};
	struct version *version;
	struct error error;
	int r;

	(void)expired;
	if (changed && !version_id_equal(&changed->publish, &waiter->id))
		return;
	commit.device = device_find(&server->ledger.devices, waiter->device);
	r = look_at_part(&waiter->request, &commit, &version, &error);
	if (r == 0)
		return;
	if (r < 0)
		request_refuse(&waiter->request, &error);
	else
		answer_commit(&waiter->request, version, &commit);
	waiter_free(waiter);
}

static int wait_checked(struct request *request, const struct commit *commit, struct waiter **ret,
			struct error *error)
{
	int r = waiter_new(request, WAIT_CHECKED, -1, wake_checked, ret, error);

	if (r < 0)
		return r;
	(*ret)->id = commit->publish;
	(*ret)->rank = commit->rank;
	(*ret)->content = commit->content;
	(*ret)->attach = commit->attach;
	snprintf((*ret)->device, sizeof((*ret)->device), "%s", commit->device->id);
	return 0;
}

/* Nobody checks it: what the publisher says of the index stands for it. */
static int take_given(struct request *request, struct publish *publish, struct publish_part *part,
		      const struct commit *commit, struct error *error)
{
	struct publish_checked checked = {
		.content = commit->content, .layout = *commit->layout, .tensors = *commit->tensors};
	int r = given_look(&part->given, &checked, error);

	if (r == 0)
		r = publish_checked(request->server->ledger.registry, publish, part, &checked, error);
	if (r == 0)
		part->given = (struct given){-1, -1};
	return r;
}

/* The publish is open. The waiter answers, also at once. */
static int commit_part(struct request *request, struct publish *publish, const struct commit *commit,
		       struct waiter *waiter, struct error *error)
{
	struct server *server = request->server;
	struct publish_part *part = publish_part_find(publish, commit->rank, commit->device);
	int r;

	if (!part)
		return no_part(commit, error);
	if (!publish->version->replicas[part->replica].committed && part->publisher != request->session)
		return not_yours(error);
	if (part->given.segment >= 0 && !(commit->layout && commit->tensors))
		return error_set(error, -EINVAL, "the index has both",
				 "the commit of memory that gpuwmd gave needs \"layout\" and \"tensors\"");
	r = publish_commit(publish, part, request->session, &commit->content, error);
	if (r == -EBADMSG && part->publisher == request->session) {
		versions_fail(&server->work, publish, error,
			      NULL); /* the check found another content: wakes the waiter */
		return 0;
	}
	if (r < 0)
		return r;
	if (part->given.segment >= 0 && take_given(request, publish, part, commit, error) < 0) {
		versions_fail(&server->work, publish, error, NULL); /* wakes the waiter */
		return 0;
	}
	if (part->checker)
		job_watch(part->checker);
	silence_watch(server->work.silence);
	if (version_complete(publish->version))
		versions_complete(&server->work, publish, error); /* wakes the waiter */
	else
		wake_checked(waiter, NULL, false);
	return 0;
}

int method_publish_commit(struct request *request, const void *given, struct error *error)
{
	const struct publish_commit_params *params = given;
	struct commit commit = {.publish = *params->publish,
				.rank = params->rank < UINT32_MAX ? (uint32_t)params->rank : UINT32_MAX,
				.content = *params->content,
				.layout = params->layout,
				.tensors = params->tensors,
				.attach = params->attach};
	struct publish *publish = NULL;
	struct waiter *waiter;
	struct version *version;
	int r = params_device(request->server, params->device, &commit.device, error);

	if (r < 0)
		return r;
	publish = publish_find(request->server->ledger.publishes, &commit.publish);
	if (!publish || !may_take_part(request->session, publish->version)) {
		r = look_at_part(request, &commit, &version, error);
		if (r >= 0)
			answer_commit(request, version, &commit);
		return r < 0 ? r : 0;
	}
	r = wait_checked(request, &commit, &waiter, error);
	if (r < 0)
		return r;
	r = commit_part(request, publish, &commit, waiter, error);
	if (r < 0)
		waiter_free(waiter);
	return r;
}

/* ---- abort ---- */

static bool has_uncommitted_part(const struct publish *publish, const struct session *session)
{
	const struct loader *loader = session->client->loader;
	const struct job *job = loader ? loader_job(loader) : NULL;

	if (session->kind != SESSION_LOADER)
		return publish_has_publisher(publish, session);
	return job && publish_has_publisher(publish, job);
}

int method_publish_abort(struct request *request, const void *given, struct error *error)
{
	const struct publish_abort_params *params = given;
	struct publish *publish = publish_find(request->server->ledger.publishes, params->publish);
	struct error why;

	if (!publish || !may_take_part(request->session, publish->version))
		return publish_unknown(params->publish, error);
	if (request->session->kind != SESSION_ADMIN && !has_uncommitted_part(publish, request->session))
		return not_yours(error);
	if (publish->version->storing)
		return error_set(error, -EBUSY, "retire the version when it is ready",
				 "this publish is complete: it can't be aborted any more");
	error_set(&why, -ECANCELED, NULL, "aborted by its publisher%s%s", params->reason ? ": " : "",
		  params->reason ? params->reason : "");
	versions_fail(&request->server->work, publish, &why, NULL);
	request_done(request);
	return 0;
}
