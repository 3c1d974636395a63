/* gpuwmctl: what it prints, for people and programs. */
#include "raw.h"

#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(ctl);

static json_t *ctl_json(const char *command, const char *argument)
{
	json_error_t error;
	json_t *answer;

	CTL_IS(0, "-o", "json", command, argument);
	answer = json_loads(output, 0, &error);
	cr_assert(answer, "%s: %s: %s", command, error.text, output);
	return answer;
}

GPUWMD_TEST_BY(ctl, tables_show_versions_leases_clients_and_jobs, with_two_versions(gpuwmd_start(NULL)),
	       gpuwmd_stop)
{
	struct process worker = worker_start(d, "m", 1);

	CTL_IS(0, "ls");
	cr_assert(strstr(output, "m@v1") && strstr(output, "current") && strstr(output, "ready"), "%s", output);
	CTL_IS(0, "ps");
	SAYS("m@v1");
	CTL_IS(0, "clients");
	CTL_IS(0, "jobs");
	SAYS("done");
	CTL_IS(0, "status");
	SAYS("host");
	process_tell(&worker, 'd');
	process_finish(&worker);
}

/* Calls itself what looks like another name. */
static int disguised(int argc, char **argv)
{
	struct gpuwm_mapping *mapping;
	struct gpuwm_client *client;

	CHILD_ASSERT(argc == 1 && prctl(PR_SET_NAME, argv[0]) == 0);
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0 && gpuwm_attach(client, "m", NULL, &mapping) == 0);
	child_say('a');
	child_hear();
	gpuwm_detach(mapping);
	gpuwm_close(client);
	return 0;
}

GPUWMD_TEST_BY(ctl, tables_show_characters_that_are_invisible_and_json_is_exact,
	       with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	static const char name[] = "a\u202Eb\u200Bc";
	struct process worker = process_start(disguised, name, NULL);

	process_expect(&worker, 'a');
	CTL_IS(0, "ps");
	SAYS("a\\u{202E}b\\u{200B}c");
	CTL_IS(0, "clients");
	cr_assert(strstr(output, "a\\u{202E}b\\u{200B}c") && !strstr(output, "\u202E"), "%s", output);
	CTL_IS(0, "-o", "json", "clients");
	cr_assert(strstr(output, name), "%s", output);
	process_tell(&worker, 'x');
	process_finish(&worker);
}

/* A table's cell holds some of many names, and never a part of one. */
GPUWMD_TEST_BY(ctl, names_that_a_cell_does_not_hold_are_not_cut, with_two_versions(gpuwmd_start(NULL)),
	       gpuwmd_stop)
{
	char pin[120];

	for (int i = 10; i < 20; i++) {
		snprintf(pin, sizeof(pin), "%d%0100d", i, 7);
		CTL_IS(0, "pin", "m@v1", pin);
	}
	CTL_IS(0, "ls", "m");
	cr_assert(strstr(output, "7,13") && strstr(output, "7,...  ") && !strstr(output, "0,...  "), "%s",
		  output);
}

GPUWMD_TEST_BY(ctl, json_is_the_protocols_answer, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	json_t *list = ctl_json("ls", "m"), *status = ctl_json("status", NULL), *jobs = ctl_json("jobs", NULL),
	       *clients = ctl_json("clients", NULL);

	cr_assert_eq(json_array_size(json_object_get(list, "versions")), 2);
	cr_assert_eq(json_integer_value(json_object_get(status, "pid")), d->pid);
	cr_assert_eq(json_integer_value(json_object_get(status, "versions")), 2);
	cr_assert_eq(json_array_size(json_object_get(jobs, "jobs")), 2);
	cr_assert_geq(json_array_size(json_object_get(clients, "clients")), 1);
	json_decref(list);
	json_decref(status);
	json_decref(jobs);
	json_decref(clients);
}

GPUWMD_TEST_BY(ctl, show_lists_every_tensor, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	CTL_IS(0, "show", "m@v2");
	cr_assert(strstr(output, "layer.005.weight") && strstr(output, "scalar") && strstr(output, "BF16"),
		  "%s", output);
}

GPUWMD_TEST_BY(ctl, show_prints_the_source, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	char source[PATH_MAX + 8];

	snprintf(source, sizeof(source), "source %s\n", checkpoint_write(d, "v2", SMALL(2)));
	CTL_IS(0, "show", "m@v2");
	cr_assert(strstr(output, source), "no %s in %s", source, output);
}

GPUWMD_TEST_BY(ctl, operates_from_load_to_retire, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop_empty)
{
	CTL_IS(0, "ping");
	CTL_IS(0, "pin", "m@v1", "night");
	CTL_IS(0, "swap", "m", "v2", "--retire-old");
	cr_assert(version_is(d, "m", "v1", "retiring"));
	CTL_IS(0, "unpin", "m@v1", "night");
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	CTL_IS(0, "swap", "m", "--remove");
	CTL_IS(0, "retire", "m@v2", "--wait", "5");
}

