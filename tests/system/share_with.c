/* Loads that share: two versions that differ in one tensor hold the same memory but for that tensor. */
#include "alike.h"
#include "kept.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(share_with);

static int begin(struct gpuwmd *d, const char *source, const char *name, const char *with, uint64_t segment,
		 uint64_t *ret_job)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);

	options.source = source;
	options.name = name;
	options.share_with = with;
	options.segment_bytes = segment;
	return load_on_device(d, options, ret_job);
}

/* Loads, and leaves the job's notes in `output`. */
static void load(struct gpuwmd *d, const char *source, const char *name, const char *with, uint64_t segment)
{
	char number[32];
	uint64_t job;

	OK(begin(d, source, name, with, segment, &job));
	OK(gpuwm_job_wait(d->admin, job, 60000));
	snprintf(number, sizeof number, "%ju", (uintmax_t)job);
	CTL_IS(0, "jobs", number);
}

/* m@v1, and m@v2 with one tensor that differs. */
static void load_both(struct gpuwmd *d)
{
	load(d, alike_checkpoint(d, "v1", false), "m@v1", NULL, ALIKE_SEGMENT);
	load(d, alike_checkpoint(d, "v2", true), "m@v2", "m@v1", ALIKE_SEGMENT);
	SAYS("shares 16 of its 17 segments with m@v1");
}

static void verify(struct gpuwmd *d, const char *ref)
{
	uint64_t jobs[GPUWM_VERIFY_JOBS_MAX];
	size_t count;

	OK(gpuwm_verify(d->admin, ref, NULL, jobs, &count));
	for (size_t i = 0; i < count; i++)
		OK(gpuwm_job_wait(d->admin, jobs[i], 30000));
}

static uint64_t number_of(struct gpuwmd *d, const char *tag, const char *key)
{
	json_t *version = version_entry(d, "m", tag);
	uint64_t number = (uint64_t)json_integer_value(json_object_get(version, key));

	json_decref(version);
	return number;
}

static void drop(struct gpuwmd *d, const char *tag)
{
	version_drop(d, "m", tag);
	cr_assert(version_is(d, "m", tag, "none"));
}

/* Whichever goes first, the other one is whole. */
static void drop_both(struct gpuwmd *d, const char *first, const char *second)
{
	char ref[16];

	snprintf(ref, sizeof ref, "m@%s", second);
	drop(d, first);
	cr_assert_eq(status_of(d, "segments"), ALIKE_SEGMENTS);
	cr_assert_eq(status_of(d, "shared_bytes"), 0);
	cr_assert_eq(number_of(d, second, "shared_bytes"), 0);
	alike_reads(ref);
	verify(d, ref);
	drop(d, second);
	cr_assert_eq(status_of(d, "segments"), 0);
	cr_assert_eq(status_of(d, "bytes"), 0);
}

GPUWMD_TEST(share_with, versions_that_differ_in_a_tensor_hold_it_twice_and_the_rest_once)
{
	uint64_t one, memory;

	load(d, alike_checkpoint(d, "v1", false), "m@v1", NULL, ALIKE_SEGMENT);
	one = status_of(d, "bytes");
	memory = memory_of(d);
	cr_assert_eq(status_of(d, "segments"), ALIKE_SEGMENTS);
	load(d, alike_checkpoint(d, "v2", true), "m@v2", "m@v1", ALIKE_SEGMENT);
	SAYS("shares 16 of its 17 segments with m@v1");
	SAYS("the rest differs");
	cr_assert_eq(status_of(d, "bytes"), one + ALIKE_SEGMENT);
	cr_assert_eq(status_of(d, "segments"), ALIKE_SEGMENTS + 1);
	cr_assert_eq(status_of(d, "shared_bytes"), one - ALIKE_SEGMENT);
	cr_assert(EVENTUALLY(SOON_MS, memory_of(d) < memory + ALIKE_SEGMENT + MB(1)), "%ju, with one %ju",
		  memory_of(d), memory);
	cr_assert_eq(number_of(d, "v1", "bytes"), number_of(d, "v2", "bytes"));
	cr_assert_eq(number_of(d, "v2", "shared_bytes"), one - ALIKE_SEGMENT);
	CTL_IS(0, "show", "m@v2");
	SAYS("with other versions: m@v1\n");
	CTL_IS(0, "-o", "json", "show", "m@v1");
	SAYS("\"tag\":\"v2\"");
	CTL_IS(0, "status");
	SAYS("of which several versions share");
	alike_reads("m@v1");
	alike_reads("m@v2");
	verify(d, "m@v1");
	verify(d, "m@v2");
	drop_both(d, "v1", "v2");
	load_both(d);
	drop_both(d, "v2", "v1");
}

