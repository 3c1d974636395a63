/* Connecting and attaching where memory is short or gpuwmd answers nonsense. */
#include "tests/support/lib/restart.h"

#include "tests/support/fail_alloc.h"

#include <errno.h>

TestSuite(grant, .init = restart_setup, .fini = client_teardown);

Test(grant, an_attach_fails_cleanly_without_memory)
{
	int before, r;
	bool failed;
	unsigned n = 0;

	gpuwm_detach(attach_to("m"));
	before = fd_count();
	do {
		struct gpuwm_mapping *mapping = NULL;

		pause_forget();
		fail_alloc_arm(++n);
		r = gpuwm_attach(client, "m", NULL, &mapping);
		failed = fail_alloc_disarm();
		cr_assert(r == 0 || r == -ENOMEM, "%u: %d: %s", n, r, gpuwm_error()->message);
		cr_assert(eq(int, r == 0, mapping != NULL));
		gpuwm_detach(mapping);
		leases_are(0);
		cr_assert(eq(int, fd_count(), before), "%u", n);
	} while (failed);
	cr_assert(eq(int, r, 0));
	cr_expect(lt(uint, 8, n));
}

Test(grant, connecting_fails_cleanly_without_memory)
{
	const struct gpuwm_connect_options options = to_fake();
	int before = fd_count(), r;
	unsigned n = 0;
	bool failed;

	do {
		struct gpuwm_client *other = NULL;

		fail_alloc_arm(++n);
		r = gpuwm_connect(&options, &other);
		failed = fail_alloc_disarm();
		cr_assert(r == 0 || r == -ENOMEM, "%u: %d: %s", n, r, gpuwm_error()->message);
		cr_assert(eq(int, r == 0, other != NULL));
		gpuwm_close(other);
		UNTIL(fd_count() == before);
	} while (failed);
	cr_assert(eq(int, r, 0));
	cr_expect(lt(uint, 8, n));
}

Test(grant, a_lease_without_its_memory_is_given_back)
{
	struct gpuwm_mapping *mapping = NULL;

	fake->no_fds = true;
	cr_assert(eq(int, gpuwm_attach(client, "m", NULL, &mapping), -EPROTO));
	cr_expect(strstr(gpuwm_error()->message, "without its descriptor") != NULL);
	fake->no_fds = false;
	cr_expect(eq(uint, fake->leases, 0));
	strcpy(fake->empty, "get_handles");
	cr_assert(eq(int, gpuwm_attach(client, "m", NULL, &mapping), -EPROTO));
	cr_expect(strstr(gpuwm_error()->message, "get_handles") != NULL);
	fake->empty[0] = 0;
	cr_expect(eq(int, gpuwm_detach(attach_to("m")), 0));
}

Test(grant, a_greeting_that_says_nothing_is_refused)
{
	const struct gpuwm_connect_options options = to_fake();
	struct gpuwm_client *other = NULL;

	strcpy(fake->empty, "hello");
	cr_assert(eq(int, gpuwm_connect(&options, &other), -EPROTO));
	cr_expect(strstr(gpuwm_error()->message, "hello") != NULL);
	fake->empty[0] = 0;
}
