/* Other users, and workers in containers. */
#include "harness.h"

#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(access_);

#define NOBODY 65534

static void become_nobody(void)
{
	CHILD_ASSERT(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

/* argv: what connecting gives. */
static int stranger(int argc, char **argv)
{
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;
	int r;

	CHILD_ASSERT(argc == 1);
	become_nobody();
	r = gpuwm_connect(NULL, &client);
	CHILD_ASSERT(r == -atoi(argv[0]));
	if (r < 0) {
		CHILD_ASSERT(strstr(gpuwm_error()->detail, "the socket belongs to the group root"));
		return 0;
	}
	CHILD_ASSERT(gpuwm_attach(client, "m", NULL, &mapping) == 0);
	CHILD_ASSERT(mapping_holds(mapping, 1));
	child_say('a');
	child_hear();
	CHILD_ASSERT(gpuwm_detach(mapping) == 0);
	gpuwm_close(client);
	return 0;
}

GPUWMD_TEST_IF(access_, another_user_attaches_where_the_sockets_mode_lets_it, NEEDS_ROOT(),
	       gpuwmd_start("--set", "socket.mode=0666", NULL), gpuwmd_stop_empty)
{
	struct process other;
	json_t *clients, *client;
	bool seen = false;
	size_t i;

	load_small(d, 1);
	other = process_start(stranger, "0", NULL);
	process_expect(&other, 'a');
	clients = query(d->admin, "clients", NULL);
	json_array_foreach(json_object_get(clients, "clients"), i, client)
		seen |= json_integer_value(json_object_get(client, "uid")) == NOBODY;
	cr_assert(seen, "nobody is not among the clients");
	json_decref(clients);
	process_tell(&other, 'x');
	process_finish(&other);
	DROP(d, "m@v1");
}

GPUWMD_TEST_IF(access_, another_user_is_refused_by_the_sockets_mode_and_told_the_group_to_join, NEEDS_ROOT(),
	       gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	struct process other;
	char text[16];

	snprintf(text, sizeof text, "%d", EACCES);
	other = process_start(stranger, text, NULL);
	process_finish(&other);
}

/* As in a container: other users, processes, mounts, network and IPC. */
static int contained(int argc, char **argv)
{
	int status;
	pid_t pid;

	(void)argc, (void)argv;
	if (unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC) < 0) {
		child_say('x');
		return 0;
	}
	pid = fork(); /* the first process in there */
	if (pid == 0) {
		struct gpuwm_client *client;
		struct gpuwm_mapping *mapping;

		CHILD_ASSERT(getpid() == 1);
		CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
		CHILD_ASSERT(gpuwm_attach(client, "m", NULL, &mapping) == 0);
		CHILD_ASSERT(mapping_holds(mapping, 1));
		child_say('a');
		child_hear();
		_exit(0);
	}
	CHILD_ASSERT(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	_exit(0); /* LeakSanitizer could not look into this process */
}

GPUWMD_TEST_IF(access_, a_worker_in_namespaces_of_its_own,
	       SKIP_UNLESS(backend() == BACKEND_HOST, "a GPU's driver needs its devices in there"),
	       gpuwmd_start("--set", "socket.mode=0666", NULL), gpuwmd_stop_empty)
{
	struct process worker;

	load_small(d, 1);
	worker = process_start(contained, NULL);
	SKIP_UNLESS(process_hear(&worker) == 'a', "namespaces are not permitted here");
	cr_assert_eq(status_of(d, "leases"), 1);
	process_tell(&worker, 'x');
	process_finish(&worker);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0));
	DROP(d, "m@v1");
}
