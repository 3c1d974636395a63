/* Calls of a client whose gpuwmd goes away. */
#include "tests/support/lib/calls.h"
#include "base/clock.h"

#include <errno.h>

TestSuite(revive, .init = restart_setup, .fini = client_teardown);

/* ---- each kind of call ------------------------------------------------- */

static int call_ping(void)
{
	return gpuwm_ping(client, NULL);
}

static int query(const char *method)
{
	char *json = NULL;
	int r = gpuwm_query(client, method, NULL, &json);

	free(json);
	return r;
}

static int call_job_wait(void)
{
	return gpuwm_job_wait(client, 1, -1);
}

static int call_attach(void)
{
	struct gpuwm_mapping *mapping = NULL;
	int r = gpuwm_attach(client, "m", NULL, &mapping);

	return r < 0 ? r : gpuwm_detach(mapping);
}

static int call_handles(void)
{
	struct gpuwm_handles *handles = NULL;
	int r = gpuwm_get_handles(client, "m", NULL, &handles);

	return r < 0 ? r : gpuwm_handles_release(handles);
}

static int call_verify(void)
{
	uint64_t jobs[GPUWM_VERIFY_JOBS_MAX];
	size_t count;

	return gpuwm_verify(client, "1", NULL, jobs, &count);
}

static int call_reload(void)
{
	return gpuwm_reload(client);
}

static int call_begin(void)
{
	struct gpuwm_publish *publish = NULL;
	int r = publish_begin(&publish);

	return r < 0 ? r : gpuwm_publish_abort(publish, NULL);
}

