/* Versions that share memory (--share-with) leave their devices and come back: they share again. */
#include "alike.h"
#include "described.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(share_tiers);

#define ROUNDS 20

static void stop(struct gpuwmd *d)
{
	DROP(d, "m@v1", "m@v2");
	gpuwmd_stop_empty(d);
}

static struct gpuwmd *with_both(void)
{
	struct gpuwmd *d = gpuwmd_start("--set", "model.1.match=*", "--set", "model.1.host_copy=no", NULL);

	alike_load(d);
	return d;
}

#define SHARING_TEST(name) GPUWMD_TEST_BY(share_tiers, name, with_both(), stop)
#define GPU_SHARING_TEST(name) FAKECUDA_TEST(share_tiers, name, with_both(), stop)

/* ---- there and back ---------------------------------------------------- */

/* Whichever leaves, and in whatever order they come back. */
SHARING_TEST(share_again_when_they_come_back_from_files)
{
	const struct alike_figures before = alike_figures_of(d);
	const size_t fds = fds_settled(d);

	for (int round = 0; round < ROUNDS; round++) {
		const char *first = round % 2 ? "m@v2" : "m@v1", *second = round % 2 ? "m@v1" : "m@v2";

		demote(d, first, "files");
		if (round % 3 > 0)
			demote(d, second, "files");
		OK(gpuwm_promote_wait(d, round % 4 < 2 ? first : second));
		OK(gpuwm_promote_wait(d, round % 4 < 2 ? second : first));
		ALIKE_SETTLES(d, &before);
		alike_reads("m@v1");
		alike_reads("m@v2");
	}
	CTL_IS(0, "verify", "m@v1", "--wait");
	CTL_IS(0, "verify", "m@v2", "--wait");
	CTL_IS(0, "show", "m@v2");
	SAYS("with other versions: m@v1\n");
	cr_assert_leq(fds_settled(d), fds);
}

/* Host memory has what both share once, if the second one comes there when the first one lies there. */
GPU_SHARING_TEST(share_in_host_memory_and_again_on_their_device)
{
	const struct alike_figures before = alike_figures_of(d);
	const size_t fds = fds_settled(d);

	for (int round = 0; round < ROUNDS; round++) {
		const char *first = round % 2 ? "m@v2" : "m@v1", *second = round % 2 ? "m@v1" : "m@v2";

		demote(d, first, "host");
		if (round % 3 > 0) {
			demote(d, second, "host");
			cr_assert(EVENTUALLY(SOON_MS, device_used(d) == 0));
			cr_assert_eq(host_used(d), before.device);
			cr_assert_eq(status_of(d, "shared_bytes"), before.shared);
		}
		if (round % 5 == 4)
			demote(d, first, "files");
		OK(gpuwm_promote_wait(d, round % 4 < 2 ? first : second));
		OK(gpuwm_promote_wait(d, round % 4 < 2 ? second : first));
		ALIKE_SETTLES(d, &before);
		alike_reads("m@v1");
		alike_reads("m@v2");
	}
	cr_assert_leq(fds_settled(d), fds);
}

/* The second one waits for the first one, and then finds it. */
SHARING_TEST(share_again_when_both_come_back_at_once)
{
	const struct alike_figures before = alike_figures_of(d);
	uint64_t jobs[GPUWM_MOVE_JOBS_MAX];
	size_t count;

	demote(d, "m@v1", "files");
	demote(d, "m@v2", "files");
	OK(gpuwm_promote(d->admin, "m@v2", jobs, &count));
	cr_assert_eq(count, 1);
	OK(gpuwm_promote(d->admin, "m@v1", jobs, &count));
	cr_assert_eq(count, 0, "it does not wait");
	CTL_IS(0, "promote", "m@v1", "--wait");
	ALIKE_SETTLES(d, &before);
	alike_reads("m@v1");
	alike_reads("m@v2");
}

/* They do so also when the one is gone that both shared with. */
GPUWMD_TEST(share_tiers, share_what_came_from_a_third_one)
{
	struct alike_figures before;

	alike_load(d);
	before = alike_figures_of(d);
	CTL_IS(0, "load", "--wait", alike_checkpoint(d, "v3", false), "m@v3", "--device", d->device,
	       "--segment-bytes", "4M", "--share-with", "m@v1");
	cr_assert_eq(status_of(d, "bytes"), before.bytes);
	DROP(d, "m@v1");
	demote(d, "m@v2", "files");
	demote(d, "m@v3", "files");
	OK(gpuwm_promote_wait(d, "m@v3"));
	OK(gpuwm_promote_wait(d, "m@v2"));
	ALIKE_SETTLES(d, &before);
	alike_reads("m@v2");
	DROP(d, "m@v2", "m@v3");
}

/* m@v3 has the room of one meanwhile. A load makes all of its memory before it shares. */
GPUWMD_TEST_BY(share_tiers, fit_again_where_they_fitted_before,
	       gpuwmd_start("--set", backend() == BACKEND_HOST ? "budget.host=140M" : "budget.*=716M", NULL),
	       stop)
{
	struct alike_figures before;

	alike_load(d);
	load_version(d, checkpoint_write(d, "v3", LARGE(3)), "m@v3");
	before = alike_figures_of(d);
	demote(d, "m@v1", "files");
	demote(d, "m@v2", "files");
	OK(gpuwm_promote_wait(d, "m@v1"));
	OK(gpuwm_promote_wait(d, "m@v2"));
	ALIKE_SETTLES(d, &before);
	alike_reads("m@v2");
	DROP(d, "m@v3");
}

/* ---- who is in the way ------------------------------------------------- */

