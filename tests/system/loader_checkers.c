/* Checkers that stay for the next check of their user on a GPU: real processes, on the stand-in for the driver. */
#include "kept.h"
#include "user.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(loader_checkers);

#define KEEP(time) "--set", "loader.keep_checker=" time
#define CONTEXT (device_number(d, "context"))

/* ---- who stays ---- */

/* The one checker that is idle. */
static pid_t idle_checker(struct gpuwmd *d)
{
	cr_assert(EVENTUALLY(SOON_MS, checker_at(d, 0) != 0), "no checker stays");
	cr_assert_eq(checker_at(d, 1), 0, "more than one stays");
	return checker_at(d, 0);
}

/* Standby and no other loader: what gpuwmd has at rest. */
static void wait_for_rest(struct gpuwmd *d)
{
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "loaders") == 1 && status_of(d, "standby") == 1));
	cr_expect_eq(device_number(d, "contexts"), 0);
	cr_expect_eq(checker_at(d, 0), 0);
}

/* One may be about to stay: it is a loader, too. */
static void stop(struct gpuwmd *d)
{
	cr_assert(EVENTUALLY(SOON_MS, checkers_end(d) && status_of(d, "loaders") == 1));
	wait_for_rest(d);
	gpuwmd_stop_empty(d);
}

/* The result of sharing something and letting go of it. */
static int try_share(struct gpuwmd *d, struct gpuwm_client *client)
{
	struct gpuwm_mapping *mapping;
	struct gpuwm_publish *publish;
	int r;

	OK(publish_begin(client, d->device, NULL, SMALL(1), &publish));
	OK(publish_fill(publish, SMALL(1)));
	r = gpuwm_publish_commit_attached(publish, &mapping);
	if (r < 0)
		return r;
	cr_expect(mapping_holds(mapping, 1));
	OK(gpuwm_detach(mapping));
	return 0;
}

static void share(struct gpuwmd *d, struct gpuwm_client *client)
{
	cr_assert_eq(try_share(d, client), 0, "%s", gpuwm_error()->message);
}

FAKECUDA_TEST(loader_checkers, the_next_check_of_a_user_has_the_same_process, gpuwmd_start(KEEP("600"), NULL),
	      stop)
{
	struct gpuwm_client *client = client_new();
	pid_t pid;
	size_t fds;

	share(d, client);
	pid = idle_checker(d);
	share(d, client);
	cr_assert_eq(idle_checker(d), pid);
	fds = fds_of(pid);
	for (int i = 0; i < 10; i++) {
		share(d, client);
		cr_assert_eq(idle_checker(d), pid);
	}
	/* Memory and mappings are descriptors here, and the checker may still close those of the last check. */
	cr_expect(EVENTUALLY(SOON_MS, fds_of(pid) <= fds), "%zu descriptors, %zu before", fds_of(pid), fds);
	cr_expect_eq(device_number(d, "contexts"), CONTEXT);
	CTL_IS(0, "status");
	SAYS("keeps for the next check of user ");
	gpuwm_close(client);
}

FAKECUDA_TEST(loader_checkers, an_operator_with_the_same_uid_has_another_process,
	      gpuwmd_start(KEEP("600"), NULL), stop)
{
	struct gpuwm_client *client = client_new();
	pid_t pid;

	share(d, client);
	pid = idle_checker(d);
	share(d, d->admin);
	cr_assert(EVENTUALLY(SOON_MS, checker_at(d, 1) != 0));
	cr_expect_neq(checker_at(d, 0), checker_at(d, 1));
	cr_expect(checker_at(d, 0) == pid || checker_at(d, 1) == pid);
	gpuwm_close(client);
}

/* Members of nogroup are publishers. */
static struct gpuwmd *start_for_users(void)
{
	NEEDS_ROOT();
	SKIP_UNLESS(build_is_open_to(ALICE), "needs a build that other users may read");
	return gpuwmd_start(KEEP("600"), "--set", "socket.mode=0666", "--set", "access.publish_group=nogroup",
			    NULL);
}

