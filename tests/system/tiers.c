/* Versions on tiers: they leave their devices, and come back with every byte. On fakecuda the device is a GPU, on host it is host
 * memory, from which a version goes to files only. */
#include "tiers.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(tiers);

#define TIER_TEST(name) GPUWMD_TEST_BY(tiers, name, tiers_begin(), tiers_end)
#define GPU_TIER_TEST(name) FAKECUDA_TEST(tiers, name, tiers_begin(), tiers_end)

/* ---- there and back ---------------------------------------------------- */

TIER_TEST(a_version_goes_to_files_and_comes_back)
{
	const uint64_t used = device_used(d);

	CTL_IS(0, "demote", "m@v1", "--to", "files", "--wait");
	SAYS("moved: m@v1 lies on files");
	cr_assert(lies_on(d, "v1", "files"));
	cr_assert(EVENTUALLY(SOON_MS, device_used(d) == 0), "its memory is still charged");
	CTL_IS(0, "demote", "m@v1", "--to", "files", "--wait");
	SAYS("unchanged: m@v1 lies on files");
	CTL_IS(0, "promote", "m@v1", "--wait");
	SAYS("moved: m@v1 lies on its devices");
	cr_assert(lies_on(d, "v1", "device"));
	cr_assert_eq(device_used(d), used);
	worker_reads(d, "m@v1", 1);
}

GPU_TIER_TEST(a_version_goes_to_host_memory_and_comes_back)
{
	const uint64_t used = device_used(d);
	const size_t fds = fds_settled(d);

	CTL_IS(0, "demote", "m@v1", "--to", "host", "--wait");
	cr_assert(lies_on(d, "v1", "host"));
	cr_assert(EVENTUALLY(SOON_MS, device_used(d) == 0));
	cr_assert_eq(host_used(d), used);
	CTL_IS(0, "verify", "m@v1", "--wait");
	CTL_IS(0, "promote", "m@v1", "--wait");
	cr_assert_eq(device_used(d), used);
	worker_reads(d, "m@v1", 1);
	cr_assert_leq(fds_settled(d), 2 * fds, "its host copy has as many descriptors as itself");
}

GPU_TIER_TEST(from_host_memory_it_goes_on_to_files)
{
	CTL_IS(0, "demote", "m@v1", "--to", "host", "--wait");
	CTL_IS(0, "demote", "m@v1", "--to", "files", "--wait");
	cr_assert(EVENTUALLY(SOON_MS, host_used(d) == 0));
	CTL_IS(1, "demote", "m@v1", "--to", "host");
	SAYS("it is not demoted to host");
	CTL_IS(2, "demote", "m@v1");
	SAYS("demote needs --to TIER");
	worker_waits(d, "m@v1", 1);
}

TIER_TEST(its_alias_its_id_and_its_pins_stay)
{
	json_t *before = version_entry(d, "m", "v1"), *after;

	demote(d, "m", "files");
	OK(gpuwm_pin(d->admin, "m", "kept"));
	CTL_IS(0, "ls");
	SAYS("ready, on files");
	CTL_IS(0, "status");
	SAYS("versions 1 (1 demoted)");
	after = version_entry(d, "m", "v1");
	cr_assert_str_eq(json_string_value(json_object_get(after, "version")),
			 json_string_value(json_object_get(before, "version")));
	cr_assert(json_equal(json_object_get(after, "content"), json_object_get(before, "content")));
	cr_assert(json_equal(json_object_get(after, "bytes"), json_object_get(before, "bytes")));
	OK(gpuwm_promote_wait(d, "m"));
	OK(gpuwm_unpin(d->admin, "m", "kept"));
	worker_reads(d, "m", 1);
	json_decref(before);
	json_decref(after);
}

/* ---- who is in the way ------------------------------------------------- */

TIER_TEST(leases_and_pins_keep_it_on_its_devices)
{
	struct process worker = worker_start(d, "m@v1", 1);

	CTL_IS(5, "demote", "m@v1", "--to", "files");
	SAYS("m@v1 has 1 lease");
	SAYS("(pid ");
	process_tell(&worker, 'd');
	process_finish(&worker);
	OK(gpuwm_pin(d->admin, "m", "nightly"));
	CTL_IS(5, "demote", "m@v1", "--to", "files");
	SAYS("unpin first: nightly");
	OK(gpuwm_unpin(d->admin, "m", "nightly"));
	cr_assert(lies_on(d, "v1", "device"));
}