GPUWMD_TEST_BY(ctl, an_old_version_that_is_not_retired_is_told_and_can_be_gone_back_to,
	       with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	CTL_IS(0, "swap", "m@prod", "v1");
	CTL_IS(5, "swap", "m", "v2", "--retire-old");
	SAYS("m@current is now v2; it was v1, which is not retired\n");
	SAYS("m@v1 is named by 1 alias\n  move or remove first: prod\n");
	cr_assert(version_is(d, "m", "v1", "ready"));
	CTL_IS(0, "rollback", "m");
	SAYS("m@current is now v1; it was v2\n");
	CTL_IS(5, "-o", "json", "swap", "m@prod", "v2", "--retire-old");
	SAYS("\"retire_error\":{\"code\":\"EBUSY\"");
	CTL_IS(0, "-o", "json", "swap", "m@prod", "--remove");
	SAYS("\"retire_error\":null");
}

GPUWMD_TEST_BY(ctl, rm_removes_what_failed, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_publish *publish;

	OK(publish_begin(client, d->device, "m@v3", SMALL(3), &publish));
	CTL_IS(1, "rm", "m@v3");
	SAYS("m@v3 is building");
	SAYS("cancel its job or publish instead");
	OK(gpuwm_publish_abort(publish, "no such luck"));
	gpuwm_close(client);
	cr_assert(version_is(d, "m", "v3", "failed"));
	CTL_IS(1, "retire", "m@v3");
	SAYS("gpuwmctl rm");
	CTL_IS(0, "-o", "json", "rm", "m@v3");
	SAYS("{\"ref\":\"m@v3\",");
	SAYS("\"state\":\"removed\"");
	cr_assert(version_is(d, "m", "v3", "none"));
	CTL_IS(4, "rm", "m@v3");
}

GPUWMD_TEST_BY(ctl, rollback_goes_to_previous, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	CTL_IS(0, "swap", "m", "v2");
	CTL_IS(0, "rollback", "m");
	worker_reads(d, "m", 1);
}

/* Tensors that are tied are there once. */
GPUWMD_TEST_BY(ctl, show_tells_what_tensors_take_of_the_segments, with_two_versions(gpuwmd_start(NULL)),
	       gpuwmd_stop)
{
	const uint64_t shape[] = {3000};
	const struct gpuwm_tensor_spec specs[] = {
		{.name = "a", .dtype = GPUWM_U8, .ndim = 1, .shape = shape},
		{.name = "b", .dtype = GPUWM_U8, .ndim = 1, .shape = shape, .tied_to = "c"},
		{.name = "c", .dtype = GPUWM_U8, .ndim = 1, .shape = shape},
	};
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	struct gpuwm_client *client = client_new();
	struct gpuwm_publish *publish;
	json_t *shown, *version;

	options.name = "tied@v1";
	options.device = d->device;
	OK(gpuwm_publish_begin(client, &options, specs, 3, &publish));
	OK(gpuwm_publish_commit(publish, NULL));
	shown = ctl_json("show", "tied@v1");
	version = json_object_get(shown, "version");
	cr_assert_eq(json_integer_value(json_object_get(version, "tensor_bytes")), 6000);
	cr_assert(json_integer_value(json_object_get(version, "bytes")) >= 8192);
	json_decref(shown);
	CTL_IS(0, "show", "tied@v1");
	SAYS("tensors 3 of 5.9 KiB (");
	gpuwm_close(client);
}

GPUWMD_TEST_BY(ctl, an_empty_variable_removes_no_alias, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	CTL_IS(2, "swap", "m", "");
	CTL_IS(0, "show", "m@current");
}

GPUWMD_TEST_BY(ctl, one_replica_a_device, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	CTL_IS(1, "load", d->root, "m@v3", "--device", d->device, "--device", d->device);
	SAYS("twice");
}

GPUWMD_TEST_BY(ctl, a_finished_job_has_done_all, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	json_t *jobs = ctl_json("jobs", "1"), *job = json_array_get(json_object_get(jobs, "jobs"), 0);
	json_int_t total = json_integer_value(json_object_get(job, "total"));

	cr_assert(total > 0);
	cr_assert_eq(json_integer_value(json_object_get(job, "done")), total);
	json_decref(jobs);
}

GPUWMD_TEST_BY(ctl, events_are_one_json_a_line, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	json_t *event;
	json_error_t error;

	OK(swap_to(d, "m", "v2", false));
	CTL_IS(0, "-o", "json", "events", "--after", "0", "--count", "1");
	event = json_loads(output, 0, &error);
	cr_assert(event && json_integer_value(json_object_get(event, "seq")) >= 1, "%s", output);
	json_decref(event);
}

/* A socket of another type, at which every connection fails. */
static int strange_socket(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	cr_assert_eq(bind(sock, (struct sockaddr *)&address, sizeof address), 0);
	cr_assert_eq(listen(sock, 1), 0);
	return sock;
}

