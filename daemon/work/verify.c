#include "verify.h"
#include "job_kinds.h"
#include "work.h"
#include "versions.h"

#include <errno.h>

int verify_new(struct work *work, struct version *version, uint32_t replica, uid_t uid, struct job **ret_job,
	       struct error *error)
{
	const struct replica *part = &version->replicas[replica];
	struct job *job;
	int r = job_new(work, &(struct job_wish){JOB_VERIFY, model_name(version->model), version->tag, uid},
			&job, error);

	if (r < 0)
		return r;
	job->version = version->id;
	job->verifies = version;
	job->replica = replica;
	job->rank = part->rank;
	job->world = version->world;
	if (job_add_device(job, part->device) < 0) {
		job_drop(&work->jobs, job);
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	}
	*ret_job = job;
	return 0;
}

size_t verify_begin(struct job *job, int ret_fds[PACKET_FDS_MAX], bool *ret_close)
{
	const struct replica *part = &job->verifies->replicas[job->replica];

	*ret_close = false;
	job->verifies->readers++;
	ret_fds[0] = part->index.fd;
	for (uint32_t i = 0; i < part->segment_count; i++)
		ret_fds[i + 1] = part->segments[i].fd;
	return part->segment_count + 1;
}

void verify_put(struct message_writer *w, const struct job *job, const struct config *config)
{
	const struct replica *part = &job->verifies->replicas[job->replica];

	(void)config;
	message_put_text(w, "model", job->model);
	message_put_text(w, "tag", job->tag);
	message_put_u64(w, "rank", job->rank);
	message_put_u64(w, "world", job->world);
	message_put_text(w, "device", part->device->id);
	message_put_u64(w, "index", 0);
	message_put_u64(w, "index_bytes", part->index.bytes);
	message_begin_array(w, "segments");
	for (uint32_t i = 0; i < part->segment_count; i++) {
		message_begin_map(w, NULL);
		message_put_u64(w, "fd", i + 1);
		message_put_u64(w, "bytes", part->segments[i].bytes);
		message_end(w);
	}
	message_end(w);
	if (job->permille) {
		message_put_u64(w, "chunk", job->chunk);
		message_put_u64(w, "permille", job->permille);
	}
}

void verify_end(struct work *work, struct job *job, const struct error *error)
{
	struct version *version = job->verifies;

	job->verifies = NULL;
	if (!job->loader) /* it never ran */
		return;
	if (error && error->code == -EBADMSG)
		versions_taint(work, version, &version->replicas[job->replica], error);
	version->readers--;
	versions_free_unused(work, version);
}

const struct job_actions job_verify = {.put = verify_put, .begin = verify_begin, .end = verify_end};