static const struct {
	const char *method;
	int (*call)(void); /* NULL: the method is a query */
	bool again;
} kinds[] = {
	{"ping", call_ping, true},
	{"list", NULL, true},
	{"status", NULL, true},
	{"clients", NULL, true},
	{"jobs", NULL, true},
	{"jobs", call_job_wait, true},
	{"get_handles", call_attach, true},
	{"get_handles", call_handles, true},
	{"release", call_attach, true},
	{"pin_version", call_pin, false},
	{"unpin_version", call_unpin, false},
	{"hot_swap", call_swap, false},
	{"load", call_load, false},
	{"verify", call_verify, true},
	{"retire", call_retire, false},
	{"cancel", call_cancel, false},
	{"drain", call_drain, false},
	{"reload", call_reload, true},
	{"publish_begin", call_begin, false},
	{"publish_abort", call_begin, true}, /* it ended with the connection */
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static int call_kind(size_t i)
{
	return kinds[i].call ? kinds[i].call() : query(kinds[i].method);
}

Test(revive, repeats_an_unanswered_call_where_that_is_safe)
{
	for (size_t i = 0; i < KINDS; i++) {
		int r;

		pause_forget();
		dies_at(kinds[i].method, kinds[i].again ? 2 : 1);
		r = call_kind(i);
		cr_expect(eq(int, r, kinds[i].again ? 0 : -ECONNABORTED), "%s: %s", kinds[i].method,
			  gpuwm_error()->message);
		if (r == -ECONNABORTED) {
			cr_expect(strstr(gpuwm_error()->message, "before it answered") != NULL);
			cr_expect(strstr(gpuwm_error()->detail, "look, then repeat") != NULL);
			cr_expect(eq(str, (char *)gpuwm_error()->name, "ECONNABORTED"));
		}
		fake->deaths = 0;
		cr_expect(eq(int, call_kind(i), 0), "%s: %s", kinds[i].method, gpuwm_error()->message);
	}
	cr_expect(eq(uint, fake->leases, 0));
}

Test(revive, sends_every_call_that_did_not_go_out)
{
	for (size_t i = 0; i < KINDS; i++) {
		pause_forget();
		fake_restart();
		cr_expect(eq(int, call_kind(i), 0), "%s: %s", kinds[i].method, gpuwm_error()->message);
	}
}

/* A gpuwmd that stops has not done it, whatever it was. */
Test(revive, asks_the_next_one_when_gpuwmd_says_that_it_leaves)
{
	struct gpuwm_mapping *mapping = attach_to("m"); /* so that a thread watches the connection */
	int (*const pin)(void) = call_pin;
	pthread_t thread;

	refuses("pin_version", -ECONNRESET, "gpuwmd is stopping");
	strcpy(fake->pauses_at, "hello");
	thread = call_begin_in_thread(&pin);
	sem_wait(&fake->paused);
	fake->refuse[0] = fake->pauses_at[0] = 0;
	sem_post(&fake->go);
	cr_expect(eq(int, call_join(thread), 0));
	cr_expect(eq(int, (int)fake->peer_count, 3));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(revive, knows_that_a_gpuwmd_that_stopped_had_retired_it)
{
	int (*const retire)(void) = call_retire;
	pthread_t thread;

	refuses("retire", -ECONNRESET, "gpuwmd is stopping");
	strcpy(fake->pauses_at, "hello");
	thread = call_begin_in_thread(&retire);
	sem_wait(&fake->paused);
	refuses("retire", -ENOENT, "no such version");
	fake->pauses_at[0] = 0;
	sem_post(&fake->go);
	cr_expect(eq(int, call_join(thread), 0));
	cr_expect(eq(int, call_retire(), -ENOENT));
}

static int call_attach_waiting(void)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping = NULL;
	int r;

	options.wait_ms = 60000;
	r = gpuwm_attach(client, "m", &options, &mapping);
	return r < 0 ? r : gpuwm_detach(mapping);
}

#define SPENT_MS 20 /* of the wait, on the gpuwmd that dies */

Test(revive, waits_out_what_is_left_of_the_wait)
{
	int (*const attach_waiting)(void) = call_attach_waiting;
	uint64_t paused_ms;
	pthread_t thread;

	cr_assert(eq(int, call_attach_waiting(), 0));
	strcpy(fake->pauses_at, "get_handles");
	dies_at("get_handles", 1);
	thread = call_begin_in_thread(&attach_waiting);
	sem_wait(&fake->paused);
	paused_ms = clock_steady_ms();
	UNTIL(clock_steady_ms() >= paused_ms + SPENT_MS);
	fake->pauses_at[0] = 0;
	sem_post(&fake->go);
	cr_expect(eq(int, call_join(thread), 0));
	cr_expect(lt(long, 50000, fake->longest_ms));
	cr_expect(le(long, fake->wait_ms, fake->longest_ms - SPENT_MS));
	cr_expect(lt(long, 40000, fake->wait_ms));
}

/* ---- publishing -------------------------------------------------------- */

Test(revive, ends_a_publish_with_its_connection)
{
	struct gpuwm_publish *publish = NULL;

	cr_assert(eq(int, publish_begin(&publish), 0));
	fake_restart();
	cr_expect(eq(int, gpuwm_publish_commit(publish, NULL), -ECONNRESET));
	cr_expect(strstr(gpuwm_error()->message, "begun on has ended") != NULL, "%s", gpuwm_error()->message);
	cr_assert(eq(int, publish_begin(&publish), 0));
	fake_restart();
	cr_assert(eq(int, gpuwm_ping(client, NULL), 0));
	cr_expect(eq(int, gpuwm_publish_commit(publish, NULL), -ECONNRESET));
	cr_expect(strstr(gpuwm_error()->message, "begun on has ended") != NULL, "%s", gpuwm_error()->message);
	cr_assert(eq(int, publish_begin(&publish), 0));
	fake_restart();
	cr_expect(eq(int, gpuwm_publish_abort(publish, NULL), 0));
	cr_expect(eq(uint, fake->aborts, 0));
}

Test(revive, finds_its_commit_again)
{
	struct gpuwm_publish *publish = NULL;
	struct gpuwm_version_info version;

	cr_assert(eq(int, publish_begin(&publish), 0));
	fake->answers_first = false;
	dies_at("publish_commit", 2);
	cr_expect(eq(int, gpuwm_publish_commit(publish, &version), 0), "%s", gpuwm_error()->message);
	cr_expect(eq(str, version.id, FAKE_VERSION));
}

Test(revive, says_that_a_commit_was_not_kept)
{
	struct gpuwm_publish *publish = NULL;

	cr_assert(eq(int, publish_begin(&publish), 0));
	dies_at("publish_commit", 1);
	error_set(&fake->refusal, -ENOENT, NULL, "no such publish");
	fake->forgetful = true;
	cr_expect(eq(int, gpuwm_publish_commit(publish, NULL), -ECANCELED));
	cr_expect(strstr(gpuwm_error()->message, "m@v1") != NULL, "%s", gpuwm_error()->message);
	cr_expect(eq(str, (char *)gpuwm_error()->detail, "publish again"));
}

/* ---- waiting for the next one ------------------------------------------ */

Test(revive, waits_as_long_as_it_was_told)
{
	struct gpuwm_mapping *mapping;
	uint64_t before;

	with_restart_ms(200);
	for (int watched = 0; watched < 2; watched++) {
		mapping = watched ? attach_to("m") : NULL;
		fake_kill(fake);
		before = clock_steady_ms();
		cr_expect(eq(int, gpuwm_pin(client, "m", "p"), -ECONNREFUSED));
		cr_expect(ge(long, clock_steady_ms() - before, 200));
		cr_expect(lt(long, clock_steady_ms() - before, RESTART_WAIT_MS / 2));
		cr_expect(strstr(gpuwm_error()->message, "did not come back in time") != NULL);
		cr_expect(strstr(gpuwm_error()->message, "nobody listens there") != NULL);
		cr_expect(strstr(gpuwm_error()->detail, "how long a call waits") != NULL);
		fake_run_again(fake);
		pause_forget();
		cr_expect(eq(int, gpuwm_pin(client, "m", "p"), 0));
		gpuwm_detach(mapping);
	}
}

static int attach_within(int64_t wait_ms)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping = NULL;
	int r;

	options.wait_ms = wait_ms;
	r = gpuwm_attach(client, "m", &options, &mapping);
	return r < 0 ? r : gpuwm_detach(mapping);
}

