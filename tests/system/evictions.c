/* Versions that gpuwmd demotes by itself: to make room, because there are too many, because nobody uses them. */
#include "described.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(evictions);

/* Room for two versions of 64 MiB and not for three, and on the stand-in for a context. */
#define ROOM_FOR_TWO backend() == BACKEND_HOST ? "budget.host=170M" : "budget.*=746M"
#define TIGHT_TEST(name, ...)                                                                                  \
	GPUWMD_TEST_BY(evictions, name,                                                                        \
		       described_start("--set", ROOM_FOR_TWO, "--set", "tiers.min_resident=0", "--set",        \
				       "model.1.match=*" __VA_OPT__(, "--set", ) __VA_ARGS__, NULL),           \
		       described_stop)

/* The same where versions lie on a GPU, and may go to host memory. */
#define TIGHT_GPU_TEST(name, evict)                                                                            \
	FAKECUDA_TEST(evictions, name,                                                                         \
		      described_start("--set", ROOM_FOR_TWO, "--set", "tiers.min_resident=0", "--set",         \
				      "model.1.match=*", "--set", evict, NULL),                                \
		      described_stop)

static const char *large(struct gpuwmd *d, unsigned seed)
{
	char name[16];

	snprintf(name, sizeof name, "v%u", seed);
	return checkpoint_write(d, name, LARGE(seed));
}

static int try_large(struct gpuwmd *d, unsigned seed)
{
	char name[16];

	snprintf(name, sizeof name, "m@v%u", seed);
	return load_try(d, large(d, seed), name);
}

static void load_large(struct gpuwmd *d, unsigned count)
{
	for (unsigned seed = 1; seed <= count; seed++)
		OK(try_large(d, seed));
}

/* A worker that has the version. */
static struct gpuwm_mapping *attach(struct gpuwm_client *client, const char *ref)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;

	options.wait_ms = SOON_MS;
	OK(gpuwm_attach(client, ref, &options, &mapping));
	return mapping;
}

static void read_all(const char *ref, unsigned seed)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = attach(client, ref);

	cr_assert(mapping_holds(mapping, seed));
	gpuwm_detach(mapping);
	gpuwm_close(client);
}

/* ---- evict ------------------------------------------------------------ */

TIGHT_TEST(without_a_rule_nothing_makes_room)
{
	load_large(d, 2);
	FAILS(ENOSPC, try_large(d, 3));
	cr_assert(strstr(gpuwm_error()->detail, "not to be evicted for this (evict)"), "%s",
		  gpuwm_error()->detail);
	cr_assert(lies_on(d, "v1", "device") && lies_on(d, "v2", "device"));
}

TIGHT_TEST(a_load_has_the_version_demoted_that_was_not_used_for_longest, "model.1.evict=files")
{
	load_large(d, 2);
	read_all("m@v1", 1);
	OK(try_large(d, 3));
	cr_assert(lies_on(d, "v1", "device") && lies_on(d, "v2", "files") && lies_on(d, "v3", "device"));
	cr_assert(log_says(d, "m@v2 lies on files now, not on device: room on "));
	read_all("m@v2", 2);
	cr_assert(lies_on(d, "v1", "files") && lies_on(d, "v2", "device") && lies_on(d, "v3", "device"));
	cr_assert(log_says(d, "MiB of m@v2"));
}

/* A dry run names what the load would demote, and demotes nothing. */
TIGHT_TEST(a_dry_run_names_what_would_make_room, "model.1.evict=files")
{
	const char *third;

	load_large(d, 2);
	read_all("m@v1", 1);
	third = large(d, 3);
	CTL_IS(0, "load", third, "m@v3", "--device", d->device, "--dry-run");
	SAYS("m@v2 would go to files, which frees ");
	cr_assert_null(strstr(output, "m@v1 would"), "%s", output);
	cr_assert(lies_on(d, "v1", "device") && lies_on(d, "v2", "device"));
	OK(gpuwm_pin(d->admin, "m@v1", "night"));
	OK(gpuwm_pin(d->admin, "m@v2", "night"));
	CTL_IS(8, "load", third, "m@v3", "--device", d->device, "--dry-run");
	SAYS(" pinned");
	SAYS("no\n");
	OK(gpuwm_unpin(d->admin, "m@v1", "night"));
	CTL_IS(0, "load", third, "m@v3", "--device", d->device, "--dry-run");
	SAYS("m@v1 would go to files, which frees ");
	OK(load_try(d, third, "m@v3"));
	cr_assert(lies_on(d, "v1", "files") && lies_on(d, "v2", "device") && lies_on(d, "v3", "device"));
	OK(gpuwm_unpin(d->admin, "m@v2", "night"));
}

