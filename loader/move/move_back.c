/* From a GPU to host memory: each thread has a buffer that the driver pinned, which it fills from the GPU and empties into a memfd.
 *
 * The pages of the memfds are made before. That takes most of the time, and many threads in one memfd only wait for each other there:
 * on an H200's machine 8 threads that wrote new memory reached 5 GB/s through mappings and 2.5 GB/s by calls, one thread that made
 * the pages first reached 8, and writing then went at 33. A memfd of a GPU's memory that is registered with the driver took twice as long
 * as all of that. */
#include "move_internal.h"

#include "../check.h"

#include "../../base/bytes.h"
#include "../../base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

struct back {
	struct move *move;
	struct memory_device from;
	bool twins[PART_SEGMENTS_MAX]; /* the check leaves them out */
	struct check_part of;
	struct check *check; /* of the GPU's memory, which it maps */
	bool huge_pages;
	size_t chunk;
	uint64_t pieces; /* of the largest segment */
};

/* Threads make the pages of different segments. What is asked for at once bounds the delay of a cancel. */
#define RESERVE_BYTES MIB(64)

/* Makes pages of a segment. fallocate makes small ones where the kernel gives huge pages only to mappings that ask for them
 * (shmem_enabled: advise). A kernel before 5.14 can't make them through the mapping. */
static int make_pages(const struct back *back, const struct memory_segment *segment, uint64_t at,
		      uint64_t bytes)
{
	int r = -1;

	errno = EINVAL;
	if (back->huge_pages)
		r = madvise((char *)segment->address + at, bytes, MADV_POPULATE_WRITE);
	if (r < 0 && errno == EINVAL)
		r = fallocate(segment->fd, 0, (off_t)at, (off_t)bytes);
	return r < 0 ? -errno : 0;
}

/* The function of the team: one segment. */
static int back_reserve(struct team *team, uint64_t item, unsigned member, void *data, struct error *error)
{
	const struct back *back = data;
	const struct memory_segment *segment = &back->move->segments[item];
	char needed[BYTES_TEXT];
	int r;

	(void)member;
	if (!move_makes(back->move, (uint32_t)item))
		return 0;
	for (uint64_t at = 0, bytes; at < segment->bytes; at += bytes) {
		bytes = segment->bytes - at < RESERVE_BYTES ? segment->bytes - at : RESERVE_BYTES;
		do
			r = make_pages(back, segment, at, bytes);
		while (r == -EINTR);
		if (r < 0)
			return error_set(error, -ENOSPC, "see free -m; retire versions that nobody needs",
					 "no room for %s of host memory: %s",
					 bytes_format(segment->bytes, needed), strerror(-r));
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

	if (!move_makes(back->move, segment) || offset >= back->move->segments[segment].bytes)
		return 0;
	left = back->move->segments[segment].bytes - offset;
	bytes = left < back->chunk ? (size_t)left : back->chunk;
	r = from->ops->enter(from, error);
	if (r < 0)
		return r;
	r = from->ops->read(from, buffer, (const char *)check_segment(back->check, segment) + offset, bytes,
			    error);
	from->ops->leave(from);
	if (r < 0)
		return r;
	if (check_adds(back->check, segment))
		check_add(back->check, segment, offset, buffer, bytes);
	memcpy((char *)back->move->segments[segment].address + offset, buffer, bytes);
	team_add(team, bytes);
	return 0;
}

static int map_all(struct back *back)
{
	struct move *move = back->move;
	int r = memory_device_open(move->params->place.device, &back->from, move->error);

	for (uint32_t i = 0; r == 0 && i < segment_count(move); i++) {
		const uint64_t pieces = move->of.part.segments[i].bytes / back->chunk + 1;

		back->twins[i] = !move_makes(move, i);
		back->pieces = move_makes(move, i) && pieces > back->pieces ? pieces : back->pieces;
	}
	back->of = check_part_at(&move->params->place, &move->of.part);
	back->of.left_out = back->twins;
	if (r == 0)
		r = check_open(&back->of, &back->check, move->error);
	/* A memory that can't be mapped says nothing about the version's bytes. */
	return r == -EBADMSG ? (move->error->code = -EIO) : r;
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

/* Of what arrived, as far as it was digested on its way. */
static int back_compare(struct back *back)
{
	struct move *move = back->move;
	int r = check_added(back->check, move->error);

	if (r == -EBADMSG)
		return move_blame(move);
	for (uint32_t i = 0; r == 0 && i < segment_count(move); i++)
		move->compared[i] = check_adds(back->check, i);
	return r;
}

int move_back(struct move *move)
{
	struct back back = {.move = move, .chunk = COPY_CHUNK_BYTES, .huge_pages = host_pages_are_huge()};
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
	if (r == 0)
		r = back_compare(&back);
	check_close(back.check);
	return r;
}
