/* Versions on tiers: demote, promote, describe. */
#include "../request/call.h"
#include "load_files.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

static_assert(GPUWM_MOVE_JOBS_MAX == PARTS_PER_VERSION_MAX, "each part has a job");

static int moves_ask(struct gpuwm_client *client, const struct message_form *form, const void *params,
		     uint64_t jobs[GPUWM_MOVE_JOBS_MAX], size_t *ret_count)
{
	struct moves_result result;
	struct reply reply;
	struct error error;
	struct call call;
	int r = client_check(client, &error);

	if (r < 0)
		return client_fail(&error);
	call_begin(&call, client, form, params);
	r = call_run(&call, 0, &reply, &error);
	if (r < 0)
		return client_fail(&error);
	r = reply_read(&reply, form, &result, &error);
	if (r == 0) {
		memcpy(jobs, result.jobs.items, result.jobs.count * sizeof(*jobs));
		*ret_count = result.jobs.count;
	}
	reply_clear(&reply);
	return r < 0 ? client_fail(&error) : 0;
}

static int is_null(const char *what)
{
	struct error error;

	error_set(&error, -EINVAL, NULL, "%s was not given", what);
	return client_fail(&error);
}

int gpuwm_demote(struct gpuwm_client *client, const char *ref, const char *tier,
		 uint64_t ret_jobs[GPUWM_MOVE_JOBS_MAX], size_t *ret_count)
{
	const struct demote_params params = {.ref.text = ref, .to = tier};

	if (!ref || !tier)
		return is_null(ref ? "the tier" : "the ref to demote");
	return moves_ask(client, &form_demote, &params, ret_jobs, ret_count);
}

int gpuwm_promote(struct gpuwm_client *client, const char *ref, uint64_t ret_jobs[GPUWM_MOVE_JOBS_MAX],
		  size_t *ret_count)
{
	const struct promote_params params = {.ref.text = ref};

	if (!ref)
		return is_null("the ref to promote");
	return moves_ask(client, &form_promote, &params, ret_jobs, ret_count);
}

/* Each loader gets the files. */
static int describe_pass(struct gpuwm_client *client, const struct describe_params *params,
			 struct load_files *files, uint64_t jobs[GPUWM_MOVE_JOBS_MAX], size_t *ret_count,
			 struct error *error)
{
	struct moves_result result;
	struct reply reply;
	struct call call;
	int r;

	call_begin(&call, client, &form_describe, params);
	r = call_run(&call, 0, &reply, error);
	if (r < 0)
		return r;
	r = reply_read(&reply, &form_describe, &result, error);
	if (r == 0 && result.files.count != result.jobs.count)
		r = error_set(error, -EPROTO, NULL, "describe: %u jobs with %u sockets for their files",
			      result.jobs.count, result.files.count);
	for (uint32_t i = 0; r == 0 && i < result.files.count; i++)
		r = load_files_send(files, &reply.packet, &result.files.items[i], error);
	if (r == 0) {
		memcpy(jobs, result.jobs.items, result.jobs.count * sizeof(*jobs));
		*ret_count = result.jobs.count;
	}
	reply_clear(&reply);
	return r;
}

/* Who is no operator shows with the files that it may read them. */
static int describe_with_files(struct gpuwm_client *client, const struct describe_params *params,
			       uint64_t jobs[GPUWM_MOVE_JOBS_MAX], size_t *ret_count)
{
	struct load_files files = {0};
	struct error error;
	int r = load_files_of_folder(&files, params->source, &error);

	if (r < 0)
		return client_fail(&error);
	r = describe_pass(client, params, &files, jobs, ret_count, &error);
	for (size_t i = 0; i < files.count; i++)
		close(files.fds[i]);
	message_writer_clear(&files.message);
	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_describe(struct gpuwm_client *client, const char *ref, const char *source,
		   uint64_t ret_jobs[GPUWM_MOVE_JOBS_MAX], size_t *ret_count)
{
	struct describe_params params = {.ref.text = ref, .source = source};
	int r;

	if (!ref || !source)
		return is_null(ref ? "the source" : "the ref to describe");
	r = moves_ask(client, &form_describe, &params, ret_jobs, ret_count);
	if (r != -ENOTSUP) /* an operator, or another error */
		return r;
	params.files = true;
	return describe_with_files(client, &params, ret_jobs, ret_count);
}
