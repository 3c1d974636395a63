#include "methods.h"
#include "../clients/audit.h"
#include "../work/loaders/loader.h"
#include "../work/jobs/verify.h"

#include <errno.h>
#include <string.h>

static int check_wanted(const struct verify_params *wanted, const struct version *version, struct error *error)
{
	const char *model = model_name(version->model);

	if (version->freeing || (version->state != VERSION_READY && version->state != VERSION_RETIRING))
		return error_set(error, -EINVAL, "only what is ready or retiring is verified", "%s@%s is %s",
				 model, version->tag,
				 version->freeing ? "being freed" : version_state_name(version->state));
	if (wanted->rank && *wanted->rank >= version->world)
		return error_set(error, -EINVAL, NULL, "%s@%s has no rank %llu: its world is %u", model,
				 version->tag, (unsigned long long)*wanted->rank, version->world);
	return 0;
}

/* The replicas of a rank are described by the same files. */
static bool is_replica_of_earlier(const struct version *version, uint32_t position)
{
	for (uint32_t i = 0; i < position; i++) {
		if (version->replicas[i].rank == version->replicas[position].rank)
			return true;
	}
	return false;
}

/* A device that is wanted may be `host`, where the host copy lies. */
static int make_copy_job(const struct request *request, const struct verify_params *wanted,
			 struct version *version, uint32_t position, struct job **ret_job, struct error *error)
{
	const struct replica *replica = &version->replicas[position];

	*ret_job = NULL;
	if (wanted->source || !replica->spares ||
	    (wanted->device && strcmp(replica->spares_on->id, wanted->device) != 0))
		return 0;
	return verify_new_of_copy(&request->server->work, version, position, request->session->peer.uid,
				  ret_job, error);
}

/* All of them or none. */
static int make_jobs(const struct request *request, const struct verify_params *wanted, struct version *version,
		     struct job *ret_jobs[2 * PARTS_PER_VERSION_MAX], uint32_t *ret_count, struct error *error)
{
	struct server *server = request->server;
	uint32_t count = 0;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < version->replica_count; i++) {
		const struct replica *replica = &version->replicas[i];
		struct job *copy;

		if (wanted->rank && replica->rank != *wanted->rank)
			continue;
		r = make_copy_job(request, wanted, version, i, &copy, error);
		if (copy)
			ret_jobs[count++] = copy;
		if (r < 0 || (wanted->device && strcmp(replica->device->id, wanted->device) != 0) ||
		    (wanted->source && !wanted->device && is_replica_of_earlier(version, i)))
			continue;
		r = (wanted->source ? verify_new_of_source : verify_new)(
			&server->work, version, i, request->session->peer.uid, &ret_jobs[count], error);
		count += r == 0;
	}
	if (r == 0 && count > PARTS_PER_VERSION_MAX)
		r = error_set(error, -EINVAL, "verify it device by device, host among them",
			      "%s@%s has %u parts and host copies, and at most %d are verified at once",
			      model_name(version->model), version->tag, count, PARTS_PER_VERSION_MAX);
	if (r == 0 && count == 0)
		r = error_set(error, -ENODEV, "list tells where its parts are", "%s@%s has no such part on %s",
			      model_name(version->model), version->tag, wanted->device ? wanted->device : "");
	while (r < 0 && count > 0)
		job_drop(&server->work.jobs, ret_jobs[--count]);
	*ret_count = count;
	return r;
}

int method_verify(struct request *request, const void *given, struct error *error)
{
	const struct verify_params *params = given;
	struct job *jobs[2 * PARTS_PER_VERSION_MAX]; /* a part may have a host copy */
	uint64_t numbers[PARTS_PER_VERSION_MAX];
	struct verify_result result = {.jobs.items = numbers};
	struct version *version;
	int r = params_open(request->server, error);

	if (r == 0)
		r = find_version(request, &params->ref.ref, &version, error);
	if (r == 0)
		r = access_operate(request->session, version->model, request->form->name, error);
	if (r == 0)
		r = check_wanted(params, version, error);
	if (r == 0)
		r = make_jobs(request, params, version, jobs, &result.jobs.count, error);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < result.jobs.count; i++)
		numbers[i] = jobs[i]->id;
	audit_outcome(request->audit, "%u job%s from %llu on", result.jobs.count,
		      result.jobs.count == 1 ? "" : "s", (unsigned long long)numbers[0]);
	request_tell(request, &result);
	loader_pool_turn(request->server->work.loaders);
	return 0;
}
