/* A mapping that becomes another version's, on host. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "tests/support/fail_alloc.h"
#include "tests/support/lib/switch.h"

TestSuite(switching, .init = switch_setup, .fini = client_teardown);

Test(switching, puts_the_new_bytes_where_the_old_ones_were)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct gpuwm_tensor before[3], after;
	const void *base = gpuwm_mapping_address(mapping, NULL);
	uint8_t content[16];
	int fds = settled_fds();

	memcpy(content, gpuwm_mapping_version(mapping)->content, 16);
	for (uint64_t i = 0; i < 3; i++)
		gpuwm_tensor_at(mapping, i, &before[i]);
	cr_assert(eq(int, *(const uint8_t *)before[2].data, 1));
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(int, *(const uint8_t *)before[2].data, 2));
	is_version(mapping, v2, 2);
	for (uint64_t i = 0; i < 3; i++) {
		gpuwm_tensor_at(mapping, i, &after);
		cr_assert(after.data == before[i].data);
		cr_assert(ne(int, memcmp(after.digest, before[i].digest, 16), 0));
	}
	cr_assert(gpuwm_mapping_address(mapping, NULL) == base);
	cr_assert(ne(int, memcmp(content, gpuwm_mapping_version(mapping)->content, 16), 0));
	holds_one_lease(mapping);
	cr_assert(eq(uint, fake->releases, 1));
	cr_assert(eq(int, settled_fds(), fds));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
	cr_assert(eq(uint, fake->leases, 0));
}

Test(switching, goes_to_and_fro)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct gpuwm_tensor tensor;
	int fds = settled_fds();

	gpuwm_tensor_at(mapping, 0, &tensor);
	for (int i = 0; i < 100; i++) {
		cr_assert(eq(int, gpuwm_switch(mapping, i % 2 ? "m@v1" : "m@v2", NULL), 0));
		cr_assert(eq(int, *(const uint8_t *)tensor.data, i % 2 ? 1 : 2));
	}
	cr_assert(eq(int, settled_fds(), fds));
	holds_one_lease(mapping);
	gpuwm_detach(mapping);
}

Test(switching, to_where_it_is_takes_a_new_lease_only)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1"), *second = attach_to("m@v1");

	/* Shared or not: nothing moves. */
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v1", NULL), 0));
	cr_assert(eq(u64, mapping->lease->id, 3));
	cr_assert(eq(uint, fake->leases, 2));
	gpuwm_detach(second);
	cr_assert(eq(int, gpuwm_switch(mapping, v1->id, NULL), 0));
	is_version(mapping, v1, 1);
	holds_one_lease(mapping);
	gpuwm_detach(mapping);
}

Test(switching, is_refused_while_another_attachment_shares_the_mapping)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1"), *second = attach_to("m@v1");

	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), -EBUSY));
	cr_assert(strstr(gpuwm_error()->message, "shares the mapping") != NULL);
	cr_assert(lt(sz, 0, strlen(gpuwm_error()->detail)));
	is_version(mapping, v1, 1);
	cr_assert(eq(uint, fake->leases, 2));
	cr_assert(eq(int, gpuwm_detach(second), 0));
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0));
	is_version(mapping, v2, 2);
	gpuwm_detach(mapping);
}

Test(switching, leaves_what_else_is_attached_alone)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1"), *other = attach_to("m@v2"), *third;

	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0), "%s", gpuwm_error()->message);
	is_version(mapping, v2, 2);
	third = attach_to("m@v1");
	is_version(third, v1, 1);
	is_version(other, v2, 2);
	cr_assert(gpuwm_mapping_address(third, NULL) != gpuwm_mapping_address(mapping, NULL));
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v1", NULL), 0), "%s", gpuwm_error()->message);
	is_version(mapping, v1, 1);
	is_version(other, v2, 2);
	gpuwm_detach(other);
	gpuwm_detach(mapping);
	is_version(third, v1, 1);
	gpuwm_detach(third);
	cr_assert(eq(uint, fake->leases, 0));
}

/* v2 anew, as `made` says; v1 stays as it is. */
static void refuses_layout(const struct made *made, const char *words)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct fake_version *version = v2;
	int fds;

	for (size_t i = 0; i < version->fd_count; i++)
		close(version->fds[i]);
	fake->version_count = 1;
	made_add(fake, &host, made);
	fds = settled_fds();
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), -EXDEV));
	cr_assert(strstr(gpuwm_error()->message, words) != NULL, "%s", gpuwm_error()->message);
	cr_assert(eq(str, (char *)gpuwm_error()->name, "EXDEV"));
	cr_assert(lt(sz, 0, strlen(gpuwm_error()->detail)));
	cr_assert(eq(int, settled_fds(), fds));
	is_version(mapping, v1, 1);
	holds_one_lease(mapping);
	gpuwm_detach(mapping);
}

