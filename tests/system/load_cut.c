/* Ranks cut from one checkpoint: every byte of every rank, on one device and on two, and what is refused. */
#include "harness.h"

#include "tests/support/any/own_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char lost_path[64];

SYSTEM_SUITE(load_cut);

#define PLAN                                                                                                   \
	"# of SMALL and LARGE\n"                                                                               \
	"layer.000.weight split 0\n"                                                                           \
	"layer.001.weight split 1\n"                                                                           \
	"layer.002.weight copy\n"                                                                              \
	"layer.003.weight rank 1\n"                                                                            \
	"layer.004.weight split 0\n"                                                                           \
	"layer.005.weight split 1\n"                                                                           \
	"layer.006.weight copy optional\n"                                                                     \
	"layer.01*        split 1 optional\n"                                                                  \
	"layer.007.weight split 0 optional\n"                                                                  \
	"layer.008.weight split 0 optional\n"                                                                  \
	"layer.009.weight split 0 optional\n"                                                                  \
	"matrix           split 1\n"                                                                           \
	"scalar           copy\n"                                                                              \
	"empty            split 0"

/* The path stays valid beside that of the checkpoint, until the next call. */
static const char *plan_write(struct gpuwmd *d, const char *text)
{
	static char path[512];

	snprintf(path, sizeof path, "%s/plan.cut", d->root);
	file_write(d, "plan.cut", text, strlen(text));
	return path;
}

static const char *source_write(struct gpuwmd *d, const struct checkpoint *c)
{
	static char path[512];

	snprintf(path, sizeof path, "%s", checkpoint_write(d, "source", c));
	return path;
}

/* ---- what a rank has ------------------------------------------------------ */

enum { WHOLE = -1 };

/* Along which dimension PLAN splits the tensor. */
static int dimension_of(const char *name)
{
	static const char *const splits[][2] = {{"layer.000", "0"}, {"layer.001", "1"}, {"layer.004", "0"},
						{"layer.005", "1"}, {"layer.007", "0"}, {"layer.008", "0"},
						{"layer.009", "0"}, {"layer.01", "1"},  {"matrix", "1"},
						{"empty", "0"}};

	for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++)
		if (strncmp(name, splits[i][0], strlen(splits[i][0])) == 0)
			return atoi(splits[i][1]);
	return WHOLE;
}

/* Compares row by row with the content of the whole tensor, which has two dimensions. */
static void expect_rows(const struct gpuwm_mapping *mapping, const struct gpuwm_tensor *tensor, unsigned rank,
			unsigned ranks, uint64_t seed)
{
	int dimension = dimension_of(tensor->name);
	uint64_t element = gpuwm_dtype_bits(tensor->dtype) / 8, row = tensor->shape[1] * element;
	uint64_t whole_row = dimension == 1 ? ranks * row : row;
	uint64_t first = dimension == 0 ? rank * tensor->shape[0] : 0, begin = dimension == 1 ? rank * row : 0;
	char *want = malloc(row), *have = malloc(row);

	for (uint64_t i = 0; i < tensor->shape[0]; i++) {
		content_fill(seed, tensor->name, (first + i) * whole_row + begin, want, row);
		OK(gpuwm_tensor_read(mapping, tensor, i * row, have, row));
		cr_assert_eq(memcmp(want, have, row), 0, "rank %u, %s, row %llu", rank, tensor->name,
			     (unsigned long long)i);
	}
	free(want);
	free(have);
}

static void expect_tensor(const struct gpuwm_mapping *mapping, const struct gpuwm_tensor *tensor, unsigned rank,
			  unsigned ranks, uint64_t seed)
{
	cr_assert(rank == 1 || strcmp(tensor->name, "layer.003.weight") != 0, "only rank 1 has it");
	if (dimension_of(tensor->name) == WHOLE || tensor->bytes == 0)
		cr_assert(tensor_holds(mapping, tensor, seed), "rank %u, %s", rank, tensor->name);
	else
		expect_rows(mapping, tensor, rank, ranks, seed);
}

