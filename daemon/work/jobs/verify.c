#include "verify.h"
#include "job.h"
#include "../../ledger/relocation.h"
#include "../versions/sharing.h"
#include "../work.h"
#include "../versions/versions.h"
#include "../../../proto/wire/messages.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A move is about to close what the loader would read. */
static int check_here(const struct version *version, struct error *error)
{
	const char *model = model_name(version->model);

	if (!tier_has_memory(version->tier))
		return error_set(error, -EINVAL, "promoting it verifies it",
				 "%s@%s lies on %s: there is no memory to verify", model, version->tag,
				 tier_name(version->tier));
	if (version->moving_to != version->tier)
		return error_set(error, -EBUSY, "wait for the end of that, which verifies it",
				 "%s@%s is on its way from %s to %s", model, version->tag,
				 tier_name(version->tier), tier_name(version->moving_to));
	return 0;
}

/* on: the device whose memory is read, or NULL: files are. */
static int verify_make(struct work *work, struct version *version, uint32_t replica, uid_t uid,
		       struct device *on, struct job **ret_job, struct error *error)
{
	const struct replica *part = &version->replicas[replica];
	struct device *reader = on ? on : device_find(&work->ledger->devices, DEVICE_HOST);
	struct job *job;
	int r;

	if (!reader)
		return error_set(error, -ENODEV, "try again in a moment",
				 "no loader has reported its devices yet");
	r = job_new(work, &(struct job_wish){JOB_VERIFY, model_name(version->model), version->tag, uid, true},
		    &job, error);
	if (r < 0)
		return r;
	if (!on)
		job->source = verify_job_of(job)->source = strdup(version->description->source);
	job->version = version->id;
	job->reads = version;
	job->replica = replica;
	job->rank = part->rank;
	job->world = version->world;
	if ((!on && !job->source) || job_add_device(job, reader) < 0) {
		job_drop(&work->jobs, job);
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	}
	*ret_job = job;
	return 0;
}

int verify_new(struct work *work, struct version *version, uint32_t replica, uid_t uid, struct job **ret_job,
	       struct error *error)
{
	int r = check_here(version, error);

	return r < 0 ? r
		     : verify_make(work, version, replica, uid, version->replicas[replica].lies_on, ret_job,
				   error);
}

int verify_new_of_copy(struct work *work, struct version *version, uint32_t replica, uid_t uid,
		       struct job **ret_job, struct error *error)
{
	const struct replica *part = &version->replicas[replica];
	int r;

	if (!part->spares)
		return error_set(error, -EINVAL, "verify its devices", "rank %u of %s@%s has no host copy",
				 part->rank, model_name(version->model), version->tag);
	r = verify_make(work, version, replica, uid, part->spares_on, ret_job, error);
	if (r == 0)
		verify_job_of(*ret_job)->of_copy = true;
	return r;
}

int verify_new_of_source(struct work *work, struct version *version, uint32_t replica, uid_t uid,
			 struct job **ret_job, struct error *error)
{
	char remedy[3 * NAME_BYTES_MAX];
	const char *model = model_name(version->model);

	if (description_has_files(version->description))
		return verify_make(work, version, replica, uid, NULL, ret_job, error);
	snprintf(remedy, sizeof(remedy), "gpuwmctl save %s@%s FOLDER writes files for it", model, version->tag);
	return error_set(error, -EINVAL, remedy,
			 "%s@%s has no source: no files are known from which it would come back", model,
			 version->tag);
}

bool verify_begin(struct job *job)
{
	job->reads->readers++;
	return false;
}

