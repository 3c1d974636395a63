/* What workers, publishers and operators who use the library see of a restart of gpuwmd: nothing, or the truth. */
#include "kept.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(resume);

/* What the machine adds to a time that is waited for. */
#define SLACK_MS 10000

static struct gpuwmd *scene(const struct kept *how)
{
	struct gpuwmd *d = gpuwmd_start_kept(how);

	load_small(d, 1);
	return d;
}

static void scene_end(struct gpuwmd *d)
{
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

/* ---- workers ---------------------------------------------------------- */

#define HELD_MAX 8

static void count_lost(const struct gpuwm_lost *lost, void *user_data)
{
	(void)lost;
	__atomic_add_fetch((unsigned *)user_data, 1, __ATOMIC_SEQ_CST);
}

static unsigned lost_of(struct gpuwm_mapping *const *mappings, unsigned count, int code)
{
	unsigned lost = 0;

	for (unsigned i = 0; i < count; i++)
		lost += gpuwm_mapping_check(mappings[i]) == code;
	return lost;
}

/* argv: ref, device, how many leases, and the code (a positive errno) that some will be lost with. Says 'a';
 * then 'n' (how many are told and known as lost: a digit), 'r' (reads all: 'k'), 'd' (detaches and ends). */
static int worker_told(int argc, char **argv)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_attach_options where = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mappings[HELD_MAX];
	struct gpuwm_client *client;
	unsigned told = 0, count;
	char word;

	CHILD_ASSERT(argc == 4 && (count = (unsigned)atoi(argv[2])) <= HELD_MAX);
	options.lost = count_lost;
	options.lost_data = &told;
	where.device = argv[1];
	CHILD_ASSERT(gpuwm_connect(&options, &client) == 0);
	for (unsigned i = 0; i < count; i++)
		CHILD_ASSERT(gpuwm_attach(client, argv[0], &where, &mappings[i]) == 0);
	child_say('a');
	while ((word = child_hear()) && word != 'd') {
		unsigned lost = lost_of(mappings, count, -atoi(argv[3]));

		if (word == 'n')
			child_say(lost == __atomic_load_n(&told, __ATOMIC_SEQ_CST) ? (char)('0' + lost) : '?');
		for (unsigned i = 0; word == 'r' && i < count; i++)
			CHILD_ASSERT(mapping_holds(mappings[i], 1));
		if (word == 'r')
			child_say('k');
	}
	for (unsigned i = 0; i < count; i++)
		CHILD_ASSERT(gpuwm_detach(mappings[i]) == 0);
	gpuwm_close(client);
	return 0;
}

static struct process worker_of(struct gpuwmd *d, const char *ref, unsigned leases, int code)
{
	char count[16], number[16];
	struct process p;

	snprintf(count, sizeof count, "%u", leases);
	snprintf(number, sizeof number, "%d", code);
	p = process_start(worker_told, ref, d->device, count, number, NULL);
	process_expect(&p, 'a');
	return p;
}

static char worker_answer(struct process *p, char word)
{
	process_tell(p, word);
	return process_hear(p);
}

static void worker_end(struct process *p)
{
	process_tell(p, 'd');
	process_finish(p);
}

/* ---- leases ----------------------------------------------------------- */

KILL_AND_STOP_TEST(resume, workers_are_there_again_after)
{
	struct gpuwmd *d = scene(&(struct kept){});
	struct process workers[4];

	for (int i = 0; i < 4; i++)
		workers[i] = worker_of(d, "m", 2, ENOENT);
	for (int restart = 0; restart < 3; restart++) {
		kept_kill(d, signal_number);
		cr_assert(EVENTUALLY(SLACK_MS, status_of(d, "leases") == 8));
		for (int i = 0; i < 4; i++) {
			cr_assert_eq(worker_answer(&workers[i], 'r'), 'k');
			cr_assert_eq(worker_answer(&workers[i], 'n'), '0');
		}
	}
	/* Much later than the grace time: nothing but the leases holds it. */
	OK(swap_to(d, "m", NULL, true));
	cr_assert(version_is(d, "m", "v1", "retiring"));
	for (int i = 0; i < 4; i++)
		worker_end(&workers[i]);
	cr_assert(EVENTUALLY(SLACK_MS, version_is(d, "m", "v1", "none")));
	gpuwmd_stop_empty(d);
}

GPUWMD_TEST_BY(resume, clients_show_the_worker_again, scene(&(struct kept){}), scene_end)
{
	struct process worker = worker_of(d, "m", 1, ENOENT);
	char pid[16];

	kept_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SLACK_MS, status_of(d, "leases") == 1));
	snprintf(pid, sizeof pid, "%d", (int)worker.pid);
	CTL_IS(0, "ps");
	cr_assert(strstr(output, pid) && strstr(output, "m@v1"), "%s", output);
	worker_end(&worker);
}

