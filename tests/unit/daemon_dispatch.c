#include "tests/support/daemon/server.h"

#include <fcntl.h>

TestSuite(dispatch, .init = server_open, .fini = server_close, .timeout = 120);

/* ---- the table ---- */

static const char *const of_operators[] = {"clients", "jobs", "drain", "reload"};
static const char *const of_loaders[] = {"loader_hello",    "loader_checked", "loader_done",
					 "loader_progress", "loader_devices", "loader_roots"};
/* Whether a worker may depends on the model or the job: daemon_access.c, tests/system/load_files.c. */
static const char *const of_models[] = {"publish_begin", "claim",  "pin_version", "unpin_version", "hot_swap",
					"retire",        "verify", "load",        "cancel"};

#define EACH(name, list) for (size_t name = 0; name < sizeof(list) / sizeof(*list); name++)

Test(dispatch, only_operators_operate)
{
	int worker = greeted(SESSION_WORKER), admin = greeted(SESSION_ADMIN);

	EACH(i, of_operators)
	{
		cr_assert_eq(ask(worker, of_operators[i]), -EACCES, "%s", of_operators[i]);
		cr_assert(strstr(message.error.message, "operator"));
	}
	EACH(i, of_operators)
	cr_assert_neq(ask(admin, of_operators[i]), -EACCES, "%s", of_operators[i]);
}

Test(dispatch, only_loaders_speak_for_loaders)
{
	int admin = greeted(SESSION_ADMIN);

	EACH(i, of_loaders)
	cr_assert_eq(ask(admin, of_loaders[i]), -EACCES, "%s", of_loaders[i]);
}

Test(dispatch, whether_a_worker_may_is_asked_of_the_model)
{
	int sock = greeted(SESSION_WORKER);

	server->net.sessions->client->roles = ROLE_WORKER;
	EACH(i, of_models)
	cr_assert_eq(ask(sock, of_models[i]), -EINVAL, "%s", of_models[i]);
}

Test(dispatch, observers_look_and_operate_nothing)
{
	int sock = greeted(SESSION_WORKER);

	server->net.sessions->client->roles = ROLE_WORKER | ROLE_OBSERVER;
	cr_assert_eq(ask(sock, "clients"), 0);
	cr_assert_eq(ask(sock, "jobs"), 0);
	cr_assert_eq(ask(sock, "drain"), -EACCES);
}

Test(dispatch, a_loader_attaches_to_nothing)
{
	int sock = connect_as(SESSION_LOADER);

	server->net.sessions->client->greeted = true;
	cr_assert_eq(ask(sock, "get_handles"), -EACCES);
	cr_assert_eq(ask(sock, "hello"), -EACCES);
	cr_assert_eq(ask(sock, "loader_done"), -EINVAL, "it has no job");
}

Test(dispatch, hello_comes_first_but_for_ping)
{
	int sock = connect_as(SESSION_WORKER);

	cr_assert_eq(ask(sock, "ping"), 0);
	cr_assert_eq(ask(sock, "list"), -EPROTO);
	say_hello(sock);
	cr_assert_eq(ask(sock, "list"), 0);
}

Test(dispatch, hello_needs_a_common_version)
{
	int sock = connect_as(SESSION_WORKER);

	cr_assert_eq(ASK(sock, "hello", NUMBER("protocol_min", 700), NUMBER("protocol_max", 701),
			 TEXT("client", "test")),
		     -EPROTONOSUPPORT);
	cr_assert_str_eq(message.error.message,
			 "the client speaks protocol 700 to 701, gpuwmd " GPUWM_VERSION " speaks 1 to 1");
	cr_assert_eq(ask(sock, "list"), -EPROTO);
}

Test(dispatch, an_unknown_method_is_no_end)
{
	int sock = greeted(SESSION_WORKER);

	cr_assert_eq(ask(sock, "frobnicate"), -ENOSYS);
	cr_assert_str_eq(message.error.message, "gpuwmd " GPUWM_VERSION " has no method \"frobnicate\"");
	cr_assert_eq(ask(sock, "a_method_whose_name_is_longer_than_any_that_there_is"), -ENOSYS);
	cr_assert_eq(ask(sock, "ping"), 0);
	cr_assert_eq(server->clients.refused, 2);
}

Test(dispatch, unknown_parameters_are_skipped)
{
	int sock = greeted(SESSION_WORKER);

	cr_assert_eq(ASK(sock, "ping", TEXT("novelty", "of a later version")), 0);
}

