/* What copies by legacy CUDA IPC end with: their holders, gpuwmd, their GPU, an operator's word. */
#include "copies_peer.h"
#include "kept.h"

#include "tests/support/any/own_folder.h"

#ifdef GPUWM_CUDA
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char lost_path[64];

SYSTEM_SUITE(copies_end);

static struct gpuwmd *scene_of(struct gpuwmd *d)
{
	load_small(d, 1);
	return d;
}

/* ---- its holder dies --------------------------------------------------- */

FAKECUDA_TEST(copies_end, one_dies_with_its_holder_while_a_peer_reads, scene_of(gpuwmd_start(AT_ONCE, NULL)),
	      gpuwmd_stop_empty)
{
	struct process one = peer_of(d), two = peer_of(d);
	pid_t first = copy_holder(d);

	cr_assert_eq(kill(first, SIGKILL), 0);
	cr_assert(EVENTUALLY(SOON_MS, peer_answers(&one, 'n') == '1' && peer_answers(&two, 'n') == '1'));
	cr_expect_eq(peer_answers(&one, 'c'), 'y');
	cr_expect_eq(peer_answers(&one, 'r'), 'k', "what is open stays");
	cr_expect_eq(status_of(d, "copies"), 0);
	cr_expect_eq(status_of(d, "revoked"), 2);
	cr_expect(log_says(d, "its copy is gone with the holder"));
	cr_expect_eq(peer_answers(&one, 'A'), 'a');
	cr_expect_eq(peer_answers(&one, 'r'), 'k');
	cr_expect_neq(copy_holder(d), first);
	peer_end(&one);
	peer_end(&two);
	cr_expect_eq(status_of(d, "revoked"), 0);
	DROP(d, "m@v1");
}
/* ---- gpuwmd dies --------------------------------------------------------- */

FAKECUDA_TEST(copies_end, one_dies_with_its_gpuwmd_and_its_peers_are_told,
	      scene_of(gpuwmd_start_kept(KEPT_LONG)), gpuwmd_stop_empty)
{
	struct process one = peer_of(d);
	pid_t holder = copy_holder(d);

	kept_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, kill(holder, 0) < 0), "the holder outlives gpuwmd");
	cr_assert(EVENTUALLY(SOON_MS, peer_answers(&one, 'n') == '1'));
	cr_expect_eq(peer_answers(&one, 'c'), 'y');
	cr_expect_eq(peer_answers(&one, 'r'), 'k', "what is open stays");
	cr_expect_eq(status_of(d, "copies"), 0);
	cr_expect_eq(status_of(d, "leases"), 0);
	cr_expect_eq(peer_answers(&one, 'A'), 'a');
	cr_expect_eq(peer_answers(&one, 'r'), 'k');
	peer_end(&one);
	DROP(d, "m@v1");
}

/* ---- its version is demoted ----------------------------------------------- */

FAKECUDA_TEST(copies_end, an_idle_one_goes_when_its_version_is_demoted,
	      scene_of(gpuwmd_start("--set", "loader.keep_copy=3600", NULL)), gpuwmd_stop_empty)
{
	struct process one = peer_of(d);

	cr_expect_eq(status_of(d, "copies"), 1);
	peer_end(&one);
	cr_expect_eq(status_of(d, "copies"), 1, "it stays for keep_copy seconds");
	CTL_IS(0, "demote", "m@v1", "--to", "host", "--wait");
	cr_expect(EVENTUALLY(SOON_MS, status_of(d, "copies") == 0));
	DROP(d, "m@v1");
}

/* ---- its GPU is lost -------------------------------------------------------- */

static struct gpuwmd *scene_losable(void)
{
	snprintf(lost_path, sizeof lost_path, "%s/lost", own_folder());
	setenv("FAKECUDA_LOST", lost_path, 1);
	return scene_of(gpuwmd_start(AT_ONCE, NULL));
}

FAKECUDA_TEST(copies_end, one_goes_with_its_gpu, scene_losable(), gpuwmd_stop)
{
	struct process one = peer_of(d);
	FILE *file = fopen(lost_path, "we");

	cr_assert(file && fputs("0 bus\n", file) >= 0 && fclose(file) == 0);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "copies") == 0));
	cr_assert(EVENTUALLY(SOON_MS, peer_answers(&one, 'n') == '1'));
	cr_expect_eq(peer_answers(&one, 'c'), 'y');
	process_kill(&one, SIGKILL);
}

/* ---- an operator ends it ------------------------------------------------------ */

FAKECUDA_TEST(copies_end, one_is_kicked_and_its_bytes_stay_charged_until_it_is_closed,
	      scene_of(gpuwmd_start(AT_ONCE, NULL)), gpuwmd_stop_empty)
{
	uint64_t before = device_used(d);
	struct process one = peer_of(d);
	uint64_t bytes = status_of(d, "copy_bytes");
	char number[24];

	snprintf(number, sizeof number, "%d", (int)one.pid);
	CTL_IS(0, "kick", "--pid", number);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "copies") == 0));
	cr_assert(EVENTUALLY(SOON_MS, peer_answers(&one, 'c') == 'y'));
	cr_expect(EVENTUALLY(SOON_MS, device_used(d) == before + bytes));
	cr_expect_eq(status_of(d, "still_mapped"), bytes);
	peer_end(&one);
	cr_expect(EVENTUALLY(SOON_MS, device_used(d) == before));
	cr_expect_eq(status_of(d, "still_mapped"), 0);
	DROP(d, "m@v1");
}

FAKECUDA_TEST(copies_end, one_goes_with_a_version_that_is_retired_by_force, scene_of(gpuwmd_start(NULL)),
	      gpuwmd_stop_empty)
{
	struct process one = peer_of(d);

	OK(swap_to(d, "m", NULL, false));
	CTL_IS(0, "retire", "m@v1", "--force");
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "copies") == 0 && status_of(d, "versions") == 0));
	cr_assert(EVENTUALLY(SOON_MS, peer_answers(&one, 'c') == 'y'));
	cr_expect_eq(peer_answers(&one, 'r'), 'k', "what is open stays");
	peer_end(&one);
}
#endif
