/* gpuwmctl: loads that are watched, and `swap --load`, which changes all or nothing. */
#include "harness.h"

#include "tests/support/any/page_cache.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(ctl_load);

static const json_t *first_job(const json_t *answer)
{
	return json_array_get(json_object_get(answer, "jobs"), 0);
}

/* Its time in ms; -1: the job has no such phase. */
static json_int_t phase_ms(const json_t *job, const char *name, json_int_t *ret_bytes)
{
	const json_t *phase;
	size_t i;

	json_array_foreach(json_object_get(job, "phases"), i, phase) {
		if (strcmp(json_string_value(json_object_get(phase, "phase")), name) != 0)
			continue;
		*ret_bytes = json_integer_value(json_object_get(phase, "bytes"));
		return json_integer_value(json_object_get(phase, "ms"));
	}
	return -1;
}

/* ---- load --wait ------------------------------------------------------ */

GPUWMD_TEST(ctl_load, ends_with_phases_and_their_times)
{
	const char *path = checkpoint_write(d, "v1", LARGE(1));

	CTL_IS(0, "load", path, "m@brief", "--device", d->device, "--wait");
	SAYS("job 1: m@brief is ready\nnote: ");
	cr_expect_null(strstr(output, "PHASE"), "%s", output);
	CTL_IS(0, "load", path, "m@v1", "--device", d->device, "--wait", "-v");
	SAYS("m@v1 is ready");
	SAYS("PHASE");
	SAYS("copying");
	SAYS("iB/s");
	SAYS("total");
	CTL_IS(0, "jobs", "1");
	SAYS("done");
	SAYS("copying");
	SAYS("iB/s");
	DROP(d, "m@brief", "m@v1");
}

GPUWMD_TEST(ctl_load, tells_programs_the_same)
{
	const struct checkpoint *c = LARGE(1);
	json_int_t bytes = 0;
	const json_t *job;
	json_t *answer;

	load_version(d, checkpoint_write(d, "v1", c), "m@v1");
	answer = query(d->admin, "jobs", "1");
	job = first_job(answer);
	cr_assert_geq(phase_ms(job, "waiting", &bytes), 0);
	cr_assert_geq(phase_ms(job, "copying", &bytes), 0);
	cr_assert_eq((uint64_t)bytes, checkpoint_bytes(c), "%lld", (long long)bytes);
	cr_assert(json_is_array(json_object_get(job, "notes")));
	json_decref(answer);
	DROP(d, "m@v1");
}

/* Starts a command with a load on d's device, of which nothing happens before loaders_kill(d, SIGCONT). */
#define START_HELD(d, ...)                                                                                     \
	({                                                                                                     \
		struct ctl_run run_;                                                                           \
		fds_settled(d);                                                                                \
		loaders_kill(d, SIGSTOP);                                                                      \
		run_ = ctl_start(__VA_ARGS__, "--device", (d)->device, NULL);                                  \
		cr_assert(EVENTUALLY(SOON_MS, status_of(d, "jobs_running") == 1));                             \
		run_;                                                                                          \
	})

GPUWMD_TEST(ctl_load, goes_on_after_an_interrupt)
{
	const char *path = checkpoint_write(d, "v1", SMALL(1));
	struct ctl_run run = START_HELD(d, "load", path, "m@v1", "--wait");

	kill(run.pid, SIGINT);
	loaders_kill(d, SIGCONT);
	ctl_ends(&run, 0);
	SAYS(" goes on"); /* the load, or job 1 where its number was known by then */
	SAYS("m@v1 is ready");
	DROP(d, "m@v1");
}

/* ---- swap --load ------------------------------------------------------ */

static struct gpuwmd *start_with_one(void)
{
	struct gpuwmd *d = gpuwmd_start(NULL);

	load_small(d, 1);
	return d;
}