Test(dispatch, a_wrong_parameter_is_refused_by_its_name)
{
	char longest[200];
	const struct {
		const char *method, *words;
		const struct param *params;
	} wrong[] = {
		{"release", "lease", PARAMS(TEXT("other", "m"))},
		{"get_handles", "ref", PARAMS(NUMBER("ref", 7))},
		{"get_handles", "wait_ms", PARAMS(TEXT("ref", "m"), SIGNED("wait_ms", -2))},
		{"get_handles", "\"@v1\"", PARAMS(TEXT("ref", "@v1"))},
		{"get_handles", "\"../m\"", PARAMS(TEXT("ref", "../m"))},
		{"get_handles", "\"m m@v1\"", PARAMS(TEXT("ref", "m m@v1"))},
		{"get_handles", "128", PARAMS(TEXT("ref", longest))},
		{"claim", "name", PARAMS(NUMBER("wait_ms", 0))},
		{"claim", "\"m\"", PARAMS(TEXT("name", "m"))},
		{"claim", "\"current\" can't be a tag", PARAMS(TEXT("name", "m@current"))},
		{"claim", "is not model@tag", PARAMS(TEXT("name", "0123456789abcdef0123456789abcdef"))},
		{"claim_give_up", "name", PARAMS(NUMBER("wait_ms", 0))},
		/* An empty text is not a missing one. */
		{"get_handles", "the device \"\" is neither \"host\" nor a UUID",
		 PARAMS(TEXT("ref", "m"), TEXT("device", ""))},
		{"claim", "the device \"\" is neither \"host\" nor a UUID",
		 PARAMS(TEXT("name", "m@v1"), TEXT("device", ""))},
		{"publish_begin", "the alias is empty",
		 PARAMS(TEXT("name", "m@v1"), TEXT("device", DEVICE_HOST), NUMBER("bytes", 1),
			TEXT("alias", ""))},
		{"publish_begin", "the alias is empty",
		 PARAMS(TEXT("name", "m@v1"), TEXT("device", DEVICE_HOST), NUMBER("bytes", 1),
			TEXT("publish", "0123456789abcdef0123456789abcdef"), TEXT("alias", ""))},
		{"publish_begin", "the alias has a leading '.'",
		 PARAMS(TEXT("name", "m@v1"), TEXT("device", DEVICE_HOST), NUMBER("bytes", 1),
			TEXT("alias", ".a"))},
		/* Only a missing `to` removes an alias. An empty one is a mistake. */
		{"hot_swap", "empty", PARAMS(TEXT("model", "m"), TEXT("to", ""))},
	};
	int sock = greeted(SESSION_ADMIN);

	memset(longest, 'a', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	EACH(i, wrong)
	{
		cr_assert_eq(ask_with(sock, wrong[i].method, wrong[i].params), -EINVAL, "%s", wrong[i].words);
		cr_assert(strstr(message.error.message, wrong[i].words), "%s", message.error.message);
	}
}

static void ends_it(const char *bytes, size_t count)
{
	int sock = greeted(SESSION_WORKER);

	cr_assert_eq(send(sock, bytes, count, 0), (ssize_t)count);
	cr_assert_eq(answered(sock), -EPROTO);
	cr_assert(is_ended(sock));
	close(sock);
}

Test(dispatch, what_is_no_request_ends_the_session)
{
	ends_it("\xdd\xff\xff\xff\xff", 5); /* an array that asks for 16 GiB */
	ends_it("\xc1", 1);
	ends_it("\x93\x02\xa5"
		"event"
		"\x91\x80",
		10); /* a notification */
	ends_it("\x94\x01\x01\xc0\x80", 5); /* a response */
}

/* ---- waiting ---- */

Test(dispatch, a_version_is_waited_for)
{
	int sock = greeted(SESSION_WORKER);

	send_get(sock, 5, "m@v1", -1);
	cr_assert_not(comes(sock));
	cr_assert_eq(server->clients.waiting, 1);
	ready("m", "v2");
	cr_assert_not(comes(sock));
	ready("m", "v1");
	cr_assert_eq(answered(sock), 0);
	cr_assert_eq(message.id, 5);
	cr_assert_eq(server->clients.waiting, 0);
}

Test(dispatch, a_wait_runs_out)
{
	int sock = greeted(SESSION_WORKER);

	send_get(sock, 5, "m@v1", 0);
	cr_assert_eq(answered(sock), -ENOENT);
	send_get(sock, 6, "m@v1", 20);
	cr_assert_eq(answered_later(sock), -ETIMEDOUT);
	cr_assert(strstr(message.error.message, "m"));
}

Test(dispatch, a_wait_gets_the_error_of_a_version_that_fails)
{
	int sock = greeted(SESSION_WORKER);
	struct publish_part *part;
	struct publish *publish = building("m", "v1", &part);
	struct error reason;

	send_get(sock, 5, "m@v1", -1);
	cr_assert_not(comes(sock));
	error_set(&reason, -EBADMSG, NULL, "tensor x is damaged");
	versions_fail(&server->work, publish, &reason, NULL);
	cr_assert_eq(answered(sock), -EBADMSG);
	cr_assert(strstr(message.error.message, "tensor x is damaged"));
}

Test(dispatch, a_wait_goes_with_its_session)
{
	int sock = greeted(SESSION_WORKER);

	send_get(sock, 5, "m@v1", 60000);
	send_get(sock, 6, "m@v1", -1);
	turn();
	cr_assert_eq(server->clients.waiting, 2);
	close(sock);
	turn();
	cr_assert_eq(server->clients.waiting, 0);
}

Test(dispatch, a_session_waits_for_so_many_things_only)
{
	int sock = greeted(SESSION_WORKER);

	for (uint64_t i = 0; i < REQUESTS_PER_SESSION_MAX; i++)
		send_get(sock, 10 + i, "m@v1", -1);
	TURN_UNTIL(server->clients.waiting == REQUESTS_PER_SESSION_MAX);
	send_get(sock, 5, "m@v1", -1);
	cr_assert_eq(answered(sock), -EDQUOT);
	cr_assert_eq(message.id, 5);
}

Test(dispatch, stopping_leaves_what_waits_to_the_next_one)
{
	int sock = greeted(SESSION_WORKER), admin = greeted(SESSION_ADMIN);

	ready("m", "v1");
	send_get(sock, 5, "m@v2", -1);
	cr_assert_not(comes(sock));
	server_stop(server);
	cr_assert_eq(answered(sock), -ECONNRESET);
	cr_assert(strstr(message.error.message, "stopping"));
	close(admin);
}

Test(dispatch, draining_refuses_what_waits_and_what_comes)
{
	int sock = greeted(SESSION_WORKER), admin = greeted(SESSION_ADMIN);

	ready("m", "v1");
	send_get(sock, 5, "m@v2", -1);
	cr_assert_not(comes(sock));
	cr_assert_eq(ask(admin, "drain"), 0);
	cr_assert_eq(answered(sock), -ESHUTDOWN);
	send_get(sock, 6, "m@v1", 0);
	cr_assert_eq(answered(sock), -ESHUTDOWN);
	TURN_UNTIL(registry_counts(server->ledger.registry).versions == 0);
}

/* ---- results ---- */

Test(dispatch, a_large_result_comes_as_a_sealed_memfd)
{
	int sock = greeted(SESSION_WORKER);
	struct message body;
	const char *why;
	char tag[16];
	uint64_t bytes;
	uint32_t count;
	struct fields f;
	void *data;

	for (int i = 0; i < 300; i++) {
		snprintf(tag, sizeof(tag), "v%d", i);
		ready("m", tag);
	}
	cr_assert_eq(ask(sock, "list"), 0);
	cr_assert_eq(packet.fd_count, 1);
	cr_assert_eq(answer_u64("body"), 0);
	bytes = answer_u64("bytes");
	cr_assert_gt(bytes, PACKET_BYTES_MAX);
	cr_assert(fcntl(packet.fds[0], F_GET_SEALS) & F_SEAL_WRITE);
	data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, packet.fds[0], 0);
	cr_assert_eq(message_read_body(data, bytes, &body, &why), 0, "%s", why);
	fields_of(&f, body.body);
	fields_array(&f, "versions", &count);
	cr_assert_eq(count, 300);
	message_clear(&body);
	munmap(data, bytes);
}

