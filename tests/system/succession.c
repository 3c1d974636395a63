/* The keeper of a new container takes over from the one before: gpuwmd is upgraded, and workers keep their weights. */
#include "region_raw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(succession);

#define HOW (&(const struct kept){.take_over = true, .limits = LIMITS_LONG})

static char *fill(struct gpuwmd *d)
{
	load_small(d, 2);
	OK(gpuwm_pin(d->admin, "m@v2", "night"));
	return kept_registry(d);
}

static struct gpuwmd *scene(void)
{
	struct gpuwmd *d = gpuwmd_start_kept(HOW);

	free(fill(d));
	return d;
}

static void scene_end(struct gpuwmd *d)
{
	OK(gpuwm_unpin(d->admin, "m@v2", "night"));
	DROP(d, "m@v1", "m@v2");
	gpuwmd_stop_empty(d);
}

static int exit_of(pid_t keeper)
{
	int status;

	cr_assert(EVENTUALLY(SOON_MS, waitpid(keeper, &status, WNOHANG) == keeper), "a keeper does not end");
	cr_assert(WIFEXITED(status), "a keeper ended with status %#x", status);
	return WEXITSTATUS(status);
}

static void is_as(struct gpuwmd *d, const char *registry, uint64_t memory)
{
	char *now = kept_registry(d);

	cr_assert_str_eq(now, registry);
	cr_assert_eq(kept_memory(d), memory);
	free(now);
}

/* argv: device. Attaches m and says 'a', then reads all of it and says 'k' for each word, until 'd'. */
static int reader(int argc, char **argv)
{
	struct gpuwm_attach_options where = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;
	struct gpuwm_client *client;
	char word;

	CHILD_ASSERT(argc == 1);
	where.device = argv[0];
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(gpuwm_attach(client, "m", &where, &mapping) == 0);
	child_say('a');
	while ((word = child_hear()) && word != 'd') {
		CHILD_ASSERT(mapping_holds(mapping, 1) && gpuwm_mapping_check(mapping) == 0);
		child_say('k');
	}
	CHILD_ASSERT(gpuwm_detach(mapping) == 0);
	gpuwm_close(client);
	return 0;
}

static void reads(struct process *worker)
{
	process_tell(worker, 'r');
	process_expect(worker, 'k');
}

GPUWMD_TEST_BY(succession, a_worker_keeps_its_weights, scene(), scene_end)
{
	struct process worker = process_start(reader, d->device, NULL);
	char *registry;
	uint64_t memory;

	process_expect(&worker, 'a');
	registry = kept_registry(d);
	memory = kept_memory(d);
	for (int i = 0; i < 3; i++) {
		pid_t before = keeper_succeed(d, HOW);

		reads(&worker);
		cr_assert_eq(exit_of(before), 0);
		kept_wait(d);
		is_as(d, registry, memory);
		cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 1), "the worker is not resumed");
		reads(&worker);
	}
	cr_assert_eq(log_count(d, "let go"), 0);
	/* What was loaded since is kept by the last one. */
	load_version(d, checkpoint_write(d, "v3", SMALL(3)), "m@v3");
	kept_kill(d, SIGKILL);
	cr_assert(version_is(d, "m", "v3", "ready"));
	process_tell(&worker, 'd');
	process_finish(&worker);
	DROP(d, "m@v3");
	free(registry);
}

/* The next keeper has its pidfds, too: it learns of deaths. */
GPUWMD_TEST_BY(succession, a_region_goes_on_with_its_users, scene(), scene_end)
{
	struct process owner = region_user_start("kv", "m"), reader = region_user_start("kv", "r");
	json_t *before = region_entry(d, "kv"), *after;

	cr_assert_eq(exit_of(keeper_succeed(d, HOW)), 0);
	kept_wait(d);
	after = region_entry(d, "kv");
	cr_assert(json_equal(before, after), "%s", json_dumps(after, 0));
	process_kill(&reader, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, region_is(d, "kv", "ready", 1)));
	process_kill(&owner, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	json_decref(before);
	json_decref(after);
}

/* The next version of gpuwmd writes a state that this one can't read. */
GPUWMD_TEST_BY(succession, a_gpuwmd_that_can_not_read_the_state_gives_back, scene(), scene_end)
{
	char next[512], *registry = kept_registry(d);
	struct kept upgraded = *HOW;
	uint64_t memory = kept_memory(d);
	pid_t before, upgraded_keeper;

	snprintf(next, sizeof next, "%s/tests/next/gpuwmd", build_path());
	upgraded.program = next;
	before = keeper_succeed(d, &upgraded);
	cr_assert_eq(exit_of(before), 0);
	kept_wait(d);
	is_as(d, registry, memory);

	upgraded_keeper = keeper_succeed(d, HOW);
	cr_assert_eq(exit_of(d->keeper), 1);
	d->keeper = upgraded_keeper;
	kept_wait(d);
	is_as(d, registry, memory);
	cr_assert_geq(log_count(d, "the state is of format 2, this gpuwmd reads up to 1"), 1);
	cr_assert_eq(log_count(d, "the other keeper goes on with its store"), 1);
	free(registry);
}

