/* The answer comes, and the library has no memory to read it. */
#include "tests/support/lib/calls.h"

#include "tests/support/fail_alloc.h"

#include <errno.h>

TestSuite(unread, .init = restart_setup, .fini = client_teardown);

/* Whether the call failed on an allocation. */
static bool fail_at(int (*call)(void), unsigned n, unsigned *ret_unread)
{
	unsigned before = fake->requests;
	bool failed;
	int r;

	fail_alloc_arm(n);
	r = call();
	failed = fail_alloc_disarm();
	if (r == -ENOMEM)
		cr_assert(eq(uint, fake->requests, before), "it was asked for, and reads as not done: %s",
			  gpuwm_error()->message);
	else
		cr_assert(r == 0 || r == -ECONNABORTED, "%d: %s", r, gpuwm_error()->message);
	if (r == -ECONNABORTED) {
		cr_expect(strstr(gpuwm_error()->message, "could not be read") != NULL);
		cr_expect(strstr(gpuwm_error()->detail, "look, then repeat") != NULL);
		++*ret_unread;
	}
	cr_assert(eq(int, gpuwm_ping(client, NULL), 0)); /* which connects again */
	return failed;
}

Test(unread, what_may_be_done_does_not_read_as_out_of_memory)
{
	int (*const calls[])(void) = {call_pin,    call_unpin,  call_swap, call_load,
				      call_retire, call_cancel, call_drain};

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		unsigned unread = 0;

		pause_forget();
		for (unsigned n = 1; fail_at(calls[i], n, &unread); n++)
			;
		cr_expect(gt(uint, unread, 1), "call %zu", i);
	}
}

/* The lease that the answer tells of ends with the connection. */
Test(unread, a_lease_whose_answer_is_not_read_is_not_held)
{
	struct gpuwm_mapping *mapping;
	bool failed = true;
	int r;

	for (unsigned n = 1; failed; n++) {
		pause_forget();
		mapping = NULL;
		fail_alloc_arm(n);
		r = gpuwm_attach(client, "m", NULL, &mapping);
		failed = fail_alloc_disarm();
		cr_assert(r == 0 || r == -ENOMEM, "%d: %s", r, gpuwm_error()->message);
		if (r == 0)
			cr_assert(eq(int, gpuwm_detach(mapping), 0));
		cr_assert(eq(int, gpuwm_ping(client, NULL), 0));
		UNTIL(fake->leases == 0);
	}
}
