/* From host memory to a GPU. A memfd is a file that is cached, so the pipeline of loads carries it: each segment that is made is a file
 * with one tensor. What lies between the version's tensors goes along. */
#include "move_internal.h"

#include "../devices/lanes.h"

#include "../../base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct forth {
	struct move *move;
	struct source source;
	uint32_t positions[PART_SEGMENTS_MAX]; /* of the source's files among the segments */
	void **addresses; /* of the new segments, in that order */
	struct copy_target target;
};

/* Makes sure that the memory is what gpuwmd says, and that nobody changes it meanwhile. */
static int check_memory(struct move *move, uint32_t position)
{
	const struct part_fd *of = &move->of.part.segments[position];
	struct memory_device host;
	struct memory_segment segment;
	struct error why;
	int r = memory_device_open(DEVICE_HOST, &host, move->error);

	if (r < 0)
		return r;
	r = host.ops->import(&host, of->fd, of->bytes, true, &segment, &why);
	if (r < 0)
		return error_set(move->error, -EIO, why.detail, "segment %u of %s@%s in host memory: %s",
				 position, move->params->model, move->params->tag, why.message);
	host.ops->release(&host, &segment);
	return 0;
}

static int add_segment(struct forth *forth, uint32_t position)
{
	const struct move *move = forth->move;
	const uint32_t number = (uint32_t)forth->source.file_count;
	const struct part_fd *of = &move->of.part.segments[position];
	struct source_file *file = &forth->source.files[number];
	int r = check_memory(forth->move, position);

	if (r < 0)
		return r;
	forth->positions[number] = position;
	forth->source.file_count = forth->source.tensor_count = number + 1;
	if (asprintf(&file->path, "segment %u of %s@%s in host memory", position, move->params->model,
		     move->params->tag) < 0) {
		file->path = NULL;
		return error_set(move->error, -ENOMEM, NULL, "out of memory");
	}
	file->fd = of->fd;
	if (fstat(of->fd, &file->stat) < 0)
		return error_set(move->error, -EIO, NULL, "%s: %s", file->path, strerror(errno));
	forth->source.tensors[number] = (struct source_tensor){.name = "", .file = number, .bytes = of->bytes};
	return 0;
}

static int make_source(struct forth *forth)
{
	struct move *move = forth->move;
	const uint32_t count = segment_count(move);
	struct source *source = &forth->source;
	int r = 0;

	source->files = calloc((size_t)count + 1, sizeof(*source->files));
	source->tensors = calloc((size_t)count + 1, sizeof(*source->tensors));
	forth->addresses = calloc((size_t)count + 1, sizeof(*forth->addresses));
	if (!source->files || !source->tensors || !forth->addresses)
		return error_set(move->error, -ENOMEM, NULL, "no room to move %u segments", count);
	source->bytes = move->bytes;
	for (uint32_t i = 0; r == 0 && i < count; i++) {
		if (move_makes(move, i))
			r = add_segment(forth, i);
	}
	return r;
}

/* The function `open` of struct copy, which runs beside the first reads. */
static int open_lanes(struct lanes **ret, void *data, struct error *error)
{
	struct forth *forth = data;
	struct move *move = forth->move;
	int r = move_memory_make(move, move->params->place.device);

	for (uint32_t i = 0; r == 0 && i < move_count_made(move); i++)
		forth->addresses[i] = move->segments[forth->positions[i]].address;
	if (r == 0)
		r = move_await_gpu(move);
	forth->target = (struct copy_target){
		.device = &move->device,
		.addresses = forth->addresses,
		.segments = move->made,
		.segment_count = move_count_made(move),
	};
	if (r == 0)
		r = lanes_open(&forth->target, 1, prepare_ring(move->prepare)->count, &move->lanes, error);
	*ret = move->lanes;
	return r < 0 ? r : work_phase(move->work, "copying", move->bytes);
}

/* The GPU digests what arrived there, so the CPU need not. */
static int forth_copy(struct forth *forth)
{
	struct move *move = forth->move;
	const struct copy copy = {
		.source = &forth->source,
		.targets = &forth->target,
		.target_count = 1,
		.readers = prepare_readers(move->prepare),
		.ring = prepare_ring(move->prepare),
		.open = open_lanes,
		.open_data = forth,
		.undigested = true,
		.progress = work_advance,
		.user_data = move->work,
	};
	struct copy_report report;
	int r = copy_run(&copy, NULL, &report, move->error);

	if (r == 0)
		move_tell_copied(move, "from host memory", report.seconds, report.readers);
	return r;
}

int move_forth(struct move *move)
{
	struct forth forth = {.move = move};
	int r = prepare_buffers(move->prepare, move->bytes, move->error);

	if (r == 0)
		r = make_source(&forth);
	if (r == 0)
		r = prepare_wait_buffers(move->prepare, work_advance, move->work, move->error);
	if (r == 0)
		r = forth_copy(&forth);
	/* Bytes may be on their way to addresses of the target. */
	move->lanes = lanes_close(move->lanes);
	/* The descriptors stay the job's. */
	for (size_t i = 0; forth.source.files && i < forth.source.file_count; i++)
		free(forth.source.files[i].path);
	free(forth.source.files);
	free(forth.source.tensors);
	free(forth.addresses);
	return r;
}