/* A descriptor did not arrive, say: the old gpuwmd still has all of them. */
GPUWMD_TEST_BY(succession, a_gpuwmd_that_would_lose_a_version_gives_back, scene(), scene_end)
{
	char *registry = kept_registry(d);
	struct kept lossy = *HOW;
	uint64_t memory = kept_memory(d);
	pid_t before;

	lossy.acts = true;
	kept_act(d, "drop g2\n");
	before = keeper_succeed(d, &lossy);
	cr_assert_eq(exit_of(d->keeper), 1);
	d->keeper = before;
	kept_wait(d);
	is_as(d, registry, memory);
	cr_assert_eq(log_count(d, "of the versions that another keeper handed over, 1 can't be adopted"), 1);
	free(registry);
}

/* ---- kills at any moment ---------------------------------------------- */

/* A whole take-over takes some 40 ms on a machine that is free. The kills are to fall on each of its steps. */
static void pass_some_time(unsigned i, unsigned count)
{
	usleep(60000 * i / count);
}

static pid_t parent_of(pid_t pid)
{
	char path[64];
	int parent = 0;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	if (file && fscanf(file, "%*d %*s %*c %d", &parent) != 1)
		parent = 0;
	if (file)
		fclose(file);
	return parent;
}

/* The process of the gpuwmd that answers; 0: none does. */
static pid_t pid_that_serves(void)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_client *client;
	char *text = NULL;
	json_t *status;
	pid_t pid;

	options.flags = GPUWM_CONNECT_ADMIN | GPUWM_CONNECT_ONCE;
	if (gpuwm_connect(&options, &client) < 0)
		return 0;
	gpuwm_query(client, "status", NULL, &text);
	gpuwm_close(client);
	status = json_loads(text ? text : "{}", 0, NULL);
	pid = (pid_t)json_integer_value(json_object_get(status, "pid"));
	json_decref(status);
	free(text);
	return pid;
}

/* Whether the gpuwmd of d->keeper serves. It is d->pid then. */
static bool serves_anything(struct gpuwmd *d)
{
	pid_t pid = pid_that_serves();

	if (pid == 0 || parent_of(pid) != d->keeper)
		return false;
	gpuwm_close(d->admin);
	d->admin = admin_new();
	d->pid = pid;
	snprintf(d->instance, sizeof d->instance, "%s", gpuwm_instance(d->admin));
	return true;
}

/* The same, with this registry. */
static bool serves(struct gpuwmd *d, const char *registry)
{
	bool same;
	char *now;

	if (!serves_anything(d))
		return false;
	now = kept_registry(d);
	same = strcmp(now, registry) == 0;
	free(now);
	return same;
}

/* The keeper in charge was killed: everything is gone, as it is without a take-over. No keeper runs. */
static char *begin_again(struct gpuwmd *d)
{
	keeper_succeed(d, HOW);
	kept_wait(d);
	return fill(d);
}

GPUWMD_TEST_BY(succession, the_new_keeper_is_killed_at_any_moment, scene(), scene_end)
{
	const unsigned kills = kills_wanted(10);
	char *registry = kept_registry(d);

	for (unsigned i = 0; i < kills; i++) {
		size_t adopted = log_count(d, "versions taken over: 2, lost: 0");
		pid_t before = keeper_succeed(d, HOW);
		bool ended = false;

		pass_some_time(i, kills);
		cr_assert(kill(d->keeper, SIGKILL) == 0 && waitpid(d->keeper, NULL, 0) == d->keeper);
		d->keeper = before;
		cr_assert(EVENTUALLY(SOON_MS,
				     (ended = waitpid(before, NULL, WNOHANG) == before) || serves(d, registry)),
			  "after kill %u neither keeper has the versions", i);
		if (!ended)
			continue;
		cr_assert_gt(log_count(d, "versions taken over: 2, lost: 0"), adopted, "lost after kill %u", i);
		free(registry);
		registry = begin_again(d);
	}
	free(registry);
}

/* Either the new keeper goes on with everything, or the old one was the only one that had it. */
GPUWMD_TEST_BY(succession, the_old_keeper_is_killed_at_any_moment, scene(), scene_end)
{
	const unsigned kills = kills_wanted(10);
	char *registry = kept_registry(d);

	for (unsigned i = 0; i < kills; i++) {
		size_t came = log_count(d, "descriptors came from the other keeper");
		pid_t before = keeper_succeed(d, HOW);

		pass_some_time(i, kills);
		kill(before, SIGKILL);
		cr_assert_eq(waitpid(before, NULL, 0), before);
		cr_assert(EVENTUALLY(SOON_MS, serves_anything(d)), "nobody serves after kill %u", i);
		if (serves(d, registry))
			continue;
		cr_assert_eq(log_count(d, "descriptors came from the other keeper"), came, "lost after kill %u",
			     i);
		free(registry);
		registry = fill(d);
	}
	free(registry);
}
