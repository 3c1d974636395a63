/* The owner of a pool: allocating, recycling, and what it says when there is no room. */
#include "tests/support/any/between.h"
#include "tests/support/lib/pools.h"

#define OWNER 3
#define READER 7
#define OTHER 25
#define BIT(slot) (UINT32_C(1) << (slot))
#define CHUNKS 16

static struct shared_region shared;
static struct gpuwm_region *pool, *reader;

static void begin_with(const struct shared_wish *wish)
{
	share(&shared, wish);
	pool = open_as(&shared, OWNER, true);
	reader = open_as(&shared, READER, false);
}

static void begin(void)
{
	begin_with(&(struct shared_wish){.bytes = MIB(2), .chunks = CHUNKS});
}

static void end(void)
{
	close_as(&shared, reader);
	close_as(&shared, pool);
	share_end(&shared);
}

TestSuite(pool, .timeout = 60);

static void finish_next(struct gpuwm_region *as, const struct gpuwm_token *token)
{
	OK(gpuwm_chunk_finish(take(as, token)));
}

TestBetween(pool, chunks_are_aligned_and_do_not_overlap, begin(), end())
{
	struct gpuwm_chunk *a = alloc(pool, 1), *b = alloc(pool, 257), *c = alloc(pool, 256);
	char *base = gpuwm_region_address(pool);

	cr_assert(gpuwm_chunk_address(a) == base && gpuwm_chunk_address(b) == base + 256);
	cr_assert(gpuwm_chunk_address(c) == base + 768);
	cr_assert(eq(u64, gpuwm_chunk_bytes(b), 257));
	cr_assert(gpuwm_chunk_region(b) == pool);
	OK(gpuwm_chunk_discard(a));
	OK(gpuwm_chunk_discard(c));
	OK(gpuwm_chunk_discard(b));
	all_is_free(pool);
}

TestBetween(pool, a_chunk_is_free_when_all_its_readers_have_finished, begin(), end())
{
	struct gpuwm_region *other = open_as(&shared, OTHER, false);
	struct gpuwm_token token = offer(pool, MIB(2), BIT(READER) | BIT(OTHER), 0);
	struct gpuwm_chunk *chunk;

	FAILS(gpuwm_chunk_alloc(pool, 1, 0, &chunk), -EAGAIN);
	finish_next(reader, &token);
	FAILS(gpuwm_chunk_alloc(pool, 1, 0, &chunk), -EAGAIN);
	finish_next(other, &token);
	all_is_free(pool);
	close_as(&shared, other);
}

TestBetween(pool, a_reader_sees_what_the_owner_wrote, begin(), end())
{
	const struct gpuwm_readers readers = {BIT(READER), 0};
	struct gpuwm_chunk *chunk = alloc(pool, 5000);
	struct gpuwm_token token;

	write_byte(chunk, 77);
	OK(gpuwm_chunk_offer(chunk, &readers, &token));
	chunk = take(reader, &token);
	cr_assert(eq(int, read_byte(chunk), 77));
	cr_assert(eq(u64, gpuwm_chunk_bytes(chunk), 5000));
	OK(gpuwm_chunk_finish(chunk));
}

TestBetween(pool, refuses_what_makes_no_sense, begin(), end())
{
	struct gpuwm_chunk *chunk;

	FAILS(gpuwm_chunk_alloc(pool, 0, 0, &chunk), -EINVAL);
	FAILS(gpuwm_chunk_alloc(pool, MIB(2) + 1, -1, &chunk), -ENOSPC);
	FAILS(gpuwm_chunk_alloc(pool, UINT64_MAX, -1, &chunk), -ENOSPC);
	FAILS(gpuwm_chunk_alloc(reader, 1, 0, &chunk), -EPERM);
	FAILS(gpuwm_chunk_alloc(NULL, 1, 0, &chunk), -EINVAL);
	FAILS(gpuwm_queue_put(pool, "a", 1, NULL, 0, 0), -EINVAL);
}

TestBetween(pool, offers_to_somebody_who_is_there, begin(), end())
{
	struct gpuwm_chunk *chunk = alloc(pool, 1);
	struct gpuwm_token token;

	FAILS(gpuwm_chunk_offer(chunk, &(struct gpuwm_readers){0, 0}, &token), -EINVAL);
	FAILS(gpuwm_chunk_offer(chunk, NULL, &token), -EINVAL);
	FAILS(gpuwm_chunk_offer(chunk, &(struct gpuwm_readers){0, 16}, &token), -EINVAL);
	FAILS(gpuwm_chunk_offer(chunk, &(struct gpuwm_readers){BIT(26), 0}, &token), -EINVAL);
	FAILS(gpuwm_chunk_offer(chunk, &(struct gpuwm_readers){BIT(OTHER), 0}, &token), -ESRCH);
	SAYS("slot 25");
	FAILS(gpuwm_chunk_finish(chunk), -EINVAL);
	OK(gpuwm_chunk_discard(chunk));
	all_is_free(pool);
}

