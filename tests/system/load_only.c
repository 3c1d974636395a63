/* Loads of some tensors: what the version has, on each of its ways, and what is refused. */
#include "described.h"

#include "tests/support/any/own_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SYSTEM_SUITE(load_only);

#define PLAN                                                                                                   \
	"layer.* split 0\n"                                                                                    \
	"matrix split 1\n"                                                                                     \
	"scalar copy\n"                                                                                        \
	"empty copy\n"
/* Three of the layers and another tensor, of SMALL's 9 in all. */
#define ONLY "--only", "layer.00[0-2].*", "--only", "scalar"
#define COUNT 4

static const char *plan_write(struct gpuwmd *d)
{
	static char path[256];

	snprintf(path, sizeof path, "%s/plan.cut", d->root);
	file_write(d, "plan.cut", PLAN, strlen(PLAN));
	return path;
}

static uint64_t bytes_of(struct gpuwmd *d, const char *tag)
{
	json_t *entry = version_entry(d, "m", tag);
	const uint64_t bytes = (uint64_t)json_integer_value(json_object_get(entry, "bytes"));

	json_decref(entry);
	return bytes;
}

/* ---- what it has ---- */

static void expect_only(const char *ref, uint64_t seed)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	options.wait_ms = SOON_MS;
	OK(gpuwm_attach(client, ref, &options, &mapping));
	cr_assert_eq(gpuwm_tensor_count(mapping), COUNT);
	cr_assert(mapping_holds(mapping, seed));
	gpuwm_detach(mapping);
	gpuwm_close(client);
}

GPUWMD_TEST(load_only, has_what_matches_and_is_as_small)
{
	const char *path = checkpoint_write(d, "source", LARGE(1));

	CTL_IS(0, "load", path, "m@v1", "--device", d->device, "--wait", ONLY);
	SAYS("4 of 19 tensors, by --only");
	expect_only("m@v1", 1);
	/* Besides the three layers there is the scalar, which may take a page of 2 MiB. */
	cr_assert(bytes_of(d, "v1") > MB(12) && bytes_of(d, "v1") <= MB(14));
	demote(d, "m@v1", "files");
	expect_only("m@v1", 1);
	CTL_IS(0, "verify", "m@v1", "--wait");
	SAYS("intact");
	DROP(d, "m@v1");
}

GPUWMD_TEST(load_only, a_swap_takes_it_too)
{
	const char *path = checkpoint_write(d, "source", SMALL(1));

	CTL_IS(0, "swap", "m", "v1", "--load", path, "--device", d->device, ONLY);
	expect_only("m", 1);
	DROP(d, "m@v1");
}

GPUWMD_TEST_BY(load_only, a_dry_run_counts_what_matches, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	const char *path = checkpoint_write(d, "source", SMALL(1));

	CTL_IS(0, "load", path, "m@v1", "--device", d->device, "--dry-run", "--only", "layer.00[01].*");
	SAYS(": 1 file, 2 tensors, 128.0 KiB, ");
	SAYS("2 of 9 tensors, by --only");
}

GPUWMD_TEST_BY(load_only, a_glob_without_a_tensor_is_named, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	const char *path = checkpoint_write(d, "source", SMALL(1));

	cr_assert_neq(CTL("load", path, "m@v1", "--device", d->device, "--wait", ONLY, "--only", "vision*"), 0);
	SAYS("none of its 9 tensors matches \"vision*\"");
	SAYS("one of the names is \"");
	CTL_IS(2, "load", path, "m@v1", "--only", "");
	CTL_IS(2, "swap", "m", "v1", "--only", "scalar");
}

/* ---- files per rank ---- */

static const char *rank_write(struct gpuwmd *d, unsigned rank, const char *tensor)
{
	char name[64], header[128];

	snprintf(name, sizeof name, "ranks/model-rank-%u-part-0.safetensors", rank);
	snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
		 tensor);
	return safetensors_write(d, name, header, 4);
}

GPUWMD_TEST(load_only, a_rank_may_have_none_of_them)
{
	char folder[256];

	rank_write(d, 0, "a");
	snprintf(folder, sizeof folder, "%s", rank_write(d, 1, "b"));
	*strrchr(folder, '/') = '\0';
	CTL_IS(0, "load", folder, "m@v1", "--device", d->device, "--wait", "--only", "a");
	SAYS("1 of 2 tensors, by --only");
	demote(d, "m@v1", "files");
	OK(gpuwm_promote_wait(d, "m@v1"));
	CTL_IS(0, "verify", "m@v1", "--wait");
	SAYS("intact");
	DROP(d, "m@v1");
}

/* ---- ranks that are cut of it ---- */

/* Each rank has its half of the layers, and all of the scalar. */
static void expect_rank(const char *ref, uint32_t rank, uint64_t seed)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	options.wait_ms = SOON_MS;
	options.rank = rank;
	OK(gpuwm_attach(client, ref, &options, &mapping));
	cr_assert_eq(gpuwm_tensor_count(mapping), COUNT);
	for (uint64_t i = 0; i < COUNT; i++) {
		const bool is_split = i < COUNT - 1;
		struct gpuwm_tensor tensor;
		char name[32], *want, *have;

		snprintf(name, sizeof name, is_split ? "layer.%03d.weight" : "scalar", (int)i);
		OK(gpuwm_tensor_find(mapping, name, &tensor));
		want = malloc(tensor.bytes);
		have = malloc(tensor.bytes);
		content_fill(seed, name, is_split ? rank * tensor.bytes : 0, want, tensor.bytes);
		OK(gpuwm_tensor_read(mapping, &tensor, 0, have, tensor.bytes));
		cr_assert_eq(memcmp(want, have, tensor.bytes), 0, "%s of rank %u", name, rank);
		free(want);
		free(have);
	}
	gpuwm_detach(mapping);
	gpuwm_close(client);
}

static void expect_ranks(const char *ref, uint64_t seed)
{
	expect_rank(ref, 0, seed);
	expect_rank(ref, 1, seed);
}

static void load_ranks(struct gpuwmd *d)
{
	char source[256];

	snprintf(source, sizeof source, "%s", checkpoint_write(d, "source", SMALL(1)));
	CTL_IS(0, "load", source, "m@v1", "--device", d->device, "--wait", "--ranks", "2", "--cut",
	       plan_write(d), ONLY);
	SAYS("3 tensors are split, 1 copied to all ranks");
}

GPUWMD_TEST(load_only, a_plan_cuts_what_is_left)
{
	load_ranks(d);
	expect_ranks("m@v1", 1);
	demote(d, "m@v1", "files");
	expect_ranks("m@v1", 1);
	DROP(d, "m@v1");
}

/* A plan needs the choice to find the same shares: the state has it, and the description on disk. */
Test(load_only, comes_back_after_a_restart_and_after_a_reboot)
{
	char limits[128];
	const struct kept how = {.limits = limits};
	struct gpuwmd *d;

	snprintf(limits, sizeof limits, "grace_ms = 300\n[tiers]\nfolder = %s/described\n", own_folder());
	d = gpuwmd_start_kept(&how);
	load_ranks(d);
	cr_assert(EVENTUALLY(SOON_MS, is_described(d, "v1")));
	demote(d, "m@v1", "files");
	kept_kill(d, SIGKILL);
	cr_assert(lies_on(d, "v1", "files"));
	expect_ranks("m@v1", 1);
	keeper_restart(d, &how);
	kept_wait(d);
	cr_assert_eq(tiers_number(d, "found"), 1);
	expect_ranks("m@v1", 1);
	CTL_IS(0, "verify", "m@v1", "--wait");
	SAYS("intact");
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}
