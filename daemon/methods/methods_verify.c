#include "methods.h"
#include "../work/loader.h"
#include "../work/verify.h"

#include <errno.h>
#include <string.h>

/* Which replicas. */
struct wanted {
	struct version *version;
	char device[DEVICE_BYTES_MAX + 1]; /* "": on every one */
	uint64_t rank;
	bool has_rank;
};

static int wanted_fields(struct request *request, struct fields *params, struct wanted *wanted,
			 struct error *error)
{
	int r;

	fields_text_or(params, "device", wanted->device, sizeof(wanted->device), "");
	wanted->has_rank = fields_have(params, "rank");
	wanted->rank = fields_u64_or(params, "rank", 0);
	struct ref ref;

	params_ref(params, "ref", &ref);
	r = params_check(params, error);
	if (r == 0)
		r = find_version(request, &ref, &wanted->version, error);
	return r < 0 ? r : access_operate(request->session, wanted->version->model, METHOD_VERIFY, error);
}

static int check_wanted(const struct wanted *wanted, struct error *error)
{
	const struct version *version = wanted->version;
	const char *model = model_name(version->model);

	if (version->freeing || (version->state != VERSION_READY && version->state != VERSION_RETIRING))
		return error_set(error, -EINVAL, "only what is ready or retiring is verified", "%s@%s is %s",
				 model, version->tag,
				 version->freeing ? "being freed" : version_state_name(version->state));
	if (wanted->rank >= version->world)
		return error_set(error, -EINVAL, NULL, "%s@%s has no rank %llu: its world is %u", model,
				 version->tag, (unsigned long long)wanted->rank, version->world);
	return 0;
}

static bool is_wanted(const struct wanted *wanted, const struct replica *replica)
{
	return (!wanted->has_rank || replica->rank == wanted->rank) &&
	       (!wanted->device[0] || strcmp(replica->device->id, wanted->device) == 0);
}

static void drop_all(struct server *server, struct job *const *jobs, uint32_t count)
{
	while (count > 0)
		job_drop(&server->work.jobs, jobs[--count]);
}

/* All of them or none. */
static int make_jobs(const struct request *request, const struct wanted *wanted,
		     struct job *ret_jobs[PARTS_PER_VERSION_MAX], uint32_t *ret_count, struct error *error)
{
	struct server *server = request->server;
	struct version *version = wanted->version;
	uint32_t count = 0;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < version->replica_count; i++) {
		if (!is_wanted(wanted, &version->replicas[i]))
			continue;
		r = verify_new(&server->work, version, i, request->session->peer.uid, &ret_jobs[count], error);
		count += r == 0;
	}
	if (r == 0 && count == 0)
		r = error_set(error, -ENODEV, "list tells where its parts are", "%s@%s has no such part on %s",
			      model_name(version->model), version->tag, wanted->device);
	if (r < 0)
		drop_all(server, ret_jobs, count);
	*ret_count = count;
	return r;
}

int method_verify(struct request *request, void *params, struct error *error)
{
	struct job *jobs[PARTS_PER_VERSION_MAX];
	struct message_writer w;
	struct wanted wanted;
	uint32_t count = 0;
	int r = params_open(request->server, error);

	if (r == 0)
		r = wanted_fields(request, params, &wanted, error);
	if (r == 0)
		r = check_wanted(&wanted, error);
	if (r == 0)
		r = make_jobs(request, &wanted, jobs, &count, error);
	if (r < 0)
		return r;
	request_result(request, &w);
	message_begin_array(&w, "jobs");
	for (uint32_t i = 0; i < count; i++)
		message_put_u64(&w, NULL, jobs[i]->id);
	message_end(&w);
	request_answer(request, &w);
	loader_pool_turn(request->server->work.loaders);
	return 0;
}
