#include "pool.h"

#include "../../base/limits.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int pool_space_init(struct pool_space *space, uint64_t bytes, uint32_t chunks)
{
	/* Between two chunks that are in use there is at most one free piece. */
	*space = (struct pool_space){.bytes = bytes / CHUNK_ALIGN * CHUNK_ALIGN};
	space->pieces = calloc((size_t)chunks + 1, sizeof(*space->pieces));
	if (!space->pieces)
		return -ENOMEM;
	space->free = space->bytes;
	if (space->bytes > 0)
		space->pieces[space->count++] = (struct pool_piece){0, space->bytes};
	return 0;
}

void pool_space_clear(struct pool_space *space)
{
	free(space->pieces);
	*space = (struct pool_space){0};
}

uint64_t pool_space_rounded(uint64_t bytes)
{
	return bytes > UINT64_MAX - CHUNK_ALIGN ? 0 : (bytes + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN;
}

static void piece_remove(struct pool_space *space, uint32_t at)
{
	space->count--;
	memmove(&space->pieces[at], &space->pieces[at + 1], (space->count - at) * sizeof(*space->pieces));
}

static void piece_insert(struct pool_space *space, uint32_t at, struct pool_piece piece)
{
	memmove(&space->pieces[at + 1], &space->pieces[at], (space->count - at) * sizeof(*space->pieces));
	space->pieces[at] = piece;
	space->count++;
}

int pool_space_take(struct pool_space *space, uint64_t bytes, uint64_t *ret_offset)
{
	const uint64_t need = pool_space_rounded(bytes);
	struct pool_piece *best = NULL;

	if (need == 0)
		return -EAGAIN;
	for (uint32_t i = 0; i < space->count; i++) {
		struct pool_piece *piece = &space->pieces[i];

		if (piece->bytes >= need && (!best || piece->bytes < best->bytes))
			best = piece;
	}
	if (!best)
		return -EAGAIN;
	*ret_offset = best->offset;
	best->offset += need;
	best->bytes -= need;
	space->free -= need;
	if (best->bytes == 0)
		piece_remove(space, (uint32_t)(best - space->pieces));
	return 0;
}

/* The position of the first free piece that begins behind the offset. */
static uint32_t piece_behind(const struct pool_space *space, uint64_t offset)
{
	uint32_t low = 0, high = space->count;

	while (low < high) {
		const uint32_t middle = low + (high - low) / 2;

		if (space->pieces[middle].offset > offset)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

int pool_space_claim(struct pool_space *space, uint64_t offset, uint64_t bytes)
{
	const uint64_t need = pool_space_rounded(bytes);
	const uint32_t behind = piece_behind(space, offset);
	struct pool_piece *piece;
	uint64_t before, after;

	if (need == 0 || behind == 0 || offset % CHUNK_ALIGN != 0)
		return -EINVAL;
	piece = &space->pieces[behind - 1];
	before = offset - piece->offset;
	if (before >= piece->bytes || need > piece->bytes - before)
		return -EINVAL;
	after = piece->bytes - before - need;
	piece->bytes = before;
	if (after > 0)
		piece_insert(space, behind, (struct pool_piece){offset + need, after});
	if (before == 0)
		piece_remove(space, behind - 1);
	space->free -= need;
	return 0;
}

void pool_space_give(struct pool_space *space, uint64_t offset, uint64_t bytes)
{
	const uint64_t need = pool_space_rounded(bytes);
	const uint32_t at = piece_behind(space, offset);
	struct pool_piece *before = at > 0 ? &space->pieces[at - 1] : NULL;
	struct pool_piece *after = at < space->count ? &space->pieces[at] : NULL;
	const bool touches_before = before && before->offset + before->bytes == offset;
	const bool touches_after = after && offset + need == after->offset;

	space->free += need;
	if (touches_before) {
		before->bytes += need + (touches_after ? after->bytes : 0);
		if (touches_after)
			piece_remove(space, at);
	} else if (touches_after) {
		after->offset = offset;
		after->bytes += need;
	} else {
		piece_insert(space, at, (struct pool_piece){offset, need});
	}
}

uint64_t pool_space_largest(const struct pool_space *space)
{
	uint64_t largest = 0;

	for (uint32_t i = 0; i < space->count; i++) {
		if (space->pieces[i].bytes > largest)
			largest = space->pieces[i].bytes;
	}
	return largest;
}
