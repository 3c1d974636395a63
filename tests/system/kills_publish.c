/* Publishers and loaders die in every phase (D6): before the commit all is
 * given back, after it nothing is lost. */
#include "raw.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

SYSTEM_SUITE(kills_publish);

#define FREE_MS SOON_MS

/* ---- publishers ------------------------------------------------------- */

/* argv: device, how far: "begin", "fill", "commit". Says 'v' there. */
static int publisher(int argc, char **argv)
{
	struct gpuwm_version_info version;
	struct gpuwm_publish *publish;
	struct gpuwm_client *client;

	CHILD_ASSERT(argc == 2);
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(publish_begin(client, argv[0], "m@v2", LARGE(2), &publish) == 0);
	if (strcmp(argv[1], "begin") != 0)
		CHILD_ASSERT(publish_fill(publish, LARGE(2)) == 0);
	if (strcmp(argv[1], "commit") == 0)
		CHILD_ASSERT(gpuwm_publish_commit(publish, &version) == 0);
	child_say('v');
	child_hear();
	return 0;
}

static struct gpuwmd *scene(struct process *ret_bystander)
{
	struct gpuwmd *d = gpuwmd_start(NULL);

	load_small(d, 1);
	*ret_bystander = worker_start(d, "m", 1);
	return d;
}