GPUWMD_TEST(share_with, an_equal_version_needs_no_memory)
{
	uint64_t one;

	load(d, alike_checkpoint(d, "v1", false), "m@v1", NULL, 0);
	one = status_of(d, "bytes");
	load(d, alike_checkpoint(d, "v1", false), "n@v1", "m", 0);
	SAYS("shares 1 of its 1 segments with m@v1");
	cr_assert(!strstr(output, "differs"), "%s", output);
	cr_assert_eq(status_of(d, "bytes"), one);
	load(d, alike_checkpoint(d, "v1", false), "m@v2", "n@v1", 0);
	cr_assert_eq(status_of(d, "bytes"), one);
	CTL_IS(0, "show", "n");
	SAYS("m@v1");
	SAYS("m@v2");
	version_drop(d, "n", "v1");
	alike_reads("m@v1");
	drop(d, "v1");
	cr_assert_eq(status_of(d, "bytes"), one);
	drop(d, "v2");
}

GPUWMD_TEST(share_with, other_segments_share_little_and_say_why)
{
	uint64_t one;

	load(d, alike_checkpoint(d, "v1", false), "m@v1", NULL, ALIKE_SEGMENT);
	one = status_of(d, "bytes");
	load(d, alike_checkpoint(d, "v2", true), "m@v2", "m@v1", 2 * ALIKE_SEGMENT);
	SAYS("shares 1 of its 9 segments with m@v1"); /* that with what is small */
	SAYS("m@v1 has 17 of at most 4.0 MiB");
	SAYS("--segment-bytes");
	cr_assert_geq(status_of(d, "bytes"), 2 * one - MB(4));
	drop(d, "v1");
	alike_reads("m@v2");
	drop(d, "v2");
}

/* Each rank shares with the same rank. */
GPUWMD_TEST(share_with, ranks_share_with_their_like)
{
	char folder[256];
	uint64_t one;

	checkpoint_write(d, "ranks/model-rank-0-part-0", LARGE(1));
	checkpoint_write(d, "ranks/model-rank-1-part-0", LARGE(2));
	snprintf(folder, sizeof folder, "%s/ranks", d->root);
	load(d, folder, "m@v1", NULL, ALIKE_SEGMENT);
	one = status_of(d, "bytes");
	load(d, folder, "m@v2", "m@v1", ALIKE_SEGMENT);
	SAYS("rank 0 on ");
	SAYS("rank 1 on ");
	cr_assert_eq(status_of(d, "bytes"), one);
	cr_assert_eq(status_of(d, "segments"), 2 * ALIKE_SEGMENTS);
	load(d, alike_checkpoint(d, "v3", false), "m@v3", "m@v2", ALIKE_SEGMENT);
	SAYS("shares 17 of its 17 segments with m@v2");
	load(d, folder, "m@v4", "m@v3", ALIKE_SEGMENT);
	SAYS("nothing is shared: rank 1 of m@v3 is not on ");
	verify(d, "m@v4");
	for (int i = 4; i >= 1; i--) {
		char tag[8];

		snprintf(tag, sizeof tag, "v%d", i);
		drop(d, tag);
	}
}

/* Each replica shares with the one on its device. */
FAKECUDA_TEST(share_with, replicas_share_on_their_devices, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	const struct gpuwm_device *all;
	const char *devices[2];
	uint64_t job, one;

	cr_assert_geq(gpuwm_devices(d->admin, &all), 3);
	devices[0] = all[1].id;
	devices[1] = all[2].id;
	options.source = alike_checkpoint(d, "v1", false);
	options.devices = devices;
	options.device_count = 2;
	options.segment_bytes = ALIKE_SEGMENT;
	options.name = "m@v1";
	OK(gpuwm_load(d->admin, &options, &job));
	OK(gpuwm_job_wait(d->admin, job, 60000));
	one = status_of(d, "bytes");
	options.name = "m@v2";
	options.share_with = "m@v1";
	OK(gpuwm_load(d->admin, &options, &job));
	OK(gpuwm_job_wait(d->admin, job, 60000));
	cr_assert_eq(status_of(d, "bytes"), one);
	cr_assert_eq(number_of(d, "v2", "shared_bytes"), one);
	cr_assert_eq(number_of(d, "v2", "bytes"), one);
	drop(d, "v1");
	verify(d, "m@v2");
	drop(d, "v2");
}