static void expect_rank(const char *ref, unsigned rank, unsigned ranks, const struct checkpoint *c)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	uint64_t count;

	options.rank = rank;
	OK(gpuwm_attach(client, ref, &options, &mapping));
	cr_assert_str_eq(gpuwm_metadata(mapping, "gpuwm.cut.plan"), PLAN);
	count = gpuwm_tensor_count(mapping);
	cr_assert_eq(count, checkpoint_tensors(c) - (rank == 1 ? 0 : 1));
	for (uint64_t i = 0; i < count; i++) {
		struct gpuwm_tensor tensor;

		OK(gpuwm_tensor_at(mapping, i, &tensor));
		expect_tensor(mapping, &tensor, rank, ranks, c->seed);
	}
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
}

static void expect_ranks(const char *ref, unsigned ranks, const struct checkpoint *c)
{
	for (unsigned i = 0; i < ranks; i++)
		expect_rank(ref, i, ranks, c);
}

/* ---- loads ---------------------------------------------------------------- */

GPUWMD_TEST(load_cut, gives_each_rank_its_bytes)
{
	const char *path = source_write(d, LARGE(1));

	for (unsigned ranks = 2; ranks <= 4; ranks *= 2) {
		char name[8], number[8];

		snprintf(name, sizeof name, "m@v%u", ranks);
		snprintf(number, sizeof number, "%u", ranks);
		CTL_IS(0, "load", path, name, "--ranks", number, "--cut", plan_write(d, PLAN), "--device",
		       d->device, "--wait");
		SAYS("15 tensors are split, 3 copied to all ranks, 1 kept by one");
		expect_ranks(name, ranks, LARGE(1));
		CTL_IS(0, "verify", name, "--wait");
	}
	cr_assert(log_says(d, ", cut into 4 ranks, onto "), "the audit line");
	CTL_IS(0, "show", "m@v2", "--rank", "1");
	SAYS("gpuwm.cut.plan  (several lines, see below)");
	SAYS("\n  layer.003.weight rank 1\n");
	DROP(d, "m@v4", "m@v2");
}

FAKECUDA_TEST(load_cut, puts_each_rank_on_its_device, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	const char *path = source_write(d, LARGE(1));

	CTL_IS(0, "load", path, "m@v1", "--ranks", "2", "--cut", plan_write(d, PLAN), "--device", "cuda:0",
	       "--device", "cuda:1", "--wait");
	expect_ranks("m@v1", 2, LARGE(1));
	CTL_IS(0, "load", path, "m@v2", "--ranks", "2", "--cut", plan_write(d, PLAN), "--device", "host",
	       "--device", "cuda:1", "--wait");
	expect_ranks("m@v2", 2, LARGE(1));
	CTL_IS(0, "verify", "m@v2", "--wait");
	CTL_IS(1, "load", path, "m@v3", "--ranks", "2", "--cut", plan_write(d, PLAN));
	SAYS("there are several GPUs, and no device is named\n  name one (gpuwmctl load --device)");
	DROP(d, "m@v2", "m@v1");
}

GPUWMD_TEST(load_cut, goes_with_the_other_options)
{
	const char *path = source_write(d, LARGE(1));
	uint64_t bytes;

	CTL_IS(0, "load", path, "m@v1", "--ranks", "2", "--cut", plan_write(d, PLAN), "--device", d->device,
	       "--key", "tp=2", "--segment-bytes", "4M", "--wait");
	CTL_IS(0, "show", "m@v1");
	SAYS("tp");
	bytes = status_of(d, "bytes");
	CTL_IS(0, "load", path, "m@v2", "--ranks", "2", "--cut", plan_write(d, PLAN), "--device", d->device,
	       "--share-with", "m@v1", "--segment-bytes", "4M", "--wait");
	cr_assert_eq(status_of(d, "bytes"), bytes, "they share all memory");
	expect_ranks("m@v2", 2, LARGE(1));
	CTL_IS(0, "swap", "m", "v3", "--load", source_write(d, LARGE(3)), "--ranks", "2", "--cut",
	       plan_write(d, PLAN), "--device", d->device);
	expect_ranks("m", 2, LARGE(3));
	DROP(d, "m@v3", "m@v2");
}

