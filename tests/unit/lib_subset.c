/* Parts of a version, and private copies of what is written, on host or a GPU. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>

#include "tests/support/lib/dlpack.h"

static void setup(void)
{
	fds_before = fd_count();
	export_start();
}

static void teardown(void)
{
	cr_assert(eq(uint, leases(), 0));
	gpuwm_close(client);
	fake_stop(fake);
	if (on_host())
		cr_assert(eq(int, fd_count(), fds_before));
}

TestSuite(subset, .init = setup, .fini = teardown, .timeout = 120);
TestSuite(private_writes, .init = setup, .fini = teardown, .timeout = 120);

/* "a" and "b" lie in the first segment of "m@v1", "c" in the second. */
static int attach_some(const char *ref, const char *const *globs, size_t count, struct gpuwm_mapping **ret)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);

	options.globs = globs;
	options.glob_count = count;
	return gpuwm_attach(client, ref, &options, ret);
}

static struct gpuwm_mapping *attach_glob(const char *glob)
{
	struct gpuwm_mapping *mapping = NULL;

	cr_assert(eq(int, attach_some("m@v1", &glob, 1, &mapping), 0), "%s", gpuwm_error()->message);
	return mapping;
}

static const void *data_of(const struct gpuwm_mapping *mapping, const char *name)
{
	struct gpuwm_tensor tensor;

	cr_assert(eq(int, gpuwm_tensor_find(mapping, name, &tensor), 0));
	return tensor.data;
}

/* The first byte of a tensor; below 0: why not. */
static int byte_of(const struct gpuwm_mapping *mapping, const char *name)
{
	struct gpuwm_tensor tensor;
	unsigned char byte;
	int r;

	cr_assert(eq(int, gpuwm_tensor_find(mapping, name, &tensor), 0));
	r = gpuwm_tensor_read(mapping, &tensor, 0, &byte, 1);
	return r < 0 ? r : byte;
}

static uint64_t bytes_of(const struct gpuwm_mapping *mapping)
{
	uint64_t bytes;

	gpuwm_mapping_address(mapping, &bytes);
	return bytes;
}

Test(subset, maps_the_segments_that_hold_what_matches)
{
	struct gpuwm_mapping *all = attach_to("m@v1"), *first = attach_glob("[ab]"),
			     *second = attach_glob("c*");

	cr_expect(eq(int, byte_of(first, "a"), 1));
	cr_expect(eq(int, byte_of(first, "b"), 1));
	cr_expect(data_of(first, "c") == NULL);
	cr_expect(eq(int, byte_of(first, "c"), -ENODATA));
	cr_expect(strstr(gpuwm_error()->message, "tensor c was not mapped") != NULL, "%s",
		  gpuwm_error()->message);
	cr_expect(data_of(second, "a") == NULL);
	cr_expect(eq(int, byte_of(second, "c"), 1));
	cr_expect(eq(u64, bytes_of(first) + bytes_of(second), bytes_of(all)));
	cr_expect(eq(u64, gpuwm_tensor_count(second), 3));
	cr_expect(eq(uint, leases(), 3));
	cr_expect(eq(int, gpuwm_detach(second), 0));
	cr_expect(eq(int, gpuwm_detach(first), 0));
	cr_expect(eq(int, gpuwm_detach(all), 0));
}

Test(subset, exports_what_is_mapped_only)
{
	struct gpuwm_mapping *mapping = attach_glob("c");
	struct DLManagedTensor *export = NULL;
	struct gpuwm_tensor tensor;

	gpuwm_tensor_find(mapping, "b", &tensor);
	cr_expect(eq(int, gpuwm_dlpack(mapping, &tensor, &export), -ENODATA));
	cr_expect(strstr(gpuwm_error()->message, "tensor b ") != NULL, "%s", gpuwm_error()->message);
	cr_expect(eq(str, (char *)gpuwm_error()->name, "ENODATA"));
	export = export_of(mapping, "c");
	cr_expect(export->dl_tensor.data == data_of(mapping, "c"));
	export->deleter(export);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(subset, is_shared_by_those_who_ask_for_the_same_segments)
{
	struct gpuwm_mapping *a = attach_glob("a"), *b = attach_glob("b"), *c = attach_glob("c");

	cr_expect(gpuwm_mapping_address(a, NULL) == gpuwm_mapping_address(b, NULL));
	cr_expect(gpuwm_mapping_address(a, NULL) != gpuwm_mapping_address(c, NULL));
	cr_expect(eq(int, gpuwm_detach(a), 0));
	cr_expect(eq(int, byte_of(b, "a"), 1));
	cr_expect(eq(int, gpuwm_detach(b), 0));
	cr_expect(eq(int, gpuwm_detach(c), 0));
}

Test(subset, switches_what_is_mapped)
{
	struct gpuwm_mapping *mapping = attach_glob("c");
	const void *data = data_of(mapping, "c");

	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0), "%s", gpuwm_error()->message);
	cr_expect(data_of(mapping, "c") == data);
	cr_expect(eq(int, byte_of(mapping, "c"), 2));
	cr_expect(eq(int, byte_of(mapping, "a"), -ENODATA));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(subset, refuses_globs_that_match_nothing)
{
	const char *const globs[] = {"a", "layers.?", "c"}, *const escape = "\\a", *const hole[] = {"a", NULL};
	struct gpuwm_mapping *mapping = NULL;

	cr_expect(eq(int, attach_some("m@v1", globs, 3, &mapping), -ENOENT));
	cr_expect(strstr(gpuwm_error()->message, "no tensor matches \"layers.?\"") != NULL, "%s",
		  gpuwm_error()->message);
	cr_expect(eq(int, attach_some("m@v1", &escape, 1, &mapping), -ENOENT));
	cr_expect(eq(int, attach_some("m@v1", hole, 2, &mapping), -EINVAL));
	cr_expect(eq(int, attach_some("m@v1", NULL, 1, &mapping), -EINVAL));
	cr_expect(mapping == NULL);
	cr_expect(eq(int, gpuwm_ping(client, NULL), 0));
}

