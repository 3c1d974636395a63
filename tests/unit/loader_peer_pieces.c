/* Which pieces of a part are here, on their way, or missing. */
#include "loader/peer/peer_part.h"

#include <criterion/criterion.h>

/* Segments of 3 pieces, of 1, and of 2, of which the last one is short. */
static struct peer_offer_part part = {
	.segment_count = 3,
	.segment_bytes = {3 * SUMS_PIECE_BYTES, 4096, SUMS_PIECE_BYTES + 1},
	.first = {0, 3, 4, 6},
};
static struct peer_pieces *pieces;

static void begin(void)
{
	pieces = peer_pieces_new(&part);
	cr_assert_not_null(pieces);
}

static void end(void)
{
	peer_pieces_free(pieces);
}

TestSuite(pieces, .init = begin, .fini = end);

static void expect_claim(uint32_t most, uint32_t segment, uint64_t first, uint32_t count)
{
	struct peer_run run;

	cr_assert(peer_pieces_claim(pieces, most, &run));
	cr_expect_eq(run.segment, segment);
	cr_expect_eq(run.first, first);
	cr_expect_eq(run.count, count);
}

Test(pieces, are_claimed_side_by_side_in_one_segment)
{
	struct peer_run run;

	expect_claim(2, 0, 0, 2);
	expect_claim(2, 0, 2, 1);
	expect_claim(16, 1, 0, 1);
	expect_claim(16, 2, 0, 2);
	cr_expect_not(peer_pieces_claim(pieces, 16, &run));
	cr_expect_not(peer_pieces_complete(pieces));
}

Test(pieces, that_are_missing_again_come_first)
{
	const struct peer_run lost = {0, 1, 1};

	expect_claim(3, 0, 0, 3);
	expect_claim(1, 1, 0, 1);
	peer_pieces_missing(pieces, &lost);
	expect_claim(16, 0, 1, 1);
	expect_claim(16, 2, 0, 2);
}

Test(pieces, that_are_here_count_with_their_bytes)
{
	struct peer_run run;

	while (peer_pieces_claim(pieces, 16, &run)) {
		cr_expect_not(peer_pieces_are_here(pieces, &run));
		peer_pieces_here(pieces, &run);
		cr_expect(peer_pieces_are_here(pieces, &run));
	}
	cr_expect(peer_pieces_complete(pieces));
	cr_expect_eq(peer_pieces_bytes(pieces), 3 * SUMS_PIECE_BYTES + 4096 + SUMS_PIECE_BYTES + 1);
}

Test(pieces, of_a_run_are_here_only_if_all_are)
{
	const struct peer_run one = {0, 0, 1}, two = {0, 0, 2};
	struct peer_run run;

	cr_assert(peer_pieces_claim(pieces, 2, &run));
	peer_pieces_here(pieces, &one);
	cr_expect_not(peer_pieces_are_here(pieces, &two));
}

Test(pieces, have_bytes_up_to_the_end_of_their_segment)
{
	const struct peer_run last = {2, 0, 2}, first = {2, 0, 1};

	cr_expect_eq(peer_run_bytes(&part, &last), SUMS_PIECE_BYTES + 1);
	cr_expect_eq(peer_run_bytes(&part, &first), SUMS_PIECE_BYTES);
	cr_expect_eq(peer_run_offset(&(struct peer_run){2, 1, 1}), SUMS_PIECE_BYTES);
}