size_t verify_put(struct message_writer *w, const struct job *job, const struct config *config,
		  int ret_fds[PACKET_FDS_MAX])
{
	const struct verify_job *verify = verify_job_of(job);
	const struct replica *replica = &job->reads->replicas[job->replica];
	const struct description *files = verify->source ? job->reads->description : NULL;
	struct job_verify_params params = {
		.model = job->model,
		.tag = job->tag,
		.place = {job->rank, job->world, job->devices[0]->id},
		.chunk = verify->permille ? &verify->chunk : NULL,
		.permille = verify->permille ? &verify->permille : NULL,
	};
	struct part part;

	if (files) {
		params.source = files->source;
		params.choice = files->choice;
		params.by_publisher = files->by_publisher;
		params.roots.items = (const char *const *)config->roots;
		params.roots.count = (uint32_t)config->root_count;
	}
	record_put(w, form_job_verify.params, &params);
	if (verify->of_copy && replica->spares) /* a demotion may have made it the version's memory */
		replica_list_copy(replica, &part);
	else
		replica_list(replica, &part);
	if (files) /* the index has the digests */
		part.segment_count = 0;
	return part_write(w, &part, ret_fds);
}

void verify_taint(struct work *work, const struct job *job, struct version *version, const struct error *found)
{
	const struct replica *replica = &version->replicas[job->replica];

	versions_taint(work, version, replica, found);
	if (job->found_segment && job->damaged_segment < replica->segment_count)
		sharing_taint(work, version, replica, job->damaged_segment, found);
}

/* It goes, and the version is sound. */
static void verify_damn_copy(struct work *work, const struct job *job, const struct version *version,
			     const struct error *found)
{
	const struct replica *replica = &version->replicas[job->replica];

	log_error("the host copy of rank %u of %s@%s is damaged, and is given up: %s", replica->rank,
		  model_name(version->model), version->tag, found->message);
	for (uint32_t i = 0; i < replica->spare_count; i++) {
		if (!job->found_segment || i == job->damaged_segment)
			sharing_damn_copy(work, replica, i, found);
	}
}

/* The host copy becomes the version's memory, and what is damaged goes. A promotion compares every digest. Returns false if it can't, because
 * somebody has the memory mapped, for example. */
static bool verify_heal(struct work *work, const struct job *job, struct version *version,
			const struct error *found)
{
	const struct replica *replica = &version->replicas[job->replica];
	char reason[DEVICE_BYTES_MAX + 64];

	if (!work->heal || !version_has_whole_copy(version) || version_awake_leases(version) > 0)
		return false;
	if (job->found_segment && job->damaged_segment < replica->segment_count)
		sharing_taint(work, version, replica, job->damaged_segment, found);
	snprintf(reason, sizeof(reason), "its memory on %s is damaged", replica->device->id);
	if (!work->heal(work, version, reason))
		return false;
	log_error("%s@%s is damaged on %s: its host copy takes its place: %s", model_name(version->model),
		  version->tag, replica->device->id, found->message);
	return true;
}

/* What lies there now is not what was read, if the version has moved. Files say nothing about the memory. */
static void verify_judge(struct work *work, const struct job *job, struct version *version,
			 const struct error *found)
{
	const struct replica *replica = &version->replicas[job->replica];

	if (verify_job_of(job)->of_copy && replica->spares_on == job->devices[0])
		verify_damn_copy(work, job, version, found);
	else if (!verify_job_of(job)->source && replica->lies_on == job->devices[0] &&
		 !verify_heal(work, job, version, found))
		verify_taint(work, job, version, found);
}

void verify_end(struct work *work, struct job *job, const struct error *error)
{
	struct version *version = job->reads;

	job->reads = NULL;
	if (!job->loader) /* it never ran */
		return;
	version->readers--;
	if (error && error->code == -EBADMSG)
		verify_judge(work, job, version, error);
	versions_free_unused(work, version);
}

static void verify_free(struct job *job)
{
	free(verify_job_of(job)->source);
}

const struct job_actions job_verify = {
	.size = sizeof(struct verify_job),
	.is_of_part = true,
	.put = verify_put,
	.begin = verify_begin,
	.end = verify_end,
	.free = verify_free,
};
