/* gpuwmd without memory. Each allocation that a request makes fails once. Then gpuwmd answers the request, refuses it or closes
 * the connection. If gpuwmd refuses a request, it has changed nothing. If the connection ends, nothing remains of what the
 * peer did not hear of. */
#include "tests/support/fail_alloc.h"

#include "tests/support/daemon/access.h"

#include "daemon/work/versions/claims.h"
#include "daemon/work/jobs/job.h"
#include "daemon/work/versions/leases.h"

#define STATE_MAX 4096
#define NEVER 1000000

TestSuite(no_memory, .timeout = 120);

/* The connection of the request, and what another one of the same user has. */
static int sock, other;
static struct version *v1, *v2;
static uint8_t publish_id[16];

/* ---- the state of gpuwmd, as text ---- */

static void print_versions(FILE *to)
{
	struct version *version = NULL;

	while ((version = registry_next_version(server->ledger.registry, NULL, version))) {
		fprintf(to, "%s %s: %lu leases", version->tag, version_state_name(version->state),
			version->lease_count);
		for (uint32_t i = 0; i < version->pin_count; i++)
			fprintf(to, " %s", version->pins[i]);
		for (const struct lease *lease = version->leases; lease; lease = lease->next_of_version)
			fprintf(to, " at %s", lease->address ? lease->address : "-");
		fprintf(to, "\n");
	}
}

/* Both texts of two calls stay valid. */
static const char *look(void)
{
	static char texts[2][STATE_MAX];
	static unsigned at;
	char *text = texts[at++ % 2];
	FILE *to = fmemopen(text, STATE_MAX, "w");
	const struct alias *alias = NULL;
	const char *model;

	print_versions(to);
	while ((alias = registry_next_alias(server->ledger.registry, NULL, alias, &model)))
		fprintf(to, "%s is %s, %lu\n", alias->name, alias->version->tag, alias->generation);
	for (const struct job *job = server->work.jobs.first; job; job = job->next)
		fprintf(to, "%s %s %s\n", job_kind_name(job->kind), job->tag, job_state_name(job->state));
	fprintf(to, "%lu claims, %lu publishes, %lu waiting, %lu revoked, %s\n",
		claim_count(server->ledger.claims), publish_count(server->ledger.publishes),
		server->clients.waiting, revoked_count(&server->work),
		server->work.draining ? "draining" : "open");
	fclose(to);
	return text;
}

/* Turns the loop until nothing is left to do. Other threads close descriptors. */
static void settle(void)
{
	turn();
	TURN_UNTIL(server->loop.active_reqs.count == 0);
	turn();
}

static bool is_now(const char *expected)
{
	settle();
	return strcmp(look(), expected) == 0;
}

/* ---- a request ---- */

struct scenario {
	const char *method;
	enum session_kind kind;
	void (*prepare)(void); /* before the request; NULL: nothing */
	const struct param *params; /* NULL: none */
	void (*then)(void); /* does what the request waits for; NULL: it does not wait */
	bool queries; /* a failure may not end the connection */
	bool may_fail; /* an error may fail the version that the request makes */
	unsigned at_least; /* this many allocations, or the test fails */
};

enum outcome { REFUSED, DONE, ENDED };

static void begin(const struct scenario *s)
{
	server_open();
	log_level_set(LOG_LEVEL_ERROR);
	v1 = owned("m", "v1", getuid());
	v2 = owned("m", "v2", getuid());
	other = greeted(SESSION_WORKER);
	sock = greeted(s->kind);
	if (s->prepare)
		s->prepare();
	settle();
}

static void send_it(const struct scenario *s)
{
	send_with(sock, 77, s->method, s->params);
	if (s->then) {
		turn();
		s->then();
	}
}

/* Receives until the answer comes, and drops notifications: a kick sends one on this connection. */
static enum outcome outcome_of(void)
{
	for (;;) {
		const char *why = "";
		int r;

		forget();
		r = packet_receive(sock, true, &packet);
		if (r == 0)
			return ENDED;
		cr_assert_eq(r, 1, "neither an answer nor an end");
		cr_assert_eq(message_read(packet.data, packet.bytes, &message, &why), 0, "%s", why);
		if (message.type == MESSAGE_RESPONSE)
			return message.error.code ? REFUSED : DONE;
	}
}