TestBetween(pool, is_full_of_chunks, begin(), end())
{
	struct gpuwm_chunk *chunks[CHUNKS], *more;

	for (unsigned i = 0; i < CHUNKS; i++)
		chunks[i] = alloc(pool, 1);
	FAILS(gpuwm_chunk_alloc(pool, 1, 0, &more), -EAGAIN);
	SAYS("16 of 16 chunks");
	SAYS("this process");
	for (unsigned i = 0; i < CHUNKS; i++)
		OK(gpuwm_chunk_discard(chunks[i]));
	all_is_free(pool);
}

TestBetween(pool, gives_several_chunks_or_none, begin(), end())
{
	const uint64_t bytes[] = {MIB(1), 1, MIB(1) - 256};
	struct gpuwm_chunk *chunks[3] = {NULL}, *one = alloc(pool, 1);
	struct gpuwm_pool_figures figures;

	FAILS(gpuwm_chunks_alloc(pool, bytes, 3, 0, chunks), -EAGAIN);
	SAYS("has no room for 2096897 bytes in 3 chunks");
	FAILS(gpuwm_chunks_alloc(pool, bytes, 3, 5, chunks), -EAGAIN);
	OK(gpuwm_pool_figures(pool, &figures));
	cr_assert(figures.chunks == 1 && figures.used == 256 && chunks[0] == NULL);
	OK(gpuwm_chunk_discard(one));
	OK(gpuwm_chunks_alloc(pool, bytes, 3, 0, chunks));
	for (unsigned i = 0; i < 3; i++) {
		cr_assert(eq(u64, gpuwm_chunk_bytes(chunks[i]), bytes[i]));
		OK(gpuwm_chunk_discard(chunks[i]));
	}
	all_is_free(pool);
}

TestBetween(pool, refuses_at_once_what_it_can_never_have, begin(), end())
{
	const uint64_t half[] = {MIB(1), MIB(1) + 1}, huge[] = {1, UINT64_MAX}, none[] = {1, 0};
	const uint64_t many[CHUNKS + 1] = {0};
	struct gpuwm_chunk *chunks[CHUNKS + 1];

	FAILS(gpuwm_chunks_alloc(pool, half, 2, -1, chunks), -ENOSPC);
	SAYS("2 chunks at once");
	FAILS(gpuwm_chunks_alloc(pool, huge, 2, -1, chunks), -ENOSPC);
	FAILS(gpuwm_chunks_alloc(pool, many, CHUNKS + 1, -1, chunks), -ENOSPC);
	SAYS("17 chunks at once are more");
	FAILS(gpuwm_chunks_alloc(pool, none, 2, -1, chunks), -EINVAL);
	FAILS(gpuwm_chunks_alloc(pool, half, 0, -1, chunks), -EINVAL);
	FAILS(gpuwm_chunks_alloc(pool, NULL, 1, -1, chunks), -EINVAL);
	FAILS(gpuwm_chunks_alloc(reader, half, 1, -1, chunks), -EPERM);
	all_is_free(pool);
}

TestBetween(pool, names_the_process_that_holds_the_oldest_chunk, begin(), end())
{
	struct gpuwm_token first = offer(pool, MIB(1), BIT(READER), 0), second = offer(pool, MIB(1), 0, 2);
	struct gpuwm_chunk *chunk;

	FAILS(gpuwm_chunk_alloc(pool, 1, 0, &chunk), -EAGAIN);
	SAYS("process 1007 (user-h), which has not taken it");
	cr_assert(gpuwm_error()->detail[0] != 0);
	chunk = take(reader, &first);
	FAILS(gpuwm_chunk_alloc(pool, 1, 5, &chunk), -EAGAIN);
	SAYS("process 1007 (user-h), which reads it");
	OK(gpuwm_chunk_finish(chunk));
	finish_next(reader, &second);
	OK(gpuwm_chunk_discard(alloc(pool, MIB(1))));
	FAILS(gpuwm_chunk_alloc(pool, MIB(2), 0, &chunk), -EAGAIN);
	SAYS("1 readers that have not come");
	OK(gpuwm_token_withdraw(pool, &second));
	all_is_free(pool);
}

TestBetween(pool, entries_are_used_in_turn, begin(), end())
{
	for (unsigned i = 0; i < 3 * CHUNKS; i++) {
		struct gpuwm_chunk *chunk = alloc(pool, 1);

		cr_assert(eq(u32, chunk->use.chunk, i % CHUNKS));
		cr_assert(eq(u64, chunk->use.generation, i / CHUNKS + 1));
		OK(gpuwm_chunk_discard(chunk));
	}
}