Test(dispatch, a_lease_of_another_session_is_not_released)
{
	int sock = greeted(SESSION_WORKER), other = greeted(SESSION_WORKER);
	uint64_t lease;

	ready("m", "v1");
	send_get(sock, 2, "m", 0);
	cr_assert_eq(answered(sock), 0);
	lease = answer_u64("lease");
	cr_assert_eq(ASK(other, "release", NUMBER("lease", lease)), -ENOENT);
	cr_assert_eq(ASK(sock, "release", NUMBER("lease", lease)), 0);
	cr_assert_eq(leases(), 0);
}

static void send_retire(int sock, const char *ref, int64_t wait_ms)
{
	SEND(sock, 4, "retire", TEXT("ref", ref), SIGNED("wait_ms", wait_ms));
}

Test(dispatch, retire_waits_for_the_last_lease)
{
	int sock = greeted(SESSION_WORKER), admin = greeted(SESSION_ADMIN);

	ready("m", "v1");
	ready("m", "v2");
	send_get(sock, 2, "m@v2", 0);
	cr_assert_eq(answered(sock), 0);
	send_retire(admin, "m@v1", 0);
	cr_assert_eq(answered(admin), -EBUSY);
	send_retire(admin, "m@v2", 20);
	cr_assert_eq(answered_later(admin), -ETIMEDOUT);
	send_retire(admin, "m@v2", -1);
	cr_assert_not(comes(admin));
	close(sock);
	cr_assert_eq(answered_later(admin), 0);
	cr_assert_str_eq(answer_text("state"), "freed");
}

