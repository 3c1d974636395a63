/* Loads: a loader makes a version from files. */
#include "job_kinds.h"
#include "../config/config.h"
#include "../ledger/device.h"
#include "sharing.h"
#include "versions.h"
#include "work.h"
#include "../../proto/key.h"

#include <errno.h>
#include <stdio.h>

static void put_texts(struct message_writer *w, const char *key, char *const *texts, size_t count)
{
	message_begin_array(w, key);
	for (size_t i = 0; i < count; i++)
		message_put_text(w, NULL, texts[i]);
	message_end(w);
}

static void put_key(struct message_writer *w, const struct job *job)
{
	message_begin_array(w, "key");
	for (uint32_t i = 0; i < job->key_count; i++)
		key_write(w, job->key[i].name, job->key[i].value);
	message_end(w);
}

/* model@tag, for what the loader says. */
static void put_shares(struct message_writer *w, const struct version *shares)
{
	char name[2 * NAME_BYTES_MAX + 2];

	snprintf(name, sizeof(name), "%s@%s", model_name(shares->model), shares->tag);
	message_put_text(w, "share_with", name);
}

static size_t put(struct message_writer *w, const struct job *job, const struct config *config,
		  int ret_fds[PACKET_FDS_MAX])
{
	(void)ret_fds;
	message_put_text(w, "source", job->source);
	message_put_text(w, "model", job->model);
	message_put_text(w, "tag", job->tag);
	message_begin_array(w, "devices");
	for (size_t i = 0; i < job->device_count; i++)
		message_put_text(w, NULL, job->devices[i]->id);
	message_end(w);
	put_texts(w, "roots", config->roots, config->root_count);
	if (job->alias[0])
		message_put_text(w, "alias", job->alias);
	if (job->key_count > 0)
		put_key(w, job);
	if (job->segment_bytes)
		message_put_u64(w, "segment_bytes", job->segment_bytes);
	if (job->shares)
		put_shares(w, job->shares);
	if (job->dry_run)
		message_put_bool(w, "dry_run", true);
	else if (config->keep_context_s > 0)
		message_put_bool(w, "keep", true);
	return 0;
}

/* A version that it began and did not finish fails. It lets go of shared segments before the version that has them is let go. */
static void end(struct work *work, struct job *job, const struct error *error)
{
	struct error unfinished;

	if (!error)
		error_set(&unfinished, -EIO, NULL, "gpuwm-loader ended its job without finishing it");
	versions_fail_of(work, job, error ? error : &unfinished, NULL);
	sharing_end(work, job);
}

const struct job_actions job_load = {.put = put, .end = end};
