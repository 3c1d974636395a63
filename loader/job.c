#include "job.h"

#include "../base/clock.h"
#include "../proto/wire/messages.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int take_devices(const char *const *devices, uint32_t count, struct job *job, struct error *error)
{
	if (count == 0)
		return error_set(error, -EINVAL, NULL, "devices: between 1 and %d are taken, not 0",
				 PARTS_PER_VERSION_MAX);
	job->device_count = count;
	for (size_t i = 0; i < count; i++)
		snprintf(job->devices[i], sizeof(job->devices[i]), "%s", devices[i]);
	return 0;
}

static int take_roots(const char *const *paths, uint32_t count, struct roots *ret)
{
	ret->paths = calloc((size_t)count + 1, sizeof(*ret->paths));
	while (ret->paths && ret->count < count) {
		ret->paths[ret->count] = strdup(paths[ret->count]);
		if (!ret->paths[ret->count])
			return -ENOMEM;
		ret->count++;
	}
	return ret->paths ? 0 : -ENOMEM;
}

static int copy_text(const char *text, char **ret)
{
	*ret = text ? strdup(text) : NULL;
	return text && !*ret ? -ENOMEM : 0;
}

static int copy_list(const char *const *items, uint32_t count, struct peer_list *ret)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < count; i++) {
		r = copy_text(items[i], &ret->items[i]);
		ret->count += r == 0;
	}
	return r;
}

static int take_peers(const struct job_peers *peers, struct peer_settings *ret)
{
	int r = copy_text(peers->certificate, &ret->certificate);

	if (r == 0)
		r = copy_text(peers->key, &ret->key);
	if (r == 0)
		r = copy_text(peers->authority, &ret->authority);
	if (r == 0)
		r = copy_list(peers->secrets.items, peers->secrets.count, &ret->secrets);
	if (r == 0)
		r = copy_list(peers->names.items, peers->names.count, &ret->names);
	if (r == 0)
		r = copy_list(peers->peers.items, peers->peers.count, &ret->peers);
	return r < 0 ? r : copy_list(peers->dns.items, peers->dns.count, &ret->dns);
}

/* What is the job's own. */
static int take_load(const struct job_load_params *params, struct job *job)
{
	snprintf(job->source, sizeof(job->source), "%s", params->wish.source);
	snprintf(job->model, sizeof(job->model), "%s", params->model);
	snprintf(job->tag, sizeof(job->tag), "%s", params->tag);
	snprintf(job->alias, sizeof(job->alias), "%s", params->wish.alias ? params->wish.alias : "");
	job->dry_run = params->wish.dry_run;
	job->keep = params->keep;
	job->segment_bytes = params->wish.segment_bytes ? *params->wish.segment_bytes : 0;
	snprintf(job->share_with, sizeof(job->share_with), "%s",
		 params->wish.share_with ? params->wish.share_with : "");
	snprintf(job->expect, sizeof(job->expect), "%s",
		 params->wish.fingerprint ? params->wish.fingerprint : "");
	job->ranks = params->wish.choice.ranks ? (uint32_t)*params->wish.choice.ranks : 0;
	if (params->wish.choice.cut && !(job->cut = strdup(params->wish.choice.cut)))
		return -ENOMEM;
	if (params->peers && take_peers(params->peers, &job->peers) < 0)
		return -ENOMEM;
	job->key_count = params->wish.key.count;
	if (params->wish.key.items &&
	    !(job->key = key_fields_new(params->wish.key.items, params->wish.key.count)))
		return -ENOMEM;
	return params->roots.items ? take_roots(params->roots.items, params->roots.count, &job->roots) : 0;
}

static int parse_load(const struct message *message, struct packet *packet, struct job *job,
		      struct error *error)
{
	struct job_load_params params;
	int r = record_read(form_job_load.params, message, &params, error);

	job->kind = JOB_LOAD;
	if (r == 0)
		r = take_devices(params.wish.devices.items, params.wish.devices.count, job, error);
	if (r == 0 && take_load(&params, job) < 0)
		r = error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	if (r == 0 && params.files && packet_take_fd(packet, *params.files, &job->publisher) < 0)
		r = error_set(error, -EBADMSG, NULL, "the job came without the socket for its files");
	return r;
}

static int take_place(const struct job_place *place, struct job *job, struct error *error)
{
	if (place->world == 0 || place->world > UINT32_MAX || place->rank >= place->world)
		return error_set(error, -EINVAL, NULL, "the job is of rank %llu, but its world is %llu",
				 (unsigned long long)place->rank, (unsigned long long)place->world);
	job->rank = (uint32_t)place->rank;
	job->world = (uint32_t)place->world;
	snprintf(job->device, sizeof(job->device), "%s", place->device);
	return 0;
}

