/* Workers die in every state (D6): what they held is free within a second, and
 * others do not notice. */
#include "raw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

SYSTEM_SUITE(kills);

#define FREE_MS SOON_MS
#define CROWD 20

/* ---- victims: say 'v' where they are to die --------------------------- */

static int die_here(void)
{
	setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
	child_say('v');
	child_hear();
	return 0;
}

static int victim_idle(int argc, char **argv)
{
	struct gpuwm_client *client;

	(void)argc, (void)argv;
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	return die_here();
}

static int victim_handshaking(int argc, char **argv)
{
	(void)argc, (void)argv;
	raw_connect(getenv("GPUWM_SOCKET"));
	return die_here();
}

/* Sends a request for a version's handles. Returns the connection. */
static int ask_for(const char *ref, int64_t wait_ms)
{
	int sock = raw_client(getenv("GPUWM_SOCKET"));

	RAW_SEND(sock, 2, "get_handles", TEXT("ref", ref), SIGNED("wait_ms", wait_ms));
	return sock;
}

/* Its request waits for a model that nobody loads. */
static int victim_asking(int argc, char **argv)
{
	(void)argc, (void)argv;
	ask_for("nobody@v1", -1);
	return die_here();
}

/* Its answer lies unread, descriptors and all. */
static int victim_answered(int argc, char **argv)
{
	(void)argc, (void)argv;
	ask_for("m@v1", 0);
	return die_here();
}

static int victim_with_handles(int argc, char **argv)
{
	struct gpuwm_client *client;
	struct gpuwm_handles *handles;

	(void)argc, (void)argv;
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(gpuwm_get_handles(client, "m@v1", NULL, &handles) == 0);
	return die_here();
}

static int victim_mapped(int argc, char **argv)
{
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;

	(void)argc, (void)argv;
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(gpuwm_attach(client, "m@v1", NULL, &mapping) == 0);
	return die_here();
}

/* Its side of the socket is shut for writing; it still lives. */
static int victim_half_closed(int argc, char **argv)
{
	int sock = ask_for("m@v1", 0);

	(void)argc, (void)argv;
	CHILD_ASSERT(raw_code(sock) == 0);
	CHILD_ASSERT(shutdown(sock, SHUT_WR) == 0);
	return die_here();
}

/* A child of the victim keeps the socket open for as long as the test's pipe is. */
static int victim_with_child(int argc, char **argv)
{
	int sock = ask_for("m@v1", 0);

	(void)argc, (void)argv;
	CHILD_ASSERT(raw_code(sock) == 0);
	if (fork() == 0) {
		child_hear();
		_exit(0);
	}
	return die_here();
}

/* ---- the scene -------------------------------------------------------- */

/* Two versions, v2 current; a worker on v2 that must not notice anything. */
static struct gpuwmd *scene(struct process *ret_bystander)
{
	struct gpuwmd *d = gpuwmd_start(NULL);

	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	*ret_bystander = worker_start(d, "m@v2", 2);
	return d;
}

static bool only_the_bystander_is_left(struct gpuwmd *d, size_t fds)
{
	return status_of(d, "leases") == 1 && status_of(d, "sessions") == 2 && status_of(d, "waiting") == 0 &&
	       fds_of(d->pid) == fds;
}

static void scene_end(struct gpuwmd *d, struct process *bystander)
{
	OK(gpuwm_retire(d->admin, "m@v1", FREE_MS));
	process_tell(bystander, 'd');
	process_finish(bystander);
	DROP(d, "m@v2");
	gpuwmd_stop_empty(d);
}

static const struct {
	const char *name;
	process_fn *victim;
	int signal;
} victims[] = {
	{"a worker that is idle", victim_idle, SIGKILL},
	{"a worker amid its handshake", victim_handshaking, SIGKILL},
	{"a worker whose request waits", victim_asking, SIGKILL},
	{"a worker with an unread answer", victim_answered, SIGKILL},
	{"a worker between descriptors and mapping", victim_with_handles, SIGKILL},
	{"a worker that has mapped", victim_mapped, SIGKILL},
	{"a worker that has mapped, by a segfault", victim_mapped, SIGSEGV},
};

