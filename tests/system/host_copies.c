/* Versions that lie on their devices and in host memory at once. */
#include "tiers.h"

#include <signal.h>
#include <string.h>

SYSTEM_SUITE(host_copies);

#define COPY_TEST(name) FAKECUDA_TEST(host_copies, name, tiers_begin(), tiers_end)

/* m@TAG lies on its devices and has a host copy. */
static bool has_copy(struct gpuwmd *d, const char *tag)
{
	json_t *version = version_entry(d, "m", tag);
	bool has = version && json_object_get(version, "host_copy_bytes");

	json_decref(version);
	return has && lies_on(d, tag, "device");
}

/* Onto host memory and back. */
static void make_copy(struct gpuwmd *d, const char *ref)
{
	demote(d, ref, "host");
	OK(gpuwm_promote_wait(d, ref));
}

/* Without a job. */
static void demote_at_once(struct gpuwmd *d, const char *ref, const char *tag)
{
	uint64_t jobs[GPUWM_MOVE_JOBS_MAX];
	size_t count;

	OK(gpuwm_demote(d->admin, ref, "host", jobs, &count));
	cr_assert_eq(count, 0, "bytes are copied that are there");
	cr_assert(lies_on(d, tag, "host"));
}

COPY_TEST(what_comes_from_host_memory_stays_there_too)
{
	const uint64_t used = device_used(d);

	cr_assert(!has_copy(d, "v1"));
	make_copy(d, "m@v1");
	cr_assert(has_copy(d, "v1"));
	cr_assert_eq(host_used(d), used);
	CTL_IS(0, "ls", "-o", "wide");
	SAYS("device+host");
	CTL_IS(0, "show", "m@v1");
	SAYS("has a host copy of 66.0 MiB");
	worker_reads(d, "m@v1", 1);
}

COPY_TEST(a_second_demotion_copies_nothing)
{
	const uint64_t used = device_used(d);

	make_copy(d, "m@v1");
	for (int round = 0; round < 3; round++) {
		demote_at_once(d, "m@v1", "v1");
		cr_assert(EVENTUALLY(SOON_MS, device_used(d) == 0));
		cr_assert_eq(host_used(d), used);
		OK(gpuwm_promote_wait(d, "m@v1"));
		worker_reads(d, "m@v1", 1);
	}
	CTL_IS(0, "demote", "m@v1", "--to", "host", "--wait");
	SAYS("moved: m@v1 lies on host");
	CTL_IS(0, "demote", "m@v1", "--to", "host", "--wait");
	SAYS("unchanged: m@v1 lies on host");
	CTL_IS(0, "verify", "m@v1", "--wait");
}

COPY_TEST(verify_reads_both_places)
{
	uint64_t jobs[GPUWM_VERIFY_JOBS_MAX];
	size_t count;

	OK(gpuwm_verify(d->admin, "m@v1", NULL, jobs, &count));
	cr_assert_eq(count, 1);
	OK(gpuwm_job_wait(d->admin, jobs[0], 30000));
	make_copy(d, "m@v1");
	OK(gpuwm_verify(d->admin, "m@v1", NULL, jobs, &count));
	cr_assert_eq(count, 2);
	for (size_t i = 0; i < count; i++)
		OK(gpuwm_job_wait(d->admin, jobs[i], 30000));
	CTL_IS(0, "verify", "m@v1", "--wait", "--device", "host");
	SAYS("host");
	CTL_IS(0, "verify", "m@v1", "--source", "--wait");
	cr_assert(has_copy(d, "v1"));
}

COPY_TEST(a_version_on_files_has_none)
{
	make_copy(d, "m@v1");
	demote(d, "m@v1", "files");
	cr_assert(EVENTUALLY(SOON_MS, host_used(d) == 0 && device_used(d) == 0));
	worker_waits(d, "m@v1", 1);
	cr_assert(!has_copy(d, "v1"));
}