GPUWMD_TEST_BY(resume, a_client_above_its_quota_is_told_what_it_lost, scene(&(struct kept){}), scene_end)
{
	struct process worker = worker_of(d, "m", 5, EDQUOT);

	kept_configure(d, &(struct kept){.limits = LIMITS_SHORT "leases_per_uid = 3\n"});
	kept_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SLACK_MS, status_of(d, "leases") == 3));
	cr_assert(EVENTUALLY(SLACK_MS, worker_answer(&worker, 'n') == '2'));
	cr_assert_eq(worker_answer(&worker, 'r'), 'k', "what is mapped stays");
	worker_end(&worker);
	cr_assert(EVENTUALLY(SLACK_MS, status_of(d, "leases") == 0));
}

GPUWMD_TEST_BY(resume, a_client_that_comes_too_late_is_told_that_it_is_freed, scene(KEPT_LONG),
	       gpuwmd_stop_empty)
{
	struct process late = worker_of(d, "m", 1, ENOENT), other = worker_of(d, "m", 1, ENOENT);

	OK(swap_to(d, "m", NULL, true));
	cr_assert(kill(late.pid, SIGSTOP) == 0);
	kept_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SLACK_MS, status_of(d, "leases") == 1));
	worker_end(&other);
	cr_assert(EVENTUALLY(SLACK_MS, version_is(d, "m", "v1", "none")));
	cr_assert(kill(late.pid, SIGCONT) == 0);
	cr_assert(EVENTUALLY(SLACK_MS, worker_answer(&late, 'n') == '1'));
	cr_assert_eq(worker_answer(&late, 'r'), 'k', "what is mapped stays");
	worker_end(&late);
}

GPUWMD_TEST_BY(resume, a_client_that_never_comes_back_loses_its_lease_after_the_grace_time, scene(KEPT_LONG),
	       gpuwmd_stop_empty)
{
	struct process worker = worker_of(d, "m", 1, ENOENT);
	int64_t killed;

	OK(swap_to(d, "m", NULL, true));
	cr_assert(kill(worker.pid, SIGSTOP) == 0);
	killed = clock_ms();
	kept_kill(d, SIGKILL);
	process_kill(&worker, SIGKILL);
	cr_assert(version_is(d, "m", "v1", "retiring"));
	cr_assert(EVENTUALLY(SLACK_MS, version_is(d, "m", "v1", "none")));
	cr_assert_geq(clock_ms() - killed, GRACE_LONG_MS);
}

GPUWMD_TEST_BY(resume, a_version_whose_memory_is_gone_is_told, scene(&(struct kept){.acts = true}),
	       gpuwmd_stop_empty)
{
	struct process worker = worker_of(d, "m", 2, ESTALE);

	kept_act(d, "drop g2\n");
	kept_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SLACK_MS, worker_answer(&worker, 'n') == '2'));
	cr_assert_eq(worker_answer(&worker, 'r'), 'k', "what is mapped stays");
	worker_end(&worker);
}

#define CROWD 64

Test(resume, workers_that_attach_meanwhile_all_succeed, .timeout = 300)
{
	struct gpuwmd *d = scene(&(struct kept){});
	struct process workers[CROWD];
	char seed[] = "1";

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < CROWD; i++) {
			workers[i] = process_start(worker_hold, "m", d->device, seed, NULL);
			if (i % 16 == 8)
				/* It is reaped before the log tells of the next one. */
				cr_assert(EVENTUALLY(SLACK_MS,
						     kill(kept_pid(d), round == 2 ? SIGTERM : SIGKILL) == 0));
		}
		for (int i = 0; i < CROWD; i++)
			process_expect(&workers[i], 'a');
		kept_wait(d);
		cr_assert(EVENTUALLY(SLACK_MS, status_of(d, "leases") == CROWD));
		for (int i = 0; i < CROWD; i++)
			process_tell(&workers[i], i % 2 ? 'd' : 'e');
		for (int i = 0; i < CROWD; i++)
			process_finish(&workers[i]);
		cr_assert(EVENTUALLY(SLACK_MS, status_of(d, "leases") == 0));
	}
	scene_end(d);
}

/* ---- calls in flight -------------------------------------------------- */

struct caller {
	pthread_t thread;
	int (*call)(struct gpuwm_client *client);
	struct gpuwm_client *client;
	int r;
	bool again; /* and again */
	bool *over;
	unsigned count;
};

