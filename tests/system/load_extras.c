/* The files beside a checkpoint's weights: what the version has of them, and what the job says. */
#include "described.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

SYSTEM_SUITE(load_extras);

static const char *path_in(struct gpuwmd *d, const char *name)
{
	static char path[256];

	snprintf(path, sizeof path, "%s/%s", d->root, name);
	return path;
}

static void write_text(struct gpuwmd *d, const char *name, const char *text)
{
	file_write(d, name, text, strlen(text));
}

/* A folder as sentence-transformers makes them: the first module at the top, the others in subfolders. */
static void write_folder(struct gpuwmd *d)
{
	checkpoint_write(d, "m/model", SMALL(1));
	write_text(d, "m/modules.json", "[]");
	write_text(d, "m/1_Pooling/config.json", "{\"pooling\":1}");
	write_text(d, "m/a/b/template.jinja", "hi");
	write_text(d, "m/2_Dense/config.json", "{}");
	checkpoint_write(d, "m/2_Dense/model", SMALL(2));
	write_text(d, "m/training_args.bin", "pickle");
}

static struct gpuwm_mapping *attach(struct gpuwm_client *client, const char *ref)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;

	options.wait_ms = LOAD_MS;
	OK(gpuwm_attach(client, ref, &options, &mapping));
	return mapping;
}

static void expect_file(const struct gpuwm_mapping *mapping, const char *name, const char *text)
{
	uint32_t bytes = 0;
	const void *content = gpuwm_file(mapping, name, &bytes);

	cr_assert(content, "there is no %s", name);
	cr_assert(bytes == strlen(text) && memcmp(content, text, bytes) == 0, "%s", name);
}

/* The files of write_folder that travel. */
static void expect_files(const char *ref)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = attach(client, ref);
	const char *name;
	const void *content;
	uint32_t bytes;

	expect_file(mapping, "modules.json", "[]");
	expect_file(mapping, "1_Pooling/config.json", "{\"pooling\":1}");
	expect_file(mapping, "a/b/template.jinja", "hi");
	expect_file(mapping, "2_Dense/config.json", "{}");
	cr_assert_eq(gpuwm_file_at(mapping, 4, &name, &content, &bytes), -ERANGE);
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
}

GPUWMD_TEST(load_extras, travel_with_the_version_to_files_and_back)
{
	write_folder(d);
	load_version(d, path_in(d, "m"), "m@v1");
	expect_files("m@v1");
	CTL_IS(0, "demote", "m@v1", "--to", "files", "--wait");
	/* The version has its files: those of the folder don't count any more. */
	write_text(d, "m/modules.json", "changed");
	cr_assert_eq(unlink(path_in(d, "m/a/b/template.jinja")), 0);
	expect_files("m@v1");
	DROP(d, "m@v1");
}

GPUWMD_TEST_BY(load_extras, survive_a_reboot, described_start(NULL), described_stop)
{
	write_folder(d);
	load_version(d, path_in(d, "m"), "m@v1");
	cr_assert(EVENTUALLY(SOON_MS, is_described(d, "v1")));
	described_reboot(d, SIGKILL);
	expect_files("m@v1");
	DROP(d, "m@v1");
}

GPUWMD_TEST(load_extras, that_stay_behind_are_named_by_the_job_and_by_a_dry_run)
{
	write_folder(d);
	CTL_IS(0, "load", path_in(d, "m"), "m@v1", "--device", d->device, "--dry-run");
	SAYS("left out, weights that this version does not have (load them as a version of their own):");
	SAYS("2_Dense/model.safetensors");
	load_version(d, path_in(d, "m"), "m@v1");
	CTL_IS(0, "jobs", "-o", "json");
	SAYS("left out, weights that this version does not have (load them as a version of their own): "
	     "2_Dense/model.safetensors (");
	SAYS("left out, pickles, archives and weights of other formats: training_args.bin (6 bytes, named as a "
	     "PyTorch file)");
	DROP(d, "m@v1");
}

GPUWMD_TEST(load_extras, are_saved_with_their_subfolders)
{
	char path[256];

	write_folder(d);
	load_version(d, path_in(d, "m"), "m@v1");
	CTL_IS(0, "save", "m@v1", path_in(d, "out"), "--no-describe");
	cr_assert(!strstr(output, "left out"), "%s", output);
	load_version(d, path_in(d, "out"), "m@v2");
	expect_files("m@v2");
	CTL_IS(5, "save", "m@v1", path_in(d, "out"), "--no-describe");
	write_text(d, "keep/1_Pooling/config.json", "mine");
	CTL_IS(5, "save", "m@v1", path_in(d, "keep"), "--no-describe");
	SAYS("keep/1_Pooling/config.json exists");
	CTL_IS(0, "save", "m@v1", path_in(d, "keep"), "--no-describe", "--force");
	/* A save that fails leaves no folders. */
	snprintf(path, sizeof path, "%s/2_Dense", path_in(d, "other"));
	cr_assert(mkdir(path_in(d, "other"), 0755) == 0);
	cr_assert_eq(symlink("..", path), 0);
	CTL_IS(1, "save", "m@v1", path_in(d, "other"), "--no-describe");
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(rmdir(path_in(d, "other")), 0, "it is empty");
	DROP(d, "m@v1", "m@v2");
}