FAKECUDA_TEST(host_copies, a_rule_turns_them_off,
	      gpuwmd_start("--set", "model.1.match=*", "--set", "model.1.host_copy=no", NULL), tiers_end)
{
	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	make_copy(d, "m@v1");
	cr_assert(EVENTUALLY(SOON_MS, host_used(d) == 0));
	cr_assert(!has_copy(d, "v1"));
}

#define COPIES_TEST(name)                                                                                      \
	FAKECUDA_TEST(host_copies, name,                                                                       \
		      gpuwmd_start("--set", "model.1.match=*", "--set", "model.1.host_copy=yes", NULL),        \
		      gpuwmd_stop_empty)

COPIES_TEST(a_rule_makes_them_beforehand)
{
	struct process worker;
	uint64_t used;

	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	worker = worker_start(d, "m@v1", 1);
	used = device_used(d);
	cr_assert(EVENTUALLY(SOON_MS, has_copy(d, "v1")));
	cr_assert_eq(host_used(d), used);
	process_tell(&worker, 'd');
	process_finish(&worker);
	demote_at_once(d, "m@v1", "v1");
	OK(gpuwm_promote_wait(d, "m@v1"));
	worker_reads(d, "m@v1", 1);
	cr_assert(has_copy(d, "v1"));
	DROP(d, "m@v1");
}

/* A copy takes the place of no other one. */
FAKECUDA_TEST(host_copies, the_ones_that_are_there_stay_when_room_is_short,
	      gpuwmd_start("--set", "budget.host=100M", "--set", "model.1.match=*", "--set",
			   "model.1.host_copy=yes", NULL),
	      gpuwmd_stop_empty)
{
	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	cr_assert(EVENTUALLY(SOON_MS, has_copy(d, "v1")));
	load_version(d, checkpoint_write(d, "v2", LARGE(2)), "m@v2");
	CTL_IS(0, "verify", "m@v2", "--wait");
	cr_assert(has_copy(d, "v1") && !has_copy(d, "v2"));
	DROP(d, "m@v1");
	cr_assert(EVENTUALLY(SOON_MS, has_copy(d, "v2")));
	CTL_IS(0, "verify", "m@v2", "--wait");
	DROP(d, "m@v2");
}

/* ---- room --------------------------------------------------------------- */

/* Host memory has room for one version of 64 MiB, and an eighth besides. */
#define ONE_ON_HOST_TEST(name)                                                                                 \
	FAKECUDA_TEST(host_copies, name, gpuwmd_start("--set", "budget.host=100M", NULL), gpuwmd_stop_empty)

static void load_both(struct gpuwmd *d)
{
	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	load_version(d, checkpoint_write(d, "v2", LARGE(2)), "m@v2");
}

ONE_ON_HOST_TEST(a_demotion_takes_the_place_of_a_copy)
{
	load_both(d);
	make_copy(d, "m@v1");
	cr_assert(has_copy(d, "v1"));
	CTL_IS(0, "demote", "m@v2", "--to", "host", "--wait");
	SAYS("moved: m@v2 lies on host");
	cr_assert(!has_copy(d, "v1"));
	worker_reads(d, "m@v1", 1);
	OK(gpuwm_promote_wait(d, "m@v2"));
	worker_reads(d, "m@v2", 2);
	DROP(d, "m@v1", "m@v2");
}

ONE_ON_HOST_TEST(a_load_onto_host_takes_the_place_of_a_copy)
{
	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	make_copy(d, "m@v1");
	checkpoint_write(d, "v2", LARGE(2));
	CTL_IS(0, "load", checkpoint_write(d, "v2", LARGE(2)), "m@v2", "--device", "host", "--dry-run");
	CTL_IS(0, "load", checkpoint_write(d, "v2", LARGE(2)), "m@v2", "--device", "host", "--wait");
	cr_assert(!has_copy(d, "v1"));
	worker_reads(d, "m@v1", 1);
	DROP(d, "m@v1", "m@v2");
}

