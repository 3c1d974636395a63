/* Two versions of m on host, v1 and v2, of one layout and filled with 1 and 2, at a gpuwmd that comes and goes. */
#ifndef GPUWM_TESTS_LIB_SWITCH_H
#define GPUWM_TESTS_LIB_SWITCH_H

#include "client/lib/attach.h"

#include "lib_restart.h"
#include "lib_versions.h"

static struct memory_device host;
static struct fake_version *v1, *v2;

static inline void switch_setup(void)
{
	struct made made = made_default("v1", 1);

	restart_setup();
	cr_assert(eq(int, memory_device_open("host", &host, NULL), 0));
	fake->version_count = 0;
	v1 = made_add(fake, &host, &made);
	made = made_default("v2", 2);
	v2 = made_add(fake, &host, &made);
	*fake->name = 0;
}

/* When gpuwmd has closed what it sent. */
static inline int settled_fds(void)
{
	cr_assert(eq(int, gpuwm_ping(client, NULL), 0), "%s", gpuwm_error()->message);
	return open_fds();
}

static inline struct gpuwm_mapping *attach_to(const char *ref)
{
	struct gpuwm_mapping *mapping = NULL;

	cr_assert(eq(int, gpuwm_attach(client, ref, NULL, &mapping), 0), "%s", gpuwm_error()->message);
	return mapping;
}

static inline void is_version(const struct gpuwm_mapping *mapping, const struct fake_version *version, int fill)
{
	cr_assert(eq(int, filled_with(mapping), fill));
	cr_assert(eq(str, (char *)gpuwm_mapping_version(mapping)->id, (char *)version->id));
	cr_assert(eq(str, (char *)gpuwm_mapping_version(mapping)->tag, (char *)version->tag));
	cr_assert(eq(str, (char *)gpuwm_metadata(mapping, "tag"), (char *)version->tag));
}

/* One lease is held, by gpuwmd and by the client, and it is the mapping's. */
static inline void holds_one_lease(struct gpuwm_mapping *mapping)
{
	cr_assert(eq(uint, fake->leases, 1));
	cr_assert(client->reviver.leases == mapping->lease);
	cr_assert(mapping->lease->next == NULL);
	cr_assert(eq(str, mapping->lease->version.id, mapping->version.id));
}

#endif
