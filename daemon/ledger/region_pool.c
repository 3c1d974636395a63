/* Pools: chunks. Their users write the control memory while gpuwmd reads, so nothing here is exact. */
#include "region.h"

#include "../../proto/wire/messages_region.h"

#include <stdlib.h>

/* The users that hold the chunk, without those who have finished in a stream: their states stay until the owner uses the entry again. */
static uint32_t holders_now(const struct control *control, uint32_t i, uint64_t word)
{
	const uint64_t generation = atomic_load(&control->chunks[i].generation);
	uint32_t holders = chunk_word_users(word, CHUNK_HOLDING);

	for (uint32_t rest = holders; rest; rest &= rest - 1) {
		const unsigned slot = (unsigned)__builtin_ctz(rest);

		if (atomic_load(control_finished(control, i, slot)) >= generation)
			holders &= ~(UINT32_C(1) << slot);
	}
	return holders;
}

/* The chunk's word without them. */
static uint64_t word_now(const struct control *control, uint32_t i)
{
	const uint64_t word = atomic_load(&control->chunks[i].word);
	uint32_t gone = chunk_word_users(word, CHUNK_HOLDING) & ~holders_now(control, i, word);
	uint64_t now = word;

	for (; gone; gone &= gone - 1)
		now &= chunk_word_forget((unsigned)__builtin_ctz(gone));
	return now;
}

/* Returns false if the chunk is free. Bounds what the entry says by the region's memory. */
static bool read_chunk(const struct region *region, uint32_t i, struct region_chunk *ret)
{
	struct control_chunk *chunk = &region->control.chunks[i];
	const uint64_t all = region->is.bytes;

	*ret = (struct region_chunk){
		.chunk = i,
		.word = word_now(&region->control, i),
		.offset = atomic_load(&chunk->offset),
		.bytes = atomic_load(&chunk->bytes),
		.since_ms = atomic_load(&chunk->since_ms),
	};
	if (ret->offset > all)
		ret->offset = all;
	if (ret->bytes > all - ret->offset)
		ret->bytes = all - ret->offset;
	return ret->word != 0 && !chunk_word_is_free(ret->word);
}

static int by_offset(const void *a, const void *b)
{
	const struct region_chunk *one = a, *other = b;

	return (one->offset > other->offset) - (one->offset < other->offset);
}

/* Sorts the chunks. Entries that overlap leave less free than there is. */
static uint64_t largest_gap(const struct region *region, struct region_chunk *chunks, size_t count)
{
	uint64_t end = 0, largest = 0;

	qsort(chunks, count, sizeof(*chunks), by_offset);
	for (size_t i = 0; i < count; i++) {
		if (chunks[i].offset > end && chunks[i].offset - end > largest)
			largest = chunks[i].offset - end;
		if (chunks[i].offset + chunks[i].bytes > end)
			end = chunks[i].offset + chunks[i].bytes;
	}
	return region->is.bytes - end > largest ? region->is.bytes - end : largest;
}

static void add_bytes(const struct region *region, uint64_t bytes, struct region_figures *ret)
{
	const uint64_t all = region->is.bytes;

	ret->bytes_used = bytes < all - ret->bytes_used ? ret->bytes_used + bytes : all;
}

static void pool_look(const struct region *region, struct region_figures *ret)
{
	struct region_chunk *chunks = calloc(region->control.count + 1, sizeof(*chunks)), chunk;

	for (uint32_t i = 0; i < region->control.count; i++) {
		uint32_t users;

		if (!read_chunk(region, i, &chunk))
			continue;
		users = chunk_word_users(chunk.word, CHUNK_WAITING) |
			chunk_word_users(chunk.word, CHUNK_HOLDING);
		for (; users; users &= users - 1)
			ret->holds[__builtin_ctz(users)]++;
		add_bytes(region, chunk.bytes, ret);
		if (chunks)
			chunks[ret->chunks_used] = chunk;
		ret->chunks_used++;
	}
	if (chunks)
		ret->largest_free = largest_gap(region, chunks, ret->chunks_used);
	free(chunks);
}

/* Most chunks are free, or somebody waits for them: then their word tells it alone. */
static bool chunk_is_used(const struct control *control, uint32_t i)
{
	const uint64_t word = atomic_load(&control->chunks[i].word);

	if (chunk_word_is_free(word))
		return false;
	return chunk_word_open(word) > 0 || chunk_word_users(word, CHUNK_WAITING) ||
	       holders_now(control, i, word);
}

static void pool_count(const struct region *region, struct region_figures *ret)
{
	for (uint32_t i = 0; i < region->control.count; i++) {
		if (!chunk_is_used(&region->control, i))
			continue;
		ret->chunks_used++;
		add_bytes(region, atomic_load(&region->control.chunks[i].bytes), ret);
	}
}

size_t region_oldest(const struct region *region, struct region_chunk *ret, size_t most)
{
	const uint32_t all = region->control.head ? region->control.count : 0;
	struct region_chunk chunk;
	size_t count = 0;

	for (uint32_t i = 0; i < all; i++) {
		size_t at = count;

		if (!read_chunk(region, i, &chunk))
			continue;
		while (at > 0 && ret[at - 1].since_ms > chunk.since_ms)
			at--;
		if (at == most)
			continue;
		if (count < most)
			count++;
		for (size_t k = count - 1; k > at; k--)
			ret[k] = ret[k - 1];
		ret[at] = chunk;
	}
	return count;
}

const struct region_kind region_kind_pool = {
	.name = REGION_KIND_POOL,
	.item = "chunk",
	.has_owner = true,
	.count = pool_count,
	.look = pool_look,
};
