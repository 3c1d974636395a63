/* gpuwmctl wait. */
#include "kept.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

SYSTEM_SUITE(ctl_wait);

GPUWMD_TEST_BY(ctl_wait, ends_at_once_if_it_is_so, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	CTL_IS(0, "wait", "m@v1", "--for", "ready", "--timeout", "0");
	cr_assert_str_eq(output, "m@v1 is ready\n");
	CTL_IS(0, "wait", "m", "--for", "ready");
	CTL_IS(0, "wait", "m@v3", "--for", "freed");
	cr_assert_str_eq(output, "m@v3 is not there: nothing holds memory under this name\n");
	CTL_IS(0, "-o", "json", "wait", "m@v3", "--for", "freed");
	cr_assert_str_eq(output, "{\"ref\":\"m@v3\",\"state\":\"freed\",\"version\":null}\n");
	CTL_IS(2, "wait", "m@v1");
	SAYS("wait needs --for ready|freed\n  what to wait for\n");
	CTL_IS(2, "wait", "m@v1", "--for", "gone");
	SAYS("--for takes ready or freed, not 'gone'\n");
}

/* How much later than its limit a program may end on a machine that is idle: it starts and ends, and an answer may be on its way. */
#define LATE_MS 1000
/* A busy machine may be late by more once. What is always late is so each time. */
#define TRIES 3

/* Runs gpuwmctl with these words, which have a limit of time. It must end with exit code 7 when that is over. */
#define ENDS_IN_TIME(limit_ms, ...)                                                                            \
	do {                                                                                                   \
		int64_t took_ms = INT64_MAX;                                                                   \
		for (int i = 0; i < TRIES && took_ms > (limit_ms) + LATE_MS; i++) {                            \
			const int64_t before = clock_ms();                                                     \
			CTL_IS(7, __VA_ARGS__);                                                                \
			took_ms = clock_ms() - before;                                                         \
		}                                                                                              \
		cr_expect_geq(took_ms, limit_ms);                                                              \
		cr_expect_leq(took_ms, (limit_ms) + LATE_MS, "%lld ms", (long long)took_ms);                   \
	} while (0)

GPUWMD_TEST_BY(ctl_wait, gives_up_when_the_time_is_over, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	CTL_IS(7, "wait", "m@v3", "--for", "ready", "--timeout", "50ms");
	SAYS("time ran out after 0.1 s: m@v3 is not there\n");
	ENDS_IN_TIME(300, "wait", "m@v3", "--for", "ready", "--timeout", "300ms");
	CTL_IS(7, "wait", "m@v1", "--for", "freed", "--timeout", "0");
	SAYS("m@v1 is ready, and nobody has retired it\n  gpuwmctl retire frees it");
	CTL_IS(0, "pin", "m@v2", "night");
	CTL_IS(0, "retire", "m@v2");
	CTL_IS(7, "wait", "m@v2", "--for", "freed", "--timeout", "0");
	SAYS("m@v2 is retiring: 0 leases and 1 pin hold it\n");
	CTL_IS(4, "wait", "m@v2", "--for", "ready");
	SAYS("m@v2 is retiring\n");
	CTL_IS(0, "unpin", "m@v2", "night");
}

/* Long enough that gpuwmctl says it on a busy machine too: it says nothing if less than a second is left when it begins. */
#define HANGS_FOR "4s"

/* It says so before the second is over, and goes on until its limit. */
GPUWMD_TEST(ctl_wait, says_which_gpuwmd_does_not_answer)
{
	char who[32];

	snprintf(who, sizeof(who), "gpuwmd (pid %d)", (int)d->pid);
	cr_assert_eq(kill(d->pid, SIGSTOP), 0);
	ENDS_IN_TIME(4000, "wait", "m@v1", "--for", "ready", "--timeout", HANGS_FOR);
	SAYS(who);
	SAYS(") did not answer at ");
	SAYS(" s\n  waiting for it for up to ");
	SAYS(" s more; Ctrl-C ends\n");
	SAYS(" s\n  it hangs, is stopped or has too much to do");
	cr_assert_eq(kill(d->pid, SIGCONT), 0);
}

/* It has said that it waits, so it has looked once, and the next events reach it. */
static struct ctl_run wait_start(const char *ref, const char *what)
{
	struct ctl_run run = ctl_start("wait", ref, "--for", what, NULL);

	cr_assert_eq(poll(&(struct pollfd){.fd = run.from, .events = POLLIN}, 1, SOON_MS), 1);
	return run;
}

/* Nothing answers any more after it has begun to wait, though somebody still listens. */
GPUWMD_TEST_BY(ctl_wait, ends_in_time_if_the_next_gpuwmd_does_not_answer,
	       with_two_versions(gpuwmd_start_kept(&(struct kept){})), gpuwmd_stop_empty)
{
	const int64_t before = clock_ms();
	struct ctl_run run = ctl_start("wait", "m@v3", "--for", "ready", "--timeout", "2s", NULL);
	const pid_t keeper = d->keeper;

	cr_assert_eq(poll(&(struct pollfd){.fd = run.from, .events = POLLIN}, 1, SOON_MS), 1);
	cr_assert(kill(keeper, SIGSTOP) == 0 && kill(d->pid, SIGKILL) == 0);
	ctl_ends(&run, 7);
	cr_expect_leq(clock_ms() - before, 2000 + CALL_TIMEOUT_MS / 2);
	SAYS("time ran out after 2.0 s: gpuwmd does not answer\n  it hangs");
	cr_assert_eq(kill(keeper, SIGCONT), 0);
	kept_wait(d);
	DROP(d, "m@v1", "m@v2");
}

