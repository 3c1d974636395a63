/* What an operator takes from workers: leases (kick) and versions (retire --force), whatever the workers do. */
#include "kept.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(revoke);

#define NOBODY 65534

/* ---- workers ---------------------------------------------------------- */

static void count_revoked(const struct gpuwm_lost *lost, void *user_data)
{
	if (lost->revoked && lost->error.code == -ESTALE)
		__atomic_add_fetch((unsigned *)user_data, 1, __ATOMIC_SEQ_CST);
}

/* argv: ref, device. Attaches and says 'a'; then 'n' (how often it was told: a digit), 'c' (whether the mapping says
 * so: 'y'), 'r' (reads all: 'k'), 'x' (becomes another program, which waits), 'd' (detaches and ends). */
static int worker_revocable(int argc, char **argv)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_attach_options where = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;
	struct gpuwm_client *client;
	unsigned told = 0;
	char word;

	CHILD_ASSERT(argc == 2);
	options.lost = count_revoked;
	options.lost_data = &told;
	where.device = argv[1];
	CHILD_ASSERT(gpuwm_connect(&options, &client) == 0);
	CHILD_ASSERT(gpuwm_attach(client, argv[0], &where, &mapping) == 0);
	child_say('a');
	while ((word = child_hear()) && word != 'd') {
		if (word == 'n')
			child_say((char)('0' + __atomic_load_n(&told, __ATOMIC_SEQ_CST)));
		if (word == 'c')
			child_say(gpuwm_mapping_revoked(mapping) && gpuwm_mapping_check(mapping) == -ESTALE
					  ? 'y'
					  : 'n');
		if (word == 'r')
			child_say(mapping_holds(mapping, 1) ? 'k' : '?');
		if (word == 'x')
			execl("/bin/sleep", "sleep", "1000", (char *)NULL);
	}
	CHILD_ASSERT(gpuwm_detach(mapping) == 0);
	gpuwm_close(client);
	return 0;
}

