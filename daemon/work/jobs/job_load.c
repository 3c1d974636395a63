#include "job_load.h"
#include "../../config/config.h"
#include "../../ledger/device.h"
#include "../versions/sharing.h"
#include "../versions/versions.h"
#include "../work.h"
#include "../../../service/peers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int load_job_new(struct work *work, const struct load_params *params, uid_t uid, bool by_operator,
		 struct load_job **ret_load, struct error *error)
{
	const struct ref *name = &params->name.ref;
	struct load_job *load;
	struct job *job;
	int r = job_new(work, &(struct job_wish){JOB_LOAD, name->model, name->name, uid, by_operator}, &job,
			error);

	if (r < 0)
		return r;
	load = load_job_of(job);
	load->params = record_copy(form_load.params, params);
	if (!load->params) {
		job_drop(&work->jobs, job);
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	}
	job->source = load->params->wish.source;
	job->dry_run = params->wish.dry_run;
	*ret_load = load;
	return 0;
}

struct job_peers job_peers_of(const struct peer_settings *settings)
{
	return (struct job_peers){
		.certificate = settings->certificate,
		.key = settings->key,
		.authority = settings->authority,
		.secrets = {(const char *const *)settings->secrets.items, (uint32_t)settings->secrets.count},
		.names = {(const char *const *)settings->names.items, (uint32_t)settings->names.count},
		.peers = {(const char *const *)settings->peers.items, (uint32_t)settings->peers.count},
		.dns = {(const char *const *)settings->dns.items, (uint32_t)settings->dns.count},
		.listen = settings->listen,
		.clear = settings->clear,
	};
}

/* The wish goes on as it came, but for the devices and the version to share with, which gpuwmd has found by now. */
static size_t load_put(struct message_writer *w, const struct job *job, const struct config *config,
		       int ret_fds[PACKET_FDS_MAX])
{
	const struct load_job *load = load_job_of(job);
	char shares[2 * NAME_BYTES_MAX + 2]; /* model@tag, for what the loader says */
	const char *devices[PARTS_PER_VERSION_MAX];
	const struct job_peers peers = job_peers_of(&config->peers);
	const uint64_t first = 0;
	const bool passes = job->publisher_sock >= 0;
	struct job_load_params params = {
		.wish = load->params->wish,
		.model = job->model,
		.tag = job->tag,
		.roots = {(const char *const *)config->roots, (uint32_t)config->root_count},
		/* A loader that has parsed a user's files makes nobody else's version: warm_is_for_loads. */
		.keep = !job->dry_run && !job->takes_turns && config->keep_context_s > 0,
		.peers = peer_source(job->source) ? &peers : NULL,
		.files = passes ? &first : NULL,
	};

	for (size_t i = 0; i < job->device_count; i++)
		devices[i] = job->devices[i]->id;
	params.wish.devices.items = devices;
	params.wish.devices.count = (uint32_t)job->device_count;
	if (load->shares) {
		snprintf(shares, sizeof(shares), "%s@%s", model_name(load->shares->model), load->shares->tag);
		params.wish.share_with = shares;
	}
	record_put(w, form_job_load.params, &params);
	ret_fds[0] = job->publisher_sock;
	return passes;
}

/* A version that it began and did not finish fails. It lets go of shared segments before the version that has them is let go. */
static void load_end(struct work *work, struct job *job, const struct error *error)
{
	struct error unfinished;

	if (!error)
		error_set(&unfinished, -EIO, NULL, "gpuwm-loader ended its job without finishing it");
	versions_fail_of(work, job, error ? error : &unfinished, NULL);
	sharing_end(work, load_job_of(job));
}

static void load_free(struct job *job)
{
	struct load_job *load = load_job_of(job);

	free(load->params);
	free(load->groups);
	free(load->plan);
}

const struct job_actions job_load = {
	.size = sizeof(struct load_job),
	.put = load_put,
	.begin = job_hand_on,
	.end = load_end,
	.clear = job_close_socket,
	.free = load_free,
};
