/* Pieces that came, compared where they are: on the host and, where GPUWM_TEST_BACKEND says so, on tests/fakecuda, by its kernel. */
#include "loader/peer/peer_part.h"
#include "tests/support/any/child.h"
#include "tests/support/any/pieces.h"

#include <sched.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define AREA MIB(10) /* two pieces and a short one */
#define PIECES 3

static struct memory_segment segment;
static struct sum sums[PIECES];
static struct peer_offer_part offer = {
	.segment_count = 1, .segment_bytes = {AREA}, .first = {0, PIECES}, .sums = sums};
static struct taken_part part = {.offer = &offer, .segments = &segment};
static struct error error;

/* All pieces are on their way, and there. */
static void begin(void)
{
	uint8_t *data = malloc(AREA);
	struct peer_run all;

	for (uint64_t i = 0; i < AREA; i++)
		data[i] = (uint8_t)(i * 13 + i / 65536);
	for (uint64_t i = 0; i < PIECES; i++)
		cr_assert_eq(sums_piece(data + i * SUMS_PIECE_BYTES, sums_piece_bytes(AREA, i), &sums[i]), 0);
	pieces_begin(&part.device, &segment, 1, data, AREA);
	free(data);
	part.pieces = peer_pieces_new(&offer);
	cr_assert(peer_pieces_claim(part.pieces, PIECES, &all));
	cr_assert_eq(all.count, PIECES);
}

static void end(void)
{
	pieces_end(&part.device, &segment, 1);
	peer_pieces_free(part.pieces);
}

TestSuite(peer_verify, .timeout = 60);

/* Returns the first error of a thread, and how many pieces were wrong. */
static int verify_all(uint64_t *ret_wrong)
{
	struct peer_arrival first = {.run = {0, 0, 1}}, others = {.run = {0, 1, 2}};
	struct peer_verify *verify;
	int r = peer_verify_begin(&part, 2, true, &verify, &error);

	if (r < 0)
		return r;
	cr_assert_eq(peer_verify_add(verify, &first, &error), 0);
	cr_assert_eq(peer_verify_add(verify, &others, &error), 0);
	while (peer_verify_pending(verify) > 0)
		sched_yield();
	*ret_wrong = peer_verify_wrong(verify);
	r = peer_verify_failed(verify, &error);
	peer_verify_end(verify);
	return r;
}

Test(peer_verify, right_pieces_are_here)
{
	uint64_t wrong;

	begin();
	cr_expect_eq(verify_all(&wrong), 0, "%s", error.message);
	cr_expect_eq(wrong, 0);
	cr_expect(peer_pieces_complete(part.pieces));
	end();
}

Test(peer_verify, a_wrong_piece_is_missing)
{
	struct peer_run run;
	uint64_t wrong;

	begin();
	cr_assert_eq(
		part.device.ops->write(&part.device, (uint8_t *)segment.address + MIB(8) - 1, "?", 1, &error),
		0);
	cr_expect_eq(verify_all(&wrong), 0, "%s", error.message);
	cr_expect_eq(wrong, 1);
	cr_assert(peer_pieces_claim(part.pieces, PIECES, &run));
	cr_expect_eq(run.first, 1);
	cr_expect_eq(run.count, 1);
	cr_expect_not(peer_pieces_claim(part.pieces, PIECES, &run));
	end();
}

Test(peer_verify, without_the_kernel_the_cpu_compares)
{
	uint64_t wrong;

	setenv("FAKECUDA_FAIL", "cuModuleLoadData:0:222", 1);
	begin();
	cr_expect_eq(verify_all(&wrong), 0, "%s", error.message);
	cr_expect(peer_pieces_complete(part.pieces));
	end();
}

/* Returns 0 if that is an error, and no piece counts as here. */
static int verify_failing(const char *failing)
{
	uint64_t wrong;
	int r;

	setenv("FAKECUDA_FAIL", failing, 1);
	begin();
	r = verify_all(&wrong);
	return r == -EIO && peer_pieces_bytes(part.pieces) == 0 ? 0 : 1;
}

Test(peer_verify, what_the_gpu_can_not_hash_is_not_here)
{
	if (!on_gpu())
		return;
	cr_expect_eq(IN_CHILD(verify_failing("cuMemAlloc_v2:1:999")), 0);
	cr_expect_eq(IN_CHILD(verify_failing("cuLaunchKernel:0:999")), 0);
}