TestBetween(pool, withdraws_from_readers_that_do_not_come, begin(), end())
{
	struct gpuwm_token token = offer(pool, MIB(2), BIT(READER), 3);
	struct gpuwm_chunk *chunk = take(reader, &token), *none;

	OK(gpuwm_token_withdraw(pool, &token));
	FAILS(gpuwm_chunk_alloc(pool, 1, 0, &none), -EAGAIN);
	OK(gpuwm_chunk_finish(chunk));
	all_is_free(pool);
	FAILS(gpuwm_chunk_take(reader, &token, 0, &none), -EALREADY);
	OK(gpuwm_token_withdraw(pool, &token));
	FAILS(gpuwm_token_withdraw(reader, &token), -EPERM);
}

TestBetween(pool, takes_from_late_readers_when_it_needs_the_room, (void)0, end())
{
	struct gpuwm_token token;
	struct gpuwm_chunk *chunk;

	begin_with(&(struct shared_wish){.bytes = MIB(2), .chunks = CHUNKS, .ttl_ms = 50});
	token = offer(pool, MIB(2), BIT(READER), 1);
	FAILS(gpuwm_chunk_alloc(pool, 1, 0, &chunk), -EAGAIN);
	OK(gpuwm_chunk_alloc(pool, MIB(2), 10000, &chunk));
	OK(gpuwm_chunk_discard(chunk));
	FAILS(gpuwm_chunk_take(reader, &token, 0, &chunk), -ESTALE);
	all_is_free(pool);
}

TestBetween(pool, does_not_take_from_readers_that_came, (void)0, end())
{
	struct gpuwm_token token;
	struct gpuwm_chunk *chunk, *none;

	begin_with(&(struct shared_wish){.bytes = MIB(2), .chunks = CHUNKS, .ttl_ms = 1});
	token = offer(pool, MIB(2), BIT(READER), 0);
	chunk = take(reader, &token);
	FAILS(gpuwm_chunk_alloc(pool, MIB(2), 20, &none), -EAGAIN);
	OK(gpuwm_chunk_finish(chunk));
	all_is_free(pool);
}

TestBetween(pool, a_generation_does_not_wrap, begin(), end())
{
	struct gpuwm_chunk *chunk;

	pool->pool->entries[0].use.generation = UINT64_MAX - 1;
	chunk = alloc(pool, 1);
	cr_assert(eq(u64, chunk->use.generation, UINT64_MAX));
	OK(gpuwm_chunk_discard(chunk));
	for (unsigned i = 0; i < 2 * CHUNKS; i++) {
		chunk = alloc(pool, 1);
		cr_assert(ne(u32, chunk->use.chunk, 0));
		OK(gpuwm_chunk_discard(chunk));
	}
	for (unsigned i = 1; i < CHUNKS; i++)
		pool->pool->entries[i].use.generation = UINT64_MAX;
	FAILS(gpuwm_chunk_alloc(pool, 1, 0, &chunk), -EAGAIN);
	SAYS("as often as is possible");
}

TestBetween(pool, notices_entries_that_were_written_over, begin(), end())
{
	struct gpuwm_token token = offer(pool, MIB(2), BIT(READER), 0);
	struct control_chunk *entry = &shared.control.chunks[token.chunk];
	struct gpuwm_chunk *chunk;

	atomic_fetch_add(&entry->generation, 1);
	FAILS(gpuwm_chunk_alloc(pool, 1, -1, &chunk), -EUCLEAN);
	atomic_fetch_sub(&entry->generation, 1);
	atomic_fetch_xor(&entry->word, UINT64_C(1) << 60);
	FAILS(gpuwm_chunk_alloc(pool, 1, -1, &chunk), -EUCLEAN);
	atomic_fetch_xor(&entry->word, UINT64_C(1) << 60);
	/* Where bytes are free is the owner's own account. */
	atomic_store(&entry->offset, UINT64_MAX);
	atomic_store(&entry->bytes, 1);
	atomic_store(&entry->word, chunk_word_withdrawn(atomic_load(&entry->word)));
	all_is_free(pool);
}

TestBetween(pool, of_an_owner_that_died_takes_no_readers, begin(), end())
{
	struct gpuwm_token token = offer(pool, 1, BIT(READER), 1), other = offer(pool, 1, BIT(READER), 0);
	struct gpuwm_chunk *chunk = take(reader, &token), *none;

	control_ended(&shared.control, CONTROL_OWNER_DIED, OWNER);
	FAILS(gpuwm_chunk_take(reader, &other, -1, &none), -EOWNERDEAD);
	SAYS("process 1003 (user-d)");
	FAILS(gpuwm_region_check(reader), -EOWNERDEAD);
	FAILS(gpuwm_chunk_alloc(pool, 1, -1, &none), -EOWNERDEAD);
	OK(gpuwm_chunk_check(chunk));
	OK(gpuwm_chunk_finish(chunk));
}

