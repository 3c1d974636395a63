/* What must be true of the pool while nobody does anything. */
#include "pool_storm.h"

static unsigned slot_of(const struct pool_storm *s, unsigned worker)
{
	return atomic_load(&s->storm.board->told[worker].slot);
}

/* Who reads the chunk by what the workers say. */
static uint32_t readers_told(const struct pool_storm *s, const struct control *control, uint32_t chunk)
{
	uint32_t readers = 0;

	for (unsigned i = 0; i < POOL_WORKERS; i++) {
		const struct pool_told *told = &pool_board_of(&s->storm)->told[i];

		for (unsigned n = 0; n < told->reading; n++) {
			const struct gpuwm_token *token = &told->tokens[n];

			if (token->chunk != chunk)
				continue;
			cr_assert_eq(token->generation, control->chunks[chunk].generation,
				     "chunk %u is used again while worker %u reads it", chunk, i);
			cr_assert_eq(token->offset, control->chunks[chunk].offset);
			readers |= 1u << slot_of(s, i);
		}
	}
	return readers;
}

/* Who fills the chunk by what the workers say. */
static uint32_t writer_told(const struct pool_storm *s, const struct control_chunk *entry)
{
	for (unsigned i = 0; i < POOL_WORKERS; i++) {
		const struct pool_told *told = &pool_board_of(&s->storm)->told[i];

		for (unsigned n = 0; n < told->filling; n++) {
			if (told->filled_at[n] == entry->offset && slot_of(s, i) == entry->writer)
				return 1u << entry->writer;
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
	cr_assert_eq(chunk_word_users(entry->word, CHUNK_WAITING) & ~control_users(control), 0,
		     "chunk %u waits for the dead, word %#jx", chunk, (uintmax_t)entry->word);
	return control_chunk_is_free(control, chunk) ? 0 : (entry->bytes + 255) / 256 * 256;
}

static void check_apart(const struct control *control, uint32_t a, uint32_t b)
{
	const struct control_chunk *x = &control->chunks[a], *y = &control->chunks[b];

	cr_assert(x->offset + x->bytes <= y->offset || y->offset + y->bytes <= x->offset,
		  "chunks %u and %u have bytes in common", a, b);
}

void pool_check(const struct pool_storm *s)
{
	const struct control control =
		control_at(control_mapped(), (struct control_shape){.chunks = POOL_CHUNKS});
	struct gpuwm_pool_figures figures;
	uint64_t used[POOL_CHUNKS], all = 0;

	storm_check_users(&s->storm, &control, s->pool);
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
}
