#include "move_internal.h"

#include "../devices/devices.h"

#include "../../base/bytes.h"

#include <errno.h>
#include <stdlib.h>

/* Host memory is there only when it is touched. If there is too little, the kernel kills a process, and it may not be this one. So the
 * loader looks before it touches any. */
static int move_check_room(const struct move *move)
{
	struct device_list list = {0};
	int r = device_kind_of(&kind_host)->list(&list, move->error);
	uint64_t available = r == 0 ? list.devices[0].free : 0;
	char needed[BYTES_TEXT], there[BYTES_TEXT];

	free(list.devices);
	if (r < 0 || move->bytes <= available)
		return r;
	return error_set(
		move->error, -ENOSPC, "see free -m; retire versions that nobody needs, or demote them to files",
		"host memory has no room for %s of %s@%s: %s are available", bytes_format(move->bytes, needed),
		move->params->model, move->params->tag, bytes_format(available, there));
}

int move_memory_make(struct move *move, const char *id)
{
	const struct memory_device *device = &move->device;
	const uint32_t count = segment_count(move);
	int r = work_phase(move->work, "allocating", 0);

	if (r == 0)
		r = memory_device_open(id, &move->device, move->error);
	if (r == 0 && move->device.ops->kind == &kind_host)
		r = move_check_room(move);
	if (r < 0)
		return r;
	move->segments = calloc((size_t)count + 1, sizeof(*move->segments));
	move->made = calloc((size_t)count + 1, sizeof(*move->made));
	for (uint32_t i = 0; move->segments && i < count; i++)
		move->segments[i].fd = -1;
	if (!move->segments || !move->made)
		return error_set(move->error, -ENOMEM, NULL, "no room to move %u segments", count);
	for (uint32_t i = 0, made = 0; r == 0 && i < count; i++) {
		struct memory_segment *segment = &move->segments[i];

		if (!move_makes(move, i))
			continue;
		r = device->ops->create(device, move->index.view.segments[i].bytes, segment, move->error);
		if (r == 0)
			r = device->ops->map(device, segment, MEMORY_WRITE, move->error);
		if (r == 0) {
			move->made[made++] = *segment;
			r = work_advance(0, move->work);
		}
	}
	return r;
}

/* A GPU fills 16 GiB in some 6 ms, so this does not look for the gaps between tensors. */
int move_memory_zero(struct move *move)
{
	const struct memory_device *device = &move->device;
	int r;

	if (device->ops->fresh_zeros)
		return 0;
	r = device->ops->enter(device, move->error);
	if (r < 0)
		return r;
	for (uint32_t i = 0; r == 0 && i < move_count_made(move); i++)
		r = device->ops->zero(device, &move->made[i], move->error);
	device->ops->leave(device);
	return r;
}

int move_memory_close(struct move *move)
{
	const struct memory_device *device = &move->device;
	int r = work_phase(move->work, "sealing", 0);

	for (uint32_t i = 0; r == 0 && i < segment_count(move); i++) {
		if (!move_makes(move, i))
			continue;
		device->ops->unmap(device, &move->segments[i]);
		r = device->ops->export(device, &move->segments[i], move->error);
		if (r == 0)
			r = work_advance(0, move->work);
	}
	return r;
}

void move_memory_list(const struct move *move, struct part *ret)
{
	part_init(ret);
	ret->index = move->of.part.index;
	for (uint32_t i = 0; move->segments && i < segment_count(move); i++)
		ret->segments[ret->segment_count++] =
			(struct part_fd){move_makes(move, i) ? move->segments[i].fd : move->twins[i],
					 move->index.view.segments[i].bytes};
}

void move_memory_free(struct move *move)
{
	for (uint32_t i = 0; move->segments && i < segment_count(move); i++)
		move->device.ops->release(&move->device, &move->segments[i]);
	free(move->segments);
	free(move->made);
	move->segments = move->made = NULL;
}

void move_tell_copied(struct move *move, const char *way, double seconds, unsigned threads)
{
	uint64_t rate = seconds > 0 ? (uint64_t)((double)move->bytes / seconds) : 0;
	char all[BYTES_TEXT], second[BYTES_TEXT];

	work_note(move->work, "copied %s %s in %.3f s (%s/s, %u threads)", bytes_format(move->bytes, all), way,
		  seconds, bytes_format(rate, second), threads);
}

int move_await_gpu(struct move *move)
{
	const struct ring *ring = prepare_ring(move->prepare);
	int r;

	if (!ring)
		return 0;
	r = work_phase(move->work, "starting the GPU", 0);
	if (r == 0)
		r = prepare_wait(move->prepare, work_advance, move->work, move->error);
	if (r == 0 && ring->note[0])
		work_note(move->work, "%s", ring->note);
	if (r == 0 && prepare_was_kept(move->prepare))
		work_note(move->work, "its CUDA contexts were kept for it");
	return r;
}