static void end(void)
{
	close(other);
	settle();
	server_close();
}

/* The states before the request, after its answer, and after the end of its connection. */
static void learn(const struct scenario *s, char before[STATE_MAX], char done[STATE_MAX], char left[STATE_MAX])
{
	begin(s);
	strcpy(before, look());
	send_it(s);
	settle();
	cr_assert_eq(outcome_of(), DONE, "%s: %s", s->method, message.error.message);
	strcpy(done, look());
	close(sock);
	settle();
	strcpy(left, look());
	end();
}

/* Turns the loop while the n-th allocation fails. Returns false if there are fewer. */
static bool turn_without(unsigned n)
{
	fail_alloc_arm(n);
	turn();
	return fail_alloc_disarm();
}

/* Has the n-th allocation fail. Returns false if the request makes fewer. */
static bool fail(const struct scenario *s, unsigned n)
{
	char before[STATE_MAX], done[STATE_MAX], left[STATE_MAX];
	enum outcome outcome;
	bool failed;

	learn(s, before, done, left);
	begin(s);
	send_it(s);
	failed = turn_without(n);
	settle();
	outcome = outcome_of();
	if (outcome == REFUSED) {
		cr_assert_eq(message.error.code, -ENOMEM, "%s, %u: %s", s->method, n, message.error.message);
		cr_assert(s->may_fail || is_now(s->then ? left : before), "%s, %u: %s, but:\n%s", s->method, n,
			  message.error.message, look());
	} else if (outcome == DONE) {
		cr_assert(is_now(done), "%s, %u: it is done, but:\n%s", s->method, n, look());
	} else {
		cr_assert(!s->queries, "%s, %u ended", s->method, n);
	}
	close(sock);
	turn();
	if (outcome == ENDED)
		cr_assert(is_now(left) || is_now(before), "%s, %u ended, but:\n%s", s->method, n, look());
	end();
	return failed;
}

static void fail_each(const struct scenario *s)
{
	unsigned n = 1;

	while (fail(s, n))
		n++;
	cr_assert_geq(n - 1, s->at_least, "%s: only %u allocations failed", s->method, n - 1);
}

#define FAIL_ALL(scenarios)                                                                                    \
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(*(scenarios)); i++)                                  \
	fail_each(&(scenarios)[i])

/* ---- leases ---- */

static void make_v3(void)
{
	ready("m", "v3");
}

static uint64_t lease_of(int of)
{
	send_get(of, 5, "m@v1", 0);
	cr_assert_eq(answered(of), 0, "%s", message.error.message);
	return answer_u64("lease");
}

/* The only parameter, which take_lease and lease_of_another set. */
static struct param lease_params[] = {NUMBER("lease", 0), {0}};
static struct param announce_params[] = {NUMBER("lease", 0), TEXT("address", "10.0.0.5:8000"), {0}};

static void take_lease(void)
{
	announce_params[0].number = lease_params[0].number = lease_of(sock);
}

Test(no_memory, a_lease_is_answered_or_given_back)
{
	const struct scenario all[] = {
		{.method = "get_handles", .params = PARAMS(TEXT("ref", "m@v1")), .at_least = 3},
		{.method = "get_handles",
		 .params = PARAMS(TEXT("ref", "m@v3"), SIGNED("wait_ms", -1)),
		 .then = make_v3,
		 .at_least = 3},
		{.method = "release", .prepare = take_lease, .params = lease_params},
		{.method = "announce", .prepare = take_lease, .params = announce_params, .at_least = 2},
	};

	FAIL_ALL(all);
}

