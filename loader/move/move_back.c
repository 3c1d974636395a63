/* From a GPU to host memory: each thread has a buffer that the driver pinned, which it fills from the GPU and empties into a memfd.
 *
 * The pages of the memfds are made before. That takes most of the time, and many threads in one memfd only wait for each other there:
 * on an H200's machine 8 threads that wrote new memory reached 5 GB/s through mappings and 2.5 GB/s by calls, one thread that made
 * the pages first reached 8, and writing then went at 33. A memfd of a GPU's memory that is registered with the driver took twice as long
 * as all of that. */
#include "move_internal.h"

#include "../../base/clock.h"

#include "../../base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

struct back {
	struct move *move;
	struct memory_device from;
	struct memory_segment *segments; /* of the GPU, mapped for reading */
	size_t chunk;
	uint64_t pieces; /* of the largest segment */
};

/* Threads make the pages of different segments. What is asked for at once bounds the delay of a cancel. */
#define RESERVE_BYTES MIB(64)

/* The function of the team: one segment. */
static int back_reserve(struct team *team, uint64_t item, unsigned member, void *data, struct error *error)
{
	const struct back *back = data;
	const struct memory_segment *segment = &back->move->segments[item];
	char needed[BYTES_TEXT];

	(void)member;
	if (!move_makes(back->move, (uint32_t)item))
		return 0;
	for (uint64_t at = 0, bytes; at < segment->bytes; at += bytes) {
		bytes = segment->bytes - at < RESERVE_BYTES ? segment->bytes - at : RESERVE_BYTES;
		while (fallocate(segment->fd, 0, (off_t)at, (off_t)bytes) < 0)
			if (errno != EINTR)
				return error_set(error, -ENOSPC,
						 "see free -m; retire versions that nobody needs",
						 "no room for %s of host memory: %s",
						 bytes_format(segment->bytes, needed), strerror(errno));
		if (!team_add(team, bytes))
			return 0;
	}
	return 0;
}

static int reserve_all(struct back *back)
{
	struct move *move = back->move;
	const struct team_work work = {
		.run = back_reserve,
		.data = back,
		.count = segment_count(move),
		.members = copy_readers(1),
		.progress = work_advance,
		.user_data = move->work,
	};
	int r = work_phase(move->work, "allocating", move->bytes);

	return r < 0 ? r : team_run(&work, move->error);
}

/* The function of the team: one piece. */
static int back_carry(struct team *team, uint64_t item, unsigned member, void *data, struct error *error)
{
	struct back *back = data;
	const struct memory_device *from = &back->from;
	char *buffer = ring_buffer(prepare_ring(back->move->prepare), member);
	/* Pieces take turns in the segments. */
	const uint32_t count = segment_count(back->move), segment = (uint32_t)(item % count);
	const uint64_t offset = item / count * back->chunk;
	uint64_t left;
	size_t bytes;
	int r;

	if (!move_makes(back->move, segment) || offset >= back->segments[segment].bytes)
		return 0;
	left = back->segments[segment].bytes - offset;
	bytes = left < back->chunk ? (size_t)left : back->chunk;
	r = from->ops->enter(from, error);
	if (r < 0)
		return r;
	r = from->ops->read(from, buffer, (char *)back->segments[segment].address + offset, bytes, error);
	from->ops->leave(from);
	if (r < 0)
		return r;
	memcpy((char *)back->move->segments[segment].address + offset, buffer, bytes);
	team_add(team, bytes);
	return 0;
}

static int map_one(struct back *back, uint32_t position)
{
	struct move *move = back->move;
	const struct part_fd *of = &move->of.part.segments[position];
	struct error why;
	int r = back->from.ops->import(&back->from, of->fd, of->bytes, true, &back->segments[position], &why);

	if (r == 0)
		r = back->from.ops->map(&back->from, &back->segments[position], MEMORY_READ, &why);
	if (r < 0)
		return error_set(move->error, r == -EBADMSG ? -EIO : r, why.detail, "segment %u of %s@%s: %s",
				 position, move->params->model, move->params->tag, why.message);
	if (of->bytes / back->chunk + 1 > back->pieces)
		back->pieces = of->bytes / back->chunk + 1;
	return 0;
}

static int map_all(struct back *back)
{
	struct move *move = back->move;
	const uint32_t count = segment_count(move);
	int r = memory_device_open(move->params->place.device, &back->from, move->error);

	back->segments = calloc((size_t)count + 1, sizeof(*back->segments));
	if (r == 0 && !back->segments)
		r = error_set(move->error, -ENOMEM, NULL, "no room to move %u segments", count);
	for (uint32_t i = 0; back->segments && i < count; i++)
		back->segments[i].fd = -1;
	for (uint32_t i = 0; r == 0 && i < count; i++) {
		if (move_makes(move, i))
			r = map_one(back, i);
	}
	return r;
}

static int back_copy(struct back *back)
{
	struct move *move = back->move;
	const struct ring *ring = prepare_ring(move->prepare);
	const size_t buffers = ring_usable(ring);
	const struct team_work work = {
		.run = back_carry,
		.data = back,
		.count = back->pieces * segment_count(move),
		.members = buffers < copy_readers(1) ? (unsigned)buffers : copy_readers(1),
		.progress = work_advance,
		.user_data = move->work,
	};
	double begun;
	int r = work_phase(move->work, "copying", move->bytes);

	begun = clock_steady_seconds();
	if (r == 0)
		r = team_run(&work, move->error);
	if (r == 0)
		move_tell_copied(move, "to host memory", clock_steady_seconds() - begun, work.members);
	return r;
}

int move_back(struct move *move)
{
	struct back back = {.move = move, .chunk = COPY_CHUNK_BYTES};
	int r = prepare_buffers(move->prepare, move->bytes, move->error);

	if (r == 0)
		r = move_memory_make(move, DEVICE_HOST);
	if (r == 0)
		r = map_all(&back);
	if (r == 0)
		r = reserve_all(&back);
	if (r == 0)
		r = move_await_gpu(move);
	if (r == 0)
		r = back_copy(&back);
	for (uint32_t i = 0; back.segments && i < segment_count(move); i++)
		back.from.ops->release(&back.from, &back.segments[i]);
	free(back.segments);
	return r;
}