FAKECUDA_TEST(loader_checkers, another_user_has_another_process, start_for_users(), stop)
{
	struct process alice = process_start(user, "61001", "65534", NULL),
		       bob = process_start(user, "61002", "65534", NULL);
	pid_t pid;

	DOES(&alice, "share %s", d->device);
	pid = idle_checker(d);
	DOES(&alice, "share %s", d->device);
	cr_assert_eq(idle_checker(d), pid);
	DOES(&bob, "share %s", d->device);
	cr_assert(EVENTUALLY(SOON_MS, checker_at(d, 1) != 0));
	cr_expect(checker_at(d, 0) == pid || checker_at(d, 1) == pid, "alice's waits for alice");
	cr_expect_eq(device_number(d, "contexts"), 2 * CONTEXT);
	user_end(&alice);
	user_end(&bob);
}

/* What a builder makes. */
static void publish_cached(struct gpuwmd *d, const char *name)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	struct gpuwm_publish *publish;

	options.name = name;
	options.device = d->device;
	options.cached = true;
	OK(publish_begin_with(d->admin, &options, SMALL(1), &publish));
	OK(publish_fill(publish, SMALL(1)));
	OK(gpuwm_publish_commit(publish, NULL));
}

FAKECUDA_TEST(loader_checkers, cached_versions_have_the_same_process, gpuwmd_start(KEEP("600"), NULL), stop)
{
	pid_t pid;

	publish_cached(d, "m@a");
	pid = idle_checker(d);
	publish_cached(d, "m@b");
	cr_expect_eq(idle_checker(d), pid);
	share(d, d->admin);
	cr_expect_eq(idle_checker(d), pid);
	OK(gpuwm_retire(d->admin, "m@a", SOON_MS));
	OK(gpuwm_retire(d->admin, "m@b", SOON_MS));
}

FAKECUDA_TEST(loader_checkers, a_version_with_a_name_leaves_none, gpuwmd_start(KEEP("600"), NULL), stop)
{
	OK(publish_version(d->admin, d->device, "p@v1", SMALL(7)));
	wait_for_rest(d);
	DROP(d, "p@v1");
}

/* ---- how long ---- */

static uint64_t free_of(struct gpuwmd *d)
{
	return device_number(d, "free");
}

FAKECUDA_TEST(loader_checkers, its_time_ends, gpuwmd_start(KEEP("1"), NULL), stop)
{
	struct gpuwm_client *client = client_new();

	share(d, client);
	wait_for_rest(d);
	gpuwm_close(client);
}

FAKECUDA_TEST(loader_checkers, none_stays_without_a_time, gpuwmd_start(KEEP("0"), NULL), stop)
{
	struct gpuwm_client *client = client_new();

	share(d, client);
	wait_for_rest(d);
	gpuwm_close(client);
}

static void reload_with(struct gpuwmd *d, const char *limits)
{
	kept_configure(d, &(const struct kept){.limits = limits});
	CTL_IS(0, "reload");
}

#define STAYS LIMITS_SHORT "[loader]\nkeep_checker = 600\n"

#define TAKEN MB(64)

static struct gpuwmd *start_with_room_for_contexts(void)
{
	setenv("FAKECUDA_CONTEXT", "64M", 1);
	return gpuwmd_start_kept(&(const struct kept){.limits = STAYS});
}

FAKECUDA_TEST(loader_checkers, a_reload_ends_it_and_its_memory_comes_back, start_with_room_for_contexts(),
	      gpuwmd_stop)
{
	struct gpuwm_client *client = client_new();
	const uint64_t before = free_of(d);

	share(d, client);
	idle_checker(d);
	/* What is free is not known beside a sanitizer. */
	cr_expect(SANITIZED || EVENTUALLY(SOON_MS, free_of(d) + TAKEN <= before), "it has a context");
	reload_with(d, LIMITS_SHORT "[loader]\nkeep_checker = 0\n");
	wait_for_rest(d);
	cr_expect(EVENTUALLY(SOON_MS, free_of(d) == before), "%llu bytes are free, %llu before",
		  (unsigned long long)free_of(d), (unsigned long long)before);
	gpuwm_close(client);
}