/* An eighth of the budget stays free of copies. */
FAKECUDA_TEST(host_copies, small_requests_never_wait_for_a_copy, gpuwmd_start("--set", "budget.host=70M", NULL),
	      tiers_end)
{
	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	make_copy(d, "m@v1");
	cr_assert(EVENTUALLY(SOON_MS, host_used(d) == 0));
	cr_assert(!has_copy(d, "v1"));
}

/* ---- sharing ------------------------------------------------------------ */

/* m@v2 is m@v1 loaded again: both have the same segments. Twenty rounds leave as many bytes as the first one. */
FAKECUDA_TEST(host_copies, versions_that_share_have_one, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	const char *path = checkpoint_write(d, "v1", LARGE(1));
	uint64_t used;

	load_version(d, path, "m@v1");
	used = device_used(d);
	CTL_IS(0, "load", path, "m@v2", "--device", d->device, "--share-with", "m@v1", "--wait");
	cr_assert_eq(device_used(d), used);
	for (int round = 0; round < 20; round++) {
		const char *first = round % 2 ? "m@v2" : "m@v1", *second = round % 2 ? "m@v1" : "m@v2";

		demote(d, first, "host");
		demote(d, second, "host");
		cr_assert(EVENTUALLY(SOON_MS, device_used(d) == 0));
		cr_assert_eq(host_used(d), used, "round %d", round);
		OK(gpuwm_promote_wait(d, first));
		OK(gpuwm_promote_wait(d, second));
		cr_assert(EVENTUALLY(SOON_MS, device_used(d) == used));
		cr_assert_eq(host_used(d), used, "round %d", round);
	}
	worker_reads(d, "m@v1", 1);
	worker_reads(d, "m@v2", 1);
	DROP(d, "m@v1");
	cr_assert(has_copy(d, "v2"));
	worker_reads(d, "m@v2", 1);
	DROP(d, "m@v2");
}

/* ---- restarts ----------------------------------------------------------- */

static bool demotes_at_once(struct gpuwmd *d)
{
	uint64_t jobs[GPUWM_MOVE_JOBS_MAX];
	size_t count;

	return gpuwm_demote(d->admin, "m@v1", "host", jobs, &count) == 0 && count == 0;
}

static struct gpuwmd *kept_start(void)
{
	struct gpuwmd *d = gpuwmd_start_kept(&(struct kept){.limits = LIMITS_SHORT});

	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	return d;
}

FAKECUDA_TEST(host_copies, both_places_outlive_gpuwmd, kept_start(), tiers_end)
{
	const uint64_t used = device_used(d);

	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "grace_ms") == 0));
	make_copy(d, "m@v1");
	for (int round = 0; round < 2; round++) {
		kept_kill(d, SIGKILL);
		cr_assert(has_copy(d, "v1"));
		cr_assert(device_used(d) == used && host_used(d) == used);
		worker_reads(d, "m@v1", 1);
		cr_assert(EVENTUALLY(SOON_MS, demotes_at_once(d)));
		kept_kill(d, SIGKILL);
		cr_assert(lies_on(d, "v1", "host"));
		cr_assert(device_used(d) == 0 && host_used(d) == used);
		OK(gpuwm_promote_wait(d, "m@v1"));
	}
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "grace_ms") == 0));
	demote(d, "m@v1", "files");
	kept_kill(d, SIGKILL);
	cr_assert_eq(host_used(d), 0);
	worker_waits(d, "m@v1", 1);
}

FAKECUDA_TEST(host_copies, a_reload_that_turns_them_off_drops_them, kept_start(), tiers_end)
{
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "grace_ms") == 0));
	make_copy(d, "m@v1");
	cr_assert(has_copy(d, "v1"));
	kept_configure(d, &(const struct kept){.limits = LIMITS_SHORT NO_HOST_COPIES});
	CTL_IS(0, "reload");
	cr_assert(EVENTUALLY(SOON_MS, host_used(d) == 0));
	cr_assert(!has_copy(d, "v1"));
	kept_kill(d, SIGKILL);
	worker_reads(d, "m@v1", 1);
}