Test(switching, refuses_another_layout_and_names_the_first_difference)
{
	struct made made = made_default("v2", 2);

	made.names[1] = "bb";
	refuses_layout(&made, "only m@v1 has a tensor b");
	made.names[1] = "aa";
	refuses_layout(&made, "only m@v2 has a tensor aa");
	made.names[1] = "b";
	made.tensors = 2;
	refuses_layout(&made, "only m@v1 has a tensor c");
	made.tensors = 3;
	made.dtype = DTYPE_I32;
	refuses_layout(&made, "tensor b is F32 [10, 20] in m@v1, I32 [10, 20] in m@v2");
	made.dtype = DTYPE_F32;
	made.shape[0] = 20;
	made.shape[1] = 10;
	made.strides[0] = 10;
	refuses_layout(&made, "tensor b is F32 [10, 20] in m@v1, F32 [20, 10] in m@v2");
	made.ndim = 1;
	made.shape[0] = 200;
	made.strides[0] = 1;
	refuses_layout(&made, "tensor b is F32 [10, 20] in m@v1, F32 [200] in m@v2");
	made = made_default("v2", 2);
	made.strides[0] = 1;
	made.strides[1] = 10;
	refuses_layout(&made, "tensor b has other strides in m@v1 than in m@v2");
	made = made_default("v2", 2);
	made.offset = 512;
	refuses_layout(&made,
		       "tensor b begins at byte 256 of segment 0 in m@v1, at byte 512 of segment 0 in m@v2");
	made.offset = 256;
	made.segments = 1;
	refuses_layout(&made,
		       "tensor c begins at byte 0 of segment 1 in m@v1, at byte 2048 of segment 0 in m@v2");
	made = made_default("v2", 2);
	made.units[1] = 3;
	refuses_layout(&made, "segment 1 holds 4096 bytes in m@v1, 12288 in m@v2");
}

Test(switching, passes_on_what_gpuwmd_refuses)
{
	struct gpuwm_switch_options options = GPUWM_OPTIONS(struct gpuwm_switch_options);
	struct gpuwm_mapping *mapping = attach_to("m@v1");

	options.wait_ms = 1234;
	error_set(&fake->refusal, -ESHUTDOWN, NULL, "draining");
	strcpy(fake->refuse, "get_handles");
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", &options), -ESHUTDOWN));
	cr_assert(eq(long, fake->wait_ms, 1234));
	*fake->refuse = 0;
	cr_assert(eq(int, gpuwm_switch(mapping, NULL, NULL), -EINVAL));
	options.size--;
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", &options), -EINVAL));
	is_version(mapping, v1, 1);
	holds_one_lease(mapping);
	gpuwm_detach(mapping);
}

Test(switching, a_key_that_can_not_be_is_refused_before_gpuwmd_is_asked)
{
	struct gpuwm_switch_options options = GPUWM_OPTIONS(struct gpuwm_switch_options);
	const struct gpuwm_key_field wrong = {"a b", "x"};
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	unsigned requests = fake->requests;

	options.key_count = 1;
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", &options), -EINVAL));
	cr_assert(strstr(gpuwm_error()->message, "a key of 1 fields, which were not given") != NULL);
	options.key = &wrong;
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", &options), -EINVAL));
	cr_assert(strstr(gpuwm_error()->message, "the key's field \"a b\" has a character") != NULL);
	cr_assert(eq(uint, fake->requests, requests));
	is_version(mapping, v1, 1);
	holds_one_lease(mapping);
	gpuwm_detach(mapping);
}

Test(switching, a_key_of_its_own_is_asked_for_where_nothing_moves_too)
{
	struct gpuwm_switch_options options = GPUWM_OPTIONS(struct gpuwm_switch_options);
	const struct gpuwm_key_field any = {"dtype", "bf16"};
	struct gpuwm_mapping *mapping = attach_to("m@v1");

	options.key = &any;
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v1", &options), 0));
	options.key_count = 1;
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v1", &options), -EKEYREJECTED));
	cr_assert(strstr(gpuwm_error()->message, "the key of m@v1 has no field dtype") != NULL);
	is_version(mapping, v1, 1);
	holds_one_lease(mapping);
	gpuwm_detach(mapping);
}

