/* Each allocation of each request fails once. The peer is told what is so, or the connection ends: an error means that
 * nothing was done. What nobody was told of is not there. */
#include "tests/support/fail_alloc.h"

#include "tests/support/daemon/server.h"

#include "daemon/work/claims.h"
#include "daemon/work/job.h"
#include "daemon/work/revoked.h"

#define TEXT 4096
#define NEVER 1000000

TestSuite(untold, .timeout = 120);

/* The connection of the request, and what another one of the same user has. */
static int sock, other;
static struct version *v1, *v2;
static uint8_t publish_id[16];

/* ---- what is there ---- */

static char *add(char *end, const char *format, ...) __attribute__((format(printf, 2, 3)));
static char *add(char *end, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	end += vsprintf(end, format, list);
	va_end(list);
	return end;
}

static char *add_versions(char *end)
{
	struct version *version = NULL;

	while ((version = registry_next_version(server->ledger.registry, NULL, version))) {
		end = add(end, "%s %s: %llu leases", version->tag, version_state_name(version->state),
			  (unsigned long long)version->lease_count);
		for (uint32_t i = 0; i < version->pin_count; i++)
			end = add(end, " %s", version->pins[i]);
		end = add(end, "\n");
	}
	return end;
}

static char *add_aliases(char *end)
{
	const struct alias *alias = NULL;
	const char *model;

	while ((alias = registry_next_alias(server->ledger.registry, NULL, alias, &model)))
		end = add(end, "%s is %s, %llu\n", alias->name, alias->version->tag,
			  (unsigned long long)alias->generation);
	return end;
}

static char *add_jobs(char *end)
{
	for (const struct job *job = server->work.jobs.first; job; job = job->next)
		end = add(end, "%s %s %s\n", job_kind_name(job->kind), job->tag, job_state_name(job->state));
	return end;
}

static const char *look(void)
{
	static char texts[2][TEXT];
	static unsigned at;
	char *text = texts[at++ % 2], *end = text;

	end = add_versions(end);
	end = add_aliases(end);
	end = add_jobs(end);
	add(end, "%llu claims, %llu publishes, %llu waiting, %llu revoked, %s\n",
	    (unsigned long long)claim_count(server->ledger.claims),
	    (unsigned long long)publish_count(server->ledger.publishes),
	    (unsigned long long)server->clients.waiting, (unsigned long long)revoked_count(&server->work),
	    server->work.draining ? "draining" : "open");
	return text;
}

/* Until nothing is left to do: descriptors are closed on other threads. */
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
	void (*put)(struct message_writer *w); /* its parameters; NULL: none */
	void (*then)(void); /* what the request waits for; NULL: it does not wait */
	bool looks; /* an error is all that a failure may bring */
	bool fails; /* an error may fail the version that the request makes */
	unsigned at_least; /* allocations that fail */
};

enum outcome { REFUSED, DONE, ENDED };

static void begin(const struct scenario *s)
{
	server_open();
	log_init(LOG_LEVEL_ERROR);
	v1 = ready("m", "v1");
	v2 = ready("m", "v2");
	other = greeted(SESSION_WORKER);
	sock = greeted(s->kind);
	if (s->prepare)
		s->prepare();
	settle();
}

static void send_it(const struct scenario *s)
{
	struct message_writer w;

	begin_request(&w, 77, s->method);
	if (s->put)
		s->put(&w);
	send_request(sock, &w);
	if (s->then) {
		turn();
		s->then();
	}
}

/* Drops what else is told (kick tells on the same connection). */
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

/* What is there once it is done, and when its connection has ended then. */
static void learn(const struct scenario *s, char before[TEXT], char done[TEXT], char left[TEXT])
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

