/* Versions that were taken from nodes, after a reboot. */
#include "beside.h"
#include "described.h"

#include <stdio.h>
#include <unistd.h>

static struct beside peer;

static void end(void)
{
	beside_clear(&peer);
	harness_cleanup();
}

TestSuite(peers_again, .fini = end);

#define REFUSES(...) cr_assert_neq(CTL(__VA_ARGS__), 0, "%s", output)

/* In the body: a gpuwmd that may take from peers, with a folder of descriptions. */
#define REBOOT_TEST(name, ...)                                                                                 \
	GPUWMD_TEST_IF(peers_again, name, beside_needs_built(),                                                \
		       described_start("--set", peers_setting() __VA_OPT__(, ) __VA_ARGS__, NULL),             \
		       described_stop)

/* m@copy is taken from m@v1, and described. */
static void take_copy(struct gpuwmd *d)
{
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	beside_start(&peer, d);
	CTL_IS(0, "load", peer.source, "m@copy", "--device", d->device, "--wait");
	cr_assert(EVENTUALLY(SOON_MS, is_described(d, "copy")));
}

/* gpuwm-peer stands still meanwhile: the harness waits until its own session is the only one. */
static void reboot_beside_peer(struct gpuwmd *d)
{
	cr_assert_eq(kill(peer.pid, SIGSTOP), 0);
	described_reboot(d, SIGKILL);
	cr_assert_eq(kill(peer.pid, SIGCONT), 0);
}

/* The node has the content under another name by then. */
REBOOT_TEST(a_copy_comes_back_from_any_node_that_has_its_content)
{
	take_copy(d);
	load_version(d, checkpoint_write(d, "again", SMALL(1)), "m@again");
	CTL_IS(0, "rm", "--aliases", "m@v1");
	cr_assert(EVENTUALLY(SOON_MS, is_described(d, "again") && tiers_number(d, "described") == 2));
	reboot_beside_peer(d);
	cr_assert(EVENTUALLY(SOON_MS, tiers_number(d, "restored") == 2));
	worker_reads(d, "m@copy", 1);
	CTL_IS(0, "verify", "m@copy", "--wait");
	CTL_IS(0, "-o", "json", "ls", "m");
	SAYS(peer.source);
	cr_expect_eq(beside_stop(&peer), 0);
}

REBOOT_TEST(a_copy_comes_back_from_files_with_its_content, "--set", "tiers.restore=no")
{
	take_copy(d);
	cr_expect_eq(beside_stop(&peer), 0);
	described_reboot(d, SIGKILL);
	CTL_IS(0, "ls", "m");
	SAYS("on files");
	REFUSES("describe", "m@copy", checkpoint_write(d, "other", SMALL(2)), "--wait");
	CTL_IS(0, "describe", "m@copy", checkpoint_write(d, "same", SMALL(1)), "--wait");
	CTL_IS(0, "promote", "m@copy", "--wait");
	worker_reads(d, "m@copy", 1);
	CTL_IS(0, "demote", "m@copy", "--to", "files", "--wait");
}

/* A version of the same model is not what was taken. The node is this one, whose list has what is to come back. */
REBOOT_TEST(a_copy_does_not_come_back_as_something_else, "--set", "tiers.restore=no")
{
	take_copy(d);
	load_version(d, checkpoint_write(d, "other", SMALL(2)), "m@other");
	CTL_IS(0, "rm", "--aliases", "m@v1");
	cr_assert(EVENTUALLY(SOON_MS, is_described(d, "other") && tiers_number(d, "described") == 2));
	reboot_beside_peer(d);
	CTL_IS(0, "promote", "m@other", "--wait");
	CTL_IS(0, "promote", "m@copy");
	cr_assert(EVENTUALLY(SOON_MS, CTL("jobs", "-o", "json") == 0 &&
					      strstr(output, "has no version with the content of m@v1")));
	cr_expect_eq(beside_stop(&peer), 0);
}

/* ---- this node has its content in files ---------------------------------------------- */

/* The node that it was taken from may be this one, and nobody serves it. */
REBOOT_TEST(a_copy_comes_back_from_the_files_of_another_version)
{
	take_copy(d);
	cr_expect_eq(beside_stop(&peer), 0);
	described_reboot(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, tiers_number(d, "restored") == 2));
	worker_reads(d, "m@copy", 1);
	CTL_IS(0, "verify", "m@copy", "--wait");
	CTL_IS(0, "jobs", "-o", "json");
	SAYS("/v1.safetensors: another version with these files has the same content");
	CTL_IS(0, "-o", "json", "show", "m@copy");
	SAYS(peer.source);
	described_reboot(d, SIGTERM);
	attach_reads("m@copy", 1);
}

/* Two copies and nothing else would take the turns of all that come from files. */
REBOOT_TEST(copies_that_no_node_has_do_not_hold_up_what_files_have)
{
	take_copy(d);
	CTL_IS(0, "load", peer.source, "m@more", "--device", d->device, "--wait");
	load_version(d, checkpoint_write(d, "last", SMALL(3)), "m@last");
	CTL_IS(0, "pin", "m@copy", "keep");
	CTL_IS(0, "pin", "m@more", "keep");
	CTL_IS(0, "rm", "--aliases", "m@v1");
	cr_expect_eq(beside_stop(&peer), 0);
	cr_assert(EVENTUALLY(SOON_MS, is_described(d, "last") && tiers_number(d, "described") == 3));
	described_reboot(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, tiers_number(d, "restored") == 1));
	worker_reads(d, "m@last", 3);
	CTL_IS(0, "ls", "m");
	SAYS("on files");
}

/* Those of the first version that had the content are others by now. */
REBOOT_TEST(a_copy_comes_from_a_node_if_the_files_have_changed, "--set", "tiers.restore=no")
{
	take_copy(d);
	reboot_beside_peer(d);
	checkpoint_write(d, "v1", SMALL(2));
	load_version(d, checkpoint_write(d, "again", SMALL(1)), "m@again");
	CTL_IS(0, "promote", "m@copy", "--wait");
	worker_reads(d, "m@copy", 1);
	CTL_IS(0, "jobs", "-o", "json");
	SAYS("other nodes are asked: another version had the same content in ");
	SAYS("/v1.safetensors has digest ");
	SAYS(" has the version\"");
	cr_expect_eq(beside_stop(&peer), 0);
}
