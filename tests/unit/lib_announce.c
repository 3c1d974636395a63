/* Addresses that a worker announces with its mappings. */
#include "tests/support/lib/switch.h"

#include <errno.h>

TestSuite(announcing, .init = switch_setup, .fini = client_teardown);

#define HERE "10.0.0.5:8000"
#define THERE "unix:/run/there"

static struct gpuwm_mapping *attach_at(const char *ref, const char *address)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;

	options.announce = address;
	cr_assert(eq(int, gpuwm_attach(client, ref, &options, &mapping), 0), "%s", gpuwm_error()->message);
	return mapping;
}

/* gpuwmd was told last that this mapping is at the address; "": at none. */
static void is_at(const struct gpuwm_mapping *mapping, const char *address)
{
	cr_assert(eq(str, fake->announced, (char *)address));
	cr_assert(eq(u64, fake->announced_lease, mapping->lease->id));
	cr_assert(eq(str, mapping->lease->address, (char *)address));
}

Test(announcing, tells_gpuwmd_an_address_another_and_none)
{
	struct gpuwm_mapping *mapping = attach_at("m@v1", HERE);

	is_at(mapping, HERE);
	cr_assert(eq(int, gpuwm_announce(mapping, THERE), 0));
	is_at(mapping, THERE);
	cr_assert(eq(int, gpuwm_announce(mapping, NULL), 0));
	is_at(mapping, "");
	cr_assert(eq(uint, fake->announces, 3));
	gpuwm_detach(mapping);
}

Test(announcing, goes_with_the_mapping_through_a_switch)
{
	struct gpuwm_mapping *mapping = attach_at("m@v1", HERE);
	const uint64_t lease = mapping->lease->id;

	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0));
	is_at(mapping, HERE);
	cr_assert(ne(u64, mapping->lease->id, lease));
	cr_assert(eq(u64, fake->released, lease));
	gpuwm_announce(mapping, NULL);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v1", NULL), 0));
	cr_assert(eq(uint, fake->announces, 3), "without an address there is nothing to tell");
	gpuwm_detach(mapping);
}

Test(announcing, a_switch_to_too_many_tells_once_more)
{
	struct gpuwm_mapping *mapping = attach_at("m@v1", HERE);

	refuses("announce", -EDQUOT, "leases of one connection have at most 64 addresses");
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0));
	cr_assert(eq(uint, fake->announces, 1), "both were refused");
	fake->refuse[0] = '\0';
	cr_assert(eq(int, gpuwm_announce(mapping, HERE), 0));
	gpuwm_detach(mapping);
}

Test(announcing, stays_with_each_mapping_of_an_exchange)
{
	struct gpuwm_mapping *mapping = attach_at("m@v1", HERE), *other = attach_to("m@v2");

	cr_assert(eq(int, gpuwm_exchange(mapping, other, NULL), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(str, mapping->lease->address, HERE));
	is_at(other, "");
	gpuwm_announce(other, THERE);
	cr_assert(eq(int, gpuwm_exchange(other, mapping, NULL), 0));
	cr_assert(eq(str, other->lease->address, THERE));
	is_at(mapping, HERE);
	cr_assert(eq(uint, fake->announces, 6));
	gpuwm_announce(mapping, NULL);
	cr_assert(eq(int, gpuwm_exchange(mapping, other, NULL), 0));
	cr_assert(eq(str, other->lease->address, THERE));
	is_at(mapping, "");
	gpuwm_announce(other, NULL);
	cr_assert(eq(int, gpuwm_exchange(mapping, other, NULL), 0));
	cr_assert(eq(uint, fake->announces, 10), "where neither has one there is nothing to tell");
	gpuwm_detach(mapping);
	gpuwm_detach(other);
}

Test(announcing, is_told_again_after_a_restart)
{
	struct gpuwm_mapping *mapping = attach_at("m@v1", HERE);

	fake_restart();
	leases_are(1);
	cr_assert(eq(str, fake->resumed_with, HERE));
	gpuwm_announce(mapping, NULL);
	fake_restart();
	leases_are(1);
	cr_assert(eq(str, fake->resumed_with, ""));
	gpuwm_detach(mapping);
}

Test(announcing, a_gpuwmd_that_dies_before_it_answers_is_followed_by_the_next)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");

	dies_at("announce", 2);
	cr_assert(eq(int, gpuwm_announce(mapping, HERE), 0), "%s", gpuwm_error()->message);
	is_at(mapping, HERE);
	cr_assert(eq(str, fake->resumed_with, HERE));
	gpuwm_detach(mapping);
}

Test(announcing, waits_for_gpuwmd_and_tells_it_later)
{
	struct gpuwm_mapping *mapping;

	with_restart_ms(1);
	mapping = attach_to("m@v1");
	fake_kill(fake);
	cr_assert(eq(int, gpuwm_announce(mapping, HERE), -ECONNREFUSED));
	fake_run_again(fake);
	leases_are(1);
	cr_assert(eq(str, fake->resumed_with, HERE));
	gpuwm_detach(mapping);
}

Test(announcing, what_is_refused_changes_nothing)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping = attach_at("m@v1", HERE), *none;
	struct gpuwm_handles *handles;

	cr_assert(eq(int, gpuwm_announce(mapping, "here"), -EINVAL));
	cr_assert(strstr(gpuwm_error()->message, "\"here\" has no port") != NULL);
	is_at(mapping, HERE);
	options.announce = HERE;
	cr_assert(eq(int, gpuwm_get_handles(client, "m@v1", &options, &handles), -EINVAL));
	refuses("announce", -ENOSYS, "there is no method announce");
	cr_assert(eq(int, gpuwm_announce(mapping, THERE), -ENOSYS));
	is_at(mapping, HERE);
	cr_assert(eq(int, gpuwm_attach(client, "m@v2", &options, &none), -ENOSYS));
	cr_assert(eq(uint, leases(), 1), "the lease is given back");
	gpuwm_detach(mapping);
}

Test(announcing, a_lost_lease_has_no_address)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");

	loses_leases(1, -ENOENT, "no such version");
	fake_restart();
	UNTIL(gpuwm_mapping_check(mapping) == -ENOENT);
	cr_assert(eq(int, gpuwm_announce(mapping, HERE), -ENOENT));
	cr_assert(eq(uint, fake->announces, 0));
	gpuwm_detach(mapping);
}