static struct process worker_of(struct gpuwmd *d, const char *ref)
{
	struct process p = process_start(worker_revocable, ref, d->device, NULL);

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

static struct gpuwmd *scene_of(struct gpuwmd *d)
{
	load_small(d, 1);
	return d;
}

/* m@v1, which no alias names. */
static struct gpuwmd *scene_unnamed(struct gpuwmd *d)
{
	scene_of(d);
	OK(swap_to(d, "m", NULL, false));
	return d;
}

/* The number of the only lease that `ps` tells. */
static uint64_t only_lease(void)
{
	uint64_t lease;
	json_t *answer;

	CTL_IS(0, "-o", "json", "ps");
	answer = json_loads(output, 0, NULL);
	cr_assert_eq(json_array_size(json_object_get(answer, "leases")), 1, "%s", output);
	lease = (uint64_t)json_integer_value(
		json_object_get(json_array_get(json_object_get(answer, "leases"), 0), "lease"));
	json_decref(answer);
	return lease;
}

static bool ctl_says(const char *command, const char *words)
{

	CTL_IS(0, command);
	return strstr(output, words) != NULL;
}

/* ---- kick ------------------------------------------------------------- */

static void kick_and_look(struct gpuwmd *d, const char *flag)
{
	struct process worker = worker_of(d, "m");
	char number[32];

	snprintf(number, sizeof number, "%llu",
		 (unsigned long long)(!flag                        ? only_lease()
				      : strcmp(flag, "--uid") == 0 ? geteuid()
								   : (unsigned)worker.pid));
	CTL_IS(0, "kick", flag ? flag : number, flag ? number : NULL);
	SAYS("m@v1");
	cr_assert_eq(status_of(d, "leases"), 0);
	cr_assert(EVENTUALLY(SOON_MS, worker_answer(&worker, 'n') == '1'));
	cr_assert_eq(worker_answer(&worker, 'c'), 'y');
	cr_assert_eq(worker_answer(&worker, 'r'), 'k', "it stays mapped");
	cr_assert_eq(status_of(d, "revoked"), 1);
	cr_assert(ctl_says("ps", "revoked"));
	worker_end(&worker);
	cr_assert_eq(status_of(d, "revoked"), 0);
}

GPUWMD_TEST_BY(revoke, a_lease_is_kicked_by_its_number_its_process_or_its_user, scene_of(gpuwmd_start(NULL)),
	       gpuwmd_stop_empty)
{
	kick_and_look(d, NULL);
	kick_and_look(d, "--pid");
	kick_and_look(d, "--uid");
	DROP(d, "m@v1");
}

GPUWMD_TEST(revoke, kick_says_what_it_takes_and_what_is_not_there)
{
	struct gpuwm_client *worker = client_new();

	CTL_IS(2, "kick");
	CTL_IS(2, "kick", "1", "--pid", "1");
	CTL_IS(2, "kick", "m@v1");
	CTL_IS(2, "retire", "m@v1", "--after", "1s");
	CTL_IS(2, "retire", "m@v1", "--force", "--after", "1d");
	CTL_IS(4, "kick", "1");
	SAYS("no lease 1");
	CTL_IS(4, "kick", "--pid", "1");
	CTL_IS(4, "kick", "--uid", "12345");
	FAILS(EACCES, gpuwm_kick(worker, GPUWM_KICK_UID, 0, NULL));
	gpuwm_close(worker);
}

struct seen {
	uint64_t lease, count;
	char reason[128];
};

static void see(const struct gpuwm_event *event, void *user_data)
{
	struct seen *seen = user_data;
	json_t *json = json_loads(event->json, 0, NULL);

	if (strcmp(event->kind, "revoked") == 0) {
		seen->count = (uint64_t)json_integer_value(json_object_get(json, "count"));
		seen->lease = (uint64_t)json_integer_value(json_array_get(json_object_get(json, "leases"), 0));
		snprintf(seen->reason, sizeof seen->reason, "%s",
			 json_string_value(json_object_get(json, "reason")));
	}
	json_decref(json);
}

static bool event_comes(struct gpuwm_events *events, struct seen *seen)
{
	return gpuwm_events_dispatch(events, 10, see, seen) >= 0 && seen->lease;
}

GPUWMD_TEST_BY(revoke, subscribers_are_told_of_a_kicked_lease, scene_of(gpuwmd_start(NULL)), gpuwmd_stop_empty)
{
	struct process worker = worker_of(d, "m");
	struct gpuwm_events *events;
	struct seen seen = {0};
	uint64_t lease = only_lease();

	OK(gpuwm_events_open(d->admin, UINT64_MAX, &events));
	OK(gpuwm_kick(d->admin, GPUWM_KICK_LEASE, lease, NULL));
	cr_assert(EVENTUALLY(SOON_MS, event_comes(events, &seen)));
	cr_assert_eq(seen.lease, lease);
	cr_assert_eq(seen.count, 1);
	cr_assert(strstr(seen.reason, "an operator"), "%s", seen.reason);
	gpuwm_events_close(events);
	worker_end(&worker);
	DROP(d, "m@v1");
}

/* ---- by force --------------------------------------------------------- */

/* A worker that was stopped; its version is freed and charged. */
static struct gpuwmd *scene_forced(struct process *ret_worker)
{
	struct gpuwmd *d = scene_unnamed(gpuwmd_start(NULL));

	*ret_worker = worker_of(d, "m@v1");
	cr_assert(kill(ret_worker->pid, SIGSTOP) == 0);
	CTL_IS(0, "retire", "m@v1", "--force", "--wait", "60");
	SAYS("is freed");
	cr_assert(version_is(d, "m", "v1", "none"));
	cr_assert_gt(status_of(d, "still_mapped"), 0);
	cr_assert_eq(device_used(d), device_number(d, "still_mapped"));
	return d;
}

Test(revoke, a_stopped_worker_does_not_keep_a_version_but_its_bytes)
{
	struct process worker;
	struct gpuwmd *d = scene_forced(&worker);
	uint64_t bytes = status_of(d, "still_mapped");

	cr_assert(ctl_says("status", "1 revoked lease may still be mapped"));
	cr_assert(ctl_says("ps", "revoked"));
	scene_unnamed(d);
	cr_assert(version_is(d, "m", "v1", "ready"), "the name is free");
	cr_assert_gt(device_used(d), bytes);
	process_kill(&worker, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "still_mapped") == 0));
	cr_assert_eq(status_of(d, "revoked"), 0);
	OK(gpuwm_retire(d->admin, "m@v1", -1));
	cr_assert(EVENTUALLY(SOON_MS, device_used(d) == 0));
	gpuwmd_stop_empty(d);
}

