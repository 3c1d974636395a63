/* Loaders that keep their CUDA contexts for the next load: real processes, on the stand-in for the driver. */
#include "kept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(keep_context);

#define KEEP(time) "--set", "loader.keep_context=" time
#define KEPT_NOTE "its CUDA contexts were kept for it"

/* KEEP_AGAIN_MS, and a busy machine. */
#define AGAIN_MS 30000

/* The loader that keeps contexts, when it is ready; 0: none does. */
static pid_t keeping(struct gpuwmd *d)
{
	json_t *status = query(d->admin, "status", NULL), *loader;
	pid_t pid = 0;
	size_t i;

	json_array_foreach(json_object_get(status, "keeping"), i, loader) {
		if (json_is_true(json_object_get(loader, "ready")))
			pid = (pid_t)json_integer_value(json_object_get(loader, "pid"));
	}
	json_decref(status);
	return pid;
}

static uint64_t contexts_of(struct gpuwmd *d)
{
	json_t *status = query(d->admin, "status", NULL), *device;
	uint64_t bytes = 0;
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i, device)
		bytes += (uint64_t)json_integer_value(json_object_get(device, "contexts"));
	json_decref(status);
	return bytes;
}

/* Whether the last job found its contexts. */
static bool was_kept(struct gpuwmd *d)
{
	json_t *jobs = query(d->admin, "jobs", NULL), *list = json_object_get(jobs, "jobs"), *note;
	json_t *notes = json_object_get(json_array_get(list, json_array_size(list) - 1), "notes");
	bool kept = false;
	size_t i;

	json_array_foreach(notes, i, note)
		kept |= strcmp(json_string_value(note), KEPT_NOTE) == 0;
	json_decref(jobs);
	return kept;
}

static void expect_bytes(struct gpuwmd *d, const char *ref, uint64_t seed)
{
	struct gpuwm_mapping *mapping;

	OK(gpuwm_attach(d->admin, ref, NULL, &mapping));
	cr_assert(mapping_holds(mapping, seed));
	OK(gpuwm_detach(mapping));
}

static void load(struct gpuwmd *d, const char *tag, uint64_t seed)
{
	char name[32];

	snprintf(name, sizeof name, "m@%s", tag);
	load_version(d, checkpoint_write(d, tag, SMALL(seed)), name);
	expect_bytes(d, name, seed);
}

/* Standby and no other loader: what gpuwmd has at rest. */
static void wait_for_rest(struct gpuwmd *d)
{
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "loaders") == 1 && status_of(d, "standby") == 1));
}

/* ---- a second load ---------------------------------------------------- */

FAKECUDA_TEST(keep_context, the_second_load_has_the_first_ones, gpuwmd_start(KEEP("600"), NULL), gpuwmd_stop)
{
	pid_t pid;

	load(d, "v1", 1);
	cr_expect_not(was_kept(d));
	cr_assert(EVENTUALLY(SOON_MS, keeping(d) != 0));
	pid = keeping(d);
	for (uint64_t i = 2; i <= 5; i++) {
		char tag[8];

		snprintf(tag, sizeof tag, "v%d", (int)i);
		load(d, tag, i);
		cr_expect(was_kept(d), "%s", tag);
		cr_assert(EVENTUALLY(SOON_MS, keeping(d) != 0));
		cr_expect_eq(keeping(d), pid);
	}
	CTL_IS(0, "status");
	cr_expect(strstr(output, "keeps for the next load: a CUDA context on GPU-"), "%s", output);
	cr_expect(strstr(output, " s more"), "%s", output);
	cr_expect_gt(contexts_of(d), 0);
	kill(pid, SIGKILL);
	wait_for_rest(d);
	cr_expect_eq(contexts_of(d), 0);
}

FAKECUDA_TEST(keep_context, moves_to_other_tiers_have_them_too, gpuwmd_start(KEEP("600"), NULL), gpuwmd_stop)
{
	pid_t pid;

	load(d, "v1", 1);
	cr_assert(EVENTUALLY(SOON_MS, keeping(d) != 0));
	pid = keeping(d);
	CTL_IS(0, "demote", "m@v1", "--to", "host", "--wait");
	cr_assert(EVENTUALLY(SOON_MS, keeping(d) == pid));
	CTL_IS(0, "promote", "m@v1", "--wait");
	cr_assert(EVENTUALLY(SOON_MS, keeping(d) == pid));
	expect_bytes(d, "m@v1", 1);
	/* What it had mapped is not charged to it any more. */
	cr_expect_eq(device_number(d, "used"), device_number(d, "contexts") + MB(2));
	kill(pid, SIGKILL);
	wait_for_rest(d);
}

FAKECUDA_TEST(keep_context, nothing_is_kept_by_default, gpuwmd_start(NULL), gpuwmd_stop)
{
	load(d, "v1", 1);
	wait_for_rest(d);
	cr_expect_eq(keeping(d), 0);
	cr_expect_eq(contexts_of(d), 0);
}

FAKECUDA_TEST(keep_context, a_time_ends, gpuwmd_start(KEEP("1"), NULL), gpuwmd_stop)
{
	load(d, "v1", 1);
	wait_for_rest(d);
	cr_expect_eq(contexts_of(d), 0);
}