static void *call_run(void *data)
{
	struct caller *caller = data;

	do {
		caller->r = caller->call(caller->client);
		__atomic_add_fetch(&caller->count, 1, __ATOMIC_SEQ_CST);
	} while (caller->again && caller->r >= 0 && !__atomic_load_n(caller->over, __ATOMIC_SEQ_CST));
	return NULL;
}

static void call_start(struct caller *caller)
{
	cr_assert(pthread_create(&caller->thread, NULL, call_run, caller) == 0);
}

static int wait_for_v2(struct gpuwm_client *client)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;
	int r;

	options.wait_ms = 60000;
	r = gpuwm_attach(client, "m@v2", &options, &mapping);
	return r < 0 ? r : gpuwm_detach(mapping);
}

GPUWMD_TEST_BY(resume, an_attach_that_waits_goes_on_waiting, scene(&(struct kept){}), scene_end)
{
	static struct caller caller = {.call = wait_for_v2};

	caller.client = client_new();
	call_start(&caller);
	for (int i = 0; i < 4; i++) {
		cr_assert(EVENTUALLY(SLACK_MS, status_of(d, "waiting") == 1));
		kept_kill(d, i % 2 ? SIGTERM : SIGKILL);
	}
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	pthread_join(caller.thread, NULL);
	cr_assert_eq(caller.r, 0, "%d", caller.r);
	gpuwm_close(caller.client);
	DROP(d, "m@v2");
}

static int ping(struct gpuwm_client *client)
{
	return gpuwm_ping(client, NULL);
}

static int list(struct gpuwm_client *client)
{
	char *json = NULL;
	int r = gpuwm_query(client, "list", NULL, &json);

	free(json);
	return r;
}

static int come_and_go(struct gpuwm_client *client)
{
	struct gpuwm_mapping *mapping;
	int r = gpuwm_attach(client, "m", NULL, &mapping);

	if (r < 0)
		return r;
	r = mapping_holds(mapping, 1) ? gpuwm_mapping_check(mapping) : -EBADMSG;
	return r < 0 ? r : gpuwm_detach(mapping);
}

/* May be done or not; nothing else can go wrong. */
static int pin_and_unpin(struct gpuwm_client *client)
{
	int r = gpuwm_pin(client, "m", "p");

	if (r < 0 && r != -ECONNABORTED && r != -EEXIST)
		return r;
	r = gpuwm_unpin(client, "m", "p");
	return r < 0 && r != -ECONNABORTED && r != -ENOENT ? r : 0;
}

static int publish_and_retire(struct gpuwm_client *client)
{
	int r = publish_version(client, "host", "p@v1", SMALL(3));
	char *json = NULL;

	/* The publish ended, or its answer is not known: what is there then may be it. */
	if (r < 0 && r != -ECONNRESET && r != -ECONNABORTED && r != -ECANCELED && r != -EEXIST)
		return r;
	r = gpuwm_query(client, "list", "p", &json);
	free(json);
	if (r < 0)
		return r;
	gpuwm_swap(client,
		   &(struct gpuwm_swap_options){.size = sizeof(struct gpuwm_swap_options), .model = "p"}, NULL);
	gpuwm_retire(client, "p@v1", 0);
	return 0;
}

#define STORM_KILLS 25
/* A call takes longer beside much other work, on a GPU above all. */
#define STORM_KILLS_MOST (8 * STORM_KILLS)

static bool all_came_again(const struct caller *callers, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (__atomic_load_n(&callers[i].count, __ATOMIC_SEQ_CST) < 2)
			return false;
	return true;
}

Test(resume, calls_meet_kills_at_any_moment, .timeout = 300)
{
	struct gpuwmd *d = scene(&(struct kept){});
	struct gpuwm_client *shared = client_new(), *admin = admin_new(), *publisher = admin_new();
	static bool over;
	static struct caller callers[] = {
		{.call = ping},        {.call = list},          {.call = come_and_go},
		{.call = come_and_go}, {.call = pin_and_unpin}, {.call = publish_and_retire},
	};
	struct gpuwm_client *const clients[] = {shared, shared, shared, shared, admin, publisher};
	const size_t count = sizeof callers / sizeof callers[0];

	for (size_t i = 0; i < count; i++) {
		callers[i].client = clients[i];
		callers[i].again = true;
		callers[i].over = &over;
		call_start(&callers[i]);
	}
	for (int i = 0; i < STORM_KILLS || (i < STORM_KILLS_MOST && !all_came_again(callers, count)); i++) {
		poll(NULL, 0, i % STORM_KILLS * 3);
		kept_kill(d, i % 5 == 4 ? SIGTERM : SIGKILL);
	}
	__atomic_store_n(&over, true, __ATOMIC_SEQ_CST);
	for (size_t i = 0; i < count; i++) {
		pthread_join(callers[i].thread, NULL);
		cr_expect_geq(callers[i].r, 0, "call %zu: %d", i, callers[i].r);
		cr_expect_gt(callers[i].count, 1, "call %zu", i);
	}
	gpuwm_unpin(admin, "m", "p");
	gpuwm_close(shared);
	gpuwm_close(admin);
	gpuwm_close(publisher);
	cr_assert(EVENTUALLY(SLACK_MS, status_of(d, "leases") == 0));
	/* The last one may be on its way out, or a kill came before it was retired. */
	cr_assert(EVENTUALLY(SLACK_MS, !version_is(d, "p", "v1", "retiring")));
	if (!version_is(d, "p", "v1", "none"))
		DROP(d, "p@v1");
	scene_end(d);
}

