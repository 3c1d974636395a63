/* Leases that an operator takes from a client. */
#include "tests/support/lib/restart.h"

#include <errno.h>

TestSuite(revoked, .init = restart_setup, .fini = client_teardown);

/* Static in each test: where one fails, the library's thread may still write there. */
struct told {
	_Atomic unsigned count;
	bool revoked;
	int code;
	char message[256];
	struct gpuwm_mapping *detach;
	int detached;
};

static void note(const struct gpuwm_lost *lost, void *user_data)
{
	struct told *told = user_data;

	told->revoked = lost->revoked;
	told->code = lost->error.code;
	snprintf(told->message, sizeof(told->message), "%s", lost->error.message);
	if (told->detach)
		told->detached = gpuwm_detach(told->detach);
	told->count++;
}

static void with_told(struct told *told, unsigned flags)
{
	struct gpuwm_connect_options options = to_fake();

	options.lost = note;
	options.lost_data = told;
	options.flags = flags;
	gpuwm_close(client);
	client = client_with(&options);
}

Test(revoked, lease_is_told_and_its_memory_stays_until_it_is_detached)
{
	static struct told told;
	struct gpuwm_mapping *revoked, *kept;

	with_told(&told, 0);
	revoked = attach_to("m");
	kept = attach_to("m");
	fake_revoke(fake, fake->grants - 1);
	UNTIL(told.count == 1);
	cr_expect(told.revoked);
	cr_expect(eq(int, told.code, -ESTALE));
	cr_expect(eq(str, told.message, "the lease on m@v1 was revoked: an operator revoked it"));
	cr_expect(eq(int, gpuwm_mapping_check(revoked), -ESTALE));
	cr_expect(gpuwm_mapping_revoked(revoked));
	cr_expect(eq(int, gpuwm_mapping_check(kept), 0));
	cr_expect(not(gpuwm_mapping_revoked(kept)));
	cr_expect(holds_sevens(revoked), "nothing is unmapped by itself");
	cr_expect(eq(uint, fake->releases, 0));
	cr_expect(eq(int, gpuwm_detach(revoked), 0));
	cr_expect(eq(uint, fake->releases, 1), "gpuwmd hears that it is unmapped");
	cr_expect(eq(int, gpuwm_detach(kept), 0));
	cr_expect(eq(uint, told.count, 1));
}

Test(revoked, lease_is_given_back_from_the_callback)
{
	static struct told told;

	with_told(&told, 0);
	told.detach = attach_to("m");
	fake_revoke(fake, fake->grants);
	UNTIL(told.count == 1);
	cr_expect(eq(int, told.detached, 0));
	cr_expect(eq(uint, fake->releases, 1));
}

/* Either thread may read that a lease is revoked, the library's or the call's, and before the call has taken what grants
 * it. Nothing else arrives that would wake the library's thread. */
Test(revoked, lease_is_told_where_it_is_revoked_as_it_is_granted)
{
	static struct told told;
	struct gpuwm_mapping *mapping;

	with_told(&told, 0);
	fake->revokes = true;
	for (unsigned i = 1; i <= 200; i++) {
		mapping = attach_to("m");
		UNTIL(told.count == i);
		cr_expect(gpuwm_mapping_revoked(mapping));
		cr_expect(eq(int, gpuwm_detach(mapping), 0));
	}
	cr_expect(eq(uint, fake->releases, 200));
}