static void reconfigure(struct gpuwmd *d, const char *limits)
{
	kept_configure(d, &(const struct kept){.limits = limits});
	CTL_IS(0, "reload");
}

FAKECUDA_TEST(keep_context, always_is_before_the_first_load,
	      gpuwmd_start_kept(&(const struct kept){.limits = LIMITS_SHORT}), gpuwmd_stop)
{
	pid_t pid;

	reconfigure(d, LIMITS_SHORT "[loader]\nkeep_context = always\n");
	cr_assert(EVENTUALLY(SOON_MS, keeping(d) != 0));
	pid = keeping(d);
	load(d, "v1", 1);
	cr_expect(was_kept(d));
	cr_assert(EVENTUALLY(SOON_MS, keeping(d) == pid));
	CTL_IS(0, "status");
	cr_expect(strstr(output, "until the memory is needed"), "%s", output);
	kill(pid, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, log_says(d, "no CUDA context is kept by gpuwm-loader")));
	cr_assert(EVENTUALLY(AGAIN_MS, keeping(d) != 0), "it comes again");
	cr_expect(keeping(d) != pid);
	reconfigure(d, LIMITS_SHORT);
	wait_for_rest(d);
	cr_expect_eq(contexts_of(d), 0);
}

/* ---- who has none ----------------------------------------------------- */

FAKECUDA_TEST(keep_context, a_publish_is_checked_by_another_process, gpuwmd_start(KEEP("600"), NULL),
	      gpuwmd_stop)
{
	pid_t pid;

	load(d, "v1", 1);
	cr_assert(EVENTUALLY(SOON_MS, keeping(d) != 0));
	pid = keeping(d);
	OK(publish_version(d->admin, d->device, "p@v1", SMALL(7)));
	cr_expect_not(was_kept(d));
	cr_expect_eq(keeping(d), pid);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "loaders") == 2));
	cr_expect_eq(keeping(d), pid, "the checker kept nothing");
	kill(pid, SIGKILL);
	wait_for_rest(d);
}

FAKECUDA_TEST(keep_context, a_failed_load_leaves_none, gpuwmd_start(KEEP("600"), NULL), gpuwmd_stop)
{
	load(d, "v1", 1);
	cr_assert(EVENTUALLY(SOON_MS, keeping(d) != 0));
	FAILS(EBADMSG, load_try(d, safetensors_write(d, "bad", "{\"a\":5}", 4), "m@bad"));
	wait_for_rest(d);
	cr_expect_eq(contexts_of(d), 0);
}

/* ---- ends at any moment ----------------------------------------------- */

/* However it ends, the load does or fails with EIO, and the next one is sound. */
Test(keep_context, a_loader_killed_at_any_moment_harms_no_later_load, .timeout = 300)
{
	unsigned done = 0;
	struct gpuwmd *d;
	pid_t pid;

	ON_FAKECUDA();
	d = gpuwmd_start(KEEP("600"), NULL);
	for (unsigned i = 0; i < 12; i++) {
		char tag[16], name[24];
		uint64_t job;
		int r;

		snprintf(tag, sizeof tag, "a%u", i);
		load(d, tag, i + 1);
		cr_assert(EVENTUALLY(SOON_MS, keeping(d) != 0));
		pid = keeping(d);
		snprintf(name, sizeof name, "m@b%u", i);
		OK(load_start(d, checkpoint_write(d, name + 2, SMALL(100 + i)), name, NULL, &job));
		usleep(i * 1500);
		kill(pid, SIGKILL);
		r = gpuwm_job_wait(d->admin, job, 30000);
		cr_assert(r == 0 || r == -EIO, "%d: %s", r, gpuwm_error()->message);
		if (r == 0)
			expect_bytes(d, name, 100 + i);
		done += r == 0;
	}
	printf("%u of 12 loads ended well\n", done);
	cr_expect_gt(done, 0);
	/* Asked once: the last one may be dead and still be told, and kill(0) ends this process. */
	pid = keeping(d);
	if (pid)
		kill(pid, SIGKILL);
	wait_for_rest(d);
	cr_expect_eq(contexts_of(d), 0);
	gpuwmd_stop(d);
}

/* gpuwmd is killed and comes again: what kept a context is gone, and nothing is charged for it. */
FAKECUDA_TEST(keep_context, it_ends_with_gpuwmd,
	      gpuwmd_start_kept(&(const struct kept){.limits = LIMITS_SHORT "[loader]\nkeep_context = 600\n"}),
	      gpuwmd_stop)
{
	pid_t pid;

	load(d, "v1", 1);
	cr_assert(EVENTUALLY(SOON_MS, keeping(d) != 0));
	pid = keeping(d);
	kept_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, !process_is_named(pid, "gpuwm-loader")));
	expect_bytes(d, "m@v1", 1);
	cr_expect_eq(contexts_of(d), 0);
	load(d, "v2", 2);
	cr_expect_not(was_kept(d));
	cr_assert(EVENTUALLY(SOON_MS, keeping(d) != 0));
	kill(keeping(d), SIGKILL);
	wait_for_rest(d);
}