static void made_nothing(struct gpuwmd *d)
{
	cr_assert_eq(memory_of(d), 0);
	gpuwmd_stop_empty(d);
}

GPUWMD_TEST_BY(load_cut, a_dry_run_tells_what_each_device_gets, gpuwmd_start(NULL), made_nothing)
{
	const char *path = source_write(d, LARGE(1));
	json_t *job, *device;

	CTL_IS(0, "load", path, "m@v1", "--ranks", "4", "--cut", plan_write(d, PLAN), "--device", d->device,
	       "--dry-run", "-o", "json");
	job = json_loads(strchr(output, '{'), 0, NULL);
	device = json_array_get(json_object_get(json_object_get(job, "plan"), "devices"), 0);
	/* 13 of 16 layers are split, 2 copied to 4 ranks, 1 is kept. */
	cr_assert_geq(json_integer_value(json_object_get(device, "bytes")), (json_int_t)(22 * MB(4)));
	cr_assert_leq(json_integer_value(json_object_get(device, "bytes")),
		      (json_int_t)(22 * MB(4) + 4 * MB(2)));
	cr_assert_eq(json_integer_value(json_object_get(device, "segments")), 4);
	json_decref(job);
}

/* ---- what is refused ------------------------------------------------------- */

/* The load fails, and its error has these words. */
static void refused(struct gpuwmd *d, const char *ranks, const char *plan, const char *words)
{
	CTL_IS(1, "load", source_write(d, SMALL(1)), "m@v1", "--ranks", ranks, "--cut", plan_write(d, plan),
	       "--device", d->device, "--wait");
	SAYS(words);
}

GPUWMD_TEST_BY(load_cut, refuses_plans_that_do_not_fit, gpuwmd_start(NULL), made_nothing)
{
	refused(d, "2", "* half", "line 1 of the cut plan has an unknown action: \"half\"");
	refused(d, "2", "", "the cut plan has no rule");
	refused(d, "2", "layer.* copy", "no rule of the cut plan matches the tensor \"");
	refused(d, "2", "* copy\nmatrix split 0",
		"lines 1 (*) and 2 (matrix) of the cut plan match the tensor \"matrix\"");
	refused(d, "2", "* copy\nhead split 0",
		"line 2 of the cut plan (head) matches no tensor of the source");
	refused(d, "5", "layer.* copy\nmatrix split 1\nscalar copy\nempty copy",
		"\"matrix\" along dimension 1: its 24 rows there can't be split evenly among 5 ranks");
	refused(d, "2", "layer.* copy\nmatrix split 0\nscalar split 0\nempty copy",
		"\"scalar\" along dimension 0: it has 0 dimensions");
	refused(d, "2", "* rank 0", "the cut plan gives no tensor to rank 1");
	refused(d, "2", "* rank 2", "line 1 of the cut plan (*) names rank 2, but there are 2 ranks");
}

GPUWMD_TEST_BY(load_cut, refuses_files_per_rank, gpuwmd_start(NULL), made_nothing)
{
	char folder[256];

	checkpoint_write(d, "ranks/model-rank-0-part-0", SMALL(1));
	checkpoint_write(d, "ranks/model-rank-1-part-0", SMALL(2));
	snprintf(folder, sizeof folder, "%s/ranks", d->root);
	CTL_IS(1, "load", folder, "m@v1", "--ranks", "2", "--cut", plan_write(d, "* copy"), "--device",
	       d->device, "--wait");
	SAYS("the source has files for 2 ranks, so it is cut already");
}

