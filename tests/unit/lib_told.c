/* What a client knows of the gpuwmd that it talks to, and its events, across restarts. */
#include "tests/support/fail_alloc.h"
#include "tests/support/lib/restart.h"

#include <errno.h>
#include <unistd.h>

TestSuite(told, .init = restart_setup, .fini = client_teardown);

Test(told, knows_which_gpuwmd_it_talks_to)
{
	const char *first = gpuwm_instance(client);

	cr_expect(eq(str, (char *)first, FAKE_INSTANCE));
	cr_expect(eq(str, (char *)gpuwm_ledger(client), FAKE_LEDGER));
	cr_expect(eq(u64, gpuwm_epoch(client), 1));
	fake_restart();
	cr_expect(eq(int, gpuwm_ping(client, NULL), 0));
	cr_expect(ne(str, (char *)gpuwm_instance(client), FAKE_INSTANCE));
	cr_expect(eq(u64, gpuwm_epoch(client), 2));
	cr_expect(eq(str, (char *)gpuwm_ledger(client), FAKE_LEDGER));
	/* Lent for as long as the client. */
	cr_expect(eq(str, (char *)first, FAKE_INSTANCE));
}

Test(told, the_same_gpuwmd_is_the_same)
{
	const char *instance = gpuwm_instance(client);

	connection_shutdown(client->reviver.connection);
	cr_expect(eq(int, gpuwm_ping(client, NULL), 0));
	cr_expect(eq(uint, fake->hellos, 2));
	cr_expect(gpuwm_instance(client) == instance);
}

static void see_seq(const struct gpuwm_event *event, void *user_data)
{
	if (strcmp(event->kind, "disconnected") == 0)
		*(uint64_t *)user_data = event->seq;
}

Test(told, tells_where_events_went_on)
{
	struct gpuwm_events *events;
	uint64_t seq = 0;

	/* Before the first event: after the last one when it was opened. */
	fake->no_events = true;
	cr_assert(eq(int, gpuwm_events_open(client, UINT64_MAX, &events), 0));
	fake_restart();
	while (gpuwm_events_dispatch(events, -1, see_seq, &seq) >= 0)
		;
	cr_expect(eq(u64, seq, 3));
	gpuwm_events_close(events);
	fake->no_events = false;
	cr_assert(eq(int, gpuwm_events_open(client, UINT64_MAX, &events), 0));
	fake_restart();
	while (gpuwm_events_dispatch(events, -1, see_seq, &seq) >= 0)
		;
	cr_expect(eq(u64, seq, 5));
	gpuwm_events_close(events);
}

struct heard {
	unsigned count;
	uint64_t last;
};

static void hear(const struct gpuwm_event *event, void *user_data)
{
	struct heard *heard = user_data;

	heard->count++;
	heard->last = event->seq;
}

/* The first event is not what the protocol says: the next one is told, and so is what is wrong. */
static void expect_refused(const char *key, const char *says)
{
	struct heard heard = {0};
	struct gpuwm_events *events;
	int r = 0, refused = 0;

	strcpy(fake->spoils, key);
	cr_assert(eq(int, gpuwm_events_open(client, UINT64_MAX, &events), 0));
	while (heard.count == 0 || !refused) {
		r = gpuwm_events_dispatch(events, -1, hear, &heard);
		cr_assert(r > 0 || r == -EPROTO, "%s: %d: %s", key, r, gpuwm_error()->message);
		if (r < 0) {
			refused++;
			cr_expect(strstr(gpuwm_error()->message, says) != NULL, "%s", gpuwm_error()->message);
		}
	}
	cr_expect(eq(uint, heard.count, 1), "%s", key);
	cr_expect(eq(u64, heard.last, 5), "%s", key);
	cr_expect(eq(int, gpuwm_events_dispatch(events, 0, hear, &heard), 0), "the subscription goes on");
	gpuwm_events_close(events);
}

Test(told, refuses_what_is_no_event)
{
	expect_refused("seq", "event: \"seq\" is missing");
	expect_refused("kind", "event: \"kind\" is missing");
	expect_refused("time_ms", "event: \"time_ms\" is missing");
	expect_refused("version", "event: \"version\" is not 32 lower-case hexadecimal digits");
	expect_refused("from", "lost: \"from\" is missing");
	expect_refused("to", "lost: \"to\" is missing");
}

Test(told, says_that_events_found_no_memory)
{
	unsigned refused = 0;
	bool failed = true;

	for (unsigned n = 1; failed; n++) {
		struct heard heard = {0};
		struct gpuwm_events *events;
		int r;

		cr_assert(eq(int, gpuwm_events_open(client, UINT64_MAX, &events), 0));
		fail_alloc_arm(n);
		r = gpuwm_events_dispatch(events, -1, hear, &heard);
		failed = fail_alloc_disarm();
		cr_assert(r > 0 || (failed && (r == -ENOMEM || r == -ECONNRESET)), "%u: %d", n, r);
		if (r == -ENOMEM) {
			cr_expect(eq(str, (char *)gpuwm_error()->message, "out of memory: events were lost"));
			refused++;
		}
		gpuwm_events_close(events);
	}
	cr_expect(lt(uint, 2, refused));
}

static int call_events(void)
{
	struct gpuwm_events *events;
	int r = gpuwm_events_open(client, 5, &events);

	return r < 0 ? r : (gpuwm_events_close(events), 0);
}

Test(told, begins_again_where_gpuwmd_ends_before_it_subscribed)
{
	strcpy(fake->dies_at, "subscribe");
	fake->deaths = 2;
	cr_expect(eq(int, call_events(), 0), "%s", gpuwm_error()->message);
	cr_expect(eq(uint, fake->deaths, 0));
}

Test(told, waits_for_the_next_gpuwmd_to_tell_events)
{
	int (*const open)(void) = call_events;
	pthread_t thread;

	fake_kill(fake);
	thread = call_begin_in_thread(&open);
	UNTIL(thread_sleeps_in(getpid(), NULL, CALL_POLL)); /* between two attempts */
	fake_run_again(fake);
	cr_expect(eq(int, call_join(thread), 0));
	with_restart_ms(50);
	fake_kill(fake);
	cr_expect(eq(int, call_events(), -ECONNREFUSED));
	cr_expect(strstr(gpuwm_error()->message, "nobody listens there") != NULL);
}
