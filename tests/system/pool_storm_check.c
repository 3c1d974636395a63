/* What must be true of the pool while nobody does anything. */
#include "pool_storm.h"

#include "../../proto/control.h"

#include <stdio.h>

/* The library has mapped the control memory; no other region is open here. */
static struct control control_mapped(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	void *first = NULL;

	cr_assert(maps);
	while (!first && fgets(line, sizeof line, maps)) {
		if (strstr(line, "memfd:gpuwm-control"))
			cr_assert(sscanf(line, "%p-", &first) == 1);
	}
	fclose(maps);
	cr_assert(first, "the control memory is not mapped");
	return control_at(first, (struct control_shape){.chunks = POOL_CHUNKS});
}

static uint32_t users_here(const struct control *control)
{
	uint32_t here = 0;

	for (unsigned i = 0; i < REGION_USERS_MAX; i++)
		here |= (uint32_t)(atomic_load(&control->head->users[i].here) != 0) << i;
	return here;
}

static uint32_t users_wanted(const struct pool_storm *s)
{
	struct gpuwm_region_info info;
	uint32_t wanted;

	gpuwm_region_info(s->pool, &info);
	wanted = 1u << info.slot;
	for (unsigned i = 0; i < POOL_WORKERS; i++)
		wanted |= 1u << atomic_load(&s->board->told[i].slot);
	return wanted;
}

/* Who reads the chunk by what the workers say. */
static uint32_t readers_told(const struct pool_storm *s, const struct control *control, uint32_t chunk)
{
	uint32_t readers = 0;

	for (unsigned i = 0; i < POOL_WORKERS; i++) {
		const struct pool_told *told = &s->board->told[i];

		for (unsigned n = 0; n < told->reading; n++) {
			const struct gpuwm_token *token = &told->tokens[n];

			if (token->chunk != chunk)
				continue;
			cr_assert_eq(token->generation, control->chunks[chunk].generation,
				     "chunk %u is used again while worker %u reads it", chunk, i);
			cr_assert_eq(token->offset, control->chunks[chunk].offset);
			readers |= 1u << told->slot;
		}
	}
	return readers;
}

/* Who fills the chunk by what the workers say. */
static uint32_t writer_told(const struct pool_storm *s, const struct control_chunk *entry)
{
	for (unsigned i = 0; i < POOL_WORKERS; i++) {
		const struct pool_told *told = &s->board->told[i];

		for (unsigned n = 0; n < told->filling; n++) {
			if (told->filled_at[n] == entry->offset && told->slot == entry->writer)
				return 1u << told->slot;
		}
	}
	return 0;
}

static uint32_t holders_of(const struct control *control, uint32_t chunk)
{
	const struct control_chunk *entry = &control->chunks[chunk];
	uint32_t holders = chunk_word_users(entry->word, CHUNK_HOLDING);

	for (unsigned i = 0; i < REGION_USERS_MAX; i++) {
		if (*control_finished(control, chunk, i) >= entry->generation)
			holders &= ~(1u << i);
	}
	return holders;
}

/* Returns how many bytes it takes. */
static uint64_t check_chunk(const struct pool_storm *s, const struct control *control, uint32_t chunk)
{
	const struct control_chunk *entry = &control->chunks[chunk];
	const uint32_t holders = holders_of(control, chunk);
	const uint32_t readers = readers_told(s, control, chunk);

	if (entry->generation == 0)
		return 0;
	if (entry->written < entry->generation)
		cr_assert_eq(holders, writer_told(s, entry), "chunk %u: %#x hold it, word %#jx", chunk, holders,
			     (uintmax_t)entry->word);
	else
		cr_assert_eq(holders, readers, "chunk %u: %#x hold it, %#x say so, word %#jx", chunk, holders,
			     readers, (uintmax_t)entry->word);
	cr_assert_eq(chunk_word_users(entry->word, CHUNK_WAITING) & ~users_here(control), 0,
		     "chunk %u waits for the dead, word %#jx", chunk, (uintmax_t)entry->word);
	return control_chunk_is_free(control, chunk) ? 0 : (entry->bytes + 255) / 256 * 256;
}

static void check_apart(const struct control *control, uint32_t a, uint32_t b)
{
	const struct control_chunk *x = &control->chunks[a], *y = &control->chunks[b];

	cr_assert(x->offset + x->bytes <= y->offset || y->offset + y->bytes <= x->offset,
		  "chunks %u and %u have bytes in common", a, b);
}

void pool_check(struct pool_storm *s)
{
	const struct control control = control_mapped();
	struct gpuwm_pool_figures figures;
	uint64_t used[POOL_CHUNKS], all = 0;

	cr_assert(EVENTUALLY(SETTLE_MS, users_here(&control) == users_wanted(s)),
		  "users %#x are there, not %#x", users_here(&control), users_wanted(s));
	for (uint32_t i = 0; i < POOL_CHUNKS; i++) {
		used[i] = check_chunk(s, &control, i);
		all += used[i];
		for (uint32_t n = 0; n < i; n++) {
			if (used[i] && used[n])
				check_apart(&control, i, n);
		}
	}
	OK(gpuwm_pool_figures(s->pool, &figures));
	cr_assert_eq(figures.used, all);
	cr_assert_eq(figures.used + figures.free, POOL_BYTES);
	s->checks++;
}