Test(revive, waits_no_longer_than_the_call_may)
{
	uint64_t before = clock_steady_ms();

	strcpy(fake->silent, "get_handles");
	cr_expect(eq(int, attach_within(200), -ETIMEDOUT));
	cr_expect(ge(long, clock_steady_ms() - before, 200));
	cr_expect(lt(long, clock_steady_ms() - before, CALL_TIMEOUT_MS / 2));
	fake->silent[0] = 0;
	cr_expect(eq(int, attach_within(10000), 0));
	fake_kill(fake);
	before = clock_steady_ms();
	cr_expect(eq(int, attach_within(200), -ECONNREFUSED));
	cr_expect(lt(long, clock_steady_ms() - before, RESTART_WAIT_MS / 2));
	fake_run_again(fake);
}

Test(revive, tells_a_call_that_its_client_was_closed)
{
	struct gpuwm_mapping *mapping = attach_to("m");

	fake_kill(fake);
	/* As another thread's gpuwm_close does first; the rest of it would free the client. */
	cr_assert(reviver_stop(&client->reviver));
	client->reviver.watched = false;
	cr_expect(eq(int, gpuwm_pin(client, "m", "p"), -ECANCELED));
	cr_expect(eq(str, (char *)gpuwm_error()->message, "the client was closed meanwhile"));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
	fake_run_again(fake);
}

