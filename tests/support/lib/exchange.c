#include "exchange.h"

struct gpuwm_mapping *mapping, *other;

void exchange_setup(void)
{
	switch_setup();
	mapping = attach_to("m@v1");
	other = attach_to("m@v2");
}

void exchange_teardown(void)
{
	gpuwm_detach(mapping);
	gpuwm_detach(other);
	cr_assert(eq(uint, fake->leases, 0));
	client_teardown();
}

void has_its_lease(const struct gpuwm_mapping *one)
{
	struct reviver *reviver = &one->client->reviver;
	const struct lease *lease;

	/* Other threads of a test may attach and detach meanwhile. */
	pthread_mutex_lock(&reviver->lock);
	lease = reviver->leases;
	while (lease && lease != one->lease)
		lease = lease->next;
	pthread_mutex_unlock(&reviver->lock);
	cr_assert(lease != NULL);
	cr_assert(eq(str, (char *)lease->version.id, (char *)one->version.id));
}

void are_at(const struct gpuwm_mapping *first, const struct gpuwm_mapping *second)
{
	is_version(first, v1, 1);
	is_version(second, v2, 2);
	has_its_lease(first);
	has_its_lease(second);
	cr_assert(first->lease != second->lease);
}

void detach_gives_back(struct gpuwm_mapping **gone)
{
	uint64_t lease = (*gone)->lease->id;
	unsigned leases = fake->leases;

	cr_assert(eq(int, gpuwm_detach(*gone), 0), "%s", gpuwm_error()->message);
	*gone = NULL;
	cr_assert(eq(u64, fake->released, lease));
	cr_assert(eq(uint, fake->leases, leases - 1));
}