GPUWMD_TEST_BY(resume, a_job_ends_with_its_gpuwmd, scene(&(struct kept){}), scene_end)
{
	const char *path = checkpoint_write(d, "v2", LARGE(2));
	struct gpuwm_client *admin = admin_new();
	uint64_t job, next;

	OK(load_start(d, path, "m@v2", NULL, &job));
	kept_kill(d, SIGKILL);
	FAILS(ENOENT, gpuwm_job_wait(admin, job, -1));
	OK(load_start(d, checkpoint_write(d, "v3", SMALL(3)), "m@v3", NULL, &next));
	cr_assert_gt(next, job, "a number is never another job's");
	OK(gpuwm_job_wait(admin, next, -1));
	FAILS(ENOENT, gpuwm_job_wait(admin, job, 0));
	gpuwm_close(admin);
	if (version_is(d, "m", "v2", "ready"))
		DROP(d, "m@v2");
	DROP(d, "m@v3");
}

/* ---- gpuwmctl --------------------------------------------------------- */

KILL_AND_STOP_TEST(resume, a_retire_that_waits_survives)
{
	struct gpuwmd *d = scene(KEPT_LONG);
	struct process worker = worker_of(d, "m", 1, ENOENT);
	struct ctl_run retire;

	OK(swap_to(d, "m", NULL, false));
	retire = ctl_start("retire", "m@v1", "--wait", "60", NULL);
	for (int i = 0; i < 2; i++) {
		cr_assert(EVENTUALLY(SLACK_MS, status_of(d, "waiting") == 1));
		kept_kill(d, signal_number);
		cr_assert(EVENTUALLY(SLACK_MS, status_of(d, "leases") == 1));
	}
	worker_end(&worker);
	ctl_ends(&retire, 0);
	SAYS("m@v1 is freed");
	gpuwmd_stop_empty(d);
}

GPUWMD_TEST_BY(resume, a_load_that_is_watched_says_that_it_was_not_kept, scene(&(struct kept){}), scene_end)
{
	const char *path = checkpoint_write(d, "v2", SMALL(2));
	struct ctl_run load;
	pid_t loaders[CHILDREN_MAX];
	size_t count;

	fds_settled(d);
	count = loaders_of(d->pid, loaders);
	loaders_kill(d, SIGSTOP);
	load = ctl_start("load", path, "m@v2", "--wait", "--device", d->device, NULL);
	cr_assert(EVENTUALLY(SLACK_MS, status_of(d, "jobs_running") == 1));
	kept_kill(d, SIGKILL);
	for (size_t i = 0; i < count; i++)
		kill(loaders[i], SIGKILL);
	ctl_ends(&load, 1);
	SAYS("gpuwmd went away before m@v2 was ready");
	cr_assert(version_is(d, "m", "v2", "none"));
}

/* hello and subscribe, on the second connection of a gpuwmctl. */
static bool events_are_asked_for(struct gpuwmd *d)
{
	json_t *answer = query(d->admin, "clients", NULL), *client;
	bool asked = false;
	size_t i;

	json_array_foreach(json_object_get(answer, "clients"), i, client)
		asked |= strcmp(json_string_value(json_object_get(client, "name")), "gpuwmctl") == 0 &&
			 json_integer_value(json_object_get(client, "requests")) == 2;
	json_decref(answer);
	return asked;
}

GPUWMD_TEST_BY(resume, events_go_on, scene(&(struct kept){}), scene_end)
{
	struct ctl_run events;

	OK(swap_to(d, "m", NULL, false));
	events = ctl_start("events", "--count", "2", NULL);
	cr_assert(EVENTUALLY(SLACK_MS, events_are_asked_for(d)));
	kept_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SLACK_MS, events_are_asked_for(d)));
	OK(swap_to(d, "m", "v1", false));
	ctl_ends(&events, 0);
	SAYS("lost");
	SAYS("swapped");
}