/* The first version is current, and all is as it was. */
static void nothing_changed(struct gpuwmd *d)
{
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v2", "none") || version_is(d, "m", "v2", "failed")));
	cr_assert(version_is(d, "m", "v1", "ready"));
	worker_reads(d, "m", 1);
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

/* A relative source counts from the working directory; what is asked of gpuwmd has no ".." in it. */
GPUWMD_TEST_BY(ctl_load, a_source_may_begin_with_steps_up, start_with_one(), gpuwmd_stop)
{
	char path[600], up[600];
	const char *file, *folder;

	snprintf(path, sizeof(path), "%s", checkpoint_write(d, "v2", SMALL(2)));
	file = strrchr(path, '/') + 1;
	folder = strrchr(d->root, '/') + 1;
	cr_assert_eq(chdir(d->root), 0);
	snprintf(up, sizeof(up), "../%s/%s", folder, file);
	CTL_IS(0, "load", up, "m@v2", "--device", d->device, "--wait");
	snprintf(up, sizeof(up), "./..//./%s/%s", folder, file);
	CTL_IS(0, "load", up, "m@v3", "--device", d->device, "--wait");
	cr_assert_eq(chdir("/"), 0);
	CTL_IS(0, "load", path + 1, "m@v4", "--device", d->device, "--wait");
	snprintf(up, sizeof(up), "%s/../%s/%s", d->root, folder, file);
	CTL_IS(6, "load", up, "m@v5", "--device", d->device, "--wait");
	SAYS("has a \"..\" in it");
	CTL_IS(6, "load", "../../../../../../../../../..", "m@v5", "--device", d->device, "--wait");
}

/* What no version can be called is told before minutes of loading. */
GPUWMD_TEST_BY(ctl_load, a_tag_that_can_not_be_is_refused_at_once, start_with_one(), gpuwmd_stop)
{
	json_t *jobs;

	CTL_IS(1, "load", d->root, "m@previous", "--device", d->device);
	SAYS("\"previous\" can't be a tag");
	CTL_IS(1, "load", d->root, "other@current", "--device", d->device);
	CTL_IS(5, "load", d->root, "m@v1", "--device", d->device);
	SAYS("m@v1 is there already (ready)");
	CTL_IS(0, "-o", "json", "jobs");
	jobs = json_loads(output, 0, NULL);
	cr_assert_eq(json_array_size(json_object_get(jobs, "jobs")), 1, "%s", output);
	json_decref(jobs);
}

/* Also of one that was freed by then. */
GPUWMD_TEST_BY(ctl_load, swap_names_the_old_version_by_its_tag, start_with_one(), gpuwmd_stop)
{
	CTL_IS(0, "swap", "m", "v2", "--load", checkpoint_write(d, "v2", SMALL(2)), "--device", d->device);
	SAYS("m@current is now v2; it was v1, which is retired");
}

GPUWMD_TEST_BY(ctl_load, swap_load_flips_and_retires_the_old_one, start_with_one(), gpuwmd_stop_empty)
{
	struct process worker = worker_start(d, "m", 1);
	const char *path = checkpoint_write(d, "v2", SMALL(2));

	CTL_IS(0, "swap", "m", "v2", "--load", path, "--device", d->device);
	SAYS("m@current is now v2; it was v1, which is retired");
	SAYS("copying");
	cr_assert(version_is(d, "m", "v1", "retiring"));
	worker_reads(d, "m", 2);
	process_tell(&worker, 'd');
	process_finish(&worker);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	DROP(d, "m@v2");
}

GPUWMD_TEST_BY(ctl_load, swap_load_may_keep_the_old_one, start_with_one(), gpuwmd_stop)
{
	const char *path = checkpoint_write(d, "v2", SMALL(2));

	CTL_IS(0, "swap", "m", "v2", "--load", path, "--device", d->device, "--keep-old");
	SAYS("m@current is now v2; it was v1\n");
	worker_reads(d, "m@previous", 1);
	CTL_IS(0, "rollback", "m");
	worker_reads(d, "m", 1);
}

GPUWMD_TEST_BY(ctl_load, swap_load_of_a_model_that_is_new, gpuwmd_start(NULL), gpuwmd_stop)
{
	const char *path = checkpoint_write(d, "v1", SMALL(1));

	CTL_IS(0, "swap", "m", "v1", "--load", path, "--device", d->device);
	SAYS("m@current is now v1\n");
	path = checkpoint_write(d, "v2", SMALL(2));
	CTL_IS(0, "-o", "json", "swap", "m@prod", "v2", "--load", path, "--device", d->device);
	SAYS("\"alias\":\"prod\"");
	SAYS("\"old\":null");
	SAYS("\"phases\":[");
	worker_reads(d, "m@prod", 2);
	worker_reads(d, "m", 1);
}

GPUWMD_TEST_BY(ctl_load, swap_load_says_that_another_alias_keeps_the_old_one, start_with_one(), gpuwmd_stop)
{
	const char *path = checkpoint_write(d, "v2", SMALL(2));

	CTL_IS(0, "swap", "m@prod", "v1");
	CTL_IS(0, "swap", "m", "v2", "--load", path, "--device", d->device);
	SAYS("it was v1, which is not retired\n");
	SAYS("the old version was not retired: m@v1 is named by 1 alias\n  move or remove first: prod\n");
	cr_assert(version_is(d, "m", "v1", "ready"));
	worker_reads(d, "m@previous", 1);
}

GPUWMD_TEST_BY(ctl_load, swap_load_whose_retire_old_is_in_vain_says_so_by_its_exit_status, start_with_one(),
	       gpuwmd_stop)
{
	const char *path = checkpoint_write(d, "v2", SMALL(2));

	CTL_IS(0, "swap", "m@prod", "v1");
	CTL_IS(5, "-o", "json", "swap", "m", "v2", "--retire-old", "--load", path, "--device", d->device);
	SAYS("\"retire_error\":{\"code\":\"EBUSY\",");
	worker_reads(d, "m", 2);
	worker_reads(d, "m@previous", 1);
}

GPUWMD_TEST_BY(ctl_load, swap_load_that_fails_changes_nothing, start_with_one(), nothing_changed)
{
	CTL_IS(9, "swap", "m", "v2", "--load", safetensors_write(d, "bad", "{", 0), "--device", d->device);
	SAYS("the alias m@current was not moved");
	CTL_IS(6, "swap", "m", "v2", "--load", "/etc/passwd", "--device", d->device);
	CTL_IS(5, "swap", "m", "v2", "--load", d->root, "--expect", "0123456789abcdef0123456789abcdef");
	SAYS("nothing was loaded");
	CTL_IS(5, "swap", "m@v2", "v2", "--load", d->root);
	SAYS("'v2' is given both as the alias and as the new tag");
	CTL_IS(5, "swap", "m@v1", "v2", "--load", d->root);
	SAYS("'v1' is a tag of m");
	CTL_IS(2, "swap", "m@previous", "v2", "--load", d->root);
}

GPUWMD_TEST_BY(ctl_load, swap_load_takes_only_options_that_go_together, start_with_one(), nothing_changed)
{
	CTL_IS(2, "swap", "m", "--load", d->root);
	CTL_IS(2, "swap", "m", "v2", "--load", d->root, "--remove");
	CTL_IS(2, "swap", "m", "v2", "--load", d->root, "--keep-old", "--retire-old");
	CTL_IS(2, "swap", "m", "v2", "--load", "");
	CTL_IS(2, "load", "", "m@v2");
	CTL_IS(2, "swap", "m", "v1", "--keep-old");
	CTL_IS(2, "swap", "m", "v1", "--device", d->device);
	CTL_IS(2, "swap", "m", "v1", "--key", "dtype=bf16");
}

/* Somebody else moves the alias while it loads. */
GPUWMD_TEST_BY(ctl_load, swap_load_whose_alias_was_moved_meanwhile_changes_nothing, start_with_one(),
	       gpuwmd_stop)
{
	const char *path = checkpoint_write(d, "v2", SMALL(2));
	struct ctl_run run;

	OK(publish_version(d->admin, d->device, "m@mine", SMALL(3)));
	run = START_HELD(d, "swap", "m", "v2", "--load", path);
	OK(swap_to(d, "m", "mine", false));
	loaders_kill(d, SIGCONT);
	ctl_ends(&run, 5);
	SAYS("m@current names mine (version ");
	SAYS("the alias m@current was not moved");
	cr_assert(version_is(d, "m", "v2", "failed"));
	worker_reads(d, "m", 3);
	worker_reads(d, "m@previous", 1);
}

/* The alias is not there at the beginning, but at the end. */
GPUWMD_TEST_BY(ctl_load, swap_load_does_not_take_an_alias_that_somebody_made_meanwhile, start_with_one(),
	       nothing_changed)
{
	const char *path = checkpoint_write(d, "v2", SMALL(2));
	struct ctl_run run = START_HELD(d, "swap", "m@prod", "v2", "--load", path);

	CTL_IS(0, "swap", "m@prod", "v1");
	loaders_kill(d, SIGCONT);
	ctl_ends(&run, 5);
	SAYS("m@prod names v1 (version ");
	worker_reads(d, "m@prod", 1);
	CTL_IS(0, "swap", "m@prod", "--remove");
}

/* The alias became a tag meanwhile. The new one would have been the model's first version, and so current. */
GPUWMD_TEST(ctl_load, swap_load_whose_alias_became_a_tag_changes_nothing)
{
	const char *path = checkpoint_write(d, "v2", SMALL(2));
	struct gpuwm_publish *publish;
	struct ctl_run run;

	run = START_HELD(d, "swap", "m@prod", "v2", "--load", path);
	OK(publish_begin(d->admin, d->device, "m@prod", SMALL(3), &publish));
	loaders_kill(d, SIGCONT);
	ctl_ends(&run, 5);
	SAYS("\"prod\" is a tag");
	cr_assert(!version_is(d, "m", "v2", "ready"));
	OK(gpuwm_publish_abort(publish, NULL));
}

GPUWMD_TEST_BY(ctl_load, swap_load_is_cancelled_by_an_interrupt, start_with_one(), nothing_changed)
{
	const char *path = checkpoint_write(d, "v2", SMALL(2));
	struct ctl_run run = START_HELD(d, "swap", "m", "v2", "--load", path);

	kill(run.pid, SIGINT);
	ctl_ends(&run, 1);
	SAYS("is being cancelled");
	SAYS("the alias m@current was not moved");
	loaders_kill(d, SIGCONT);
}

GPUWMD_TEST_BY(ctl_load, swap_load_tells_what_moved_after_an_interrupt_that_came_too_late, start_with_one(),
	       gpuwmd_stop_empty)
{
	const char *path = checkpoint_write(d, "v2", SMALL(2));
	struct ctl_run run = START_HELD(d, "swap", "m", "v2", "--load", path);

	kill(run.pid, SIGSTOP);
	loaders_kill(d, SIGCONT);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v2", "ready")));
	kill(run.pid, SIGINT);
	kill(run.pid, SIGCONT);
	ctl_ends(&run, 0);
	SAYS("is being cancelled");
	SAYS("m@current is now v2; it was v1, which is retired");
	worker_reads(d, "m", 2);
	DROP(d, "m@v2");
}

/* gpuwmd has all that it needs. */
GPUWMD_TEST_BY(ctl_load, swap_load_whose_gpuwmctl_is_killed_goes_on, start_with_one(), gpuwmd_stop_empty)
{
	const char *path = checkpoint_write(d, "v2", SMALL(2));
	struct ctl_run run = START_HELD(d, "swap", "m", "v2", "--load", path);

	kill(run.pid, SIGKILL);
	ctl_join(&run, output, sizeof output);
	loaders_kill(d, SIGCONT);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v2", "ready")));
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	worker_reads(d, "m", 2);
	DROP(d, "m@v2");
}

/* ---- dry runs --------------------------------------------------------- */

/* Nothing was made, nothing is named. */
static void made_nothing(struct gpuwmd *d)
{
	cr_assert_eq(memory_of(d), 0);
	cr_assert(version_is(d, "m", "v1", "none"));
	gpuwmd_stop_empty(d);
}

GPUWMD_TEST_BY(ctl_load, a_dry_run_prints_the_plan_and_makes_nothing, gpuwmd_start(NULL), made_nothing)
{
	const char *path = checkpoint_write(d, "v1", &(const struct checkpoint){1, 16, KB(64)});
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	cache_hold(fd, 0, (uint64_t)lseek(fd, 0, SEEK_END));
	CTL_IS(0, "load", path, "m@v1", "--device", d->device, "--swap", "--dry-run");
	SAYS(": 1 file, 19 tensors, 1.0 MiB, 100% of it cached");
	close(fd);
	SAYS("BUDGET LEFT");
	SAYS("yes");
	cr_assert(!strstr(output, "ready"), "%s", output);
	CTL_IS(0, "jobs", "1");
	SAYS("BUDGET LEFT");
}

GPUWMD_TEST_BY(ctl_load, a_dry_run_tells_programs_the_same, gpuwmd_start(NULL), made_nothing)
{
	const struct checkpoint *c = LARGE(1);
	json_t *job, *plan, *device;

	CTL_IS(0, "load", checkpoint_write(d, "v1", c), "m@v1", "--device", d->device, "--dry-run", "-o",
	       "json");
	job = json_loads(strchr(output, '{'), 0, NULL);
	plan = json_object_get(job, "plan");
	device = json_array_get(json_object_get(plan, "devices"), 0);
	cr_assert_eq((uint64_t)json_integer_value(json_object_get(plan, "bytes")), checkpoint_bytes(c));
	cr_assert_str_eq(json_string_value(json_object_get(device, "device")), d->device);
	cr_assert_geq((uint64_t)json_integer_value(json_object_get(device, "bytes")), checkpoint_bytes(c));
	cr_assert_eq(json_integer_value(json_object_get(device, "segments")), 1);
	cr_assert(json_is_true(json_object_get(device, "fits")));
	json_decref(job);
}

GPUWMD_TEST_BY(ctl_load, a_dry_run_says_that_it_does_not_fit,
	       gpuwmd_start("--set", "budget.host=4M", "--set", "budget.*=4M", NULL), made_nothing)
{
	const char *path = checkpoint_write(d, "v1", LARGE(1));

	CTL_IS(8, "load", path, "m@v1", "--device", d->device, "--dry-run");
	SAYS("4.0 MiB of the budget of 4.0 MiB left");
	SAYS("no\n");
	CTL_IS(8, "-o", "json", "load", path, "m@v1", "--device", d->device, "--dry-run");
	CTL_IS(0, "jobs", "1");
}

/* What a load of the version takes of the device, by its plan. */
static uint64_t planned(struct gpuwmd *d, const char *path)
{
	json_t *job, *device;
	uint64_t bytes;

	CTL("load", path, "m@v1", "--device", d->device, "--dry-run", "-o", "json");
	job = json_loads(strchr(output, '{'), JSON_DISABLE_EOF_CHECK, NULL);
	device = json_array_get(json_object_get(json_object_get(job, "plan"), "devices"), 0);
	bytes = (uint64_t)(json_integer_value(json_object_get(device, "bytes")) +
			   json_integer_value(json_object_get(device, "context")));
	json_decref(job);
	return bytes;
}

/* The budget is what the load takes, and then 4 KiB less. */
Test(ctl_load, a_dry_run_and_its_load_agree_to_the_page)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	uint64_t needed = planned(d, checkpoint_write(d, "v1", SMALL(1)));
	char budget[128];

	gpuwmd_stop_empty(d);
	for (int less = 0; less <= 1; less++) {
		snprintf(budget, sizeof budget, "budget.%s=%lluK", backend() == BACKEND_HOST ? "host" : "*",
			 (unsigned long long)(needed / KB(1)) - 4ull * (unsigned)less);
		d = gpuwmd_start("--set", budget, NULL);
		CTL_IS(less ? 8 : 0, "load", checkpoint_write(d, "v1", SMALL(1)), "m@v1", "--device", d->device,
		       "--dry-run");
		cr_assert_eq(load_try(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1"), less ? -ENOSPC : 0, "%s",
			     gpuwm_error()->message);
		gpuwmd_stop(d);
		harness_cleanup();
	}
}

/* What a dry run plans is what a load takes. */
GPUWMD_TEST(ctl_load, a_dry_run_plans_what_a_load_takes)
{
	const char *path = checkpoint_write(d, "v1", LARGE(1));
	json_t *job, *version;
	json_int_t planned;

	CTL_IS(0, "load", path, "m@v1", "--device", d->device, "--dry-run", "-o", "json");
	job = json_loads(strchr(output, '{'), 0, NULL);
	planned = json_integer_value(json_object_get(
		json_array_get(json_object_get(json_object_get(job, "plan"), "devices"), 0), "bytes"));
	json_decref(job);
	load_version(d, path, "m@v1");
	version = version_entry(d, "m", "v1");
	cr_assert_eq(json_integer_value(json_object_get(version, "bytes")), planned);
	json_decref(version);
	DROP(d, "m@v1");
}

GPUWMD_TEST_BY(ctl_load, a_dry_run_of_a_bad_source_fails_as_its_load_would, gpuwmd_start(NULL), made_nothing)
{
	CTL_IS(9, "load", safetensors_write(d, "bad", "{", 0), "m@v1", "--device", d->device, "--dry-run");
	CTL_IS(6, "load", "/etc/passwd", "m@v1", "--dry-run");
}
