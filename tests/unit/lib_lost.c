/* When the program hears that it lost a lease, and what goes on while it hears it. */
#include "lib_restart.h"

#include "client/lib/lease.h"

TestSuite(lost, .init = restart_setup, .fini = restart_teardown);

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
		mappings[i] = attach();
	error_set(&fake->loss, -ENOENT, NULL, "no such version");
	fake->lose = 1;
	fake->answers_first = true;
	dies_at(METHOD_RESUME, UINT32_MAX);
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
		mapping = attach();
		pause_forget();
		fake->revokes_dying = fake->grants;
		dies_at(METHOD_PING, 1);
		cr_assert(eq(int, gpuwm_ping(client, NULL), 0), "%u: %s", i, gpuwm_error()->message);
		sem_post(&may_return);
		UNTIL(times == i);
		cr_assert(eq(int, gpuwm_detach(mapping), 0));
	}
}
