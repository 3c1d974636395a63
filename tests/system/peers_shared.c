/* Versions that share memory, and nodes: the taker gets them whole, shares with what it took, and passes on what it shares. */
#include "alike.h"
#include "beside.h"
#include "described.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
	struct gpuwmd *d;
	struct beside peer;
};
static struct node seed, taker, third;

static void end(void)
{
	beside_clear(&seed.peer);
	beside_clear(&taker.peer);
	harness_cleanup();
}

TestSuite(peers_shared, .fini = end);

static void on_host(void)
{
	SKIP_UNLESS(backend() == BACKEND_HOST, "the budget is that of the memory of host");
}

/* ---- nodes ------------------------------------------------------------------ */

/* From now on gpuwmctl, readers and programs that start are that node's. */
static void at(const struct node *node)
{
	setenv("GPUWM_SOCKET", node->d->socket, 1);
	setenv("FAKECUDA_RUN", strrchr(node->d->dir, '-') + 1, 1);
}

static void serve(struct node *node)
{
	at(node);
	beside_start(&node->peer, node->d);
}

/* Its leases end, so that versions may move. */
static void serve_no_more(struct node *node)
{
	cr_expect_eq(beside_stop(&node->peer), 0, "%s", beside_log(&node->peer));
	cr_assert(EVENTUALLY(SOON_MS, status_of(node->d, "leases") == 0));
}

static const char *content_of(const struct node *node, const char *tag)
{
	static char texts[2][40];
	static unsigned which;
	json_t *entry = version_entry(node->d, "m", tag);
	char *text = texts[which++ % 2];

	snprintf(text, sizeof texts[0], "%s", json_string_value(json_object_get(entry, "content")));
	json_decref(entry);
	return text;
}

/* Has `to` take the version under the name `ref` from `from`, where it is `there`. */
static void take_as(const struct node *to, const struct node *from, const char *there, const char *ref)
{
	char source[64];

	at(to);
	snprintf(source, sizeof source, "peer://127.0.0.1:%u/m@%s", from->peer.port, there);
	CTL_IS(0, "load", source, ref, "--device", to->d->device, "--wait");
	cr_assert_str_eq(content_of(to, strchr(ref, '@') + 1), content_of(from, there));
	CTL_IS(0, "verify", ref, "--wait");
}

static void take(const struct node *to, const struct node *from, const char *tag)
{
	char ref[16];

	snprintf(ref, sizeof ref, "m@%s", tag);
	take_as(to, from, tag, ref);
	alike_reads(ref);
}

/* The taker's m@v2, from files, takes the segments of m@v1, which came from the seed. */
static void share_with_taken(void)
{
	at(&taker);
	CTL_IS(0, "load", "--wait", alike_checkpoint(taker.d, "v2", true), "m@v2", "--device", taker.d->device,
	       "--segment-bytes", "4M", "--share-with", "m@v1");
	CTL_IS(0, "jobs", "-o", "json");
	SAYS("shares 16 of its 17 segments with m@v1");
	cr_assert_eq(status_of(taker.d, "segments"), ALIKE_SEGMENTS + 1);
	alike_reads("m@v2");
}

/* Until somebody looks again, the third node has nothing. */
static void third_takes(const char *tag)
{
	char ref[16];

	snprintf(ref, sizeof ref, "m@%s", tag);
	take(&third, &taker, tag);
	DROP(third.d, ref);
}

static void begin_seed(void)
{
	beside_needs_built();
	seed.d = gpuwmd_start("--set", peers_setting(), NULL);
}

static void end_empty(struct node *node)
{
	at(node);
	gpuwmd_stop_empty(node->d);
}

/* ---- what the seed shares ------------------------------------------------------ */

Test(peers_shared, versions_that_share_are_taken_whole)
{
	begin_seed();
	alike_load(seed.d);
	serve(&seed);
	taker.d = gpuwmd_start("--set", peers_setting(), NULL);
	take(&taker, &seed, "v2");
	take(&taker, &seed, "v1");
	cr_assert_eq(status_of(taker.d, "segments"), 2 * ALIKE_SEGMENTS);
	cr_assert_eq(status_of(taker.d, "shared_bytes"), 0);
	DROP(taker.d, "m@v1", "m@v2");
	end_empty(&taker);
	serve_no_more(&seed);
	at(&seed);
	alike_reads("m@v1");
	DROP(seed.d, "m@v1", "m@v2");
	end_empty(&seed);
}