GPUWMD_TEST(ctl, only_who_is_no_operator_goes_to_the_workers_socket)
{
	struct gpuwmd other = {.pid = 0};
	char workers[96], admins[96];
	int sock;

	folder_make(&other);
	snprintf(workers, sizeof workers, "%s/gpuwm.sock", other.dir);
	snprintf(admins, sizeof admins, "%s/admin.sock", other.dir);
	cr_assert_eq(symlink(d->socket, workers), 0);
	cr_expect_eq(CTL("--socket", workers, "ls"), 0, "there is no admin.sock: %s", output);
	sock = strange_socket(admins);
	cr_expect_neq(CTL("--socket", workers, "ls"), 0, "%s", output);
	cr_expect(strstr(output, admins), "%s", output);
	close(sock);
	cr_expect_eq(CTL("--socket", workers, "ls"), 0, "nobody listens at admin.sock: %s", output);
}

/* Root's child as nobody, who has a lease: what gpuwmctl ps shows of it. argv: a process of root with another one. */
static int stranger_looks(int argc, char **argv)
{
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;
	char own[32];
	int code;

	(void)argc;
	CHILD_ASSERT(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0 && gpuwm_attach(client, "m", NULL, &mapping) == 0);
	snprintf(own, sizeof(own), " %d ", (int)getpid());
	code = CTL("ps");
	if (code < 126)
		CHILD_ASSERT(strstr(output, own) && !strstr(output, argv[0]));
	gpuwm_detach(mapping);
	gpuwm_close(client);
	return code;
}

GPUWMD_TEST_IF(ctl, ps_shows_everybody_the_own_leases, NEEDS_ROOT(),
	       with_two_versions(gpuwmd_start("--set", "socket.mode=0666", NULL)), gpuwmd_stop)
{
	struct process worker = worker_start(d, "m", 1), stranger;
	char other[32];
	int status;

	snprintf(other, sizeof(other), " %d ", (int)worker.pid);
	stranger = process_start(stranger_looks, other, NULL);
	status = process_join(&stranger);
	SKIP_UNLESS(WEXITSTATUS(status) < 126, "the programs lie where only root can reach them");
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%#x", status);
	CTL_IS(0, "ps");
	SAYS(other);
	process_tell(&worker, 'e');
	process_finish(&worker);
}

/* argv: the source, the device. */
static int load_with_an_alias(int argc, char **argv)
{
	int code = CTL("load", argv[0], "m@v1", "--device", argv[1], "--alias", "late", "--wait");

	(void)argc;
	fputs(output, stderr);
	CHILD_ASSERT(strstr(output, "m@v1 is ready, but its alias late was not moved: \"late\" is a tag"));
	return code;
}

#define STOPS_MAX 10

/* A load of m@v1 that is stopped amid it. */
static struct process start_and_stop(struct gpuwmd *d, const struct checkpoint *c)
{
	const char *path = checkpoint_write(d, "v1", c);
	struct process load;

	for (int stops = 0; stops < STOPS_MAX; stops++) {
		load = process_start(load_with_an_alias, path, d->device, NULL);
		cr_assert(EVENTUALLY(SOON_MS,
				     status_of(d, "publishes") == 1 || version_is(d, "m", "v1", "ready")));
		loaders_kill(d, SIGSTOP);
		OK(gpuwm_ping(d->admin, NULL)); /* what they have said before is heard */
		if (status_of(d, "publishes") == 1)
			return load;
		/* On a busy machine it was done before it was stopped. */
		loaders_kill(d, SIGCONT);
		process_join(&load);
		DROP(d, "m@v1");
	}
	cr_assert_fail("each load was done before it was stopped");
	return load;
}

GPUWMD_TEST(ctl, a_load_tells_that_its_alias_became_a_tag_meanwhile)
{
	const struct checkpoint slow = {.seed = 1, .count = 16, .bytes = MB(16)};
	struct raw_publish late = {.checker = -1, .segment = -1, .index = -1};
	static struct raw_reply reply;
	struct process load;
	struct fields f;
	int status;

	load = start_and_stop(d, &slow);
	late.sock = raw_client(d->socket);
	RAW_SEND(late.sock, 2, "publish_begin", TEXT("name", "m@late"), TEXT("device", "host"),
		 NUMBER("bytes", KB(4)));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "publishes") == 2));
	loaders_kill(d, SIGCONT);
	status = process_join(&load);
	cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%d", status);
	cr_expect(version_is(d, "m", "v1", "ready"));
	cr_assert(raw_receive(late.sock, &reply));
	cr_assert_eq(reply.message.error.code, 0);
	fields_of(&f, reply.message.body);
	fields_hex128(&f, "publish", late.id);
	/* Without it the checker takes the publisher for gone. */
	cr_assert_eq(packet_take_fd(&reply.packet, fields_u64(&f, "checker"), &late.checker), 0);
	raw_reply_clear(&reply);
	cr_assert_eq(raw_publish_abort(&late), 0, "%s", raw_refusal());
	raw_publish_end(&late);
	DROP(d, "m@v1");
}