static int parse_check(const struct message *message, struct packet *packet, struct job *job,
		       struct error *error)
{
	struct job_check_params params;
	int r = record_read(form_job_check.params, message, &params, error);

	job->kind = JOB_CHECK;
	if (r == 0)
		r = take_place(&params.place, job, error);
	if (r < 0)
		return r;
	job->publish = *params.publish;
	job->bytes = params.bytes;
	job->keep = params.keep;
	if (packet_take_fd(packet, params.publisher, &job->publisher) < 0)
		return error_set(error, -EBADMSG, NULL, "the job came without the publisher's socket");
	return 0;
}

#define PACE_CHUNK_BYTES MIB(256) /* if the job says only `permille`: 60 us of an H200 */

static int take_pace(const struct job_verify_params *params, struct job *job, struct error *error)
{
	uint64_t permille = params->permille ? *params->permille : 1000;

	job->pace.chunk = params->chunk ? *params->chunk : PACE_CHUNK_BYTES;
	job->pace.permille = (unsigned)permille;
	job->paced = params->chunk || params->permille;
	if (permille == 0 || permille > 1000)
		return error_set(error, -EINVAL, NULL, "the job's permille is %llu; 1 to 1000 are possible",
				 (unsigned long long)permille);
	if (job->pace.chunk < MEMORY_PACE_CHUNK_MIN)
		return error_set(error, -EINVAL, NULL, "the job's chunk is %llu bytes; %d is the least",
				 (unsigned long long)job->pace.chunk, MEMORY_PACE_CHUNK_MIN);
	return 0;
}

static int take_part(const struct message *message, struct packet *packet, struct job *job, struct error *error)
{
	struct fields f;

	job->part = malloc(sizeof(*job->part));
	if (!job->part)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	part_init(job->part);
	fields_of(&f, message->body);
	if (hand_in_take(&f, packet, job->part) == 0)
		return 0;
	*error = f.error;
	if (error->code == -EBADMSG) /* which would say that the memory differs, and taint the version */
		error->code = -EPROTO;
	return error->code;
}

static int parse_verify(const struct message *message, struct packet *packet, struct job *job,
			struct error *error)
{
	struct job_verify_params params;
	int r = record_read(form_job_verify.params, message, &params, error);

	job->kind = JOB_VERIFY;
	if (r == 0)
		r = take_place(&params.place, job, error);
	if (r == 0)
		r = take_pace(&params, job, error);
	if (r < 0)
		return r;
	snprintf(job->model, sizeof(job->model), "%s", params.model);
	snprintf(job->tag, sizeof(job->tag), "%s", params.tag);
	return take_part(message, packet, job, error);
}

/* What is the job's own. */
static int take_move(const struct job_move_params *params, struct job *job)
{
	const struct memory_ops *ops = memory_ops_of(job->device);

	snprintf(job->model, sizeof(job->model), "%s", params->model);
	snprintf(job->tag, sizeof(job->tag), "%s", params->tag);
	snprintf(job->source, sizeof(job->source), "%s", params->source ? params->source : "");
	tier_find(params->from, &job->from); /* the message was checked for unknown tiers */
	tier_find(params->to, &job->to);
	job->keep = params->keep;
	job->ranks = params->choice.ranks ? (uint32_t)*params->choice.ranks : 0;
	/* A GPU is needed if its memory is read or written. */
	if (tier_has_memory(job->to) && (tier_is_resident(job->from) || tier_is_resident(job->to)) && ops &&
	    !ops->cpu_addresses) {
		snprintf(job->devices[0], sizeof(job->devices[0]), "%s", job->device);
		job->device_count = 1;
	}
	if (params->choice.cut && !(job->cut = strdup(params->choice.cut)))
		return -ENOMEM;
	return params->roots.items ? take_roots(params->roots.items, params->roots.count, &job->roots) : 0;
}

static int parse_move(const struct message *message, struct packet *packet, struct job *job,
		      struct error *error)
{
	struct job_move_params params;
	int r = record_read(form_job_move.params, message, &params, error);

	job->kind = JOB_MOVE;
	if (r == 0)
		r = take_place(&params.place, job, error);
	if (r == 0 && take_move(&params, job) < 0)
		r = error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	return r < 0 ? r : take_part(message, packet, job, error);
}

static int parse_hold(const struct message *message, struct packet *packet, struct job *job,
		      struct error *error)
{
	struct job_hold_params params;
	int r = record_read(form_job_hold.params, message, &params, error);