/* ---- what the taker shares ------------------------------------------------------ */

/* The seed has m@v1, the taker m@v1 of the seed and m@v2, and both serve. */
static void begin_three(void)
{
	static char limits[256];

	begin_seed();
	CTL_IS(0, "load", "--wait", alike_checkpoint(seed.d, "v1", false), "m@v1", "--device", seed.d->device,
	       "--segment-bytes", "4M");
	serve(&seed);
	peers_setting();
	snprintf(limits, sizeof limits, LIMITS_SHORT "[peers]\nsecret = %s\n" NO_HOST_COPIES, peers_secret());
	taker.d = gpuwmd_start_kept(&(struct kept){.limits = limits});
	take(&taker, &seed, "v1");
	share_with_taken();
	serve(&taker);
	third.d = gpuwmd_start("--set", peers_setting(), NULL);
}

static void end_three(void)
{
	end_empty(&third);
	end_empty(&taker);
	serve_no_more(&seed);
	at(&seed);
	DROP(seed.d, "m@v1");
	end_empty(&seed);
}

Test(peers_shared, what_shares_with_a_taken_version_goes_on_to_a_third_node)
{
	begin_three();
	third_takes("v2");
	third_takes("v1");
	serve_no_more(&taker);
	at(&taker);
	DROP(taker.d, "m@v1");
	cr_assert_eq(status_of(taker.d, "segments"), ALIKE_SEGMENTS);
	serve(&taker);
	third_takes("v2");
	serve_no_more(&taker);
	at(&taker);
	alike_reads("m@v2");
	DROP(taker.d, "m@v2");
	end_three();
}

Test(peers_shared, after_a_restart_too)
{
	struct alike_figures before;

	begin_three();
	before = alike_figures_of(taker.d);
	for (int i = 0; i < 2; i++) {
		at(&taker);
		kept_kill(taker.d, i ? SIGTERM : SIGKILL);
		ALIKE_SETTLES(taker.d, &before);
		third_takes("v2");
		third_takes("v1");
	}
	serve_no_more(&taker);
	at(&taker);
	alike_reads("m@v1");
	alike_reads("m@v2");
	DROP(taker.d, "m@v1", "m@v2");
	end_three();
}

/* Nothing but nodes has m@v1, so only m@v2 may go to files. */
Test(peers_shared, after_a_demotion_and_a_promotion_too)
{
	const bool on_gpu = backend() != BACKEND_HOST;
	struct alike_figures before;

	begin_three();
	before = alike_figures_of(taker.d);
	for (int round = 0; round < 3; round++) {
		serve_no_more(&taker);
		at(&taker);
		demote(taker.d, "m@v2", on_gpu && round % 2 == 0 ? "host" : "files");
		if (on_gpu)
			demote(taker.d, "m@v1", "host");
		OK(gpuwm_promote_wait(taker.d, round == 1 ? "m@v1" : "m@v2"));
		OK(gpuwm_promote_wait(taker.d, round == 1 ? "m@v2" : "m@v1"));
		ALIKE_SETTLES(taker.d, &before);
		alike_reads("m@v1");
		serve(&taker);
		third_takes("v2");
		third_takes("v1");
	}
	serve_no_more(&taker);
	at(&taker);
	DROP(taker.d, "m@v1", "m@v2");
	end_three();
}

/* ---- after a reboot ---------------------------------------------------------------- */

/* The seed has m@v1, the taker both, and all is described there. */
static void begin_described(const char *setting, const char *other)
{
	begin_seed();
	CTL_IS(0, "load", "--wait", alike_checkpoint(seed.d, "v1", false), "m@v1", "--device", seed.d->device,
	       "--segment-bytes", "4M");
	serve(&seed);
	taker.d = described_start("--set", peers_setting(), "--set", setting, "--set", other, NULL);
	take(&taker, &seed, "v1");
	share_with_taken();
	cr_assert(EVENTUALLY(SOON_MS, is_described(taker.d, "v1") && is_described(taker.d, "v2")));
}

static void end_described(void)
{
	at(&taker);
	described_stop(taker.d);
	at(&seed);
	DROP(seed.d, "m@v1");
	end_empty(&seed);
}

static bool all_back(void)
{
	return lies_on(taker.d, "v1", "device") && lies_on(taker.d, "v2", "device");
}