GPUWMD_TEST_BY(ctl_wait, a_retire_gives_up_when_the_time_is_over, with_two_versions(gpuwmd_start(NULL)),
	       gpuwmd_stop_empty)
{
	struct process worker = worker_start(d, "m@v1", 1);

	ENDS_IN_TIME(1000, "retire", "m@v1", "--aliases", "--wait", "1");
	process_tell(&worker, 'd');
	process_finish(&worker);
	DROP(d, "m@v2");
	cr_assert_eq(kill(d->pid, SIGSTOP), 0);
	ENDS_IN_TIME(1000, "retire", "m@v2", "--wait", "1");
	cr_assert_eq(kill(d->pid, SIGCONT), 0);
}

GPUWMD_TEST(ctl_wait, sees_what_comes)
{
	struct ctl_run tag = wait_start("m@v1", "ready"), alias = wait_start("m@prod", "ready"), freed;
	struct process worker;

	load_small(d, 1);
	ctl_ends(&tag, 0);
	cr_assert_str_eq(output, "gpuwmctl: m@v1 is not there\n  waiting until it is ready\nm@v1 is ready\n");
	CTL_IS(0, "alias", "m@v1", "prod");
	ctl_ends(&alias, 0);
	worker = worker_start(d, "m@v1", 1);
	freed = wait_start("m@v1", "freed");
	CTL_IS(0, "rm", "m@v1", "--aliases");
	process_tell(&worker, 'd');
	process_finish(&worker);
	ctl_ends(&freed, 0);
	SAYS("\n  waiting until it is freed\nm@v1 is freed\n");
}

GPUWMD_TEST(ctl_wait, ends_when_the_load_fails)
{
	struct ctl_run waiting = wait_start("m@v1", "ready");

	CTL_IS(9, "load", safetensors_write(d, "bad", "{", 0), "m@v1", "--device", d->device, "--wait");
	ctl_ends(&waiting, 4);
	SAYS("job 1, which was to make it, failed: ");
	SAYS("load or publish it again\n");
	CTL_IS(4, "wait", "m@v1", "--for", "ready");
}

GPUWMD_TEST(ctl_wait, ends_when_the_publish_fails)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_publish *publish;
	struct ctl_run waiting, freed;

	OK(publish_begin(client, d->device, "m@v1", SMALL(1), &publish));
	CTL_IS(7, "wait", "m@v1", "--for", "ready", "--timeout", "0");
	SAYS("m@v1 is building\n");
	waiting = wait_start("m@v1", "ready");
	freed = wait_start("m@v1", "freed");
	OK(gpuwm_publish_abort(publish, "no such luck"));
	ctl_ends(&waiting, 4);
	SAYS("m@v1 failed: ");
	SAYS("no such luck");
	ctl_ends(&freed, 0);
	gpuwm_close(client);
	CTL_IS(0, "rm", "m@v1");
}

/* A version without a name is in nobody's list but its user's. */
GPUWMD_TEST(ctl_wait, finds_versions_without_a_name)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_publish *publish;
	struct gpuwm_mapping *mapping;
	char id[33];

	OK(publish_begin(client, d->device, NULL, SMALL(1), &publish));
	OK(publish_fill(publish, SMALL(1)));
	OK(gpuwm_publish_commit_attached(publish, &mapping));
	snprintf(id, sizeof(id), "%s", gpuwm_mapping_version(mapping)->id);
	CTL_IS(0, "wait", id, "--for", "ready", "--timeout", "0");
	CTL_IS(1, "wait", id, "--for", "freed");
	SAYS(" has no name, and gpuwmd sends no events about it: nothing would end the wait\n");
	gpuwm_detach(mapping);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "nameless") == 0));
	CTL_IS(0, "wait", id, "--for", "freed");
	CTL_IS(4, "wait", id, "--for", "ready");
	SAYS("ids are never used again");
	gpuwm_close(client);
}

GPUWMD_TEST_BY(ctl_wait, goes_on_with_the_next_gpuwmd, with_two_versions(gpuwmd_start_kept(&(struct kept){})),
	       gpuwmd_stop_empty)
{
	struct ctl_run freed = wait_start("m@v2", "freed"), ready = wait_start("m@v3", "ready");

	kept_kill(d, SIGKILL);
	CTL_IS(0, "rm", "m@v2");
	ctl_ends(&freed, 0);
	load_version(d, checkpoint_write(d, "v3", SMALL(3)), "m@v3");
	ctl_ends(&ready, 0);
	DROP(d, "m@v1", "m@v3");
}

/* What was being published ends with gpuwmd, and no event says so. */
GPUWMD_TEST_BY(ctl_wait, looks_again_after_a_restart, with_two_versions(gpuwmd_start_kept(&(struct kept){})),
	       gpuwmd_stop_empty)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_publish *publish;
	struct ctl_run freed;

	OK(publish_begin(client, d->device, "m@v3", SMALL(3), &publish));
	freed = wait_start("m@v3", "freed");
	kept_kill(d, SIGKILL);
	ctl_ends(&freed, 0);
	gpuwm_publish_abort(publish, "its gpuwmd went away");
	gpuwm_close(client);
	DROP(d, "m@v1", "m@v2");
}