/* The n-th allocation fails. False: there are not so many. */
static bool fail(const struct scenario *s, unsigned n)
{
	char before[TEXT], done[TEXT], left[TEXT];
	enum outcome outcome;
	bool failed;

	learn(s, before, done, left);
	begin(s);
	send_it(s);
	fail_alloc_arm(n);
	turn();
	failed = fail_alloc_disarm();
	settle();
	outcome = outcome_of();
	if (outcome == REFUSED) {
		cr_assert_eq(message.error.code, -ENOMEM, "%s, %u: %s", s->method, n, message.error.message);
		cr_assert(s->fails || is_now(s->then ? left : before), "%s, %u: %s, but:\n%s", s->method, n,
			  message.error.message, look());
	} else if (outcome == DONE) {
		cr_assert(is_now(done), "%s, %u: it is done, but:\n%s", s->method, n, look());
	} else {
		cr_assert(!s->looks, "%s, %u ended", s->method, n);
	}
	close(sock);
	turn();
	if (outcome == ENDED)
		cr_assert(is_now(left) || is_now(before), "%s, %u: untold is:\n%s", s->method, n, look());
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

/* ---- leases ---- */

static void put_ref(struct message_writer *w)
{
	message_put_text(w, "ref", "m@v1");
}

Test(untold, a_lease_that_is_not_told_is_not_there)
{
	fail_each(&(struct scenario){.method = METHOD_GET_HANDLES, .put = put_ref, .at_least = 3});
}

static void put_waiting(struct message_writer *w)
{
	message_put_text(w, "ref", "m@v3");
	message_put_i64(w, "wait_ms", -1);
}

static void make_v3(void)
{
	ready("m", "v3");
}

Test(untold, a_lease_that_was_waited_for_is_told_or_not_there)
{
	fail_each(&(struct scenario){
		.method = METHOD_GET_HANDLES, .put = put_waiting, .then = make_v3, .at_least = 3});
}

static uint64_t lease_of(int of)
{
	send_get(of, 5, "m@v1", 0);
	cr_assert_eq(answered(of), 0, "%s", message.error.message);
	return answer_u64("lease");
}

static uint64_t lease;

static void take_lease(void)
{
	lease = lease_of(sock);
}

static void put_lease(struct message_writer *w)
{
	message_put_u64(w, "lease", lease);
}

Test(untold, a_release_is_told)
{
	fail_each(&(struct scenario){.method = METHOD_RELEASE, .prepare = take_lease, .put = put_lease});
}

/* Each lease has an answer of its own. */
Test(untold, what_is_resumed_is_what_the_answer_says)
{
	const struct scenario s = {.method = METHOD_RESUME, .prepare = take_lease};
	bool failed = true;

	for (unsigned n = 1; failed; n++) {
		uint64_t given = 0;
		struct message_writer w;
		enum outcome outcome;

		begin(&s);
		begin_request(&w, 77, METHOD_RESUME);
		message_begin_array(&w, "leases");
		for (int i = 0; i < 100; i++) {
			message_begin_map(&w, NULL);
			message_put_u64(&w, "lease", i < 2 ? lease : lease + NEVER);
			message_put_hex128(&w, "version", v1->id.bytes);
			message_put_text(&w, "device", DEVICE_HOST);
			message_put_u64(&w, "rank", 0);
			message_end(&w);
		}
		message_end(&w);
		send_request(sock, &w);
		fail_alloc_arm(n);
		turn();
		failed = fail_alloc_disarm();
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

static void put_pin(struct message_writer *w)
{
	put_ref(w);
	message_put_text(w, "pin", "a");
}

static void pin(void)
{
	struct error error;

	cr_assert_eq(versions_pin(&server->work, v1, "a", &error), 0);
}

Test(untold, a_pin_is_told_or_not_there)
{
	fail_each(&(struct scenario){
		.method = METHOD_PIN_VERSION, .kind = SESSION_ADMIN, .put = put_pin, .at_least = 1});
	fail_each(&(struct scenario){
		.method = METHOD_UNPIN_VERSION, .kind = SESSION_ADMIN, .prepare = pin, .put = put_pin});
}

static void put_swap(struct message_writer *w)
{
	message_put_text(w, "model", "m");
	message_put_text(w, "to", "v2");
}

static void put_swap_and_retire(struct message_writer *w)
{
	put_swap(w);
	message_put_bool(w, "retire_old", true);
}

static void put_new_alias(struct message_writer *w)
{
	put_swap(w);
	message_put_text(w, "alias", "prod");
}

static void put_removed_alias(struct message_writer *w)
{
	message_put_text(w, "model", "m");
}

Test(untold, a_swap_is_told_or_not_done)
{
	void (*const puts[])(struct message_writer *) = {put_swap, put_swap_and_retire, put_new_alias,
							 put_removed_alias};

	for (size_t i = 0; i < sizeof(puts) / sizeof(*puts); i++)
		fail_each(&(struct scenario){
			.method = METHOD_HOT_SWAP, .kind = SESSION_ADMIN, .put = puts[i], .at_least = 1});
}

static void put_v2(struct message_writer *w)
{
	message_put_text(w, "ref", "m@v2");
}

static void put_v2_waiting(struct message_writer *w)
{
	put_v2(w);
	message_put_i64(w, "wait_ms", -1);
}

static void put_v2_force(struct message_writer *w)
{
	put_v2(w);
	message_put_bool(w, "force", true);
}

Test(untold, a_retire_is_told_or_not_done)
{
	void (*const puts[])(struct message_writer *) = {put_v2, put_v2_waiting, put_v2_force};

	for (size_t i = 0; i < sizeof(puts) / sizeof(*puts); i++)
		fail_each(&(struct scenario){
			.method = METHOD_RETIRE, .kind = SESSION_ADMIN, .put = puts[i], .at_least = 1});
}

Test(untold, a_drain_is_told_or_not_done)
{
	fail_each(&(struct scenario){.method = METHOD_DRAIN, .kind = SESSION_ADMIN, .at_least = 1});
}

static void lease_of_another(void)
{
	lease = lease_of(other);
}

Test(untold, a_kick_is_told_or_not_done)
{
	fail_each(&(struct scenario){.method = METHOD_KICK,
				     .kind = SESSION_ADMIN,
				     .prepare = lease_of_another,
				     .put = put_lease,
				     .at_least = 3});
}

/* Of several leases the memory may suffice for some: the error tells of how many. */
Test(untold, a_kick_of_several_that_fails_tells_how_many_are_revoked)
{
	bool failed = true, partly = false;

	for (unsigned n = 1; failed; n++) {
		struct message_writer w;
		unsigned long long told = 0;

		begin(&(struct scenario){.kind = SESSION_ADMIN, .prepare = lease_of_another});
		lease_of(other);
		begin_request(&w, 77, METHOD_KICK);
		message_put_u64(&w, "uid", getuid());
		send_request(sock, &w);
		fail_alloc_arm(n);
		turn();
		failed = fail_alloc_disarm();
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
Test(untold, a_lease_that_was_kicked_is_told_or_its_connection_ends)
{
	bool failed = true, ended = false;

	for (unsigned n = 1; failed; n++) {
		struct message_writer w;

		begin(&(struct scenario){.kind = SESSION_ADMIN, .prepare = lease_of_another});
		begin_request(&w, 77, METHOD_KICK);
		put_lease(&w);
		send_request(sock, &w);
		fail_alloc_arm(n);
		turn();
		failed = fail_alloc_disarm();
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

/* ---- jobs ---- */

static void configure_root(void)
{
	config.roots[config.root_count++] = strdup("/models");
}

static void put_load(struct message_writer *w)
{
	message_put_text(w, "source", "/models/m");
	message_put_text(w, "name", "m@v3");
}

Test(untold, a_load_is_told_or_not_begun)
{
	fail_each(&(struct scenario){.method = METHOD_LOAD,
				     .kind = SESSION_ADMIN,
				     .prepare = configure_root,
				     .put = put_load,
				     .at_least = 3});
}

static void queue_load(void)
{
	struct error error;
	struct job *job;

	cr_assert_eq(job_new(&server->work, &(struct job_wish){JOB_LOAD, "m", "v3", 0}, &job, &error), 0);
	job->source = strdup("/models/m");
}

static void put_job_id(struct message_writer *w)
{
	message_put_u64(w, "job", server->work.jobs.first->id);
}

Test(untold, a_cancel_is_told_or_not_done)
{
	fail_each(&(struct scenario){
		.method = METHOD_CANCEL, .kind = SESSION_ADMIN, .prepare = queue_load, .put = put_job_id});
}

Test(untold, a_verify_is_told_or_not_begun)
{
	fail_each(&(struct scenario){
		.method = METHOD_VERIFY, .kind = SESSION_ADMIN, .put = put_ref, .at_least = 1});
}

/* ---- building ---- */

static void put_name(struct message_writer *w)
{
	message_put_text(w, "name", "m@v3");
}

static void put_begin(struct message_writer *w)
{
	put_name(w);
	message_put_text(w, "device", DEVICE_HOST);
	message_put_u64(w, "bytes", 4096);
}

static void put_begin_with_alias(struct message_writer *w)
{
	put_begin(w);
	message_put_text(w, "alias", "prod");
}

static void claim(void)
{
	struct message_writer w;

	begin_request(&w, 6, METHOD_CLAIM);
	put_name(&w);
	send_request(sock, &w);
	cr_assert_eq(answered(sock), 0, "%s", message.error.message);
}

Test(untold, a_publish_is_told_or_not_begun)
{
	fail_each(&(struct scenario){.method = METHOD_PUBLISH_BEGIN, .put = put_begin, .at_least = 10});
	fail_each(&(struct scenario){
		.method = METHOD_PUBLISH_BEGIN, .prepare = claim, .put = put_begin_with_alias, .at_least = 10});
}

static void begin_publish(void)
{
	struct message_writer w;
	struct fields f;
	int fd;

	begin_request(&w, 6, METHOD_PUBLISH_BEGIN);
	put_begin(&w);
	send_request(sock, &w);
	cr_assert_eq(answered(sock), 0, "%s", message.error.message);
	fields_of(&f, message.body);
	fields_hex128(&f, "publish", publish_id);
	cr_assert_eq(packet_take_fd(&packet, 0, &fd), 0);
	close(fd);
	turn();
}

static void put_publish(struct message_writer *w)
{
	message_put_hex128(w, "publish", publish_id);
}

Test(untold, an_abort_is_told_or_not_done)
{
	fail_each(&(struct scenario){
		.method = METHOD_PUBLISH_ABORT, .prepare = begin_publish, .put = put_publish});
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

static void put_commit(struct message_writer *w)
{
	static const uint8_t content[16];

	put_publish(w);
	message_put_text(w, "device", DEVICE_HOST);
	message_put_hex128(w, "content", content);
}

Test(untold, a_commit_is_told_or_the_version_failed)
{
	fail_each(&(struct scenario){.method = METHOD_PUBLISH_COMMIT,
				     .prepare = begin_checked,
				     .put = put_commit,
				     .fails = true,
				     .at_least = 1});
}

Test(untold, a_claim_is_told_or_not_there)
{
	fail_each(&(struct scenario){.method = METHOD_CLAIM, .put = put_name, .at_least = 1});
	fail_each(&(struct scenario){.method = METHOD_CLAIM_GIVE_UP, .prepare = claim, .put = put_name});
}

Test(untold, a_subscription_is_told)
{
	fail_each(&(struct scenario){.method = METHOD_SUBSCRIBE, .at_least = 1});
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
Test(untold, to_look_without_memory_ends_no_connection)
{
	static const char *const methods[] = {METHOD_PING, METHOD_STATUS, METHOD_CLIENTS, METHOD_JOBS};

	for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++)
		fail_each(&(struct scenario){.method = methods[i], .kind = SESSION_ADMIN, .looks = true});
	begin(&(struct scenario){.prepare = make_many});
	send_plain(sock, 8, METHOD_LIST);
	fail_alloc_arm(3);
	turn();
	cr_assert(fail_alloc_disarm());
	cr_expect_eq(outcome_of(), REFUSED);
	cr_expect(strstr(message.error.message, "could not write the answer"), "%s", message.error.message);
	cr_expect_eq(ask(sock, METHOD_LIST), 0);
	close(sock);
	end();
}
