/* gpuwmd dies in the middle of something: it is there afterwards as a whole, or not at all. */
#include "kept.h"
#include "../../base/limits.h"

#include <fcntl.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

SYSTEM_SUITE(restart_moments);

#define SLACK_MS SOON_MS

static struct gpuwmd *scene(void)
{
	struct gpuwmd *d = gpuwmd_start_kept(&(struct kept){});

	load_small(d, 1);
	return d;
}

static void scene_end(struct gpuwmd *d)
{
	struct process worker = worker_start(d, "m", 1);

	process_tell(&worker, 'd');
	process_finish(&worker);
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

/* Dead, whether somebody has asked for its status or not. */
static bool has_ended(pid_t pid)
{
	char path[64], line[256];
	FILE *file;
	bool lives;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	lives = file && fgets(line, sizeof line, file) && !strstr(line, ") Z");
	if (file)
		fclose(file);
	return !lives;
}

static bool all_ended(const pid_t *pids, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!has_ended(pids[i]))
			return false;
	}
	return true;
}

/* ---- before the commit ------------------------------------------------ */

GPUWMD_TEST_BY(restart_moments, an_unfinished_publish_is_discarded_and_its_checker_ends, scene(), scene_end)
{
	uint64_t memory = kept_memory(d);
	pid_t loaders[CHILDREN_MAX];
	struct raw_publish p;
	size_t count;

	cr_assert_eq(raw_publish_begin(&p, "raw@v1", MB(8)), 0, "%s", raw_refusal());
	raw_publish_fill(&p);
	cr_assert_eq(raw_hand_in(&p), 0, "%s", raw_refusal());
	count = loaders_of(d->pid, loaders);
	kept_kill(d, SIGKILL);
	cr_assert(raw_ended(p.sock));
	cr_assert(EVENTUALLY(SLACK_MS, all_ended(loaders, count)), "a loader of the dead gpuwmd lives");
	cr_assert(version_is(d, "raw", "v1", "none"));
	cr_assert_eq(status_of(d, "publishes"), 0);
	raw_publish_end(&p);
	cr_assert(EVENTUALLY(SLACK_MS, kept_memory(d) == memory));
	cr_assert_eq(raw_publish_begin(&p, "raw@v1", MB(8)), 0, "%s", raw_refusal());
	raw_publish_fill(&p);
	cr_assert_eq(raw_hand_in(&p), 0, "%s", raw_refusal());
	cr_assert_eq(raw_commit(&p), 0, "%s", raw_refusal());
	raw_publish_end(&p);
	DROP(d, "raw@v1");
}

GPUWMD_TEST_BY(restart_moments, a_publisher_is_told_that_its_publish_ended, scene(), scene_end)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_publish *publish;
	int r;

	OK(publish_begin(client, d->device, "m@v2", SMALL(2), &publish));
	OK(publish_fill(publish, SMALL(2)));
	kept_kill(d, SIGKILL);
	r = gpuwm_publish_commit(publish, NULL);
	cr_assert_lt(r, 0);
	cr_assert(gpuwm_error()->message[0]);
	gpuwm_close(client);
	cr_assert(version_is(d, "m", "v2", "none"));
	OK(publish_version(d->admin, d->device, "m@v2", SMALL(2)));
	DROP(d, "m@v2");
}

GPUWMD_TEST_BY(restart_moments, an_unfinished_load_is_discarded_and_its_loader_ends, scene(), scene_end)
{
	const char *path = checkpoint_write(d, "v2", &(const struct checkpoint){2, 64, MB(4)});
	uint64_t memory = kept_memory(d), job;
	pid_t loaders[CHILDREN_MAX];
	size_t count;

	OK(load_start(d, path, "m@v2", NULL, &job));
	/* A GPU's memory is no memfd: there it is enough that the loader has begun. */
	cr_assert(EVENTUALLY(SLACK_MS, version_is(d, "m", "v2", "building") &&
					       (backend() == BACKEND_CUDA || kept_memory(d) > memory + MB(8))));
	count = loaders_of(d->pid, loaders);
	kept_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SLACK_MS, all_ended(loaders, count)), "a loader of the dead gpuwmd lives");
	cr_assert(version_is(d, "m", "v2", "none"));
	cr_assert(EVENTUALLY(SLACK_MS, kept_memory(d) == memory));
	load_version(d, path, "m@v2");
	DROP(d, "m@v2");
}

/* ---- around the commit ------------------------------------------------ */

#define TRIES_DEFAULT 30

struct outcomes {
	unsigned acknowledged, there, absent;
};

