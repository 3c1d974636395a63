/* What attaching may wish for on host: where the memory begins, and that all of it is there at once. */
#include "tests/support/lib/switch.h"
#include "tests/support/any/child.h"

#include <errno.h>
#include <fcntl.h>

TestSuite(attach_wishes, .init = switch_setup, .fini = client_teardown);

/* In a process of its own. */
static int attach_at(void *address)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_connect_options to = to_fake();
	struct gpuwm_mapping *mapping;
	struct gpuwm_client *mine;
	uint64_t bytes;

	options.address = address;
	if (gpuwm_connect(&to, &mine) < 0 || gpuwm_attach(mine, "m@v1", &options, &mapping) < 0)
		return 1;
	if (gpuwm_mapping_address(mapping, &bytes) != address || bytes < 3 * 4096)
		return 2;
	return filled_with(mapping) == 1 && gpuwm_detach(mapping) == 0 ? 0 : 3;
}

Test(attach_wishes, two_processes_that_wish_for_it_have_the_same_addresses)
{
	void *const address = (void *)0x300000000000;

	for (int i = 0; i < 2; i++) {
		cr_assert(eq(int, IN_CHILD(attach_at(address)), 0));
	}
}

Test(attach_wishes, a_wish_that_can_not_be_had_is_no_error)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *first, *second;

	options.address = (void *)0x300000000000;
	cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &first), 0));
	cr_assert(eq(int, gpuwm_attach(client, "m@v2", &options, &second), 0));
	cr_assert(gpuwm_mapping_address(first, NULL) == options.address);
	cr_assert(gpuwm_mapping_address(second, NULL) != options.address);
	is_version(second, v2, 2);
	gpuwm_detach(second);
	gpuwm_detach(first);
}

/* Whether a read there would not fault. */
static bool is_present(const void *address)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry = 0;

	cr_assert(eq(sz, (size_t)pread(fd, &entry, 8, (off_t)((uintptr_t)address / 4096 * 8)), 8));
	close(fd);
	return entry >> 63;
}

Test(attach_wishes, a_mapping_can_be_populated_at_once)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor tensor;

	for (int populate = 0; populate < 2; populate++) {
		options.populate = populate;
		cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &mapping), 0), "%s",
			  gpuwm_error()->message);
		for (uint64_t i = 0; i < 3; i++) {
			gpuwm_tensor_at(mapping, i, &tensor);
			cr_assert(is_present(tensor.data) == populate);
		}
		gpuwm_detach(mapping);
	}
}

Test(attach_wishes, an_owner_that_can_not_be_is_refused_before_gpuwmd_is_asked)
{
	const uint32_t uids[OWNER_UIDS_MAX + 1] = {0};
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;

	options.owner_uids = uids;
	options.owner_uid_count = OWNER_UIDS_MAX + 1;
	cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &mapping), -EINVAL));
	cr_assert(strstr(gpuwm_error()->message, "17 users are wished for as owner; at most 16") != NULL);
	options.owner_uids = NULL;
	options.owner_uid_count = 1;
	cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &mapping), -EINVAL));
	cr_assert(strstr(gpuwm_error()->message, "owner_uids, which were not given") != NULL);
}