	job->kind = JOB_HOLD;
	if (r == 0)
		r = take_place(&params.place, job, error);
	if (r < 0)
		return r;
	snprintf(job->model, sizeof(job->model), "%s", params.model);
	snprintf(job->tag, sizeof(job->tag), "%s", params.tag);
	return take_part(message, packet, job, error);
}

static int parse_region(const struct message *message, struct job *job, struct error *error)
{
	struct job_region_params params;
	int r = record_read(form_job_region.params, message, &params, error);

	job->kind = JOB_REGION;
	if (r < 0)
		return r;
	job->region = *params.region;
	job->bytes = params.bytes;
	snprintf(job->device, sizeof(job->device), "%s", params.device);
	return 0;
}

static int parse_kind(const struct message *message, struct packet *packet, struct job *job,
		      struct error *error)
{
	struct job_head head;
	int r = record_read(&job_head_record, message, &head, error);

	if (r < 0)
		return r;
	if (strcmp(head.kind, "load") == 0)
		return parse_load(message, packet, job, error);
	if (strcmp(head.kind, "check") == 0)
		return parse_check(message, packet, job, error);
	if (strcmp(head.kind, "verify") == 0)
		return parse_verify(message, packet, job, error);
	if (strcmp(head.kind, "move") == 0)
		return parse_move(message, packet, job, error);
	if (strcmp(head.kind, "region") == 0)
		return parse_region(message, job, error);
	if (strcmp(head.kind, "hold") == 0)
		return parse_hold(message, packet, job, error);
	return error_set(error, -EINVAL, NULL, "there is no job of the kind \"%s\"", head.kind);
}

int job_parse(const struct message *message, struct packet *packet, struct job *ret, struct error *error)
{
	struct job *job = calloc(1, sizeof(*job));
	int r;

	if (!job)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	job->publisher = -1;
	r = parse_kind(message, packet, job, error);
	if (r < 0)
		job_clear(job);
	else
		*ret = *job;
	free(job);
	return r;
}

int job_parse_warm(const struct message *message, struct job *ret, struct error *error)
{
	struct warm_params params;
	int r = record_read(form_warm.params, message, &params, error);

	*ret = (struct job){.kind = JOB_LOAD, .keep = true, .publisher = -1};
	return r < 0 ? r : take_devices(params.devices.items, params.devices.count, ret, error);
}

void job_clear(struct job *job)
{
	roots_clear(&job->roots);
	peer_settings_clear(&job->peers);
	free(job->key);
	job->key = NULL;
	free(job->cut);
	job->cut = NULL;
	if (job->publisher >= 0)
		close(job->publisher);
	job->publisher = -1;
	if (job->part)
		part_close(job->part);
	free(job->part);
	job->part = NULL;
}

static int work_look(struct work *work)
{
	int r = connection_poll(work->connection, 0);

	if (work->cancelled)
		return -ECANCELED;
	return r < 0 ? -ECONNRESET : 0;
}

/* note may be NULL. */
static int work_tell(struct work *work, const char *note)
{
	struct message_writer w;
	int r;

	work->sent_ms = clock_steady_ms();
	message_write_notification(
		&w, &form_loader_progress,
		&(struct loader_progress_params){work->phase, work->done, work->total, note});
	r = connection_notify(work->connection, &w, NULL);
	message_writer_clear(&w);
	return r < 0 ? -ECONNRESET : 0;
}

int work_phase(struct work *work, const char *phase, uint64_t total)
{
	int r;

	work->phase = phase;
	work->done = 0;
	work->total = total;
	r = work_tell(work, NULL);
	return r < 0 ? r : work_look(work);
}

int work_advance(uint64_t bytes, void *user_data)
{
	struct work *work = user_data;
	int r = 0;

	work->done += bytes;
	if (clock_steady_ms() - work->sent_ms >= WORK_TELL_MS)
		r = work_tell(work, NULL);
	return r < 0 ? r : work_look(work);
}

void work_note(struct work *work, const char *format, ...)
{
	char note[TEXT_BYTES_MAX + 1];
	struct error line; /* makes one line of UTF-8, whatever names are in the note */
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(note, sizeof(note), format, arguments);
	va_end(arguments);
	error_set(&line, 0, NULL, "%s", note);
	work_tell(work, line.message);
}

int work_stopped(const struct work *work, int code, struct error *error)
{
	if (code == -ECANCELED)
		return error_set(error, code, NULL, "cancelled while %s", work->phase);
	return error_set(error, code, NULL, "gpuwmd went away while %s", work->phase);
}