TestBetween(pool, says_why_it_has_ended, begin(), end())
{
	OK(gpuwm_region_check(reader));
	control_ended(&shared.control, CONTROL_OWNER_CLOSED, OWNER);
	FAILS(gpuwm_region_check(reader), -ESHUTDOWN);
	SAYS("process 1003 (user-d), has closed it");
	control_ended(&shared.control, CONTROL_REMOVED, 0);
	FAILS(gpuwm_region_check(reader), -ESHUTDOWN);
	SAYS("removed");
	control_ended(&shared.control, CONTROL_DAMAGED, UINT32_MAX);
	FAILS(gpuwm_region_check(reader), -ESHUTDOWN);
	SAYS("damaged");
}

/* ---- a new owner ------------------------------------------------------------ */

static void begin_by_uid(void)
{
	begin_with(&(struct shared_wish){.bytes = MIB(2), .chunks = CHUNKS, .by_uid = true});
}

TestSuite(pool_of_uid, .timeout = 60);

TestBetween(pool_of_uid, a_new_owner_finds_what_is_in_use, begin_by_uid(), end())
{
	struct gpuwm_token token = offer(pool, MIB(1), BIT(READER), 0), free = offer(pool, 256, BIT(READER), 0);
	struct gpuwm_chunk *chunk = take(reader, &token), *none;
	uint64_t generation = token.generation;

	finish_next(reader, &free);
	close_as(&shared, pool);
	pool = open_as(&shared, OTHER, true);
	FAILS(gpuwm_chunk_alloc(pool, MIB(1) + 1, 0, &none), -EAGAIN);
	SAYS("1 of 16 chunks");
	OK(gpuwm_chunk_finish(chunk));
	all_is_free(pool);
	for (unsigned i = 0; i < CHUNKS; i++) {
		chunk = alloc(pool, 1);
		cr_assert(chunk->use.chunk != token.chunk || chunk->use.generation > generation);
		OK(gpuwm_chunk_discard(chunk));
	}
}

TestBetween(pool_of_uid, a_chunk_that_an_owner_was_filling_when_it_died_is_free, begin_by_uid(), end())
{
	struct gpuwm_chunk *chunk = alloc(pool, MIB(2));

	has_exited(&shared, OWNER);
	OK(gpuwm_chunk_discard(chunk));
	close_as(&shared, pool);
	pool = open_as(&shared, OTHER, true);
	all_is_free(pool);
}

TestBetween(pool_of_uid, entries_that_overlap_or_lie_outside_are_refused, begin_by_uid(), end())
{
	struct gpuwm_token token = offer(pool, MIB(1), BIT(READER), 0),
			   other = offer(pool, MIB(1), BIT(READER), 0);
	struct control_chunk *entry = &shared.control.chunks[other.chunk];
	const uint64_t wrong[] = {0,      MIB(1) - 256, MIB(1) + 256,    MIB(1) + 1,
				  MIB(2), UINT64_MAX,   UINT64_MAX - 255};

	close_as(&shared, pool);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		atomic_store(&entry->offset, wrong[i]);
		FAILS(try_open_as(&shared, OTHER, true, &pool), -EUCLEAN);
	}
	atomic_store(&entry->offset, MIB(1));
	atomic_store(&entry->bytes, UINT64_MAX);
	FAILS(try_open_as(&shared, OTHER, true, &pool), -EUCLEAN);
	atomic_store(&entry->bytes, MIB(1));
	pool = open_as(&shared, OTHER, true);
	finish_next(reader, &token);
	finish_next(reader, &other);
	all_is_free(pool);
}

/* ---- figures ------------------------------------------------------------------ */

TestBetween(pool, figures_count_what_somebody_needs, begin(), end())
{
	struct gpuwm_chunk *a = alloc(pool, 300), *b = alloc(pool, 1), *c = alloc(pool, 256);
	struct gpuwm_pool_figures figures;

	OK(gpuwm_pool_figures(reader, &figures));
	cr_assert(figures.used == 1024 && figures.free == MIB(2) - 1024 && figures.chunks == 3);
	OK(gpuwm_chunk_discard(b));
	OK(gpuwm_pool_figures(pool, &figures));
	cr_assert(figures.used == 768 && figures.free == MIB(2) - 768 && figures.chunks == 2);
	cr_assert(eq(u64, figures.largest_free, MIB(2) - 1024));
	OK(gpuwm_chunk_discard(a));
	OK(gpuwm_chunk_discard(c));
	FAILS(gpuwm_pool_figures(NULL, &figures), -EINVAL);
}