Test(revive, waits_for_ever_where_it_is_told_to)
{
	int (*const ping)(void) = call_ping;
	struct gpuwm_mapping *mapping;
	pthread_t thread;

	with_restart_ms(-1);
	mapping = attach_to("m");
	fake_kill(fake);
	thread = call_begin_in_thread(&ping);
	fails_to_connect(4);
	fake_run_again(fake);
	cr_expect(eq(int, call_join(thread), 0));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(revive, says_what_became_of_a_commit_that_nobody_knows_of)
{
	struct gpuwm_publish *publish = NULL;

	with_restart_ms(100);
	cr_assert(eq(int, publish_begin(&publish), 0));
	strcpy(fake->pauses_at, "publish_commit");
	dies_at("publish_commit", 1);
	strcpy(fake->silent, "hello");
	sem_post(&fake->go);
	cr_expect(eq(int, gpuwm_publish_commit(publish, NULL), -ECONNABORTED));
	cr_expect(strstr(gpuwm_error()->message, "took the commit of m@v1") != NULL);
}

#define ATTEMPTS 7
#define SETTLED_MS 50 /* as in reviver.c: after such a life the pauses begin anew */
/* The client pauses between them: 5, 10, … 160 ms, or a random time down to half of that. On a busy machine one connection may live for
 * SETTLED_MS; in the middle that saves most: 5, 10, 20, the life, 5, 10, 20. */
#define ATTEMPTS_MIN_MS (RECONNECT_MIN_MS * ((1 << (ATTEMPTS / 2)) - 1) + SETTLED_MS)

Test(revive, does_not_run_against_a_gpuwmd_that_dies_at_once)
{
	const char *const moments[] = {"hello", "resume"};
	struct gpuwm_mapping *mapping = attach_to("m");

	fake->answers_first = true;
	for (int i = 0; i < 2; i++) {
		const uint64_t before_ms = clock_steady_ms();
		const unsigned hellos = fake->hellos;
		uint64_t took_ms;

		dies_at(moments[i], UINT32_MAX);
		pause_forget();
		fake_restart();
		UNTIL(fake->hellos >= hellos + ATTEMPTS);
		took_ms = clock_steady_ms() - before_ms;
		cr_expect(ge(long, took_ms, ATTEMPTS_MIN_MS), "%s: %d attempts", moments[i], ATTEMPTS);
		fake->deaths = 0;
		leases_are(1);
	}
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

#define STAYED_MS 60000

/* The gpuwmd that the client is connected to has been there for so long. */
static void has_stayed(int64_t ms)
{
	pthread_mutex_lock(&client->reviver.lock);
	client->reviver.since_ms -= ms;
	pthread_mutex_unlock(&client->reviver.lock);
}

Test(revive, is_quick_again_after_a_gpuwmd_that_stayed)
{
	struct gpuwm_mapping *mapping = attach_to("m");

	dies_at("hello", 6);
	fake_restart();
	leases_are(1);
	cr_expect(lt(long, 100, client->reviver.pause_ms));
	/* On a busy machine the next one may come late, and the pauses have grown by then. */
	for (int tries = 0; client->reviver.pause_ms > 40; tries++) {
		cr_assert(lt(int, tries, 20));
		has_stayed(STAYED_MS);
		fake_restart();
		leases_are(1);
	}
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

/* What it ends is known after restart_ms: it is not sent for ever. */
Test(revive, gives_up_a_call_that_every_gpuwmd_dies_of)
{
	uint64_t before = clock_steady_ms();
	int r;

	with_restart_ms(3 * RECONNECT_MAX_MS);
	dies_at("ping", UINT32_MAX);
	r = gpuwm_ping(client, NULL);
	cr_expect(eq(int, r, -ECONNREFUSED), "%s", gpuwm_error()->message);
	cr_expect(lt(long, clock_steady_ms() - before, RESTART_WAIT_MS / 2));
	fake->deaths = 0;
}

Test(revive, connects_to_a_gpuwmd_that_dies_at_the_greeting)
{
	dies_at("hello", 3);
	with_restart_ms(0);
	cr_expect(eq(int, gpuwm_ping(client, NULL), 0));
	cr_expect(eq(uint, fake->deaths, 0));
}

/* ---- what else ends a connection --------------------------------------- */

/* As a call that gets no answer in time, but without the 30 seconds of slack. */
Test(revive, connects_again_after_a_call_without_an_answer)
{
	struct gpuwm_mapping *mapping = attach_to("m");
	struct connection *connection;
	struct message_writer w;
	struct error error;

	strcpy(fake->silent, "ping");
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_request(&w, request_next_id(), "ping");
	message_end(&w);
	connection = connection_keep(client->reviver.connection);
	cr_assert(eq(int, connection_call(connection, &w, 20, NULL, &error), -ETIMEDOUT));
	connection_free(connection);
	message_writer_clear(&w);
	fake->silent[0] = 0;
	UNTIL(fake->resumed == 1);
	cr_expect(eq(int, gpuwm_ping(client, NULL), 0));
	cr_expect(eq(int, gpuwm_mapping_check(mapping), 0));
	cr_expect(eq(uint, fake->leases, 1));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(revive, once_ends_with_its_connection)
{
	struct gpuwm_connect_options options = to_fake();
	struct gpuwm_mapping *mapping;
	struct gpuwm_publish *publish;

	options.flags = GPUWM_CONNECT_ONCE;
	options.restart_ms = -1;
	gpuwm_close(client);
	client = client_with(&options);
	mapping = attach_to("m");
	cr_assert(eq(int, publish_begin(&publish), 0));
	cr_expect(eq(int, gpuwm_mapping_check(mapping), 0));
	fake_restart();
	cr_expect(eq(int, gpuwm_mapping_check(mapping), -ECONNRESET));
	cr_expect(eq(int, gpuwm_ping(client, NULL), -ECONNRESET));
	cr_expect(eq(int, gpuwm_publish_commit(publish, NULL), -ECONNRESET));
	cr_expect(holds_sevens(mapping));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
	cr_expect(eq(uint, fake->resumes, 0));
}

#define RECONNECTS 1000

Test(revive, leaks_nothing_over_many_reconnects)
{
	struct gpuwm_mapping *mapping = attach_to("m");
	int before;

	cr_assert(eq(int, gpuwm_ping(client, NULL), 0));
	before = fd_count();
	for (int i = 0; i < RECONNECTS; i++) {
		pause_forget();
		dies_at("ping", 1);
		cr_assert(eq(int, gpuwm_ping(client, NULL), 0));
	}
	cr_expect(eq(uint, fake->resumed, RECONNECTS));
	cr_expect(eq(int, fd_count(), before));
	cr_expect(eq(uint, threads_of_library(), 1));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

/* ---- many threads ------------------------------------------------------ */

static _Atomic bool over;
static _Atomic unsigned come_and_gone;

static void *come_and_go(void *unused)
{
	while (!over) {
		struct gpuwm_mapping *mapping = attach_to("m");

		cr_assert(holds_sevens(mapping));
		cr_assert(eq(int, gpuwm_mapping_check(mapping), 0));
		cr_assert(eq(int, gpuwm_detach(mapping), 0));
		come_and_gone++;
	}
	return unused;
}

Test(revive, serves_threads_that_come_and_go)
{
	struct gpuwm_mapping *mapping = attach_to("m");
	pthread_t threads_[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&threads_[i], NULL, come_and_go, NULL);
	for (unsigned i = 0; i < 60; i++) {
		const unsigned before = come_and_gone;

		pause_forget();
		fake_restart();
		UNTIL(come_and_gone >= before + i % 7); /* 0: gpuwmd goes away while it is called */
	}
	over = true;
	for (int i = 0; i < 4; i++)
		pthread_join(threads_[i], NULL);
	leases_are(1);
	cr_expect(eq(int, gpuwm_mapping_check(mapping), 0));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}
