/* When the program hears that it lost a lease, and what goes on while it hears it. */
#include "tests/support/lib/restart.h"

#include "client/lib/lease.h"

#include <errno.h>

TestSuite(lost, .init = restart_setup, .fini = client_teardown);

#define MANY 600 /* more than two requests of RESUME_LEASES_MAX */

/* Static: where a test fails, the library's thread may still be in the function. */
static sem_t may_return;
static _Atomic unsigned times;

static void wait_then_count(const struct gpuwm_lost *lost, void *user_data)
{
	(void)lost;
	(void)user_data;
	sem_wait(&may_return);
	times++;
}

/* The test's client is one whose program waits in its function for `may_return`. */
static void with_program_that_waits(void)
{
	struct gpuwm_connect_options options = to_fake();

	sem_init(&may_return, 0, 0);
	options.lost = wait_then_count;
	options.restart_ms = 5000;
	gpuwm_close(client);
	client = client_with(&options);
}

/* Each gpuwmd answers for some leases, and ends before it has answered for all. */
Test(lost, lease_is_told_before_there_is_a_connection_again)
{
	static struct gpuwm_mapping *mappings[MANY];

	with_program_that_waits();
	sem_post(&may_return);
	for (int i = 0; i < MANY; i++)
		mappings[i] = attach_to("m");
	error_set(&fake->loss, -ENOENT, NULL, "no such version");
	fake->lose = 1;
	fake->answers_first = true;
	dies_at("resume", UINT32_MAX);
	fake_restart();
	UNTIL(times == 1);
	fake->deaths = 0;
	leases_are(MANY - 1);
	for (int i = 0; i < MANY; i++)
		cr_assert(eq(int, gpuwm_detach(mappings[i]), 0));
}

/* The call waits for the library's thread to connect again. That thread finds a lease to tell of first. */
Test(lost, lease_that_is_told_keeps_no_call_from_connecting_again)
{
	struct gpuwm_mapping *mapping;

	with_program_that_waits();
	for (unsigned i = 1; i <= 100; i++) {
		mapping = attach_to("m");
		pause_forget();
		fake->revokes_dying = fake->grants;
		dies_at("ping", 1);
		cr_assert(eq(int, gpuwm_ping(client, NULL), 0), "%u: %s", i, gpuwm_error()->message);
		sem_post(&may_return);
		UNTIL(times == i);
		cr_assert(eq(int, gpuwm_detach(mapping), 0));
	}
}

/* What gpuwmd says, on the connection of that round, of the lease with this number. */
static void hears_revoked(uint64_t id, uint64_t round)
{
	struct message_writer w;
	struct message message = {0};
	const char *why;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "revoked");
	message_put_text(&w, "reason", "an operator revoked it");
	message_begin_array(&w, "leases");
	message_put_u64(&w, NULL, id);
	message_end(&w);
	message_end(&w);
	cr_assert(eq(int, message_finish(&w), 0));
	cr_assert(eq(int, message_read(w.buffer.data, w.buffer.size, &message, &why), 0));
	leases_on_notify(&message, NULL, client, round);
	message_clear(&message);
	message_writer_clear(&w);
}

/* A call may read the end of the old connection when the next gpuwmd has given the number to another lease. */
Test(lost, lease_is_not_revoked_by_its_number_on_another_connection)
{
	struct gpuwm_mapping *mapping = attach_to("m");
	uint64_t number;

	fake_restart();
	leases_are(1);
	number = fake->grants;
	hears_revoked(number, client->reviver.round - 1);
	cr_expect(not(gpuwm_mapping_revoked(mapping)));
	hears_revoked(number, client->reviver.round);
	cr_expect(gpuwm_mapping_revoked(mapping));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}