GPUWMD_TEST_BY(load_cut, refuses_at_once_what_can_not_be, gpuwmd_start(NULL), made_nothing)
{
	const char *path = source_write(d, SMALL(1));
	static char large[20000];
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	uint64_t job;

	CTL_IS(2, "load", path, "m@v1", "--ranks", "2");
	SAYS("--ranks needs --cut");
	CTL_IS(2, "load", path, "m@v1", "--cut", "llama");
	SAYS("--cut needs --ranks");
	CTL_IS(1, "load", path, "m@v1", "--ranks", "2", "--cut", "llama", "--device", "host", "--device",
	       "host");
	SAYS("host is named twice\n  name one device for each rank, or one for all of them");
	CTL_IS(2, "load", path, "m@v1", "--cut", "llama", "--ranks", "0");
	SAYS("--ranks takes a number from 1 to 64, not '0'");
	CTL_IS(2, "load", path, "m@v1", "--cut", "llama", "--ranks", "65");
	CTL_IS(2, "load", path, "m@v1", "--cut", "", "--ranks", "2");
	CTL_IS(4, "load", path, "m@v1", "--cut", "lama", "--ranks", "2");
	SAYS("no cut plan has the name 'lama'");
	SAYS("there are: llama, mixtral, qwen");
	CTL_IS(4, "load", path, "m@v1", "--cut", "./lama", "--ranks", "2");
	SAYS("reading the cut plan ./lama failed");
	CTL_IS(1, "load", path, "m@v1", "--cut", "/", "--ranks", "2");
	memset(large, '#', sizeof large);
	CTL_IS(1, "load", path, "m@v1", "--ranks", "2", "--cut",
	       file_write(d, "large.cut", large, sizeof large));
	SAYS("has more than 16384 bytes");
	CTL_IS(1, "load", path, "m@v1", "--ranks", "2", "--cut", file_write(d, "zero.cut", "* copy\0", 7));
	SAYS("has a zero byte");
	options.source = path;
	options.name = "m@v1";
	options.ranks = 2;
	FAILS(EINVAL, load_on_device(d, options, &job));
	options.cut = "* copy";
	options.ranks = 0;
	FAILS(EINVAL, load_on_device(d, options, &job));
	options.ranks = 65;
	FAILS(EINVAL, load_on_device(d, options, &job));
}

FAKECUDA_TEST(load_cut, wants_a_device_for_each_rank_or_one, gpuwmd_start(NULL), made_nothing)
{
	CTL_IS(1, "load", source_write(d, SMALL(1)), "m@v1", "--ranks", "4", "--cut", plan_write(d, PLAN),
	       "--device", "cuda:0", "--device", "cuda:1");
	SAYS("2 are named for 4 ranks");
}

/* ---- a GPU that goes ------------------------------------------------------- */

/* Copies are under way for a second, in which the GPU of rank 1 goes. */
static struct gpuwmd *start_slow(void)
{
	snprintf(lost_path, sizeof lost_path, "%s/lost-cut", own_folder());
	setenv("FAKECUDA_LOST", lost_path, 1);
	setenv("FAKECUDA_DELAY", "1000", 1);
	return gpuwmd_start(NULL);
}

static bool is_copying(struct gpuwmd *d)
{
	json_t *answer = query(d->admin, "jobs", NULL);
	const json_t *job = json_array_get(json_object_get(answer, "jobs"), 0);
	const char *phase = json_string_value(json_object_get(job, "phase"));
	bool copying = phase && strcmp(phase, "copying") == 0;

	json_decref(answer);
	return copying;
}

FAKECUDA_TEST(load_cut, fails_whole_if_a_gpu_goes_half_way, start_slow(), gpuwmd_stop_empty)
{
	struct ctl_run run =
		ctl_start("load", source_write(d, LARGE(1)), "m@v1", "--ranks", "2", "--cut",
			  plan_write(d, PLAN), "--device", "cuda:0", "--device", "cuda:1", "--wait", NULL);
	FILE *file;

	cr_assert(EVENTUALLY(SOON_MS, is_copying(d)));
	file = fopen(lost_path, "we");
	cr_assert(file && fputs("1 ecc\n", file) > 0 && fclose(file) == 0);
	cr_assert_neq(ctl_join(&run, output, sizeof output), 0, "%s", output);
	cr_assert(version_is(d, "m", "v1", "failed"), "%s", output);
	cr_assert(EVENTUALLY(SOON_MS, memory_of(d) == 0), "the other rank's memory goes too");
}