/* The old version goes, and leaves what the new one shares with it. */
GPUWMD_TEST(share_with, a_swap_can_load_what_shares_with_the_old_version)
{
	const char *path;

	load(d, alike_checkpoint(d, "v1", false), "m@v1", NULL, ALIKE_SEGMENT);
	path = alike_checkpoint(d, "v2", true);
	cr_assert_eq(CTL("swap", "m", "v2", "--load", path, "--device", d->device, "--share-with", "m",
			 "--segment-bytes", "4M"),
		     0, "%s", output);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	cr_assert_eq(status_of(d, "segments"), ALIKE_SEGMENTS);
	alike_reads("m@v2");
	verify(d, "m@v2");
	drop(d, "v2");
}

GPUWMD_TEST(share_with, a_dry_run_plans_the_segments)
{
	const char *path = alike_checkpoint(d, "v1", false);

	load(d, path, "m@v1", NULL, ALIKE_SEGMENT);
	cr_assert_eq(CTL("-o", "json", "load", path, "m@v2", "--device", d->device, "--share-with", "m",
			 "--segment-bytes", "4M", "--dry-run"),
		     0, "%s", output);
	SAYS("\"segments\":17");
	drop(d, "v1");
}

static void retire_v1(struct gpuwmd *d)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);

	options.model = "m";
	OK(gpuwm_swap(d->admin, &options, NULL));
	OK(gpuwm_retire(d->admin, "m@v1", 0));
}

/* ---- what is refused ---------------------------------------------------- */

GPUWMD_TEST(share_with, refuses_at_once_what_can_not_be)
{
	struct gpuwm_client *publisher = client_new();
	const char *path = alike_checkpoint(d, "v1", false);
	uint64_t job;

	FAILS(ENOENT, begin(d, path, "m@v1", "m@v0", ALIKE_SEGMENT, &job));
	FAILS(EINVAL, begin(d, path, "m@v1", NULL, MB(3), &job));
	cr_expect(strstr(gpuwm_error()->message, "segments can't be of 3145728 bytes"), "%s",
		  gpuwm_error()->message);
	FAILS(EINVAL, begin(d, path, "m@v1", "m@@", 0, &job));
	OK(publish_version(publisher, d->device, "p@v1", SMALL(1)));
	FAILS(EACCES, begin(d, path, "m@v1", "p@v1", ALIKE_SEGMENT, &job));
	cr_expect(strstr(gpuwm_error()->message, "p@v1 was published by uid "), "%s", gpuwm_error()->message);
	load(d, path, "m@v1", NULL, ALIKE_SEGMENT);
	if (backend() == BACKEND_FAKECUDA) {
		cr_assert_neq(CTL("load", path, "m@v2", "--device", "host", "--share-with", "m@v1"), 0, "%s",
			      output);
		SAYS("m@v1 is not on host");
	}
	OK(gpuwm_pin(d->admin, "m@v1", "keep"));
	retire_v1(d);
	FAILS(EINVAL, begin(d, path, "m@v2", "m@v1", ALIKE_SEGMENT, &job));
	cr_expect(strstr(gpuwm_error()->message, "m@v1 is retiring"), "%s", gpuwm_error()->message);
	OK(gpuwm_unpin(d->admin, "m@v1", "keep"));
	CTL_IS(2, "load", path, "m@v2", "--segment-bytes", "4X");
	CTL_IS(2, "load", path, "m@v2", "--segment-bytes", "99999999T");
	CTL_IS(2, "load", path, "m@v2", "--share-with", "");
	CTL_IS(2, "swap", "m", "v1", "--share-with", "m");
	gpuwm_close(publisher);
	version_drop(d, "p", "v1");
}

GPUWMD_TEST_BY(share_with, refuses_a_version_under_other_rules,
	       gpuwmd_start("--set", "model.1.match=secret/*", "--set", "model.1.attach=0", NULL),
	       gpuwmd_stop_empty)
{
	const char *path = alike_checkpoint(d, "v1", false);
	uint64_t job;

	load(d, path, "m@v1", NULL, ALIKE_SEGMENT);
	FAILS(EACCES, begin(d, path, "secret/m@v1", "m@v1", ALIKE_SEGMENT, &job));
	cr_expect(strstr(gpuwm_error()->message,
			 "m has other rules than secret/m: no section counts for it, not section [model.1]"),
		  "%s", gpuwm_error()->message);
	load(d, path, "secret/m@v1", NULL, ALIKE_SEGMENT);
	load(d, path, "secret/n@v1", "secret/m@v1", ALIKE_SEGMENT);
	SAYS("shares 17 of its 17 segments");
	version_drop(d, "secret/n", "v1");
	version_drop(d, "secret/m", "v1");
	drop(d, "v1");
}