Test(kills, what_a_worker_held_is_free_wherever_it_dies)
{
	struct process bystander;
	struct gpuwmd *d = scene(&bystander);
	const size_t fds = fds_settled(d);

	for (size_t i = 0; i < sizeof victims / sizeof victims[0]; i++) {
		struct process p;

		if (SANITIZED && victims[i].signal == SIGSEGV)
			continue; /* the sanitizer catches the signal */
		p = process_start(victims[i].victim, NULL);
		process_expect(&p, 'v');
		cr_assert(EVENTUALLY(FREE_MS, status_of(d, "sessions") == 3), "%s", victims[i].name);
		process_kill(&p, victims[i].signal);
		cr_assert(EVENTUALLY(FREE_MS, only_the_bystander_is_left(d, fds)), "%s: %zu fds, not %zu",
			  victims[i].name, fds_of(d->pid), fds);
	}
	scene_end(d, &bystander);
}

Test(kills, a_worker_that_is_stopped_first)
{
	struct process bystander, p;
	struct gpuwmd *d = scene(&bystander);
	size_t fds = fds_settled(d);

	p = process_start(victim_mapped, NULL);
	process_expect(&p, 'v');
	cr_assert(kill(p.pid, SIGSTOP) == 0);
	cr_assert_eq(status_of(d, "leases"), 2);
	process_kill(&p, SIGKILL);
	cr_assert(EVENTUALLY(FREE_MS, only_the_bystander_is_left(d, fds)));
	scene_end(d, &bystander);
}

Test(kills, a_half_closed_socket_ends_the_session_of_a_living_worker)
{
	struct process bystander, p;
	struct gpuwmd *d = scene(&bystander);
	size_t fds = fds_settled(d);

	p = process_start(victim_half_closed, NULL);
	process_expect(&p, 'v');
	cr_assert(EVENTUALLY(FREE_MS, only_the_bystander_is_left(d, fds)));
	process_kill(&p, SIGKILL);
	scene_end(d, &bystander);
}

Test(kills, a_worker_whose_child_keeps_the_socket)
{
	struct process bystander, p;
	struct gpuwmd *d = scene(&bystander);
	size_t fds = fds_settled(d);

	p = process_start(victim_with_child, NULL);
	process_expect(&p, 'v');
	cr_assert_eq(status_of(d, "leases"), 2);
	cr_assert(kill(p.pid, SIGKILL) == 0);
	cr_assert(EVENTUALLY(FREE_MS, only_the_bystander_is_left(d, fds)), "the pidfd was not heeded");
	process_join(&p);
	scene_end(d, &bystander);
}

Test(kills, twenty_at_once)
{
	struct process bystander, crowd[CROWD];
	struct gpuwmd *d = scene(&bystander);
	size_t fds = fds_settled(d);

	for (int i = 0; i < CROWD; i++)
		crowd[i] = process_start(i % 2 ? victim_mapped : victim_with_handles, NULL);
	for (int i = 0; i < CROWD; i++)
		process_expect(&crowd[i], 'v');
	cr_assert_eq(status_of(d, "leases"), 1 + CROWD);
	for (int i = 0; i < CROWD; i++)
		cr_assert(kill(crowd[i].pid, SIGKILL) == 0);
	cr_assert(EVENTUALLY(FREE_MS, only_the_bystander_is_left(d, fds)));
	for (int i = 0; i < CROWD; i++)
		process_join(&crowd[i]);
	scene_end(d, &bystander);
}

Test(kills, the_last_worker_of_a_retiring_version_frees_it)
{
	struct process bystander, p;
	struct gpuwmd *d = scene(&bystander);
	uint64_t both = memory_of(d);

	p = process_start(victim_mapped, NULL);
	process_expect(&p, 'v');
	OK(gpuwm_retire(d->admin, "m@v1", 0));
	cr_assert_eq(memory_of(d), both);
	process_kill(&p, SIGKILL);
	cr_assert(EVENTUALLY(FREE_MS, version_is(d, "m", "v1", "none") && memory_of(d) < both));
	process_tell(&bystander, 'd');
	process_finish(&bystander);
	DROP(d, "m@v2");
	gpuwmd_stop_empty(d);
}
