/* Versions on tiers: what comes in between, kills, and what is charged to whom. */
#include "tiers.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

SYSTEM_SUITE(tiers_race);

/* ---- under gpuwm-keeper ------------------------------------------------ */

static struct gpuwmd *kept_v1(void)
{
	struct gpuwmd *d = gpuwmd_start_kept(&(struct kept){.limits = LIMITS_SHORT NO_HOST_COPIES});

	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	return d;
}

static void stop(struct gpuwmd *d)
{
	worker_waits(d, "m@v1", 1);
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

/* The tier below the device that costs memory too, where there is one. */
static const char *lower(void)
{
	return backend() == BACKEND_HOST ? "files" : "host";
}

static bool grace_is_over(struct gpuwmd *d)
{
	return status_of(d, "grace_ms") == 0;
}

static int begin(struct gpuwmd *d, const char *tier, uint64_t *ret_job)
{
	uint64_t jobs[GPUWM_MOVE_JOBS_MAX];
	size_t count = 0;
	int r = strcmp(tier, "device") == 0 ? gpuwm_promote(d->admin, "m@v1", jobs, &count)
					    : gpuwm_demote(d->admin, "m@v1", tier, jobs, &count);

	cr_assert(r < 0 || count == 1);
	*ret_job = jobs[0];
	return r;
}

#define RACE_TEST(name) GPUWMD_TEST_BY(tiers_race, name, kept_v1(), stop)
#define KEPT_GPU_TEST(name) FAKECUDA_TEST(tiers_race, name, kept_v1(), stop)

RACE_TEST(every_tier_outlives_gpuwmd)
{
	const char *const tiers[] = {lower(), "files", "device"};

	for (size_t i = 0; i < 3; i++) {
		cr_assert(EVENTUALLY(SOON_MS, grace_is_over(d)));
		if (strcmp(tiers[i], "device") == 0)
			OK(gpuwm_promote_wait(d, "m@v1"));
		else
			demote(d, "m@v1", tiers[i]);
		kept_kill(d, SIGKILL);
		cr_assert(lies_on(d, "v1", tiers[i]), "it does not lie on %s", tiers[i]);
	}
}

/* Its worker may come back until then. */
RACE_TEST(nothing_is_demoted_in_the_grace_time)
{
	kept_kill(d, SIGKILL);
	CTL("demote", "m@v1", "--to", "files");
	if (strstr(output, "may come back for"))
		cr_assert(lies_on(d, "v1", "device"));
	cr_assert(EVENTUALLY(SOON_MS, grace_is_over(d)));
}

/* ---- kills in each phase ----------------------------------------------- */

/* Its loader is stopped: the new memory is not there. */
static void begin_copying(struct gpuwmd *d, const char *tier)
{
	uint64_t job;

	loaders_kill(d, SIGSTOP);
	OK(begin(d, tier, &job));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "jobs_running") == 1));
}

static bool has_phase(struct gpuwmd *d, uint64_t number, const char *phase)
{
	json_t *answer = query(d->admin, "jobs", NULL), *job;
	bool has = false;
	size_t i;

	json_array_foreach(json_object_get(answer, "jobs"), i, job) {
		if ((uint64_t)json_integer_value(json_object_get(job, "job")) == number)
			has = strcmp(json_string_value(json_object_get(job, "phase")), phase) == 0;
	}
	json_decref(answer);
	return has;
}

/* The keeper is stopped: the new memory is there, and is not stored. Files need no store. */
static void begin_storing(struct gpuwmd *d)
{
	uint64_t job;

	cr_assert(kill(d->keeper, SIGSTOP) == 0);
	OK(begin(d, "host", &job));
	cr_assert(EVENTUALLY(SOON_MS, has_phase(d, job, "storing")));
}

RACE_TEST(a_kill_while_it_is_copied_leaves_it_where_it_was)
{
	const uint64_t memory = kept_memory(d);

	begin_copying(d, lower());
	kept_kill(d, SIGKILL);
	cr_assert(lies_on(d, "v1", "device"));
	cr_assert(EVENTUALLY(SOON_MS, kept_memory(d) == memory), "memory is left over");
	cr_assert(EVENTUALLY(SOON_MS, grace_is_over(d)));
}

KEPT_GPU_TEST(a_kill_while_it_is_stored_leaves_it_where_it_was)
{
	const uint64_t memory = kept_memory(d);

	begin_storing(d);
	cr_assert(kill(d->pid, SIGKILL) == 0);
	cr_assert(kill(d->keeper, SIGCONT) == 0);
	kept_wait(d);
	cr_assert(lies_on(d, "v1", "device"));
	cr_assert(EVENTUALLY(SOON_MS, kept_memory(d) == memory), "memory is left over");
	cr_assert(EVENTUALLY(SOON_MS, grace_is_over(d)));
}

#define TRIES_DEFAULT 24

/* The version lies on one of the two, whole. */
static bool is_whole(struct gpuwmd *d, const char *from, const char *to, unsigned *moved)
{
	*moved += lies_on(d, "v1", to);
	return lies_on(d, "v1", from) || lies_on(d, "v1", to);
}

static long move_takes_us(struct gpuwmd *d, const char *to)
{
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	demote(d, "m@v1", to);
	clock_gettime(CLOCK_MONOTONIC, &b);
	OK(gpuwm_promote_wait(d, "m@v1"));
	return (b.tv_sec - a.tv_sec) * 1000000 + (b.tv_nsec - a.tv_nsec) / 1000;
}

