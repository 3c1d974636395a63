/* gpuwmctl load hf:ORG/NAME, from made-up hub caches. */
#include "user.h"

#include "tests/support/any/own_folder.h"

#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

SYSTEM_SUITE(ctl_hub);

#define COMMIT "0123abcd0123abcd0123abcd0123abcd01234567"
#define OTHER "feed0123abcd0123abcd0123abcd0123abcd0123"
#define REPOSITORY "models--acme--tiny"
#define PRINTS(text) cr_assert_str_eq(output, text, "%s", output)

/* The cache, beneath gpuwmd's root or not. */
static char cache[256];

static const char *path_in(const char *name)
{
	static char path[1024];

	snprintf(path, sizeof path, "%s/" REPOSITORY "/%s", cache, name);
	return path;
}

static void folder_in(const char *name)
{
	cr_assert_eq(mkdir(path_in(name), 0755), 0, "%s", path_in(name));
}

static void text_in(const char *name, const char *text)
{
	FILE *file = fopen(path_in(name), "w");

	cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* Puts checkpoint `seed` as a blob, and links it from the snapshot. */
static void put_model(struct gpuwmd *d, const char *commit, unsigned seed)
{
	char name[128], link[256], blob[160];

	snprintf(name, sizeof name, "snapshots/%s", commit);
	folder_in(name);
	snprintf(name, sizeof name, "blobs/%u", seed);
	cr_assert_eq(rename(checkpoint_write(d, "blob", SMALL(seed)), path_in(name)), 0);
	snprintf(link, sizeof link, "snapshots/%s/model.safetensors", commit);
	snprintf(blob, sizeof blob, "../../%s", name);
	cr_assert_eq(symlink(blob, path_in(link)), 0);
}

/* Makes a cache with acme/tiny, whose branch main is checkpoint 1, and whose commit OTHER is checkpoint 2. */
static void make_cache(struct gpuwmd *d, const char *place)
{
	snprintf(cache, sizeof cache, "%s/hub", place);
	cr_assert_eq(mkdir(cache, 0755), 0);
	cr_assert_eq(mkdir(path_in(""), 0755), 0);
	folder_in("blobs");
	folder_in("refs");
	folder_in("snapshots");
	put_model(d, COMMIT, 1);
	put_model(d, OTHER, 2);
	text_in("refs/main", COMMIT);
	setenv("HF_HUB_CACHE", cache, 1);
}

/* ---- finding ---- */

GPUWMD_TEST(ctl_hub, a_snapshot_beneath_a_root_is_loaded_from_its_path)
{
	make_cache(d, d->root);
	CTL_IS(0, "load", "hf:acme/tiny", "--device", d->device, "--wait");
	SAYS("hf:acme/tiny is the snapshot " COMMIT ", loaded as tiny@0123abc");
	SAYS("/snapshots/" COMMIT);
	worker_reads(d, "tiny@0123abc", 1);
	CTL_IS(0, "jobs", "-o", "json");
	SAYS(REPOSITORY "/snapshots/" COMMIT);
	DROP(d, "tiny@0123abc");
}

/* Without a gpuwmd, by the cache alone. "h" may be the beginning of a file, too. */
GPUWMD_TEST(ctl_hub, completion_offers_the_models_of_the_cache)
{
	char name[300];

	make_cache(d, own_folder());
	snprintf(name, sizeof name, "%s/models--gpt2", cache);
	cr_assert_eq(mkdir(name, 0755), 0);
	snprintf(name, sizeof name, "%s/datasets--acme--other", cache);
	cr_assert_eq(mkdir(name, 0755), 0);
	cr_assert_eq(chdir(cache), 0);
	CTL_IS(0, "complete", "--", "load", "h");
	PRINTS("hf:\ta model in the hub's cache\n");
	CTL_IS(0, "complete", "--", "load", "hf:ac");
	PRINTS("hf:acme/tiny\n");
	CTL_IS(0, "complete", "--", "swap", "m", "v2", "--load", "hf:g");
	PRINTS("hf:gpt2\n");
	CTL_IS(0, "complete", "--", "load", "hf:none");
	PRINTS("");
	CTL_IS(0, "complete", "--", "save", "m", "hf:");
	PRINTS(":files\n");
	cr_assert_eq(mkdir("home", 0755), 0);
	CTL_IS(0, "complete", "--", "load", "h");
	PRINTS(":files\n");
	setenv("HF_HUB_CACHE", "/nonexistent", 1);
	CTL_IS(0, "complete", "--", "load", "hf:");
	PRINTS("");
}

/* The root may be /home, and the loader another user. */
GPUWMD_TEST(ctl_hub, a_snapshot_in_a_private_folder_beneath_a_root_is_passed)
{
	char home[128];

	snprintf(home, sizeof home, "%s/home", d->root);
	cr_assert_eq(mkdir(home, 0700), 0);
	make_cache(d, home);
	CTL_IS(0, "load", "hf:acme/tiny", "m@v1", "--device", d->device, "--wait");
	SAYS("gpuwmctl passes its files");
	cr_assert_eq(chmod(home, 0711), 0);
	CTL_IS(0, "load", "hf:acme/tiny", "m@v2", "--device", d->device, "--wait");
	SAYS("/snapshots/" COMMIT);
	DROP(d, "m@v1", "m@v2");
}

/* Its gpuwmd can't open these files by a path: they lie beneath no root. */
GPUWMD_TEST(ctl_hub, a_snapshot_beneath_no_root_is_passed)
{
	make_cache(d, own_folder());
	CTL_IS(0, "load", "hf:acme/tiny", "--device", d->device, "--wait");
	SAYS("gpuwmctl passes its files");
	SAYS("root = ");
	worker_reads(d, "tiny@0123abc", 1);
	CTL_IS(0, "jobs", "-o", "json");
	SAYS("hf:acme/tiny@" COMMIT);
	DROP(d, "tiny@0123abc");
}

/* A load that is passed files gets those of a load by the path, and says what it leaves out. */
GPUWMD_TEST(ctl_hub, a_snapshot_is_passed_with_its_subfolders)
{
	const void *content;
	const char *name;
	uint32_t bytes;
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;

	make_cache(d, own_folder());
	folder_in("snapshots/" COMMIT "/1_Pooling");
	text_in("blobs/cccc", "{}");
	text_in("snapshots/" COMMIT "/.gitattributes", "*");
	text_in("other", "secret");
	cr_assert_eq(symlink("../../../blobs/cccc", path_in("snapshots/" COMMIT "/1_Pooling/config.json")), 0);
	cr_assert_eq(symlink("../../other", path_in("snapshots/" COMMIT "/vocab.txt")), 0);
	CTL_IS(0, "load", "hf:acme/tiny", "--device", d->device, "--wait");
	SAYS("2 of the snapshot's files and folders are left out: ");
	SAYS(".gitattributes (hidden)");
	SAYS("vocab.txt (a link out of the repository)");
	client = client_new();
	OK(gpuwm_attach(client, "tiny@0123abc", NULL, &mapping));
	OK(gpuwm_file_at(mapping, 0, &name, &content, &bytes));
	cr_assert_str_eq(name, "1_Pooling/config.json");
	cr_assert_eq(gpuwm_file_at(mapping, 1, &name, &content, &bytes), -ERANGE);
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	DROP(d, "tiny@0123abc");
}

/* As huggingface_hub finds it. */
GPUWMD_TEST(ctl_hub, a_cache_may_be_named_with_a_tilde_or_a_relative_path)
{
	char words[320];

	make_cache(d, own_folder());
	setenv("HOME", own_folder(), 1);
	setenv("HF_HUB_CACHE", "~/hub", 1);
	CTL_IS(0, "load", "hf:acme/tiny", "m@v1", "--device", d->device, "--wait");
	worker_reads(d, "m@v1", 1);
	cr_assert_eq(chdir(cache), 0);
	setenv("HF_HUB_CACHE", "../hub", 1);
	CTL_IS(0, "load", "hf:acme/tiny", "m@v2", "--device", d->device, "--wait");
	CTL_IS(4, "load", "hf:acme/none", "--device", d->device, "--wait");
	snprintf(words, sizeof words, "in the hub's cache %s/../hub\n", cache);
	SAYS(words);
	DROP(d, "m@v1", "m@v2");
}

GPUWMD_TEST(ctl_hub, a_revision_is_a_branch_or_a_commit_or_its_beginning)
{
	static const char *const revisions[] = {"refs/pr/7", OTHER, "feed012"};

	make_cache(d, own_folder());
	folder_in("refs/refs");
	folder_in("refs/refs/pr");
	text_in("refs/refs/pr/7", OTHER);
	for (size_t i = 0; i < sizeof(revisions) / sizeof(*revisions); i++) {
		char source[128];

		snprintf(source, sizeof source, "hf:acme/tiny@%s", revisions[i]);
		CTL_IS(0, "load", source, "--device", d->device, "--wait");
		worker_reads(d, "tiny@feed012", 2);
		DROP(d, "tiny@feed012");
	}
	CTL_IS(4, "load", "hf:acme/tiny@feed");
	SAYS("there is no snapshot of acme/tiny@feed");
}

GPUWMD_TEST(ctl_hub, a_swap_loads_a_snapshot_too)
{
	make_cache(d, own_folder());
	load_version(d, checkpoint_write(d, "old", SMALL(1)), "m@v1");
	CTL_IS(0, "swap", "m", "v2", "--load", "hf:acme/tiny@feed012", "--device", d->device, "--keep-old");
	worker_reads(d, "m", 2);
	DROP(d, "m@v1", "m@v2");
}

/* ---- what is missing ---- */

static void fails(int code, const char *source, const char *words, const char *remedy)
{
	CTL_IS(code, "load", source, "--wait");
	SAYS(words);
	SAYS(remedy);
}

GPUWMD_TEST(ctl_hub, what_the_cache_lacks_is_told_with_the_command_that_fetches_it)
{
	make_cache(d, own_folder());
	fails(4, "hf:acme/none", "there is no acme/none in the hub's cache",
	      "hf download acme/none fetches it");
	fails(4, "hf:acme/tiny@v9", "there is no snapshot of acme/tiny@v9",
	      "hf download acme/tiny --revision v9 fetches it");
	text_in("refs/main", "../../../etc");
	fails(4, "hf:acme/tiny", "there is no snapshot of acme/tiny@main", "hf download acme/tiny fetches it");
}

GPUWMD_TEST(ctl_hub, an_incomplete_snapshot_names_the_file_that_is_missing)
{
	make_cache(d, own_folder());
	cr_assert_eq(unlink(path_in("blobs/1")), 0);
	fails(9, "hf:acme/tiny", "is incomplete: model.safetensors is missing",
	      "hf download acme/tiny --revision " COMMIT " fetches the rest");
	text_in("blobs/1.incomplete", "");
	fails(9, "hf:acme/tiny", "is incomplete", "1 download has not ended");
	cr_assert_eq(unlink(path_in("snapshots/" COMMIT "/model.safetensors")), 0);
	fails(9, "hf:acme/tiny", "is incomplete: every file is missing", "fetches the rest");
	text_in("snapshots/" COMMIT "/model.safetensors.index.json",
		"{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\"}}");
	text_in("snapshots/" COMMIT "/s1.safetensors", "");
	fails(9, "hf:acme/tiny", "is incomplete: s2.safetensors is missing", "fetches the rest");
}

GPUWMD_TEST(ctl_hub, a_source_that_names_no_model_is_a_usage_error)
{
	static const char *const sources[] = {
		"hf:", "hf:a/b/c", "hf:../x", "hf:a--b", "hf:acme/tiny@", "hf:a/", "hf:acme/tiny@../../x"};

	for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); i++) {
		CTL_IS(2, "load", sources[i]);
		SAYS("names no model of the hub");
	}
	CTL_IS(2, "load", "/models/m");
	SAYS("load needs MODEL@TAG");
}