static void scene_end(struct gpuwmd *d, struct process *bystander)
{
	process_tell(bystander, 'd');
	process_finish(bystander);
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

static const struct {
	const char *name, *phase;
	int signal;
} victims[] = {
	{"a publisher that has begun", "begin", SIGKILL},
	{"a publisher that has filled", "fill", SIGKILL},
	{"a publisher that has filled, by a segfault", "fill", SIGSEGV},
};

Test(kills_publish, what_a_publisher_had_not_committed_is_given_back)
{
	struct process bystander;
	struct gpuwmd *d = scene(&bystander);
	const uint64_t before = memory_of(d);

	for (size_t i = 0; i < sizeof victims / sizeof victims[0]; i++) {
		const char *name = victims[i].name;
		struct process p;

		if (SANITIZED && victims[i].signal == SIGSEGV)
			continue; /* the sanitizer catches the signal */
		p = process_start(publisher, d->device, victims[i].phase, NULL);
		process_expect(&p, 'v');
		cr_assert_eq(status_of(d, "publishes"), 1, "%s", name);
		process_kill(&p, victims[i].signal);
		cr_assert(EVENTUALLY(FREE_MS, status_of(d, "publishes") == 0 && memory_of(d) == before), "%s",
			  name);
		cr_assert(version_is(d, "m", "v2", "failed"), "%s", name);
		/* The tag is free again. */
		OK(publish_version(d->admin, d->device, "m@v2", SMALL(2)));
		DROP(d, "m@v2");
	}
	scene_end(d, &bystander);
}

Test(kills_publish, a_publisher_after_its_commit_is_not_needed)
{
	struct process bystander, p;
	struct gpuwmd *d = scene(&bystander);

	p = process_start(publisher, d->device, "commit", NULL);
	process_expect(&p, 'v');
	process_kill(&p, SIGKILL);
	worker_reads(d, "m@v2", 2);
	DROP(d, "m@v2");
	scene_end(d, &bystander);
}

/* argv: "handed" stops before the commit, "committing" right after it is sent. */
static int publisher_raw(int argc, char **argv)
{
	struct raw_publish p;

	CHILD_ASSERT(argc == 1);
	CHILD_ASSERT(raw_publish_begin(&p, "raw@v1", MB(32)) == 0);
	raw_publish_fill(&p);
	CHILD_ASSERT(raw_hand_in(&p) == 0);
	if (strcmp(argv[0], "committing") == 0)
		raw_commit_send(&p);
	child_say('v');
	child_hear();
	return 0;
}

Test(kills_publish, a_publisher_between_hand_in_and_commit)
{
	struct process bystander, p;
	struct gpuwmd *d = scene(&bystander);
	uint64_t before = memory_of(d);

	p = process_start(publisher_raw, "handed", NULL);
	process_expect(&p, 'v');
	process_kill(&p, SIGKILL);
	cr_assert(EVENTUALLY(FREE_MS, version_is(d, "raw", "v1", "failed") && memory_of(d) == before));
	scene_end(d, &bystander);
}

Test(kills_publish, a_publisher_that_dies_once_its_commit_is_sent_becomes_ready)
{
	struct process bystander, p;
	struct gpuwmd *d = scene(&bystander);
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_handles *handles;

	p = process_start(publisher_raw, "committing", NULL);
	process_expect(&p, 'v');
	/* The commit has arrived when its version is checked. */
	cr_assert(EVENTUALLY(SOON_MS,
			     version_is(d, "raw", "v1", "checking") || version_is(d, "raw", "v1", "ready")));
	process_kill(&p, SIGKILL);
	options.wait_ms = 10000;
	OK(gpuwm_get_handles(d->admin, "raw@v1", &options, &handles));
	OK(gpuwm_handles_release(handles));
	DROP(d, "raw@v1");
	scene_end(d, &bystander);
}

/* ---- loaders ---------------------------------------------------------- */

/* The moments of a kill: microseconds after the job was started. */
static const long moments_us[] = {0, 2000, 10000, 30000, 80000};
#define MOMENTS (sizeof moments_us / sizeof moments_us[0])

static bool job_ended(struct gpuwmd *d)
{
	return status_of(d, "jobs_running") == 0;
}

Test(kills_publish, a_loader_at_any_moment_of_a_load)
{
	struct process bystander;
	struct gpuwmd *d = scene(&bystander);
	const char *path = checkpoint_write(d, "big", LARGE(2));
	uint64_t before = memory_of(d);
	unsigned failed = 0;

	for (unsigned i = 0; i < MOMENTS; i++) {
		uint64_t job;
		int r;

		cr_assert(EVENTUALLY(20000, status_of(d, "standby") == 1));
		OK(load_start(d, path, "m@big", NULL, &job));
		nanosleep(&(struct timespec){.tv_nsec = moments_us[i] * 1000}, NULL);
		loaders_kill(d, SIGKILL);
		r = gpuwm_job_wait(d->admin, job, 30000);
		cr_assert(r == 0 || r == -EIO, "%s", gpuwm_error()->message);
		failed += r == -EIO;
		if (r == 0)
			DROP(d, "m@big");
		cr_assert(EVENTUALLY(FREE_MS, job_ended(d) && memory_of(d) == before));
	}
	cr_assert_gt(failed, 0, "no kill hit");
	scene_end(d, &bystander);
}

Test(kills_publish, a_checker_at_any_moment_of_a_publish)
{
	struct process bystander;
	struct gpuwmd *d = scene(&bystander);
	uint64_t before = memory_of(d);

	for (unsigned i = 0; i < MOMENTS; i++) {
		struct raw_publish p;
		int code;

		cr_assert(EVENTUALLY(20000, status_of(d, "standby") == 1));
		cr_assert_eq(raw_publish_begin(&p, "raw@v1", MB(32)), 0, "%s", raw_refusal());
		raw_publish_fill(&p);
		code = raw_hand_in(&p);
		if (code == -EPIPE || code == -ECONNRESET) {
			/* gpuwmd gave it a loader of the last kill, of which it had not heard yet. */
			raw_publish_end(&p);
			cr_assert(EVENTUALLY(FREE_MS, memory_of(d) == before));
			i--;
			continue;
		}
		cr_assert_eq(code, 0, "%s", raw_refusal());
		raw_commit_send(&p);
		nanosleep(&(struct timespec){.tv_nsec = moments_us[i] * 1000}, NULL);
		loaders_kill(d, SIGKILL);
		code = raw_code(p.sock);
		cr_assert(code == 0 || code == -EIO, "%d: %s", code, raw_refusal());
		if (code == 0)
			DROP(d, "raw@v1");
		raw_publish_end(&p);
		cr_assert(EVENTUALLY(FREE_MS, memory_of(d) == before));
	}
	scene_end(d, &bystander);
}

/* The next one checks, unless gpuwmd had not heard of the death yet. */
Test(kills_publish, a_standby_loader_before_the_hand_in)
{
	struct process bystander;
	struct gpuwmd *d = scene(&bystander);
	struct gpuwm_version_info version;
	struct gpuwm_publish *publish;
	uint64_t before = memory_of(d);
	int r;

	OK(publish_begin(d->admin, d->device, "m@v2", SMALL(2), &publish));
	OK(publish_fill(publish, SMALL(2)));
	loaders_kill(d, SIGKILL);
	r = gpuwm_publish_commit(publish, &version);
	cr_assert(r == 0 || r == -EIO, "%d: %s", r, gpuwm_error()->message);
	if (r == 0)
		DROP(d, "m@v2");
	cr_assert(EVENTUALLY(FREE_MS, status_of(d, "publishes") == 0 && memory_of(d) == before));
	scene_end(d, &bystander);
}

Test(kills_publish, a_standby_loader_is_replaced)
{
	struct process bystander;
	struct gpuwmd *d = scene(&bystander);
	pid_t before[CHILDREN_MAX], after[CHILDREN_MAX];

	cr_assert(EVENTUALLY(20000, status_of(d, "standby") == 1));
	/* That of the load before is on its way out. */
	cr_assert(EVENTUALLY(20000, loaders_of(d->pid, before) == 1));
	loaders_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(20000, loaders_of(d->pid, after) == 1 && after[0] != before[0] &&
					    status_of(d, "standby") == 1));
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	DROP(d, "m@v2");
	scene_end(d, &bystander);
}