FAKECUDA_TEST(loader_checkers, it_ends_with_gpuwmd, gpuwmd_start_kept(&(const struct kept){.limits = STAYS}),
	      gpuwmd_stop)
{
	struct gpuwm_client *client = client_new();
	pid_t pid;

	share(d, client);
	pid = idle_checker(d);
	kept_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, !process_is_named(pid, "gpuwm-loader")));
	wait_for_rest(d);
	gpuwm_close(client);
}

FAKECUDA_TEST(loader_checkers, a_drain_ends_it, gpuwmd_start(KEEP("600"), NULL), gpuwmd_stop)
{
	struct gpuwm_client *client = client_new();

	share(d, client);
	idle_checker(d);
	gpuwm_close(client);
	CTL_IS(0, "drain", "--yes");
	wait_for_rest(d);
}

/* ---- giving way ---- */

/* Of two loaders the last one is to stand by. */
FAKECUDA_TEST(loader_checkers, it_leaves_its_place_to_a_load,
	      gpuwmd_start(KEEP("600"), "--set", "limits.loaders=2", NULL), stop)
{
	struct gpuwm_client *client = client_new();
	pid_t pid;

	share(d, client);
	pid = idle_checker(d);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "standby") == 1));
	load_small(d, 1);
	cr_assert(EVENTUALLY(SOON_MS, !process_is_named(pid, "gpuwm-loader")));
	wait_for_rest(d);
	DROP(d, "m@v1");
	gpuwm_close(client);
}

/* ---- ends at any moment ---- */

FAKECUDA_TEST(loader_checkers, one_that_is_killed_while_it_is_idle_is_missed_by_nobody,
	      gpuwmd_start(KEEP("600"), NULL), stop)
{
	struct gpuwm_client *client = client_new();

	for (int i = 0; i < 5; i++) {
		pid_t pid;

		share(d, client);
		pid = idle_checker(d);
		kill(pid, SIGKILL);
		share(d, client); /* whether gpuwmd knows by now or not */
		cr_assert(EVENTUALLY(SOON_MS, checker_at(d, 0) != 0 && checker_at(d, 0) != pid &&
						      checker_at(d, 1) == 0));
	}
	gpuwm_close(client);
}

/* Says for each 'go' that it shared ('d'), or that its checker died ('e'). */
static int sharer(int argc, char **argv)
{
	struct gpuwm_client *client;
	char word;

	CHILD_ASSERT(argc == 1 && gpuwm_connect(NULL, &client) == 0);
	for (child_say('r'); (word = child_hear()) == 'g';) {
		struct gpuwm_publish *publish;
		struct gpuwm_mapping *mapping;
		int r;

		CHILD_ASSERT(publish_begin(client, argv[0], NULL, SMALL(1), &publish) == 0);
		CHILD_ASSERT(publish_fill(publish, SMALL(1)) == 0);
		r = gpuwm_publish_commit_attached(publish, &mapping);
		CHILD_ASSERT(r == 0 || r == -EIO);
		if (r == 0)
			CHILD_ASSERT(gpuwm_detach(mapping) == 0);
		child_say(r == 0 ? 'd' : 'e');
	}
	gpuwm_close(client);
	return 0;
}

/* However it ends, the share does or fails with EIO, and the next one is sound. */
FAKECUDA_TEST(loader_checkers, one_that_is_killed_at_any_moment_harms_no_later_check,
	      gpuwmd_start(KEEP("600"), NULL), stop)
{
	struct gpuwm_client *client = client_new();
	struct process child = process_start(sharer, d->device, NULL);
	unsigned done = 0;

	process_expect(&child, 'r');
	for (unsigned i = 0; i < 16; i++) {
		pid_t pid;

		share(d, client);
		cr_assert(EVENTUALLY(SOON_MS, checker_at(d, 0) != 0));
		pid = checker_at(d, 0);
		cr_assert_neq(pid, 0);
		process_tell(&child, 'g');
		usleep(i * 500);
		kill(pid, SIGKILL);
		done += process_hear(&child) == 'd';
		cr_assert(EVENTUALLY(SOON_MS, !process_is_named(pid, "gpuwm-loader")));
	}
	printf("%u of 16 shares ended well\n", done);
	cr_expect_gt(done, 0);
	process_tell(&child, 'q');
	process_finish(&child);
	gpuwm_close(client);
}