/* ---- another user's cache ---- */

/* argv: the source. Becomes BOB, who is no operator, and runs gpuwmctl. */
static int bob_loads(int argc, char **argv)
{
	CHILD_ASSERT(argc == 1);
	CHILD_ASSERT(setgroups(0, NULL) == 0 && setgid(BOB) == 0 && setuid(BOB) == 0);
	CHILD_ASSERT(CTL("load", argv[0], "--wait") == 0);
	CHILD_ASSERT(strstr(output, "tiny@0123abc is ready") != NULL);
	CHILD_ASSERT(CTL("load", "/models/m", "m@v1") == 6);
	CHILD_ASSERT(strstr(output, "needs the role operator") != NULL);
	return 0;
}

static struct gpuwmd *start_for_bob(void)
{
	char config[64];
	FILE *file;

	snprintf(config, sizeof config, "%s/rules.conf", own_folder());
	file = fopen(config, "w");
	cr_assert(file && fputs("[model.1]\nmatch = tiny\npublish = 61002\n", file) >= 0 && fclose(file) == 0);
	return gpuwmd_start("--config", config, "--set", "socket.mode=0666", NULL);
}

/* The cache lies beneath a root, and still its files are passed: who is no operator loads no path. */
GPUWMD_TEST_IF(
	ctl_hub, who_may_publish_loads_the_cache_of_his_own,
	{
		NEEDS_ROOT();
		SKIP_UNLESS(backend() == BACKEND_HOST, "rights know no memory kinds");
		SKIP_UNLESS(build_is_open_to(BOB), "this user may not run the programs");
	},
	start_for_bob(), gpuwmd_stop_empty)
{
	struct process bob;

	make_cache(d, d->root);
	cr_assert(chmod(d->dir, 0755) == 0 && chmod(d->root, 0755) == 0);
	bob = process_start(bob_loads, "hf:acme/tiny", NULL);
	process_finish(&bob);
	worker_reads(d, "tiny@0123abc", 1);
	DROP(d, "tiny@0123abc");
}
