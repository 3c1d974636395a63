#include "job.h"

#include "../proto/wire/messages.h"

#include <errno.h>
#include <stdalign.h>
#include <stdlib.h>

static int job_check_place(const struct job_place *place, struct error *error)
{
	if (place->world > 0 && place->world <= UINT32_MAX && place->rank < place->world)
		return 0;
	return error_set(error, -EINVAL, NULL, "the job is of rank %llu, but its world is %llu",
			 (unsigned long long)place->rank, (unsigned long long)place->world);
}

int job_make(const struct job_kind *kind, const struct message *message, struct packet *packet,
	     struct job **ret, struct error *error)
{
	alignas(max_align_t) char params[RECORD_BYTES_MAX];
	struct job *job;
	int r = record_read(kind->form->params, message, params, error);

	if (r == 0 && kind->place)
		r = job_check_place((const void *)(params + kind->place), error);
	if (r < 0)
		return r;
	job = calloc(1, kind->bytes);
	if (job)
		job->params = record_copy(kind->form->params, params);
	if (!job || !job->params) {
		free(job);
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	}
	job->kind = kind;
	if (kind->place) {
		job->place = (const void *)((const char *)job->params + kind->place);
		job->devices = &job->place->device;
		job->device_count = 1;
	}
	r = kind->take ? kind->take(job, message, packet, error) : 0;
	if (r < 0)
		job_free(job);
	else
		*ret = job;
	return r;
}

struct job *job_free(struct job *job)
{
	if (!job)
		return NULL;
	if (job->kind->clear)
		job->kind->clear(job);
	free((void *)job->params);
	free(job);
	return NULL;
}

int job_take_devices(struct job *job, const char *const *devices, uint32_t count, struct error *error)
{
	job->devices = devices;
	job->device_count = count;
	return count > 0 ? 0
			 : error_set(error, -EINVAL, NULL, "devices: between 1 and %d are taken, not 0",
				     PARTS_PER_VERSION_MAX);
}

int part_job_take(struct job *job, const struct message *message, struct packet *packet, struct error *error)
{
	struct part *part = &((struct part_job *)job)->part;
	struct fields f;

	part_init(part);
	fields_of(&f, message->body);
	if (hand_in_take(&f, packet, part) == 0)
		return 0;
	*error = f.error;
	if (error->code == -EBADMSG) /* which would say that the memory differs, and taint the version */
		error->code = -EPROTO;
	return error->code;
}

void part_job_clear(struct job *job)
{
	part_close(&((struct part_job *)job)->part);
}