/* Each lease has an answer of its own. */
Test(no_memory, as_many_leases_are_resumed_as_the_answer_says)
{
	const struct scenario s = {.method = "resume", .prepare = take_lease};
	bool failed = true;

	for (unsigned n = 1; failed; n++) {
		uint64_t given = 0;
		struct message_writer w;
		enum outcome outcome;

		begin(&s);
		begin_request(&w, 77, "resume");
		message_begin_array(&w, "leases");
		for (int i = 0; i < 100; i++) {
			message_begin_map(&w, NULL);
			message_put_u64(&w, "lease", lease_params[0].number + (i < 2 ? 0 : NEVER));
			message_put_hex128(&w, "version", v1->id.bytes);
			message_put_text(&w, "device", DEVICE_HOST);
			message_put_u64(&w, "rank", 0);
			message_end(&w);
		}
		message_end(&w);
		send_request(sock, &w);
		failed = turn_without(n);
		outcome = outcome_of();
		if (outcome == DONE) {
			const msgpack_object *array;
			struct fields f, one;
			uint32_t count;

			fields_of(&f, message.body);
			array = fields_array(&f, "leases", &count);
			for (uint32_t i = 0; i < count; i++) {
				fields_of(&one, &array[i]);
				given += fields_have(&one, "lease");
			}
		}
		if (outcome != ENDED)
			cr_assert_eq(leases(), 1 + given, "%u: %llu leases, %llu told", n,
				     (unsigned long long)leases(), (unsigned long long)given);
		close(sock);
		turn();
		cr_assert_eq(leases(), 0);
		end();
	}
}

/* ---- what operators change ---- */

static void pin_v1(void)
{
	struct error error;

	cr_assert_eq(versions_pin(&server->work, v1, "a", &error), 0);
}

static void lease_of_another(void)
{
	lease_params[0].number = lease_of(other);
}

static void configure_root(void)
{
	config.roots[config.root_count++] = strdup("/models");
}

/* The only parameter, which queue_load sets. */
static struct param job_params[] = {NUMBER("job", 0), {0}};

static void queue_load(void)
{
	struct job *job = new_load("/models/m", "v3", 0);

	job_params[0].number = job->id;
}

#define OPERATOR(name) .method = name, .kind = SESSION_ADMIN

Test(no_memory, what_operators_ask_for_is_answered_or_not_done)
{
	const struct param *const v1_a = PARAMS(TEXT("ref", "m@v1"), TEXT("pin", "a"));
	const struct scenario all[] = {
		{OPERATOR("pin_version"), .params = v1_a, .at_least = 1},
		{OPERATOR("unpin_version"), .params = v1_a, .prepare = pin_v1},
		{OPERATOR("hot_swap"), .params = PARAMS(TEXT("model", "m"), TEXT("to", "v2")), .at_least = 1},
		{OPERATOR("hot_swap"),
		 .params = PARAMS(TEXT("model", "m"), TEXT("to", "v2"), FLAG("retire_old", true)),
		 .at_least = 1},
		{OPERATOR("hot_swap"),
		 .params = PARAMS(TEXT("model", "m"), TEXT("to", "v2"), TEXT("alias", "prod")), .at_least = 1},
		/* removes the alias */
		{OPERATOR("hot_swap"), .params = PARAMS(TEXT("model", "m")), .at_least = 1},
		{OPERATOR("retire"), .params = PARAMS(TEXT("ref", "m@v2")), .at_least = 1},
		{OPERATOR("retire"), .params = PARAMS(TEXT("ref", "m@v2"), SIGNED("wait_ms", -1)),
		 .at_least = 1},
		{OPERATOR("retire"), .params = PARAMS(TEXT("ref", "m@v2"), FLAG("force", true)), .at_least = 1},
		{OPERATOR("drain"), .at_least = 1},
		{OPERATOR("kick"), .params = lease_params, .prepare = lease_of_another, .at_least = 3},
		{OPERATOR("load"), .params = PARAMS(TEXT("source", "/models/m"), TEXT("name", "m@v3")),
		 .prepare = configure_root, .at_least = 3},
		{OPERATOR("cancel"), .params = job_params, .prepare = queue_load},
		{OPERATOR("verify"), .params = PARAMS(TEXT("ref", "m@v1")), .at_least = 1},
	};

	FAIL_ALL(all);
}

/* Of several leases the memory may suffice for some: the error tells of how many. */
Test(no_memory, the_error_of_a_kick_says_how_many_leases_are_revoked)
{
	bool failed = true, partly = false;

	for (unsigned n = 1; failed; n++) {
		unsigned long long told = 0;

		begin(&(struct scenario){.kind = SESSION_ADMIN, .prepare = lease_of_another});
		lease_of(other);
		SEND(sock, 77, "kick", NUMBER("uid", getuid()));
		failed = turn_without(n);
		settle();
		if (outcome_of() == REFUSED) {
			sscanf(message.error.message, "%llu of 2 leases are revoked", &told);
			cr_assert_eq(leases(), 2 - told, "%u: %s", n, message.error.message);
			partly |= told == 1;
		}
		close(sock);
		end();
	}
	cr_assert(partly);
}