/* v2 and v3 were resident, and nobody restores them. */
TIGHT_TEST(an_attach_after_a_reboot_makes_room_for_what_was_resident, "model.1.evict=files", "--set",
	   "tiers.restore=no")
{
	load_large(d, 3);
	described_reboot(d, SIGTERM);
	read_all("m@v1", 1);
	read_all("m@v2", 2);
	read_all("m@v3", 3);
	cr_assert(lies_on(d, "v1", "files") && lies_on(d, "v2", "device") && lies_on(d, "v3", "device"));
	cr_assert_eq(tiers_number(d, "restored"), 0);
}

TIGHT_GPU_TEST(versions_go_to_host_memory_and_come_back, "model.1.evict=host")
{
	load_large(d, 4);
	cr_assert(lies_on(d, "v1", "host") && lies_on(d, "v2", "host"));
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned seed = 1; seed <= 4; seed++) {
			char ref[16];

			snprintf(ref, sizeof ref, "m@v%u", seed);
			read_all(ref, seed);
		}
	}
	cr_assert(lies_on(d, "v3", "device") && lies_on(d, "v4", "device"));
}

/* There is room for one version. */
FAKECUDA_TEST(evictions, a_dry_run_knows_that_host_memory_is_full,
	      described_start("--set", ROOM_FOR_TWO, "--set", "tiers.min_resident=0", "--set",
			      "budget.host=100M", "--set", "model.1.match=*", "--set", "model.1.evict=host",
			      NULL),
	      described_stop)
{
	const char *fourth;

	load_large(d, 3);
	cr_assert(lies_on(d, "v1", "host"));
	fourth = large(d, 4);
	CTL_IS(8, "load", fourth, "m@v4", "--device", d->device, "--dry-run");
	SAYS("that the budget of host has no room for");
	FAILS(ENOSPC, load_try(d, fourth, "m@v4"));
	cr_assert(strstr(gpuwm_error()->detail, "that the budget of host has no room for"), "%s",
		  gpuwm_error()->detail);
	demote(d, "m@v1", "files");
	cr_assert(EVENTUALLY(SOON_MS, host_used(d) == 0));
	CTL_IS(0, "load", fourth, "m@v4", "--device", d->device, "--dry-run");
	OK(load_try(d, fourth, "m@v4"));
}

/* ---- evict, on several devices ----------------------------------------- */

/* Each of the stand-in's two GPUs has room for two versions. */
#define TWO_GPU_TEST(name, ...)                                                                                \
	FAKECUDA_TEST(evictions, name,                                                                         \
		      described_start("--set", ROOM_FOR_TWO, "--set", "tiers.min_resident=0", "--set",         \
				      "model.1.match=*", "--set",                                              \
				      "model.1.evict=host" __VA_OPT__(, "--set", ) __VA_ARGS__, NULL),         \
		      described_stop)

#define GPU_0 "GPU-fa4e0000-0000-4000-8000-000000000000"
#define GPU_1 "GPU-fa4e0000-0000-4000-8000-000000000001"

static int dry_run_on_both(struct gpuwmd *d, unsigned seed)
{
	char name[16];

	snprintf(name, sizeof name, "m@v%u", seed);
	return CTL("load", large(d, seed), name, "--device", GPU_0, "--device", GPU_1, "--dry-run");
}

/* second may be NULL. */
static int load_on(struct gpuwmd *d, unsigned seed, const char *first, const char *second)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	const char *devices[] = {first, second};
	char name[16];
	uint64_t job;
	int r;

	snprintf(name, sizeof name, "m@v%u", seed);
	options.source = large(d, seed);
	options.name = name;
	options.devices = devices;
	options.device_count = second ? 2 : 1;
	r = gpuwm_load(d->admin, &options, &job);
	return r < 0 ? r : gpuwm_job_wait(d->admin, job, LOAD_MS);
}

/* For the second GPU alone it would be v1, which was not used for longest. */
TWO_GPU_TEST(a_version_that_leaves_for_one_gpu_makes_room_on_the_other)
{
	OK(load_on(d, 1, GPU_1, NULL));
	OK(load_on(d, 2, GPU_0, GPU_1));
	OK(load_on(d, 3, GPU_0, NULL));
	cr_assert_eq(dry_run_on_both(d, 4), 0, "%s", output);
	SAYS("m@v2 would go to host, which frees 66.0 MiB of " GPU_0);
	SAYS("m@v2 would go to host, which frees 66.0 MiB of " GPU_1);
	cr_assert(!strstr(output, "m@v1 would") && !strstr(output, "m@v3 would"), "%s", output);
	OK(load_on(d, 4, GPU_0, GPU_1));
	cr_assert(lies_on(d, "v1", "device") && lies_on(d, "v2", "host") && lies_on(d, "v3", "device"));
}