Test(revoke, a_worker_that_goes_on_gives_the_bytes_back)
{
	struct process worker;
	struct gpuwmd *d = scene_forced(&worker);

	cr_assert(kill(worker.pid, SIGCONT) == 0);
	cr_assert(EVENTUALLY(SOON_MS, worker_answer(&worker, 'n') == '1'));
	cr_assert_eq(worker_answer(&worker, 'r'), 'k', "nothing is unmapped behind its back");
	cr_assert_gt(status_of(d, "still_mapped"), 0);
	worker_end(&worker);
	cr_assert(EVENTUALLY(SOON_MS, device_used(d) == 0));
	gpuwmd_stop_empty(d);
}

/* The end of its connection is no proof that it has unmapped: a child may have, or a thread hold, anything. */
Test(revoke, a_process_that_becomes_another_is_waited_for)
{
	struct process worker;
	struct gpuwmd *d = scene_forced(&worker);

	cr_assert(kill(worker.pid, SIGCONT) == 0);
	cr_assert(EVENTUALLY(SOON_MS, worker_answer(&worker, 'n') == '1'));
	process_tell(&worker, 'x');
	cr_assert(EVENTUALLY(SOON_MS, ctl_says("ps", "revoked, disconnected")));
	cr_assert(ctl_says("clients", "(ended)"));
	cr_assert_gt(status_of(d, "still_mapped"), 0);
	process_kill(&worker, SIGTERM);
	cr_assert(EVENTUALLY(SOON_MS, device_used(d) == 0));
	gpuwmd_stop_empty(d);
}

GPUWMD_TEST_BY(revoke, who_stays_is_revoked_when_the_time_is_over, scene_unnamed(gpuwmd_start(NULL)),
	       gpuwmd_stop_empty)
{
	struct process worker = worker_of(d, "m@v1");

	CTL_IS(0, "retire", "m@v1", "--force", "--after", "100ms", "--wait");
	cr_assert(version_is(d, "m", "v1", "none"));
	cr_assert(EVENTUALLY(SOON_MS, worker_answer(&worker, 'n') == '1'));
	cr_assert_gt(status_of(d, "still_mapped"), 0);
	worker_end(&worker);
	cr_assert(EVENTUALLY(SOON_MS, device_used(d) == 0));
}

/* Why there is no room. */
Test(revoke, a_refusal_for_want_of_room_tells_of_what_is_still_mapped)
{
	struct process worker;
	struct gpuwmd *d = scene_forced(&worker);
	struct gpuwm_publish *publish;

	FAILS(ENOSPC,
	      publish_begin(d->admin, d->device, "m@v9",
			    &(const struct checkpoint){.seed = 1, .count = 1, .bytes = MB(1) << 30}, &publish));
	cr_assert(strstr(gpuwm_error()->detail, "of revoked leases"), "%s", gpuwm_error()->detail);
	process_kill(&worker, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, device_used(d) == 0));
	gpuwmd_stop_empty(d);
}

/* ---- restarts --------------------------------------------------------- */

GPUWMD_TEST_BY(revoke, a_kicked_lease_is_not_resumed_by_this_gpuwmd_nor_the_next,
	       scene_of(gpuwmd_start_kept(KEPT_LONG)), gpuwmd_stop_empty)
{
	struct raw_lease kicked, kept;
	int sock = raw_client(d->socket);

	cr_assert_eq(raw_lease(sock, "m", &kicked), 0);
	cr_assert_eq(raw_lease(sock, "m", &kept), 0);
	OK(gpuwm_kick(d->admin, GPUWM_KICK_LEASE, kicked.lease, NULL));
	close(sock);
	for (int restart = 0; restart < 3; restart++) {
		sock = raw_client(d->socket);
		cr_assert_eq(raw_resume_one(d, sock, &kicked), -ESTALE);
		cr_assert_eq(raw_resume_one(d, sock, &kept), 0);
		close(sock);
		kept_kill(d, SIGKILL);
	}
	DROP(d, "m@v1");
}

