/* Loads: a loader makes a version from files. */
#include "job_kinds.h"
#include "../../config/config.h"
#include "../../ledger/device.h"
#include "../versions/sharing.h"
#include "../versions/versions.h"
#include "../work.h"
#include "../../../proto/wire/messages.h"
#include "../../../service/peer_source.h"

#include <errno.h>
#include <stdio.h>

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
			.source = job->source,
			.model = job->model,
			.tag = job->tag,
			.devices = {devices, (uint32_t)job->device_count},
			.roots = {(const char *const *)config->roots, (uint32_t)config->root_count},
			.alias = job->alias[0] ? job->alias : NULL,
			.dry_run = job->dry_run,
			/* A loader that has parsed a user's files makes nobody else's version: work/loaders/loader_warm.h. */
			.keep = !job->dry_run && !job->takes_turns && config->keep_context_s > 0,
			.key = {job->key_count > 0 ? key : NULL, job->key_count},
			.segment_bytes = job->segment_bytes ? &job->segment_bytes : NULL,
			.share_with = job->shares ? shares : NULL,
			.ranks = job->cut ? &job->ranks : NULL,
			.cut = job->cut,
			.fingerprint = job->fingerprint[0] ? job->fingerprint : NULL,
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