SHARING_TEST(stay_while_another_one_comes_to_share)
{
	uint64_t jobs[GPUWM_MOVE_JOBS_MAX];
	size_t count;

	demote(d, "m@v2", "files");
	loaders_kill(d, SIGSTOP);
	OK(gpuwm_promote(d->admin, "m@v2", jobs, &count));
	CTL_IS(5, "demote", "m@v1", "--to", "files");
	SAYS("m@v2 is on its way to device, and will share segments of m@v1 there");
	OK(gpuwm_job_cancel(d->admin, jobs[0]));
	loaders_kill(d, SIGCONT);
	cr_assert(EVENTUALLY(SOON_MS, lies_on(d, "v2", "files")));
	demote(d, "m@v1", "files");
	OK(gpuwm_promote_wait(d, "m@v2"));
	alike_reads("m@v2");
}

/* What is retired meanwhile goes when the other one has come, and leaves what both hold. */
GPUWMD_TEST_BY(share_tiers, keep_what_a_retired_one_shared, with_both(), gpuwmd_stop_empty)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);
	uint64_t jobs[GPUWM_MOVE_JOBS_MAX];
	size_t count;

	demote(d, "m@v2", "files");
	options.model = "m";
	OK(gpuwm_swap(d->admin, &options, NULL));
	loaders_kill(d, SIGSTOP);
	OK(gpuwm_promote(d->admin, "m@v2", jobs, &count));
	OK(gpuwm_retire(d->admin, "m@v1", 0));
	loaders_kill(d, SIGCONT);
	OK(gpuwm_job_wait(d->admin, jobs[0], 30000));
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	cr_assert_eq(status_of(d, "segments"), ALIKE_SEGMENTS);
	cr_assert_eq(status_of(d, "shared_bytes"), 0);
	alike_reads("m@v2");
	CTL_IS(0, "verify", "m@v2", "--wait");
	DROP(d, "m@v2");
}

/* ---- ranks ------------------------------------------------------------- */

#define PLAN                                                                                                   \
	"layer.* split 0\n"                                                                                    \
	"matrix split 1\n"                                                                                     \
	"scalar copy\n"                                                                                        \
	"empty copy\n"

GPUWMD_TEST(share_tiers, ranks_that_are_cut_share_again)
{
	struct alike_figures before;
	char plan[256];

	snprintf(plan, sizeof plan, "%s/plan.cut", d->root);
	file_write(d, "plan.cut", PLAN, strlen(PLAN));
	CTL_IS(0, "load", "--wait", alike_checkpoint(d, "v1", false), "m@v1", "--device", d->device,
	       "--segment-bytes", "2M", "--ranks", "2", "--cut", plan);
	CTL_IS(0, "load", "--wait", alike_checkpoint(d, "v2", true), "m@v2", "--device", d->device,
	       "--segment-bytes", "2M", "--ranks", "2", "--cut", plan, "--share-with", "m@v1");
	before = alike_figures_of(d);
	cr_assert_gt(before.shared, 0);
	cr_assert_lt(before.shared, before.bytes);
	for (int round = 0; round < 3; round++) {
		demote(d, "m@v2", "files");
		demote(d, "m@v1", "files");
		CTL_IS(0, "promote", round % 2 ? "m@v1" : "m@v2", "--wait");
		CTL_IS(0, "promote", round % 2 ? "m@v2" : "m@v1", "--wait");
		ALIKE_SETTLES(d, &before);
		CTL_IS(0, "verify", "m@v1", "--wait");
		CTL_IS(0, "verify", "m@v2", "--wait");
	}
	DROP(d, "m@v1", "m@v2");
}

/* ---- gpuwmd ends ------------------------------------------------------- */

GPUWMD_TEST_BY(share_tiers, share_again_after_a_restart,
	       gpuwmd_start_kept(&(struct kept){.limits = LIMITS_SHORT NO_HOST_COPIES}), stop)
{
	const char *below = backend() == BACKEND_HOST ? "files" : "host";
	uint64_t jobs[GPUWM_MOVE_JOBS_MAX];
	struct alike_figures before;
	size_t count;

	alike_load(d);
	before = alike_figures_of(d);
	demote(d, "m@v2", below);
	kept_kill(d, SIGKILL);
	OK(gpuwm_promote_wait(d, "m@v2"));
	ALIKE_SETTLES(d, &before);
	cr_assert(EVENTUALLY(SOON_MS, gpuwm_demote(d->admin, "m@v1", below, jobs, &count) == 0));
	cr_assert(EVENTUALLY(SOON_MS, lies_on(d, "v1", below)));
	demote(d, "m@v2", below);
	kept_kill(d, SIGKILL);
	cr_assert(lies_on(d, "v1", below) && lies_on(d, "v2", below));
	OK(gpuwm_promote_wait(d, "m@v1"));
	OK(gpuwm_promote_wait(d, "m@v2"));
	ALIKE_SETTLES(d, &before);
	kept_kill(d, SIGKILL);
	ALIKE_SETTLES(d, &before);
	alike_reads("m@v1");
	alike_reads("m@v2");
}

static bool all_back(struct gpuwmd *d)
{
	return lies_on(d, "v1", "device") && lies_on(d, "v2", "device");
}

GPUWMD_TEST_BY(share_tiers, share_again_after_a_reboot, described_start(NULL), described_stop)
{
	struct alike_figures before;

	alike_load(d);
	cr_assert(EVENTUALLY(SOON_MS, is_described(d, "v1") && is_described(d, "v2")));
	before = alike_figures_of(d);
	for (int round = 0; round < 3; round++) {
		described_reboot(d, round % 2 ? SIGKILL : SIGTERM);
		cr_assert(EVENTUALLY(SOON_MS, all_back(d)));
		ALIKE_SETTLES(d, &before);
		alike_reads("m@v1");
		alike_reads("m@v2");
	}
}