/* The version that leaves the first GPU takes the room in host memory that the second one needs. */
TWO_GPU_TEST(a_dry_run_knows_what_host_memory_has_left_for_the_second_gpu, "budget.host=100M")
{
	OK(load_on(d, 1, GPU_0, NULL));
	OK(load_on(d, 2, GPU_0, NULL));
	OK(load_on(d, 3, GPU_1, NULL));
	OK(load_on(d, 4, GPU_1, NULL));
	cr_assert_eq(dry_run_on_both(d, 5), 8, "%s", output);
	SAYS("m@v1 would go to host");
	SAYS("that the budget of host has no room for");
	cr_assert_null(strstr(output, "m@v3 would"), "%s", output);
	FAILS(ENOSPC, load_on(d, 5, GPU_0, GPU_1));
	cr_assert(lies_on(d, "v1", "host") && lies_on(d, "v3", "device"));
}

/* The same of a load that has a replica in host memory itself. */
TWO_GPU_TEST(a_dry_run_knows_what_a_version_takes_of_the_loads_own_device, "budget.host=100M")
{
	const char *third;

	OK(load_on(d, 1, GPU_0, NULL));
	OK(load_on(d, 2, GPU_0, NULL));
	third = large(d, 3);
	CTL_IS(8, "load", third, "m@v3", "--device", GPU_0, "--device", "host", "--dry-run");
	SAYS("m@v1 would go to host");
	FAILS(ENOSPC, load_on(d, 3, GPU_0, "host"));
	cr_assert(lies_on(d, "v1", "host"));
}

/* ---- evict, for several ranks on one device ------------------------------ */

#define OF_MIB(seed_, mib) (&(const struct checkpoint){.seed = (seed_), .count = (mib) / 4, .bytes = MB(4)})

/* The first rank needs 20 MiB more than there are, for which v1 goes, and the second one 12 MiB besides. Together they need 62 MiB, for which
 * v2 alone would do. */
TIGHT_TEST(a_dry_run_names_what_each_rank_on_one_device_makes_room_with, "model.1.evict=files")
{
	char ranks[256];

	OK(load_try(d, checkpoint_write(d, "v1", OF_MIB(1, 48)), "m@v1"));
	OK(load_try(d, checkpoint_write(d, "v2", OF_MIB(2, 96)), "m@v2"));
	checkpoint_write(d, "v3/model-rank-0-part-0", OF_MIB(3, 40));
	checkpoint_write(d, "v3/model-rank-1-part-0", OF_MIB(4, 40));
	snprintf(ranks, sizeof ranks, "%s/v3", d->root);
	CTL_IS(0, "load", ranks, "m@v3", "--device", d->device, "--dry-run");
	SAYS("m@v1 would go to files");
	SAYS("m@v2 would go to files");
	OK(load_try(d, ranks, "m@v3"));
	cr_assert(lies_on(d, "v1", "files") && lies_on(d, "v2", "files") && lies_on(d, "v3", "device"));
}

/* ---- evict, by owners, leases and pins ---------------------------------- */

/* A user published m@v1, operators load the others. */
TIGHT_GPU_TEST(with_own_only_the_owners_versions_make_room, "model.1.evict=host own")
{
	struct gpuwm_client *client = client_new();

	OK(publish_version(client, d->device, "m@v1", LARGE(1)));
	OK(try_large(d, 2));
	OK(try_large(d, 3));
	cr_assert(lies_on(d, "v1", "device") && lies_on(d, "v2", "host") && lies_on(d, "v3", "device"));
	gpuwm_close(client);
}

/* All three are a user's, and an operator promotes. */
TIGHT_GPU_TEST(with_own_the_versions_of_the_promoted_ones_owner_make_room, "model.1.evict=host own")
{
	struct gpuwm_client *client = client_new();

	OK(publish_version(client, d->device, "m@v1", LARGE(1)));
	OK(publish_version(client, d->device, "m@v2", LARGE(2)));
	OK(publish_version(client, d->device, "m@v3", LARGE(3)));
	cr_assert(lies_on(d, "v1", "host"));
	OK(gpuwm_promote_wait(d, "m@v1"));
	cr_assert(EVENTUALLY(SOON_MS, lies_on(d, "v1", "device")));
	cr_assert(lies_on(d, "v2", "host") && lies_on(d, "v3", "device"));
	gpuwm_close(client);
}

TIGHT_TEST(leased_and_pinned_versions_stay_and_the_error_says_so, "model.1.evict=files")
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	load_large(d, 2);
	OK(gpuwm_pin(d->admin, "m@v2", "night"));
	mapping = attach(client, "m@v1");
	FAILS(ENOSPC, try_large(d, 3));
	cr_assert(strstr(gpuwm_error()->detail, "leased") && strstr(gpuwm_error()->detail, "pinned"), "%s",
		  gpuwm_error()->detail);
	cr_assert(mapping_holds(mapping, 1));
	gpuwm_detach(mapping);
	gpuwm_close(client);
	OK(try_large(d, 4));
	cr_assert(lies_on(d, "v1", "files") && lies_on(d, "v2", "device"));
}