/* The segment that differs comes from files, and all others once: from whichever version comes first. */
Test(peers_shared, they_share_again_after_a_reboot)
{
	struct alike_figures before;

	begin_described("tiers.restore=yes", "budget.host=90%");
	before = alike_figures_of(taker.d);
	for (int round = 0; round < 3; round++) {
		at(&taker);
		described_reboot(taker.d, round % 2 ? SIGKILL : SIGTERM);
		cr_assert(EVENTUALLY(SOON_MS, all_back()));
		ALIKE_SETTLES(taker.d, &before);
		alike_reads("m@v1");
		alike_reads("m@v2");
	}
	serve_no_more(&seed);
	end_described();
}

/* m@v1 is looked for where nobody has it, and two others are before m@v2 in the turns of files. */
Test(peers_shared, what_no_node_has_does_not_hold_up_what_shares_with_it)
{
	begin_described("tiers.restore=yes", "budget.host=90%");
	at(&taker);
	load_version(taker.d, checkpoint_write(taker.d, "s3", SMALL(3)), "m@v3");
	load_version(taker.d, checkpoint_write(taker.d, "s4", SMALL(4)), "m@v4");
	CTL_IS(0, "pin", "m@v1", "keep");
	CTL_IS(0, "pin", "m@v3", "keep");
	CTL_IS(0, "pin", "m@v4", "keep");
	serve_no_more(&seed);
	cr_assert(EVENTUALLY(SOON_MS, !tiers_pending(taker.d)));
	at(&taker);
	described_reboot(taker.d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, lies_on(taker.d, "v2", "device")));
	alike_reads("m@v2");
	end_described();
}

/* At the port where it was before. */
static void serve_again(struct node *node)
{
	char settings[256];

	at(node);
	snprintf(settings, sizeof settings, "secret = %s\nlisten = 127.0.0.1:%u\n", peers_secret(),
		 node->peer.port);
	beside_spawn(&node->peer, node->d, settings, geteuid());
	beside_wait(&node->peer);
}

static void promote_in_vain(const char *ref)
{
	CTL_IS(0, "promote", ref);
	cr_assert(EVENTUALLY(SOON_MS, CTL("jobs", "-o", "json") == 0 && strstr(output, "asking the peer")));
}

/* It looks for m@v1 where nobody has it, for 90 s. m@v2 comes from its files meanwhile, and shares when it comes the next time. */
Test(peers_shared, a_promotion_of_what_no_node_has_holds_up_nobody_else)
{
	struct alike_figures before;

	begin_described("tiers.restore=no", "budget.host=90%");
	before = alike_figures_of(taker.d);
	serve_no_more(&seed);
	at(&taker);
	described_reboot(taker.d, SIGKILL);
	promote_in_vain("m@v1");
	CTL_IS(0, "promote", "m@v2");
	cr_assert(EVENTUALLY(2 * SOON_MS, lies_on(taker.d, "v2", "device")));
	cr_assert(!lies_on(taker.d, "v1", "device"));
	alike_reads("m@v2");
	serve_again(&seed);
	at(&taker);
	cr_assert(EVENTUALLY(2 * SOON_MS, all_back()));
	alike_reads("m@v1");
	cr_assert_eq(status_of(taker.d, "shared_bytes"), 0);
	demote(taker.d, "m@v2", "files");
	OK(gpuwm_promote_wait(taker.d, "m@v2"));
	ALIKE_SETTLES(taker.d, &before);
	serve_no_more(&seed);
	end_described();
}

/* Both of them and the third one do not fit, unless the two share. */
Test(peers_shared, a_promotion_that_has_no_room_of_its_own_waits_on_for_what_it_can_share, .init = on_host)
{
	begin_described("tiers.restore=no", "budget.host=160M");
	serve_no_more(&seed);
	at(&taker);
	described_reboot(taker.d, SIGKILL);
	load_version(taker.d, checkpoint_write(taker.d, "third", LARGE(3)), "m@third");
	promote_in_vain("m@v1");
	CTL_IS(0, "promote", "m@v2");
	/* Longer than nodes may be silent. */
	cr_assert(!EVENTUALLY(4000, CTL("ls", "-o", "json") != 0 || strstr(output, "promotion_error")));
	serve_again(&seed);
	at(&taker);
	cr_assert(EVENTUALLY(2 * SOON_MS, all_back()));
	alike_reads("m@v1");
	alike_reads("m@v2");
	cr_assert_neq(status_of(taker.d, "shared_bytes"), 0);
	serve_no_more(&seed);
	end_described();
}