/* ---- while it runs ------------------------------------------------------ */

/* Begins a load of m@v2 that shares with m@v1, and holds its loader. */
static uint64_t begin_held(struct gpuwmd *d)
{
	uint64_t job;

	load(d, alike_checkpoint(d, "v1", false), "m@v1", NULL, ALIKE_SEGMENT);
	fds_settled(d);
	loaders_kill(d, SIGSTOP);
	OK(begin(d, alike_checkpoint(d, "v2", true), "m@v2", "m@v1", ALIKE_SEGMENT, &job));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "jobs_running") == 1));
	return job;
}

GPUWMD_TEST(share_with, keeps_what_it_shares_until_it_is_done)
{
	uint64_t job = begin_held(d);

	retire_v1(d);
	cr_assert(version_is(d, "m", "v1", "retiring"));
	loaders_kill(d, SIGCONT);
	OK(gpuwm_job_wait(d->admin, job, 60000));
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	cr_assert_eq(status_of(d, "segments"), ALIKE_SEGMENTS);
	alike_reads("m@v2");
	verify(d, "m@v2");
	drop(d, "v2");
}

GPUWMD_TEST(share_with, a_cancelled_load_lets_go)
{
	uint64_t job = begin_held(d);

	retire_v1(d);
	OK(gpuwm_job_cancel(d->admin, job));
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
}

GPUWMD_TEST(share_with, a_dead_loader_lets_go)
{
	uint64_t job = begin_held(d);

	/* The first one has not begun, so there is a second one. */
	cr_assert(EVENTUALLY(SOON_MS,
			     (loaders_kill(d, SIGKILL), gpuwm_job_wait(d->admin, job, 0) != -ETIMEDOUT)));
	FAILS(EIO, gpuwm_job_wait(d->admin, job, 60000));
	alike_reads("m@v1");
	drop(d, "v1");
}

/* ---- gpuwmd dies -------------------------------------------------------- */

GPUWMD_TEST_BY(share_with, survives_a_restart, gpuwmd_start_kept(&(struct kept){}), gpuwmd_stop_empty)
{
	uint64_t memory;
	char *before, *after;

	load_both(d);
	before = kept_registry(d);
	memory = kept_memory(d);
	for (int i = 0; i < 3; i++)
		kept_kill(d, SIGKILL);
	after = kept_registry(d);
	cr_assert_str_eq(after, before);
	cr_assert_eq(kept_memory(d), memory);
	cr_assert_eq(status_of(d, "segments"), ALIKE_SEGMENTS + 1);
	cr_assert_eq(number_of(d, "v2", "shared_bytes"), status_of(d, "shared_bytes"));
	alike_reads("m@v1");
	alike_reads("m@v2");
	load(d, alike_checkpoint(d, "v1", false), "m@v3", "m@v2", ALIKE_SEGMENT);
	SAYS("shares 16 of its 17 segments with m@v2");
	drop(d, "v3");
	drop(d, "v1");
	kept_kill(d, SIGKILL);
	alike_reads("m@v2");
	cr_assert_eq(status_of(d, "segments"), ALIKE_SEGMENTS);
	drop(d, "v2");
	free(before);
	free(after);
}

GPUWMD_TEST_BY(share_with, a_load_that_dies_with_its_gpuwmd_leaves_what_it_shared,
	       gpuwmd_start_kept(&(struct kept){}), gpuwmd_stop_empty)
{
	uint64_t memory;

	begin_held(d);
	memory = kept_memory(d);
	kept_kill(d, SIGKILL);
	cr_assert(version_is(d, "m", "v2", "none"));
	cr_assert(EVENTUALLY(SOON_MS, kept_memory(d) == memory));
	cr_assert_eq(status_of(d, "segments"), ALIKE_SEGMENTS);
	alike_reads("m@v1");
	load(d, alike_checkpoint(d, "v2", true), "m@v2", "m@v1", ALIKE_SEGMENT);
	alike_reads("m@v2");
	drop_both(d, "v1", "v2");
}