Test(revoked, lease_is_told_while_another_call_waits)
{
	static struct told told;
	struct gpuwm_mapping *mapping;
	uint64_t ns;

	with_told(&told, 0);
	mapping = attach_to("m");
	for (int i = 0; i < 50; i++)
		cr_assert(eq(int, gpuwm_ping(client, &ns), 0));
	fake_revoke(fake, fake->grants);
	for (int i = 0; i < 50; i++)
		cr_assert(eq(int, gpuwm_ping(client, &ns), 0));
	UNTIL(told.count == 1);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(revoked, lease_is_not_taken_again)
{
	static struct told told;
	struct gpuwm_mapping *revoked, *kept;

	with_told(&told, 0);
	revoked = attach_to("m");
	kept = attach_to("m");
	fake_revoke(fake, fake->grants - 1);
	UNTIL(told.count == 1);
	fake_restart();
	leases_are(1);
	cr_expect(eq(uint, fake->resumed, 1));
	cr_expect(eq(int, gpuwm_mapping_check(revoked), -ESTALE));
	refuses("release", -ENOENT, "no such lease");
	cr_expect(eq(int, gpuwm_detach(revoked), 0), "the next gpuwmd need not know of it");
	*fake->refuse = '\0';
	cr_expect(eq(int, gpuwm_detach(kept), 0));
}

Test(revoked, lease_may_be_refused_by_the_next_gpuwmd_first)
{
	static struct told told;
	struct gpuwm_mapping *mapping;

	with_told(&told, 0);
	mapping = attach_to("m");
	error_set(&fake->loss, -ESTALE, "", "lease 1 was revoked by an operator");
	fake->loss_revoked = true;
	fake->lose = 1;
	fake_restart();
	UNTIL(told.count == 1);
	cr_expect(told.revoked && gpuwm_mapping_revoked(mapping));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
	cr_expect(eq(uint, fake->releases, 1), "it may be the same one");
}

Test(revoked, numbers_of_leases_that_others_had_are_no_matter)
{
	static struct told told;
	struct gpuwm_mapping *mapping;

	with_told(&told, 0);
	mapping = attach_to("m");
	fake_revoke(fake, 4711);
	UNTIL(client->reviver.revoked_early_count == 1);
	fake_restart();
	fake->grants = 4709;
	leases_are(1);
	for (int i = 0; i < 3; i++) { /* one of them is 4711, of another gpuwmd */
		struct gpuwm_mapping *other = attach_to("m");

		cr_expect(eq(int, gpuwm_mapping_check(other), 0));
		cr_expect(eq(int, gpuwm_detach(other), 0));
	}
	cr_expect(eq(int, gpuwm_mapping_check(mapping), 0));
	cr_expect(eq(uint, told.count, 0));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(revoked, lease_is_known_to_a_client_without_a_thread_when_it_asks)
{
	static struct told told;
	struct gpuwm_mapping *mapping;

	with_told(&told, GPUWM_CONNECT_ONCE);
	mapping = attach_to("m");
	fake_revoke(fake, fake->grants);
	cr_expect(eq(int, gpuwm_mapping_check(mapping), -ESTALE));
	cr_expect(gpuwm_mapping_revoked(mapping));
	cr_expect(eq(uint, told.count, 0));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

/* The way to leave a version where pointers have to stay: the old one is unmapped by it. */
Test(revoked, lease_of_a_mapping_that_switches_is_given_back)
{
	static struct told told;
	struct gpuwm_mapping *mapping;

	with_told(&told, 0);
	mapping = attach_to("m");
	fake_revoke(fake, fake->grants);
	UNTIL(told.count == 1);
	cr_expect(eq(int, gpuwm_switch(mapping, "m", NULL), 0));
	cr_expect(eq(uint, fake->releases, 1));
	cr_expect(eq(int, gpuwm_mapping_check(mapping), 0));
	cr_expect(not(gpuwm_mapping_revoked(mapping)));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(revoked, what_can_be_kicked_is_checked)
{
	char *json = NULL;

	cr_expect(eq(int, gpuwm_kick(client, (enum gpuwm_kick_by)3, 1, &json), -EINVAL));
	cr_expect(eq(int, gpuwm_kick(NULL, GPUWM_KICK_PID, 1, &json), -EINVAL));
	cr_expect(eq(int, gpuwm_kick(client, GPUWM_KICK_UID, 1, NULL), 0));
	cr_assert(eq(int, gpuwm_kick(client, GPUWM_KICK_LEASE, 1, &json), 0));
	cr_expect(eq(str, json, "{}"));
	free(json);
	dies_at("kick", 1);
	cr_expect(eq(int, gpuwm_kick(client, GPUWM_KICK_LEASE, 1, NULL), -ECONNABORTED));
	dies_at("retire", 1);
	cr_expect(eq(int, gpuwm_retire_by_force(client, "m@v1", 5, 0), -ECONNABORTED));
}
