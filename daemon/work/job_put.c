#include "job.h"
#include "../config/config.h"
#include "../ledger/device.h"
#include "verify.h"
#include "../../proto/key.h"

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

static void put_load(struct message_writer *w, const struct job *job, const struct config *config)
{
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
	if (job->dry_run)
		message_put_bool(w, "dry_run", true);
	else if (config->keep_context_s > 0)
		message_put_bool(w, "keep", true);
}

static void put_check(struct message_writer *w, const struct job *job)
{
	message_put_hex128(w, "publish", job->publish.bytes);
	message_put_u64(w, "rank", job->rank);
	message_put_u64(w, "world", job->world);
	message_put_text(w, "device", job->devices[0]->id);
	message_put_u64(w, "bytes", job->bytes);
	message_put_u64(w, "publisher", 0);
}

void job_put(struct message_writer *w, const struct job *job, const struct config *config)
{
	message_put_u64(w, "job", job->id);
	message_put_text(w, "kind", job_kind_name(job->kind));
	if (job->kind == JOB_LOAD)
		put_load(w, job, config);
	else if (job->kind == JOB_CHECK)
		put_check(w, job);
	else
		verify_put(w, job);
}