/* Each matches, in whatever order, and where its segment is mapped already. */
Test(subset, takes_globs_that_overlap)
{
	const char *const globs[] = {"*", "b", "?", "c"};
	struct gpuwm_mapping *mapping = NULL;

	cr_assert(eq(int, attach_some("m@v1", globs, 4, &mapping), 0), "%s", gpuwm_error()->message);
	cr_expect(eq(int, filled_with(mapping), 1));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

/* ---- writes -------------------------------------------------------------- */

static int attach_private(const char *ref, struct gpuwm_mapping **ret)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);

	options.private_writes = true;
	return gpuwm_attach(client, ref, &options, ret);
}

Test(private_writes, are_seen_by_nobody_else)
{
	struct gpuwm_mapping *all = attach_to("m@v1"), *one, *two;
	struct DLManagedTensorVersioned *export;
	struct gpuwm_tensor tensor;

	if (!on_host()) {
		gpuwm_detach(all);
		cr_skip("on host only");
	}
	cr_assert(eq(int, attach_private("m@v1", &one), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(int, attach_private("m@v1", &two), 0), "%s", gpuwm_error()->message);
	gpuwm_tensor_find(one, "a", &tensor);
	cr_assert(eq(int, gpuwm_dlpack_versioned(one, &tensor, &export), 0));
	cr_expect(eq(u64, export->flags, 0));
	*(unsigned char *)export->dl_tensor.data = 9;
	export->deleter(export);
	cr_expect(eq(int, byte_of(one, "a"), 9));
	cr_expect(eq(int, byte_of(one, "b"), 1));
	cr_expect(eq(int, byte_of(two, "a"), 1));
	cr_expect(eq(int, byte_of(all, "a"), 1));
	/* As it says of itself. */
	cr_assert(eq(int, gpuwm_switch(one, "m@v2", NULL), 0));
	cr_expect(eq(int, byte_of(one, "a"), 2));
	*(unsigned char *)data_of(one, "a") = 9;
	cr_expect(eq(int, gpuwm_detach(one), 0));
	cr_expect(eq(int, gpuwm_detach(two), 0));
	cr_expect(eq(int, gpuwm_detach(all), 0));
}

/* The mapping that may be written is there first. */
Test(private_writes, are_seen_by_no_later_mapping)
{
	struct gpuwm_mapping *one, *later;

	if (!on_host())
		cr_skip("on host only");
	cr_assert(eq(int, attach_private("m@v1", &one), 0), "%s", gpuwm_error()->message);
	*(unsigned char *)data_of(one, "a") = 9;
	later = attach_to("m@v1");
	cr_expect(eq(int, byte_of(later, "a"), 1));
	cr_expect(data_of(later, "a") != data_of(one, "a"));
	cr_expect(eq(int, gpuwm_detach(later), 0));
	cr_expect(eq(int, gpuwm_detach(one), 0));
}

Test(private_writes, are_refused_on_a_gpu)
{
	struct gpuwm_mapping *mapping = NULL;

	if (on_host())
		cr_skip("on a GPU only");
	cr_expect(eq(int, attach_private("m@v1", &mapping), -ENOTSUP));
	cr_expect(strstr(gpuwm_error()->message, "m@v1 privately") != NULL, "%s", gpuwm_error()->message);
	cr_expect(mapping == NULL);
}