Test(switching, refuses_an_index_that_is_not_of_these_segments)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");

	v2->bytes[1] += 4096;
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), -EBADMSG));
	is_version(mapping, v1, 1);
	holds_one_lease(mapping);
	gpuwm_detach(mapping);
}

/* The last segment of v2 is nothing that can be mapped. */
static int spoil(void)
{
	int ends[2], good = v2->fds[2];

	cr_assert(eq(int, pipe2(ends, O_CLOEXEC), 0));
	close(ends[1]);
	v2->fds[2] = ends[0];
	return good;
}

static void heal(int good)
{
	close(v2->fds[2]);
	v2->fds[2] = good;
}

Test(switching, puts_the_old_bytes_back_when_a_segment_can_not_be_mapped)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct gpuwm_tensor tensor;
	int good = spoil(), fds = settled_fds();

	gpuwm_tensor_at(mapping, 0, &tensor);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), -ENODEV));
	cr_assert(strstr(gpuwm_error()->message, "mapping 4096 bytes") != NULL, "%s", gpuwm_error()->message);
	is_version(mapping, v1, 1);
	cr_assert(eq(int, *(const uint8_t *)tensor.data, 1));
	cr_assert(eq(int, settled_fds(), fds));
	holds_one_lease(mapping);
	/* It is still shared by who attaches now, and can go on. */
	heal(good);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0));
	is_version(mapping, v2, 2);
	gpuwm_detach(mapping);
}

static struct gpuwm_mapping *lost_mapping(void)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	int good = spoil();

	/* Nothing is left to put the old bytes back with. */
	memory_host.close_fds(mapping->part->segments, mapping->part->segment_count);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), -ENOTRECOVERABLE));
	cr_assert(strstr(gpuwm_error()->message, "mapping 4096 bytes") != NULL, "%s", gpuwm_error()->message);
	heal(good);
	return mapping;
}

Test(switching, says_that_the_mapping_is_lost_when_not_even_that_can_be)
{
	struct gpuwm_mapping *mapping = lost_mapping(), *fresh;
	const void *base = gpuwm_mapping_address(mapping, NULL);
	struct gpuwm_tensor tensor = {.name = "a"};
	unsigned char present;
	char byte;

	cr_assert(eq(int, gpuwm_tensor_at(mapping, 0, &tensor), -ENOTRECOVERABLE));
	cr_assert(eq(int, gpuwm_tensor_find(mapping, "a", &tensor), -ENOTRECOVERABLE));
	cr_assert(eq(int, gpuwm_tensor_read(mapping, &tensor, 0, &byte, 0), -ENOTRECOVERABLE));
	cr_assert(eq(int, gpuwm_mapping_check(mapping), -ENOTRECOVERABLE));
	cr_assert(eq(str, (char *)gpuwm_error()->name, "ENOTRECOVERABLE"));
	/* The addresses stay taken, so that nothing else comes to lie there. */
	cr_assert(eq(int, mincore((void *)base, 4096, &present), 0));
	holds_one_lease(mapping);
	fresh = attach_to("m@v1");
	is_version(fresh, v1, 1);
	cr_assert(eq(int, gpuwm_detach(fresh), 0));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
	cr_assert(eq(uint, fake->leases, 0));
}

Test(switching, brings_a_lost_mapping_back)
{
	struct gpuwm_mapping *mapping = lost_mapping();
	const void *base = gpuwm_mapping_address(mapping, NULL);
	int good = spoil();

	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), -ENOTRECOVERABLE));
	heal(good);
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v1", NULL), 0), "%s", gpuwm_error()->message);
	cr_assert(gpuwm_mapping_address(mapping, NULL) == base);
	is_version(mapping, v1, 1);
	cr_assert(eq(int, gpuwm_mapping_check(mapping), 0));
	holds_one_lease(mapping);
	gpuwm_detach(mapping);
}

Test(switching, fails_cleanly_at_each_allocation)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	int fds = settled_fds();
	bool failed = true;
	int fill = 1;

	for (unsigned n = 1; failed; n++) {
		int r;

		fail_alloc_arm(n);
		r = gpuwm_switch(mapping, fill == 1 ? "m@v2" : "m@v1", NULL);
		failed = fail_alloc_disarm();
		/* Giving the old lease back ends the connection when it can't be done otherwise. */
		cr_assert(r == 0 || (failed && r == -ENOMEM), "allocation %u: %d", n, r);
		fill = r == 0 ? 3 - fill : fill;
		is_version(mapping, fill == 1 ? v1 : v2, fill);
		leases_are(1);
		holds_one_lease(mapping);
		cr_assert(eq(int, settled_fds(), fds));
		pause_forget();
	}
	gpuwm_detach(mapping);
}