/* A commit, and a kill so much later. */
static void commit_and_kill(struct gpuwmd *d, long after_us, struct outcomes *outcomes)
{
	static struct raw_reply reply;
	struct raw_publish p;
	bool acknowledged, there;
	struct raw_lease lease;
	int sock;

	cr_assert_eq(raw_publish_begin(&p, "raw@v1", KB(64)), 0, "%s", raw_refusal());
	raw_publish_fill(&p);
	cr_assert_eq(raw_hand_in(&p), 0, "%s", raw_refusal());
	raw_commit_send(&p);
	nanosleep(&(struct timespec){.tv_nsec = after_us * 1000}, NULL);
	kept_kill(d, SIGKILL);
	acknowledged = raw_receive(p.sock, &reply);
	cr_assert(!acknowledged || reply.message.error.code == 0, "%s", reply.message.error.message);
	raw_reply_clear(&reply);
	raw_publish_end(&p);
	sock = raw_client(d->socket);
	there = version_is(d, "raw", "v1", "ready");
	cr_assert(there || version_is(d, "raw", "v1", "none"));
	cr_assert(there || !acknowledged, "it was acknowledged, and is gone");
	cr_assert_eq(raw_lease(sock, "raw", &lease), there ? 0 : -ENOENT,
		     "the version and its alias are one change");
	close(sock);
	if (there)
		DROP(d, "raw@v1");
	outcomes->acknowledged += acknowledged;
	outcomes->there += there;
	outcomes->absent += !there;
}

/* The delays are spread over the time that a commit takes, which is measured. */
Test(restart_moments, a_commit_is_whole_or_not_at_all, .timeout = 3000)
{
	struct gpuwmd *d = scene();
	uint64_t memory = kept_memory(d);
	unsigned tries = kills_wanted(TRIES_DEFAULT);
	struct outcomes outcomes = {0};
	long span_us = 1000;

	for (unsigned i = 0; i < tries; i++) {
		struct outcomes before = outcomes;

		commit_and_kill(d, span_us * (long)(i % 10) / 5, &outcomes);
		/* As many of the one as of the other; until there are both, by leaps. */
		if (outcomes.there == 0 || outcomes.absent == 0)
			span_us = outcomes.there > before.there ? span_us / 2 + 1 : span_us * 2;
		else if (i % 10 == 5)
			span_us = outcomes.there > before.there ? span_us * 4 / 5 : span_us * 5 / 4;
		cr_assert(EVENTUALLY(SLACK_MS, kept_memory(d) == memory), "memory is left over");
	}
	fprintf(stderr, "%u commits: %u there (%u were acknowledged), %u not\n", tries, outcomes.there,
		outcomes.acknowledged, outcomes.absent);
	cr_assert(outcomes.there > 0 && outcomes.absent > 0, "no kill hit the commit");
	scene_end(d);
}

/* A commit on its way into the store: the keeper is stopped, and has not confirmed it. */
static void begin_storing(struct gpuwmd *d, struct raw_publish *p)
{
	cr_assert_eq(raw_publish_begin(p, "raw@v1", KB(64)), 0, "%s", raw_refusal());
	raw_publish_fill(p);
	cr_assert_eq(raw_hand_in(p), 0, "%s", raw_refusal());
	cr_assert(EVENTUALLY(SLACK_MS, status_of(d, "jobs_running") == 0));
	cr_assert(kill(d->keeper, SIGSTOP) == 0);
	raw_commit_send(p);
	cr_assert(EVENTUALLY(SLACK_MS, version_is(d, "raw", "v1", "checking")));
}

GPUWMD_TEST_BY(restart_moments, a_stop_while_a_version_is_being_stored_retires_nothing, scene(), scene_end)
{
	char *before = kept_registry(d), *after;
	struct raw_publish p;

	begin_storing(d, &p);
	cr_assert(kill(d->pid, SIGTERM) == 0);
	cr_assert(EVENTUALLY(SLACK_MS, log_count(d, "left in the fd store") > 0));
	cr_assert_eq(log_count(d, "1 version is left in the fd store"), 1,
		     "what is being stored is no version yet");
	cr_assert(kill(d->keeper, SIGCONT) == 0);
	kept_wait(d);
	if (version_is(d, "raw", "v1", "ready"))
		DROP(d, "raw@v1");
	after = kept_registry(d);
	cr_assert_str_eq(after, before);
	raw_publish_end(&p);
	free(before);
	free(after);
}

/* Whoever tells the keeper something waits until it reads: it drops what is not of gpuwmd, in time. */
static void fill_keeper(const struct gpuwmd *d)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	char pattern[128];
	glob_t found;

	snprintf(pattern, sizeof pattern, "%s/gpuwm-keeper-*/notify", d->dir);
	cr_assert(glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc == 1);
	snprintf(address.sun_path, sizeof address.sun_path, "%s", found.gl_pathv[0]);
	globfree(&found);
	while (sendto(sock, "x", 1, 0, (const struct sockaddr *)&address, sizeof address) == 1)
		;
	cr_assert_eq(errno, EAGAIN);
	close(sock);
}