/* Without memory for the notice the connection ends, and the library resumes: it hears of it then. */
Test(no_memory, a_holder_hears_of_the_kick_or_its_connection_ends)
{
	bool failed = true, ended = false;

	for (unsigned n = 1; failed; n++) {

		begin(&(struct scenario){.kind = SESSION_ADMIN, .prepare = lease_of_another});
		send_with(sock, 77, "kick", lease_params);
		failed = turn_without(n);
		settle();
		forget();
		if (leases() == 0) {
			int r = packet_receive(other, true, &packet);

			cr_assert(r == 1 || r == 0, "%u: the holder hears nothing", n);
			ended |= r == 0;
		}
		close(sock);
		end();
	}
	cr_assert(ended);
}

/* ---- building ---- */

/* What begins a publish of m@v3. */
#define BEGIN TEXT("name", "m@v3"), TEXT("device", DEVICE_HOST), NUMBER("bytes", 4096)

static void claim(void)
{
	cr_assert_eq(ASK(sock, "claim", TEXT("name", "m@v3")), 0, "%s", message.error.message);
}

static void begin_publish(void)
{
	struct fields f;
	int fd;

	cr_assert_eq(ASK(sock, "publish_begin", BEGIN), 0, "%s", message.error.message);
	fields_of(&f, message.body);
	fields_hex128(&f, "publish", publish_id);
	cr_assert_eq(packet_take_fd(&packet, 0, &fd), 0);
	close(fd);
	turn();
}

/* A publish whose part a checker has looked at already. */
static void begin_checked(void)
{
	struct publish_checked checked = {.part.index.bytes = 100};
	struct publish *publish;
	struct error error;

	begin_publish();
	publish = publish_next(server->ledger.publishes, NULL);
	checked.part.index.fd = memfd_create("index", MFD_CLOEXEC);
	cr_assert_eq(publish_checked(server->ledger.registry, publish, &publish->parts[0], &checked, &error),
		     0);
	job_end(&server->work, server->work.jobs.first, NULL);
}

static const uint8_t content[16];

Test(no_memory, what_publishers_ask_for_is_answered_or_not_done)
{
	const struct param *const v3 = PARAMS(TEXT("name", "m@v3"));
	const struct scenario all[] = {
		{.method = "publish_begin", .params = PARAMS(BEGIN), .at_least = 10},
		{.method = "publish_begin",
		 .params = PARAMS(BEGIN, TEXT("alias", "prod")),
		 .prepare = claim,
		 .at_least = 10},
		{.method = "publish_abort",
		 .params = PARAMS(ID("publish", publish_id)),
		 .prepare = begin_publish},
		{.method = "publish_commit",
		 .params =
			 PARAMS(ID("publish", publish_id), TEXT("device", DEVICE_HOST), ID("content", content)),
		 .prepare = begin_checked,
		 .may_fail = true,
		 .at_least = 1},
		{.method = "claim", .params = v3, .at_least = 1},
		{.method = "claim_give_up", .params = v3, .prepare = claim},
		{.method = "subscribe", .at_least = 1},
	};

	FAIL_ALL(all);
}

/* ---- looking ---- */

static void make_many(void)
{
	char tag[16];

	for (int i = 0; i < 300; i++) {
		snprintf(tag, sizeof(tag), "t%d", i);
		ready("m", tag);
	}
}

/* Also one whose answer is larger than a packet. */
Test(no_memory, a_query_without_memory_ends_no_connection)
{
	static const char *const methods[] = {"ping", "status", "clients", "jobs"};

	for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++)
		fail_each(&(struct scenario){.method = methods[i], .kind = SESSION_ADMIN, .queries = true});
	begin(&(struct scenario){.prepare = make_many});
	send_plain(sock, 8, "list");
	cr_assert(turn_without(3));
	cr_expect_eq(outcome_of(), REFUSED);
	cr_expect(strstr(message.error.message, "could not write the answer"), "%s", message.error.message);
	cr_expect_eq(ask(sock, "list"), 0);
	close(sock);
	end();
}