TIGHT_TEST(a_version_without_files_stays, "model.1.evict=files")
{
	OK(publish_version(d->admin, d->device, "m@v1", LARGE(1)));
	OK(publish_version(d->admin, d->device, "m@v2", LARGE(2)));
	FAILS(ENOSPC, try_large(d, 3));
	cr_assert(strstr(gpuwm_error()->detail, "of versions without files"), "%s", gpuwm_error()->detail);
	cr_assert(!is_described(d, "v1"));
}

TIGHT_TEST(a_publish_makes_room_too, "model.1.evict=files")
{
	load_large(d, 2);
	OK(publish_version(d->admin, d->device, "m@v3", LARGE(3)));
	cr_assert(lies_on(d, "v1", "files"));
	read_all("m@v3", 3);
}

/* The load has it, and waits. */
TIGHT_TEST(the_only_loader_is_no_reason_to_wait_for_ever, "model.1.evict=files", "--set", "limits.loaders=1",
	   "--set", "loader.keep_context=0")
{
	load_large(d, 4);
	cr_assert(lies_on(d, "v1", "files") && lies_on(d, "v2", "files") && lies_on(d, "v4", "device"));
	read_all("m@v1", 1);
}

GPUWMD_TEST_BY(evictions, a_load_waits_until_a_version_was_resident_for_min_resident,
	       described_start("--set", ROOM_FOR_TWO, "--set", "tiers.min_resident=2", "--set",
			       "model.1.match=*", "--set", "model.1.evict=files", NULL),
	       described_stop)
{
	int64_t ready;

	OK(try_large(d, 1));
	ready = clock_ms();
	OK(try_large(d, 2));
	OK(try_large(d, 3));
	cr_assert(clock_ms() - ready >= 1900, "after %lld ms", (long long)(clock_ms() - ready));
	cr_assert(lies_on(d, "v1", "files"));
}

/* ---- max_resident, idle ------------------------------------------------ */

GPUWMD_TEST_BY(evictions, a_model_keeps_max_resident_versions,
	       described_start("--set", "model.1.match=*", "--set", "model.1.evict=files", "--set",
			       "model.1.max_resident=2", "--set", "tiers.min_resident=0", NULL),
	       described_stop)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	load_small(d, 2);
	mapping = attach(client, "m@v1");
	load_version(d, checkpoint_write(d, "v3", SMALL(3)), "m@v3");
	cr_assert(EVENTUALLY(SOON_MS, lies_on(d, "v2", "files")));
	OK(gpuwm_pin(d->admin, "m@v3", "night"));
	load_version(d, checkpoint_write(d, "v4", SMALL(4)), "m@v4");
	cr_assert(EVENTUALLY(SOON_MS, lies_on(d, "v4", "files")));
	cr_assert(lies_on(d, "v1", "device") && lies_on(d, "v3", "device"));
	cr_assert(log_says(d, "max_resident = 2 of its model"));
	gpuwm_detach(mapping);
	gpuwm_close(client);
}

/* The version that was loaded last is the only one that may go. */
GPUWMD_TEST_BY(evictions, max_resident_waits_until_a_version_was_resident_for_min_resident,
	       described_start("--set", "model.1.match=*", "--set", "model.1.evict=files", "--set",
			       "model.1.max_resident=1", "--set", "tiers.min_resident=2", NULL),
	       described_stop)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	int64_t before;

	load_small(d, 1);
	mapping = attach(client, "m@v1");
	before = clock_ms();
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	cr_assert(EVENTUALLY(SOON_MS, lies_on(d, "v2", "files")));
	cr_assert(clock_ms() - before >= 1900, "after %lld ms", (long long)(clock_ms() - before));
	gpuwm_detach(mapping);
	gpuwm_close(client);
}

GPUWMD_TEST_BY(evictions, an_idle_version_leaves_and_one_in_use_stays,
	       described_start("--set", "model.1.match=*", "--set", "model.1.idle=1 files", NULL),
	       described_stop)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	load_small(d, 2);
	mapping = attach(client, "m@v1");
	cr_assert(EVENTUALLY(SOON_MS, lies_on(d, "v2", "files")));
	cr_assert(lies_on(d, "v1", "device"));
	cr_assert(log_says(d, "nobody has leased it for 1 s"));
	gpuwm_detach(mapping);
	gpuwm_close(client);
	cr_assert(EVENTUALLY(SOON_MS, lies_on(d, "v1", "files")));
}
