/* What is particular to the kinds of jobs that have no file of their own. */
#include "job.h"
#include "../../config/config.h"
#include "../../ledger/device.h"
#include "../versions/sharing.h"
#include "../versions/versions.h"
#include "../work.h"
#include "../../../proto/wire/messages.h"
#include "../../../service/peers.h"
#include "../versions/publishers.h"
#include "copies.h"
#include "../regions/regions.h"

#include <errno.h>
#include <stdio.h>

/* ---- loads: a loader makes a version from files ---- */

/* What a loader needs to ask other nodes. The paths and names stay the configuration's. */
static struct job_peers list_peers(const struct peer_settings *settings)
{
	return (struct job_peers){
		.certificate = settings->certificate,
		.key = settings->key,
		.authority = settings->authority,
		.secrets = {(const char *const *)settings->secrets.items, (uint32_t)settings->secrets.count},
		.names = {(const char *const *)settings->names.items, (uint32_t)settings->names.count},
		.peers = {(const char *const *)settings->peers.items, (uint32_t)settings->peers.count},
		.dns = {(const char *const *)settings->dns.items, (uint32_t)settings->dns.count},
	};
}

static size_t job_load_put(struct message_writer *w, const struct job *job, const struct config *config,
			   int ret_fds[PACKET_FDS_MAX])
{
	char shares[2 * NAME_BYTES_MAX + 2]; /* model@tag, for what the loader says */
	const char *devices[PARTS_PER_VERSION_MAX];
	struct key_pair key[KEY_FIELDS_MAX];
	const struct job_peers peers = list_peers(&config->peers);
	const uint64_t first = 0;
	const bool passes = job->publisher_sock >= 0;

	if (job->shares)
		snprintf(shares, sizeof(shares), "%s@%s", model_name(job->shares->model), job->shares->tag);
	for (size_t i = 0; i < job->device_count; i++)
		devices[i] = job->devices[i]->id;
	for (uint32_t i = 0; i < job->key_count; i++)
		key[i] = (struct key_pair){job->key[i].name, job->key[i].value};
	record_put(
		w, form_job_load.params,
		&(struct job_load_params){
			.wish.source = job->source,
			.model = job->model,
			.tag = job->tag,
			.wish.devices = {devices, (uint32_t)job->device_count},
			.roots = {(const char *const *)config->roots, (uint32_t)config->root_count},
			.wish.alias = job->alias[0] ? job->alias : NULL,
			.wish.dry_run = job->dry_run,
			/* A loader that has parsed a user's files makes nobody else's version: warm_is_for_loads. */
			.keep = !job->dry_run && !job->takes_turns && config->keep_context_s > 0,
			.wish.key = {job->key_count > 0 ? key : NULL, job->key_count},
			.wish.segment_bytes = job->segment_bytes ? &job->segment_bytes : NULL,
			.wish.share_with = job->shares ? shares : NULL,
			.wish.ranks = job->cut ? &job->ranks : NULL,
			.wish.cut = job->cut,
			.wish.fingerprint = job->fingerprint[0] ? job->fingerprint : NULL,
			.peers = peer_source(job->source) ? &peers : NULL,
			.files = passes ? &first : NULL,
		});
	ret_fds[0] = job->publisher_sock;
	return passes;
}

/* A version that it began and did not finish fails. It lets go of shared segments before the version that has them is let go. */
static void job_load_end(struct work *work, struct job *job, const struct error *error)
{
	struct error unfinished;

	if (!error)
		error_set(&unfinished, -EIO, NULL, "gpuwm-loader ended its job without finishing it");
	versions_fail_of(work, job, error ? error : &unfinished, NULL);
	sharing_end(work, job);
}

const struct job_actions job_load = {
	.put = job_load_put, .begin = job_hand_on, .end = job_load_end, .clear = job_close_socket};

/* ---- checks: a loader reads what a publisher handed in, before anybody gets it ---- */

static size_t job_check_put(struct message_writer *w, const struct job *job, const struct config *config,
			    int ret_fds[PACKET_FDS_MAX])
{
	record_put(w, form_job_check.params,
		   &(struct job_check_params){
			   .publish = &job->publish,
			   .place = {job->rank, job->world, job->devices[0]->id},
			   .bytes = job->bytes,
			   .publisher = 0,
			   .keep = job->is_one_of_many && job->devices[0]->context > 0 &&
				   config->keep_checker_s > 0,
		   });
	ret_fds[0] = job->publisher_sock;
	return job->publisher_sock >= 0;
}

/* A part that it did not finish fails its version. */
static void job_check_end(struct work *work, struct job *job, const struct error *error)
{
	struct publish *publish = publish_find(work->ledger->publishes, &job->publish);
	struct publish_part *part = publish ? publish_part_find(publish, job->rank, job->devices[0]) : NULL;
	struct error unfinished;

	if (!part || part->checker != job)
		return;
	if (publish->version->replicas[part->replica].checked) {
		part->checker = NULL;
		return;
	}
	if (!error)
		error_set(&unfinished, -EIO, NULL, "gpuwm-loader ended its job without finishing it");
	versions_fail(work, publish, error ? error : &unfinished, NULL);
}

static void job_check_clear(struct job *job)
{
	job->hand_in = hand_in_forget(job->hand_in);
	job_close_socket(job);
}

const struct job_actions job_check = {
	.put = job_check_put, .begin = job_hand_on, .end = job_check_end, .clear = job_check_clear};

/* ---- holds: a loader makes a copy of a part in memory of cuMemAlloc, and stays as long as the copy is needed ---- */

static size_t job_hold_put(struct message_writer *w, const struct job *job, const struct config *config,
			   int ret_fds[PACKET_FDS_MAX])
{
	const struct replica *replica = &job->verifies->replicas[job->replica];
	struct part part;

	(void)config;
	record_put(w, form_job_hold.params,
		   &(struct job_hold_params){
			   .model = job->model,
			   .tag = job->tag,
			   .place = {job->rank, job->world, replica->device->id},
		   });
	replica_list(replica, &part);
	return part_write(w, &part, ret_fds);
}

/* The loader reads the version until it has copied it. */
static bool job_hold_begin(struct job *job)
{
	job->verifies->readers++;
	return false;
}

static void job_hold_end(struct work *work, struct job *job, const struct error *error)
{
	struct version *version = job->verifies;
	const bool has_begun = job->loader;

	job->verifies = NULL;
	copies_job_ended(work, job, error);
	if (!has_begun)
		return;
	version->readers--;
	versions_free_unused(work, version);
}

const struct job_actions job_hold = {.put = job_hold_put, .begin = job_hold_begin, .end = job_hold_end};

/* ---- regions: a loader makes the memory of a region, since gpuwmd touches no device ---- */

static size_t job_region_put(struct message_writer *w, const struct job *job, const struct config *config,
			     int ret_fds[PACKET_FDS_MAX])
{
	(void)config;
	(void)ret_fds;
	record_put(w, form_job_region.params,
		   &(struct job_region_params){&job->region, job->devices[0]->id, job->bytes});
	return 0;
}

static void job_region_end(struct work *work, struct job *job, const struct error *error)
{
	regions_job_ended(work, job, error);
}

const struct job_actions job_region = {.put = job_region_put, .end = job_region_end};
