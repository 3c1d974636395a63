/* The allocator of a pool's owner, against a map of what is free. */
#include "client/region/pool.h"
#include "base/limits.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define UNITS_MAX 64

/* A pool of so many units of CHUNK_ALIGN bytes, and what is in use of it. */
struct model {
	struct pool_space space;
	unsigned units;
	unsigned char owner[UNITS_MAX]; /* 0: free, else the number of the chunk */
	struct pool_piece chunks[UNITS_MAX + 1]; /* by number; bytes 0: there is none */
};

static void model_begin(struct model *model, unsigned units)
{
	memset(model, 0, sizeof(*model));
	model->units = units;
	cr_assert(eq(int, pool_space_init(&model->space, units * CHUNK_ALIGN + 17, units), 0));
}

/* The smallest run of free units that has room, or 0. *ret_at is the first of those. */
static unsigned best_run(const struct model *model, unsigned need, unsigned *ret_at)
{
	unsigned best = 0, run = 0;

	for (unsigned i = 0; i <= model->units; i++) {
		if (i < model->units && model->owner[i] == 0) {
			run++;
			continue;
		}
		if (run >= need && (best == 0 || run < best)) {
			best = run;
			*ret_at = i - run;
		}
		run = 0;
	}
	return best;
}

/* Free pieces are the runs of free units, in their order. */
static void model_check(const struct model *model)
{
	uint32_t piece = 0;
	uint64_t all = 0, largest = 0;

	for (unsigned i = 0; i < model->units; i++) {
		unsigned end = i;

		while (end < model->units && model->owner[end] == 0)
			end++;
		if (end == i)
			continue;
		cr_assert(piece < model->space.count);
		cr_assert(model->space.pieces[piece].offset == i * CHUNK_ALIGN &&
			  model->space.pieces[piece].bytes == (end - i) * CHUNK_ALIGN);
		all += (end - i) * CHUNK_ALIGN;
		largest = (end - i) * CHUNK_ALIGN > largest ? (end - i) * CHUNK_ALIGN : largest;
		piece++;
		i = end;
	}
	cr_assert(piece == model->space.count && all == model->space.free);
	cr_assert(largest == pool_space_largest(&model->space));
}

static unsigned unused_number(const struct model *model)
{
	unsigned number = 1;

	while (model->chunks[number].bytes > 0)
		number++;
	return number;
}

static void mark(struct model *model, uint64_t offset, unsigned units, unsigned number)
{
	memset(&model->owner[offset / CHUNK_ALIGN], (int)number, units);
}

static void model_take(struct model *model, uint64_t bytes)
{
	const unsigned need = (unsigned)((bytes + CHUNK_ALIGN - 1) / CHUNK_ALIGN);
	const unsigned number = unused_number(model);
	unsigned at = 0;
	uint64_t offset;
	int r;

	if (best_run(model, need, &at) == 0) {
		r = pool_space_take(&model->space, bytes, &offset);
		cr_assert(r == -EAGAIN);
		return;
	}
	r = pool_space_take(&model->space, bytes, &offset);
	cr_assert(r == 0 && offset == at * CHUNK_ALIGN);
	model->chunks[number] = (struct pool_piece){offset, bytes};
	mark(model, offset, need, number);
}

static void model_give(struct model *model, unsigned number)
{
	const struct pool_piece chunk = model->chunks[number];

	pool_space_give(&model->space, chunk.offset, chunk.bytes);
	mark(model, chunk.offset, (unsigned)((chunk.bytes + CHUNK_ALIGN - 1) / CHUNK_ALIGN), 0);
	model->chunks[number].bytes = 0;
}

static bool all_free(const struct model *model, uint64_t first, unsigned units)
{
	for (unsigned i = 0; i < units; i++) {
		if (first + i >= model->units || model->owner[first + i])
			return false;
	}
	return true;
}

static void model_claim(struct model *model, uint64_t offset, uint64_t bytes)
{
	const unsigned need = (unsigned)((bytes + CHUNK_ALIGN - 1) / CHUNK_ALIGN);
	const unsigned number = unused_number(model);
	const bool fits = offset % CHUNK_ALIGN == 0 && all_free(model, offset / CHUNK_ALIGN, need);

	cr_assert(pool_space_claim(&model->space, offset, bytes) == (fits ? 0 : -EINVAL));
	if (!fits)
		return;
	model->chunks[number] = (struct pool_piece){offset, bytes};
	mark(model, offset, need, number);
}

/* Goes on from the model in each possible way. */
static unsigned long go_on(const struct model *from, unsigned depth)
{
	struct pool_piece pieces[UNITS_MAX + 1];
	unsigned long count = 1;

	model_check(from);
	if (depth == 0)
		return count;
	for (unsigned step = 1; step <= 3 * from->units; step++) {
		struct model next = *from;
		const unsigned number = step - from->units;

		memcpy(pieces, from->space.pieces, (from->units + 1) * sizeof(*pieces));
		next.space.pieces = pieces;
		if (step <= from->units)
			model_take(&next, step * CHUNK_ALIGN - 1);
		else if (number > from->units)
			model_claim(&next, (number - from->units - 1) * CHUNK_ALIGN, CHUNK_ALIGN + 1);
		else if (from->chunks[number].bytes > 0)
			model_give(&next, number);
		else
			continue;
		count += go_on(&next, depth - 1);
	}
	return count;
}

Test(pool_space, all_sequences_of_six_steps_in_five_units, .timeout = 120)
{
	struct model model;

	model_begin(&model, 5);
	cr_assert(go_on(&model, 6) > 100000);
	pool_space_clear(&model.space);
}

Test(pool_space, random_steps_and_all_is_one_piece_at_the_end, .timeout = 120)
{
	struct model model;
	unsigned seed = 17;

	model_begin(&model, UNITS_MAX);
	for (unsigned i = 0; i < 200000; i++) {
		const unsigned number = 1 + (unsigned)rand_r(&seed) % UNITS_MAX;
		const uint64_t bytes = 1 + (unsigned)rand_r(&seed) % (12 * CHUNK_ALIGN);

		if (model.chunks[number].bytes > 0)
			model_give(&model, number);
		else if (number % 8 == 0)
			model_claim(&model, (unsigned)rand_r(&seed) % UNITS_MAX * (CHUNK_ALIGN / 2), bytes);
		else
			model_take(&model, bytes);
		model_check(&model);
	}
	for (unsigned number = 1; number <= UNITS_MAX; number++) {
		if (model.chunks[number].bytes > 0)
			model_give(&model, number);
	}
	model_check(&model);
	cr_assert(eq(u64, model.space.count, 1));
	pool_space_clear(&model.space);
}

Test(pool_space, numbers_without_room)
{
	struct pool_space space;
	uint64_t offset;

	cr_assert(eq(int, pool_space_init(&space, 1000, 4), 0));
	cr_assert(eq(u64, space.bytes, 768));
	cr_assert(eq(int, pool_space_take(&space, UINT64_MAX, &offset), -EAGAIN));
	cr_assert(eq(int, pool_space_take(&space, 769, &offset), -EAGAIN));
	cr_assert(eq(int, pool_space_claim(&space, UINT64_MAX - 255, 1), -EINVAL));
	cr_assert(eq(int, pool_space_claim(&space, 0, UINT64_MAX), -EINVAL));
	cr_assert(eq(int, pool_space_claim(&space, 768, 1), -EINVAL));
	cr_assert(eq(int, pool_space_claim(&space, 128, 1), -EINVAL));
	cr_assert(eq(u64, space.free, 768));
	pool_space_clear(&space);
}