static int looked(int sock, const char *ref)
{
	return ASK(sock, "get_handles", TEXT("ref", ref), FLAG("look", true));
}

Test(dispatch, operators_look_at_what_gives_no_leases)
{
	static const struct error damage = {.code = -EBADMSG, .message = "tensor w"};
	int sock = greeted(SESSION_WORKER), admin = greeted(SESSION_ADMIN);
	struct version *retiring;
	struct error error;

	version_taint(ready("m", "v1"), &damage);
	retiring = ready("m", "v2");
	cr_assert_eq(version_pin(retiring, "look", &error), 0);
	cr_assert_eq(versions_retire(&server->work, retiring, &error), 0);
	send_get(admin, 2, "m@v1", 0);
	cr_assert_eq(answered(admin), -EBADMSG);
	send_get(admin, 2, "m@v2", 0);
	cr_assert_eq(answered(admin), -ENOENT);
	cr_assert_eq(looked(sock, "m@v1"), -EACCES);
	cr_assert_eq(looked(admin, "m@v1"), 0);
	cr_assert_eq(packet.fd_count, 2);
	cr_assert_eq(looked(admin, "m@v2"), 0);
	cr_assert_eq(leases(), 2);
	cr_assert_eq(version_unpin(retiring, "look", &error), 0);
	cr_assert(!version_unwanted(retiring), "a look holds it");
	cr_assert_eq(looked(admin, "m@v3"), -ENOENT);
}

Test(dispatch, memory_comes_back_when_a_version_is_freed)
{
	const struct device *host = device_find(&server->ledger.devices, DEVICE_HOST);
	int admin = greeted(SESSION_ADMIN), fds = fd_count();

	ready("m", "v1");
	ready("m", "v2");
	cr_assert_eq(fd_count(), fds + 4);
	cr_assert_eq(host->used, 8192);
	send_retire(admin, "m@v2", -1);
	cr_assert_eq(answered_later(admin), 0);
	cr_assert_eq(fd_count(), fds + 2);
	cr_assert_eq(host->used, 4096);
}

Test(dispatch, an_alias_that_can_not_be_moved_is_told_and_fails_nothing)
{
	struct version *old = ready("m", "v1"), *version;
	struct publish_part *part;
	struct publish *publish = building("m", "v2", &part);
	static const uint8_t content[16];
	struct swap_result swapped;
	struct job *job = NULL;
	struct error error, kept;
	char alias[16];
	int admin = greeted(SESSION_ADMIN);

	snprintf(publish->alias, sizeof(publish->alias), "late");
	for (int i = 0; i < ALIASES_PER_MODEL_MAX; i++) {
		snprintf(alias, sizeof(alias), "a%d", i);
		cr_assert_eq(versions_swap(&server->work,
					   &(struct versions_swap){.model = "m", .alias = alias, .to = old},
					   &swapped, &kept, &error),
			     0);
	}
	job = new_load("/models/m", "v2", 0);
	job->version = publish->version->id;
	version = complete(publish, part, 1);
	job_end(&server->work, job, NULL);
	cr_expect_eq(version->state, VERSION_READY);
	cr_expect_eq(job->state, JOB_DONE);
	cr_assert(job->error);
	cr_expect_eq(job->error->code, -EDQUOT);
	cr_expect(strstr(job->error->message, "m@v2 is ready, but its alias late was not moved: "));
	cr_expect_eq(ASK(admin, "publish_commit", ID("publish", version->publish.bytes),
			 TEXT("device", DEVICE_HOST), ID("content", content)),
		     0);
	cr_expect_str_eq(answer_text("state"), "ready");
	cr_expect(answer_has("alias_error"));
}