GPUWMD_TEST_BY(restart_moments, it_serves_and_leaves_while_its_keeper_hangs, scene(), scene_end)
{
	char *before = kept_registry(d), *after;
	uint64_t job;

	cr_assert(kill(d->keeper, SIGSTOP) == 0);
	fill_keeper(d);
	OK(load_start(d, checkpoint_write(d, "v9", SMALL(9)), "m@v9", NULL, &job));
	cr_assert(EVENTUALLY(SLACK_MS, version_is(d, "m", "v9", "checking")));
	cr_assert(kill(d->pid, SIGTERM) == 0);
	cr_assert(EVENTUALLY(2 * STOP_DRAIN_MS + SLACK_MS, has_ended(d->pid)), "it waits for the keeper");
	cr_assert(kill(d->keeper, SIGCONT) == 0);
	kept_wait(d);
	after = kept_registry(d);
	cr_assert_str_eq(after, before);
	free(before);
	free(after);
}

#define ANSWERS_UNREAD 40

/* Who does not read its answers keeps gpuwmd from leaving for a while. */
static int never_read(struct gpuwmd *d)
{
	int sock = raw_client(d->socket);

	for (int i = 0; i < ANSWERS_UNREAD; i++) {
		RAW_SEND(sock, 2, "get_handles", TEXT("ref", "m"));
	}
	/* Each has two descriptors; one more answer waits. */
	cr_assert(EVENTUALLY(SLACK_MS, status_of(d, "leases") == UNREAD_FDS_MAX / 2 + 1));
	return sock;
}

GPUWMD_TEST_BY(restart_moments, who_connects_while_it_stops_is_the_next_ones, scene(), scene_end)
{
	int lazy, sock;

	lazy = never_read(d);
	cr_assert(kill(d->pid, SIGTERM) == 0);
	cr_assert(EVENTUALLY(SLACK_MS, log_count(d, "stopping: no new leases") > 0));
	sock = raw_connect(d->socket);
	raw_hello(sock); /* asserts that it is answered */
	kept_wait(d);
	cr_assert_eq(raw_call(sock, "status"), 0, "it was the last one's");
	close(sock);
	close(lazy);
}

GPUWMD_TEST_BY(restart_moments, a_drain_while_a_version_is_being_stored_lets_it_go_too, scene(),
	       gpuwmd_stop_empty)
{
	struct raw_publish p;

	begin_storing(d, &p);
	OK(gpuwm_drain(d->admin));
	cr_assert(kill(d->keeper, SIGCONT) == 0);
	cr_assert_eq(raw_code(p.sock), 0, "%s", raw_refusal());
	raw_publish_end(&p);
	cr_assert(EVENTUALLY(SLACK_MS, status_of(d, "versions") == 0));
	kept_kill(d, SIGTERM);
}

/* ---- a crowd ---------------------------------------------------------- */

#define CROWD 64

/* argv: seed. Attaches when it is told, reads all, and detaches when it is told. */
static int one_of_many(int argc, char **argv)
{
	struct gpuwm_mapping *mapping;
	struct gpuwm_client *client;

	CHILD_ASSERT(argc == 1);
	child_keeps_context();
	child_say('r');
	CHILD_ASSERT(child_hear() == 'g');
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(gpuwm_attach(client, "m", NULL, &mapping) == 0);
	child_say('a');
	CHILD_ASSERT(child_hear() == 'd');
	CHILD_ASSERT(mapping_holds(mapping, strtoull(argv[0], NULL, 10)));
	CHILD_ASSERT(gpuwm_mapping_check(mapping) == 0);
	CHILD_ASSERT(gpuwm_detach(mapping) == 0);
	gpuwm_close(client);
	return 0;
}

/* Some are served by the first, some by the next; each kill comes where others are under way. */
KILL_AND_STOP_TEST(restart_moments, sixty_four_attach_through)
{
	struct gpuwmd *d = scene();
	struct process crowd[CROWD];
	int lock = open("/proc/self/exe",
			O_RDONLY | O_CLOEXEC); /* this program: its tests run beside each other */

	/* A GPU has no room for the contexts of two crowds at once. */
	cr_assert(lock >= 0 && flock(lock, LOCK_EX) == 0);
	for (int i = 0; i < CROWD; i++)
		crowd[i] = process_start(one_of_many, "1", NULL);
	for (int i = 0; i < CROWD; i++)
		process_expect(&crowd[i], 'r');
	for (int i = 0; i < CROWD; i++) {
		process_tell(&crowd[i], 'g');
		if (i % (CROWD / 4) == 7)
			kept_kill(d, signal_number);
	}
	for (int i = 0; i < CROWD; i++)
		process_expect(&crowd[i], 'a');
	cr_assert(EVENTUALLY(SLACK_MS, status_of(d, "leases") == CROWD), "%ju leases", status_of(d, "leases"));
	for (int i = 0; i < CROWD; i++)
		process_tell(&crowd[i], 'd');
	for (int i = 0; i < CROWD; i++)
		process_finish(&crowd[i]);
	close(lock);
	scene_end(d);
}
