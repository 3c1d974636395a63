/* What gpuwmctl tells of the files that it was to load. */
#include "harness.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

SYSTEM_SUITE(ctl_source);

static const char *path_in(struct gpuwmd *d, const char *name)
{
	static char path[256];

	snprintf(path, sizeof path, "%s/%s", d->root, name);
	return path;
}

static void ends_with(struct gpuwmd *d, const char *path, int status, const char *words)
{
	int found = CTL("load", path, "m@v1", "--device", d->device, "--wait");

	cr_assert_eq(found, status, "%s: %d, not %d: %s", path, found, status, output);
	SAYS(words);
}

GPUWMD_TEST(ctl_source, a_damaged_file_is_exit_status_9)
{
	const char *path = checkpoint_write(d, "v1", SMALL(1));
	struct stat stat_;

	cr_assert(stat(path, &stat_) == 0 && truncate(path, stat_.st_size - 7) == 0);
	ends_with(d, path, 9, "v1.safetensors is truncated: it has ");
	ends_with(d, safetensors_write(d, "bad.safetensors", "{]", 0), 9, "not valid JSON at byte 1");
	file_write(d, "m/model.safetensors.index.json", "{\n\"weight_map\": =======}", 24);
	ends_with(d, path_in(d, "m"), 9, "not valid JSON in line 2");
}

#define TENSOR(dtype, shape) "{\"t\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[0,4]}}"
#define LFS "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n"

GPUWMD_TEST(ctl_source, what_is_not_damaged_is_another_exit_status)
{
	ends_with(d, file_write(d, "lfs.safetensors", LFS, strlen(LFS)), 1, "is a Git LFS pointer");
	SAYS("git lfs pull");
	ends_with(d, file_write(d, "html.safetensors", "<!DOCTYPE html><html>", 21), 1, "is an HTML page");
	ends_with(d, file_write(d, "what.safetensors", "neither one nor the other", 25), 1,
		  "is no safetensors file");
	ends_with(d, safetensors_write(d, "new.safetensors", TENSOR("F33", "[1]"), 4), 1,
		  "dtype \"F33\" is unknown");
	ends_with(d, path_in(d, "nothing"), 4, "nothing");
	checkpoint_write(d, "two/a", SMALL(1));
	checkpoint_write(d, "two/b", SMALL(2));
	ends_with(d, path_in(d, "two"), 1, "a.safetensors, b.safetensors");
	file_write(d, "two/model-rank-0-part-0.safetensors", "", 0);
	ends_with(d, path_in(d, "two"), 1, "has files per rank");
}

#define INDEX "{\"metadata\":{\"total_size\":5},\"weight_map\":{\"t\":\"one.safetensors\"}}"

GPUWMD_TEST(ctl_source, a_wrong_total_size_reaches_whoever_asked_for_the_load)
{
	safetensors_write(d, "m/one.safetensors", TENSOR("U8", "[4]"), 4);
	file_write(d, "m/model.safetensors.index.json", INDEX, strlen(INDEX));
	CTL_IS(0, "load", path_in(d, "m"), "m@v1", "--device", d->device, "--dry-run");
	SAYS("total_size says 5 bytes, the shards hold 4");
	ends_with(d, path_in(d, "m"), 0, "total_size says 5 bytes, the shards hold 4");
	CTL_IS(0, "jobs", "2");
	SAYS("total_size says 5 bytes, the shards hold 4");
	DROP(d, "m@v1");
}

GPUWMD_TEST(ctl_source, a_folder_of_diffusers_is_loaded)
{
	checkpoint_write(d, "unet/diffusion_pytorch_model", SMALL(1));
	file_write(d, "unet/config.json", "{}", 2);
	ends_with(d, path_in(d, "unet"), 0, "m@v1 is ready");
	worker_reads(d, "m@v1", 1);
	DROP(d, "m@v1");
}

GPUWMD_TEST(ctl_source, a_model_file_beside_an_index_is_told)
{
	checkpoint_write(d, "m/model", SMALL(1));
	safetensors_write(d, "m/one.safetensors", TENSOR("U8", "[4]"), 4);
	file_write(d, "m/model.safetensors.index.json", INDEX, strlen(INDEX));
	ends_with(d, path_in(d, "m"), 0,
		  "has model.safetensors and model.safetensors.index.json: the load takes model.safetensors");
	DROP(d, "m@v1");
}