TIER_TEST(what_makes_no_sense_is_refused_by_name)
{
	CTL_IS(2, "demote", "m@v1");
	CTL_IS(2, "demote", "m@v1", "--to", "device");
	if (backend() == BACKEND_HOST) {
		CTL_IS(1, "demote", "m@v1", "--to", "host");
		SAYS("m@v1 lies in host memory already");
	}
	CTL_IS(0, "promote", "m@v1", "--wait");
	SAYS("unchanged: m@v1 lies on its devices");
	OK(publish_version(d->admin, d->device, "m@made", SMALL(2)));
	CTL_IS(1, "demote", "m@made", "--to", "files");
	SAYS("m@made has no source: no files are known from which it would come back");
	SAYS("gpuwmctl save m@made FOLDER");
	CTL_IS(4, "demote", "m@nothing", "--to", "files");
	DROP(d, "m@made");
}

TIER_TEST(an_alias_moves_to_a_version_on_its_devices_only)
{
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	demote(d, "m@v2", "files");
	FAILS(EAGAIN, swap_to(d, "m", "v2", false));
	CTL_IS(1, "swap", "m", "v2");
	SAYS("m@v2 lies on files");
	SAYS("gpuwmctl promote m@v2 --wait, then swap");
	OK(gpuwm_promote_wait(d, "m@v2"));
	OK(swap_to(d, "m", "v2", false));
	/* One that an alias names may be demoted, and one that is demoted may lose its alias. */
	demote(d, "m", "files");
	OK(swap_to(d, "m", "v1", false));
	DROP(d, "m@v2");
}

TIER_TEST(a_demoted_version_retires)
{
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	demote(d, "m@v2", "files");
	OK(gpuwm_retire(d->admin, "m@v2", SOON_MS));
	cr_assert(version_is(d, "m", "v2", "none"));
}

/* ---- attaching --------------------------------------------------------- */

TIER_TEST(an_attach_brings_it_back)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = NULL;

	demote(d, "m@v1", "files");
	FAILS(ETIMEDOUT, gpuwm_attach(client, "m@v1", NULL, &mapping));
	cr_assert(strstr(gpuwm_error()->message, "m@v1 lies on files, and its promotion has begun"));
	cr_assert_str_eq(gpuwm_error()->detail, "attach again later, or with a time to wait");
	gpuwm_close(client);
	cr_assert(EVENTUALLY(SOON_MS, lies_on(d, "v1", "device")));
	worker_reads(d, "m@v1", 1);
}

TIER_TEST(an_attach_that_waits_gets_it)
{
	struct process workers[3];

	demote(d, "m@v1", "files");
	for (size_t i = 0; i < 3; i++)
		workers[i] = process_start(waiter_hold, "m", "1", NULL);
	for (size_t i = 0; i < 3; i++)
		process_expect(&workers[i], 'a');
	for (size_t i = 0; i < 3; i++) {
		process_tell(&workers[i], 'd');
		process_finish(&workers[i]);
	}
	cr_assert_eq(log_lines(d, "m@v1 lies on device now, not on files"), 1, "one promotion is for all");
}

/* The files have changed since: whoever waits is told, and the version stays where it is. */
TIER_TEST(an_attach_is_told_why_a_promotion_failed)
{
	const char *path = checkpoint_write(d, "v2", SMALL(2));
	struct gpuwm_client *client = client_new();
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping = NULL;

	load_version(d, path, "m@v2");
	demote(d, "m@v2", "files");
	checkpoint_write(d, "v2", SMALL(3));
	options.wait_ms = 30000;
	FAILS(EBADMSG, gpuwm_attach(client, "m@v2", &options, &mapping));
	cr_assert(strstr(gpuwm_error()->message, "m@v2 lies on files, and is not promoted: "), "%s",
		  gpuwm_error()->message);
	gpuwm_close(client);
	CTL_IS(9, "promote", "m@v2", "--wait");
	cr_assert(EVENTUALLY(SOON_MS, lies_on(d, "v2", "files")));
	CTL_IS(0, "show", "m@v2");
	SAYS("its last promotion failed: ");
	checkpoint_write(d, "v2", SMALL(2));
	worker_waits(d, "m@v2", 2);
	DROP(d, "m@v2");
}

/* ---- describing -------------------------------------------------------- */

TIER_TEST(files_describe_a_published_version_if_they_have_its_bytes)
{
	const char *good;
	char bad[256];

	snprintf(bad, sizeof bad, "%s/bad.safetensors", d->root);
	checkpoint_write(d, "bad", SMALL(3));
	good = checkpoint_write(d, "good", SMALL(2));
	OK(publish_version(d->admin, d->device, "m@made", SMALL(2)));
	CTL_IS(9, "describe", "m@made", bad, "--wait");
	SAYS("the version stays where it is: describe it by its own files");
	CTL_IS(6, "describe", "m@made", "/nowhere/at/all", "--wait");
	CTL_IS(0, "describe", "m@made", good, "--wait");
	SAYS("described: m@made, by ");
	demote(d, "m@made", "files");
	worker_waits(d, "m@made", 2);
	DROP(d, "m@made");
}
