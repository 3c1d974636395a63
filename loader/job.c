#include "job.h"

#include "hand_in.h"

#include "../client/lib/clock.h"
#include "../proto/messages.h"
#include "../proto/methods.h"

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

static int take_roots(const struct job_load_params *params, struct roots *ret)
{
	ret->paths = calloc((size_t)params->roots.count + 1, sizeof(*ret->paths));
	while (ret->paths && ret->count < params->roots.count) {
		ret->paths[ret->count] = strdup(params->roots.items[ret->count]);
		if (!ret->paths[ret->count])
			return -ENOMEM;
		ret->count++;
	}
	return ret->paths ? 0 : -ENOMEM;
}

/* What is the job's own. */
static int take_load(const struct job_load_params *params, struct job *job)
{
	snprintf(job->source, sizeof(job->source), "%s", params->source);
	snprintf(job->model, sizeof(job->model), "%s", params->model);
	snprintf(job->tag, sizeof(job->tag), "%s", params->tag);
	snprintf(job->alias, sizeof(job->alias), "%s", params->alias ? params->alias : "");
	job->dry_run = params->dry_run;
	job->keep = params->keep;
	job->segment_bytes = params->segment_bytes ? *params->segment_bytes : 0;
	snprintf(job->share_with, sizeof(job->share_with), "%s", params->share_with ? params->share_with : "");
	job->key_count = params->key.count;
	if (params->key.items && !(job->key = key_fields_new(params->key.items, params->key.count)))
		return -ENOMEM;
	return params->roots.items ? take_roots(params, &job->roots) : 0;
}

static void parse_load(struct fields *f, const struct message *message, struct job *job)
{
	struct job_load_params params;

	job->kind = JOB_LOAD;
	if (record_read(form_job_load.params, message, &params, &f->error) < 0 ||
	    take_devices(params.devices.items, params.devices.count, job, &f->error) < 0)
		return;
	if (take_load(&params, job) < 0)
		error_set(&f->error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
}

static void parse_place(struct fields *f, struct job *job)
{
	uint64_t rank = fields_u64(f, "rank"), world = fields_u64(f, "world");

	fields_text(f, "device", job->device, sizeof(job->device));
	if (!f->error.code && (world == 0 || world > UINT32_MAX || rank >= world))
		error_set(&f->error, -EINVAL, NULL, "the job is of rank %llu, but its world is %llu",
			  (unsigned long long)rank, (unsigned long long)world);
	job->rank = (uint32_t)rank;
	job->world = (uint32_t)world;
}

static void parse_check(struct fields *f, struct packet *packet, struct job *job)
{
	uint64_t publisher;
	uint8_t id[16];

	job->kind = JOB_CHECK;
	parse_place(f, job);
	fields_hex128(f, "publish", id);
	job->bytes = fields_u64(f, "bytes");
	publisher = fields_u64(f, "publisher");
	if (!f->error.code && packet_take_fd(packet, publisher, &job->publisher) < 0)
		error_set(&f->error, -EBADMSG, NULL, "the job came without the publisher's socket");
	if (!f->error.code)
		hex128_format(id, job->publish);
}

#define PACE_CHUNK_BYTES MIB(256) /* if the job says only `permille`: 60 us of an H200 */

static void parse_pace(struct fields *f, struct job *job)
{
	uint64_t permille = fields_u64_or(f, "permille", 1000);

	job->pace.chunk = fields_u64_or(f, "chunk", PACE_CHUNK_BYTES);
	job->pace.permille = (unsigned)permille;
	job->paced = fields_have(f, "chunk") || fields_have(f, "permille");
	if (!f->error.code && (permille == 0 || permille > 1000))
		error_set(&f->error, -EINVAL, NULL, "the job's permille is %llu; 1 to 1000 are possible",
			  (unsigned long long)permille);
	if (!f->error.code && job->pace.chunk < MEMORY_PACE_CHUNK_MIN)
		error_set(&f->error, -EINVAL, NULL, "the job's chunk is %llu bytes; %d is the least",
			  (unsigned long long)job->pace.chunk, MEMORY_PACE_CHUNK_MIN);
}

static void parse_verify(struct fields *f, struct packet *packet, struct job *job)
{
	job->kind = JOB_VERIFY;
	fields_text(f, "model", job->model, sizeof(job->model));
	fields_text(f, "tag", job->tag, sizeof(job->tag));
	parse_place(f, job);
	parse_pace(f, job);
	job->part = malloc(sizeof(*job->part));
	if (!job->part) {
		error_set(&f->error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
		return;
	}
	part_init(job->part);
	/* EBADMSG would say that the memory differs, and taint the version. */
	if (!f->error.code && hand_in_take(f, packet, job->part) == -EBADMSG)
		f->error.code = -EPROTO;
}

int job_parse(const struct message *message, struct packet *packet, struct job *ret, struct error *error)
{
	struct job *job = calloc(1, sizeof(*job));
	struct fields f;
	char kind[16];

	if (!job)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	job->publisher = -1;
	fields_of(&f, message->body);
	job->number = fields_u64(&f, "job");
	fields_text(&f, "kind", kind, sizeof(kind));
	if (!f.error.code && strcmp(kind, "load") == 0)
		parse_load(&f, message, job);
	else if (!f.error.code && strcmp(kind, "check") == 0)
		parse_check(&f, packet, job);
	else if (!f.error.code && strcmp(kind, "verify") == 0)
		parse_verify(&f, packet, job);
	else if (!f.error.code)
		error_set(&f.error, -EINVAL, NULL, "there is no job of the kind \"%s\"", kind);
	if (f.error.code) {
		*error = f.error;
		job_clear(job);
	} else {
		*ret = *job;
	}
	free(job);
	return f.error.code;
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
	free(job->key);
	job->key = NULL;
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

	work->sent_ms = clock_ms();
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
	if (clock_ms() - work->sent_ms >= WORK_TELL_MS)
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