/* docs/limits.md says so: what the worker maps takes memory, and no budget. */
GPUWMD_TEST_BY(revoke, a_restart_ends_the_count_of_what_is_still_mapped,
	       scene_unnamed(gpuwmd_start_kept(KEPT_LONG)), gpuwmd_stop_empty)
{
	struct process worker = worker_of(d, "m@v1");

	cr_assert(kill(worker.pid, SIGSTOP) == 0);
	CTL_IS(0, "retire", "m@v1", "--force", "--wait", "60");
	cr_assert_gt(device_number(d, "still_mapped"), 0);
	kept_kill(d, SIGKILL);
	cr_assert_eq(device_used(d), 0);
	cr_assert_eq(status_of(d, "revoked"), 0);
	process_kill(&worker, SIGKILL);
}

GPUWMD_TEST_BY(revoke, a_lease_of_after_a_restart_has_a_short_number, scene_of(gpuwmd_start_kept(KEPT_LONG)),
	       gpuwmd_stop_empty)
{
	struct process worker;

	kept_kill(d, SIGKILL);
	worker = worker_of(d, "m");
	CTL_IS(0, "ps");
	SAYS("LEASE  VERSION");
	SAYS("\n  1.1  m@v1 ");
	CTL_IS(0, "kick", "1.1");
	SAYS("\n  1.1  m@v1 ");
	worker_end(&worker);
	DROP(d, "m@v1");
}

GPUWMD_TEST_BY(revoke, a_kicked_worker_is_not_there_again_after_a_kill,
	       scene_of(gpuwmd_start_kept(&(const struct kept){})), gpuwmd_stop_empty)
{
	struct process kicked = worker_of(d, "m"), other;

	/* It hears of it from the next gpuwmd only. */
	cr_assert(kill(kicked.pid, SIGSTOP) == 0);
	OK(gpuwm_kick(d->admin, GPUWM_KICK_PID, (uint64_t)kicked.pid, NULL));
	other = worker_of(d, "m");
	kept_kill(d, SIGKILL);
	cr_assert(kill(kicked.pid, SIGCONT) == 0);
	cr_assert(EVENTUALLY(SOON_MS, worker_answer(&kicked, 'n') == '1'));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 1));
	cr_assert_eq(worker_answer(&kicked, 'c'), 'y');
	cr_assert_eq(worker_answer(&other, 'n'), '0');
	worker_end(&kicked);
	worker_end(&other);
	DROP(d, "m@v1");
}

/* Those who come back before the time is over are revoked when it is; then nobody gets a lease of it again. */
GPUWMD_TEST_BY(revoke, the_time_of_a_forced_retire_survives_a_restart,
	       scene_unnamed(gpuwmd_start_kept(KEPT_LONG)), gpuwmd_stop_empty)
{
	struct process worker = worker_of(d, "m@v1");

	OK(gpuwm_retire_by_force(d->admin, "m@v1", 3000, 0));
	kept_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 1 || version_is(d, "m", "v1", "none")));
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	cr_assert(EVENTUALLY(SOON_MS, worker_answer(&worker, 'n') == '1'));
	cr_assert_eq(worker_answer(&worker, 'r'), 'k');
	worker_end(&worker);
}

/* gpuwmd does not run when the time is over. The next one frees the version at once, within the grace time too. */
Test(revoke, a_version_whose_time_is_over_is_not_resumed)
{
	struct gpuwmd *d =
		scene_unnamed(gpuwmd_start_kept(&(const struct kept){.limits = "grace_ms = 600000\n"}));
	struct raw_lease lease;
	int sock = raw_client(d->socket), code;
	int64_t over;

	cr_assert_eq(raw_lease(sock, "m@v1", &lease), 0);
	OK(gpuwm_retire_by_force(d->admin, "m@v1", 500, 0));
	cr_assert(kill(d->pid, SIGSTOP) == 0);
	over = clock_ms() + 600;
	cr_assert(EVENTUALLY(SOON_MS, clock_ms() > over));
	kept_kill(d, SIGKILL);
	close(sock);
	sock = raw_client(d->socket);
	code = raw_resume_one(d, sock, &lease);
	cr_assert(code == -ESTALE || code == -ENOENT, "%d: it may be freed already", code);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	close(sock);
	gpuwmd_stop_empty(d);
}
