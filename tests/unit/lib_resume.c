/* Leases of a client whose gpuwmd is started anew. */
#include "tests/support/lib/restart.h"

#include "client/lib/request/lease.h"
#include "base/clock.h"

#include <errno.h>

TestSuite(resume, .init = restart_setup, .fini = client_teardown);

#define MANY 600 /* more than two requests of RESUME_LEASES_MAX */

Test(resume, is_not_seen_by_whoever_is_attached)
{
	struct gpuwm_mapping *first = attach_to("m"), *second = attach_to("m");

	fake_restart();
	leases_are(2);
	cr_expect(eq(uint, fake->resumes, 1));
	cr_expect(holds_sevens(first));
	cr_expect(eq(int, gpuwm_mapping_check(first), 0));
	cr_assert(eq(int, gpuwm_detach(first), 0));
	cr_expect(eq(uint, fake->leases, 1));
	cr_assert(eq(int, gpuwm_detach(second), 0));
	cr_expect(eq(uint, fake->leases, 0));
	cr_expect(eq(uint, fake->releases, 2));
}

Test(resume, waits_for_a_gpuwmd_that_stays_away)
{
	struct gpuwm_mapping *mapping = attach_to("m");

	fake_kill(fake);
	fails_to_connect(4);
	cr_expect(eq(int, gpuwm_mapping_check(mapping), 0));
	fake_run_again(fake);
	leases_are(1);
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

Test(resume, works_again_and_again)
{
	struct gpuwm_mapping *mapping = attach_to("m");

	for (unsigned i = 1; i <= 5; i++) {
		fake_restart();
		UNTIL(fake->resumed == i);
	}
	cr_expect(holds_sevens(mapping));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

Test(resume, takes_raw_handles_again)
{
	struct gpuwm_handles *handles;

	cr_assert(eq(int, gpuwm_get_handles(client, "m", NULL, &handles), 0));
	fake_restart();
	leases_are(1);
	cr_expect(eq(int, gpuwm_handles_check(handles), 0));
	cr_assert(eq(int, gpuwm_handles_release(handles), 0));
	cr_expect(eq(uint, fake->leases, 0));
}

Test(resume, goes_in_batches)
{
	static struct gpuwm_mapping *mappings[MANY];

	attach_all(mappings, MANY);
	fake_restart();
	leases_are(MANY);
	cr_expect(eq(uint, fake->resumes, 3));
	cr_expect(eq(uint, fake->batch, RESUME_LEASES_MAX));
	detach_all(mappings, MANY);
	cr_expect(eq(uint, fake->leases, 0));
}

Test(resume, finds_a_gpuwmd_that_came_back_empty)
{
	struct gpuwm_mapping *mapping = attach_to("m");

	loses_leases(1, -ENOENT, "no such version");
	fake_restart();
	UNTIL(gpuwm_mapping_check(mapping) == -ENOENT);
	cr_expect(eq(int, gpuwm_ping(client, NULL), 0));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
	cr_expect(eq(uint, fake->releases, 0));
}

Test(resume, says_that_an_older_gpuwmd_cant)
{
	struct gpuwm_mapping *mapping = attach_to("m");

	refuses("resume", -ENOSYS, "there is no method resume");
	fake_restart();
	UNTIL(gpuwm_mapping_check(mapping) == -ENOSYS);
	cr_expect(strstr(gpuwm_error()->message, "older") != NULL);
	cr_expect(eq(int, gpuwm_ping(client, NULL), 0));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

Test(resume, keeps_leases_open_that_gpuwmd_cant_judge)
{
	struct gpuwm_mapping *mapping = attach_to("m"), *other = attach_to("m");
	const unsigned before = fake->requests;

	refuses("resume", -EUCLEAN, "the state can't be read");
	fake_restart();
	UNTIL(fake->requests >= before + 2);
	cr_expect(eq(int, gpuwm_ping(client, NULL), 0));
	cr_expect(eq(int, gpuwm_mapping_check(mapping), 0));
	cr_expect(eq(int, gpuwm_detach(other), 0));
	cr_expect(eq(uint, fake->releases, 0));
	fake_kill(fake);
	fake->refuse[0] = 0;
	fake_run_again(fake);
	leases_are(1);
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
	cr_expect(eq(uint, fake->releases, 1));
}

Test(resume, tries_again_when_gpuwmd_is_short_of_something)
{
	struct gpuwm_mapping *mapping = attach_to("m");
	const unsigned before = fake->hellos;

	refuses("resume", -ENOMEM, "out of memory");
	fake_restart();
	UNTIL(fake->hellos >= before + 3);
	fake->refuse[0] = 0;
	leases_are(1);
	cr_expect(eq(int, gpuwm_mapping_check(mapping), 0));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

Test(resume, tries_again_after_an_answer_that_is_none)
{
	struct gpuwm_mapping *mapping = attach_to("m");
	const char *const methods[] = {"hello", "resume", ""};

	for (int i = 0; i < 3; i++) {
		unsigned before;

		pause_forget();
		fake_kill(fake);
		before = fake->requests;
		strcpy(fake->empty, methods[i]);
		fake->hollow = i == 2;
		fake_run_again(fake);
		UNTIL(fake->requests >= before + 3);
		fake->empty[0] = 0;
		fake->hollow = false;
		leases_are(1);
		cr_expect(eq(int, gpuwm_mapping_check(mapping), 0));
	}
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

Test(resume, survives_gpuwmds_that_die_at_it)
{
	struct gpuwm_mapping *mapping = attach_to("m");

	dies_at("resume", 4);
	fake_restart();
	leases_are(1);
	dies_at("hello", 4);
	fake_restart();
	leases_are(1);
	fake->answers_first = true;
	dies_at("resume", 4);
	fake_restart();
	UNTIL(fake->deaths == 0);
	leases_are(1);
	cr_expect(eq(int, gpuwm_mapping_check(mapping), 0));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
	cr_expect(eq(uint, fake->leases, 0));
}

/* Whether the end of the connection is seen before or after the answer. */
Test(resume, keeps_no_lease_of_a_connection_that_ended_behind_the_answer)
{
	struct gpuwm_mapping *mappings[50];
	struct lease *lease = calloc(1, sizeof(*lease));

	cr_expect(not(lease_hold(client, lease, client->reviver.round + 1)));
	fake->answers_first = true;
	for (int i = 0; i < 50; i++) {
		pause_forget();
		dies_at("get_handles", 1);
		mappings[i] = attach_to("m");
	}
	leases_are(50);
	detach_all(mappings, 50);
	free(lease);
}

/* ---- what is called meanwhile ------------------------------------------ */

Test(resume, forgets_what_is_given_back_while_gpuwmd_is_away)
{
	struct gpuwm_mapping *mapping = attach_to("m"), *other = attach_to("m");
	uint64_t before;

	fake_kill(fake);
	before = clock_steady_ms();
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
	cr_expect(lt(long, clock_steady_ms() - before, RESTART_WAIT_MS / 2));
	fake_run_again(fake);
	UNTIL(fake->resumed > 0); /* counted after the request */
	cr_assert(eq(int, gpuwm_detach(other), 0));
	UNTIL(fake->leases == 0); /* the answer to resume may still be on its way */
	cr_expect(eq(uint, fake->resumes, 1));
	cr_expect(eq(uint, fake->resumed, 1));
}

Test(resume, gives_back_what_was_detached_during_it)
{
	struct gpuwm_mapping *mapping = attach_to("m"), *other = attach_to("m");

	strcpy(fake->pauses_at, "resume");
	fake_restart();
	sem_wait(&fake->paused);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
	fake->pauses_at[0] = 0;
	sem_post(&fake->go);
	UNTIL(fake->releases == 1);
	cr_expect(eq(uint, fake->resumed, 2));
	cr_assert(eq(int, gpuwm_detach(other), 0));
	leases_are(0);
	cr_expect(eq(uint, fake->releases, 2));
}

Test(resume, does_not_keep_a_closed_client)
{
	struct gpuwm_mapping *mapping = attach_to("m");
	uint64_t before;

	cr_expect(eq(uint, threads_of_library(), 1));
	fake_kill(fake);
	before = clock_steady_ms();
	client = gpuwm_close(client);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
	cr_expect(lt(long, clock_steady_ms() - before, RESTART_WAIT_MS / 2));
	fake_run_again(fake);
	cr_expect(eq(uint, threads_of_library(), 0));
}

Test(resume, does_not_keep_a_client_that_is_closed_in_the_middle)
{
	const char *const moments[] = {"hello", "resume"};

	for (int i = 0; i < 2; i++) {
		struct gpuwm_connect_options options = to_fake();
		struct gpuwm_mapping *mapping;
		uint64_t before;

		strcpy(fake->pauses_at, "");
		gpuwm_close(client);
		client = client_with(&options);
		mapping = attach_to("m");
		fake_kill(fake);
		strcpy(fake->pauses_at, moments[i]);
		fake_run_again(fake);
		sem_wait(&fake->paused);
		before = clock_steady_ms();
		client = gpuwm_close(client);
		cr_expect(eq(int, gpuwm_detach(mapping), 0));
		cr_expect(lt(long, clock_steady_ms() - before, RESTART_WAIT_MS / 2));
		cr_expect(eq(uint, threads_of_library(), 0));
		sem_post(&fake->go);
		UNTIL(fake->leases == 0);
	}
}