/* Kills at times that are spread over a move and what follows it, until some have found it before its state was written and some after
 * that. */
Test(tiers_race, a_kill_finds_it_on_one_tier_or_the_other, .timeout = 300)
{
	struct gpuwmd *d = kept_v1();
	const unsigned tries = kills_wanted(TRIES_DEFAULT);
	long span_us = move_takes_us(d, lower());
	unsigned moved = 0;

	for (unsigned i = 0; i < tries; i++) {
		const bool down = lies_on(d, "v1", "device");
		const char *from = down ? "device" : lower(), *to = down ? lower() : "device";
		const long after_us = span_us / 2 + span_us * (long)(i % 8) / 8;
		const unsigned before = moved;
		uint64_t job;

		cr_assert(EVENTUALLY(SOON_MS, grace_is_over(d)));
		OK(begin(d, to, &job));
		nanosleep(
			&(struct timespec){.tv_sec = after_us / 1000000, .tv_nsec = after_us % 1000000 * 1000},
			NULL);
		kept_kill(d, SIGKILL);
		cr_assert(is_whole(d, from, to, &moved), "it lies on neither tier");
		cr_assert(version_is(d, "m", "v1", "ready"));
		span_us = moved > before ? span_us * 4 / 5 : span_us * 5 / 4;
	}
	fprintf(stderr, "%u kills: it had moved at %u of them\n", tries, moved);
	cr_assert(moved > 0 && moved < tries, "no kill hit the move, or each did");
	cr_assert_eq(status_of(d, "lost"), 0);
	stop(d);
}

/* ---- attaches and demotions -------------------------------------------- */

/* A worker that does not wait; then the move's end. */
static void attach_meanwhile(struct gpuwmd *d, void (*go_on)(struct gpuwmd *d))
{
	struct process worker = worker_start(d, "m@v1", 1);

	go_on(d);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "jobs_running") == 0 && lies_on(d, "v1", "device")));
	cr_assert_eq(log_lines(d, "m@v1 is not demoted: an attach needs m@v1 on its devices"), 1);
	process_tell(&worker, 'd');
	process_finish(&worker);
}

static void loaders_go_on(struct gpuwmd *d)
{
	loaders_kill(d, SIGCONT);
}

static void keeper_goes_on(struct gpuwmd *d)
{
	cr_assert(kill(d->keeper, SIGCONT) == 0);
}

RACE_TEST(an_attach_ends_a_demotion_and_is_served_at_once)
{
	begin_copying(d, lower());
	attach_meanwhile(d, loaders_go_on);
}

KEPT_GPU_TEST(an_attach_ends_a_demotion_that_is_being_stored)
{
	const uint64_t memory = kept_memory(d);

	begin_storing(d);
	attach_meanwhile(d, keeper_goes_on);
	cr_assert(EVENTUALLY(SOON_MS, kept_memory(d) == memory), "memory is left over");
}

RACE_TEST(a_swap_and_a_retire_end_a_demotion)
{
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	OK(swap_to(d, "m", "v2", false));
	begin_copying(d, lower());
	OK(swap_to(d, "m", "v1", false));
	loaders_go_on(d);
	cr_assert(EVENTUALLY(SOON_MS, lies_on(d, "v1", "device") && status_of(d, "jobs_running") == 0));
	cr_assert_geq(log_lines(d, "an alias that moves to it needs m@v1 on its devices"), 1);
	OK(swap_to(d, "m", "v2", false));
	begin_copying(d, lower());
	OK(gpuwm_retire(d->admin, "m@v1", 0));
	loaders_go_on(d);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	DROP(d, "m@v2");
}

RACE_TEST(a_cancelled_job_leaves_it_where_it_was)
{
	uint64_t job;

	loaders_kill(d, SIGSTOP);
	OK(begin(d, lower(), &job));
	OK(gpuwm_job_cancel(d->admin, job));
	loaders_kill(d, SIGCONT);
	FAILS(ECANCELED, gpuwm_job_wait(d->admin, job, SOON_MS));
	cr_assert(EVENTUALLY(SOON_MS, lies_on(d, "v1", "device")));
}

/* Its memory is another one since: the lease that it had can't be taken again. */
RACE_TEST(a_lease_of_before_a_demotion_is_not_resumed)
{
	int sock = raw_client(d->socket);
	struct raw_lease lease;

	cr_assert_eq(raw_lease(sock, "m@v1", &lease), 0);
	close(sock);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0));
	demote(d, "m@v1", lower());
	sock = raw_client(d->socket);
	cr_assert_eq(raw_resume_one(d, sock, &lease), -ESTALE);
	OK(gpuwm_promote_wait(d, "m@v1"));
	cr_assert_eq(raw_resume_one(d, sock, &lease), -ESTALE);
	close(sock);
}

/* ---- room -------------------------------------------------------------- */

static void charged_stop(struct gpuwmd *d)
{
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

static struct gpuwmd *with_little_host(void)
{
	struct gpuwmd *d = gpuwmd_start("--budget", "host=16M", NULL);

	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	return d;
}

FAKECUDA_TEST(tiers_race, host_memory_that_is_full_is_told_and_changes_nothing, with_little_host(),
	      charged_stop)
{
	const uint64_t used = device_used(d);

	CTL_IS(8, "demote", "m@v1", "--to", "host");
	SAYS("no room on host: ");
	SAYS("of the budget of 16.0 MiB left");
	cr_assert(lies_on(d, "v1", "device"));
	cr_assert_eq(device_used(d), used);
	worker_reads(d, "m@v1", 1);
}
