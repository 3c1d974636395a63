/* Whether a mapping has what its version says, on host or a GPU. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>

#include "tests/support/fail_alloc.h"
#include "tests/support/any/child.h"
#include "tests/support/lib/dlpack.h"

static void setup(void)
{
	struct made damaged = made_default("damaged", 3);

	export_start();
	damaged.lies = true;
	made_add(fake, &device, &damaged);
}

static void teardown(void)
{
	cr_assert(eq(uint, leases(), 0));
	gpuwm_close(client);
	fake_stop(fake);
}

TestSuite(verify, .init = setup, .fini = teardown, .timeout = 60);

static int verify(const struct gpuwm_mapping *mapping, const char *name)
{
	return gpuwm_tensors_verify(mapping, &name, 1);
}

Test(verify, finds_all_as_it_was)
{
	const char *const names[] = {"c", "a", "c"};
	struct gpuwm_mapping *mapping = attach_to("m@v1");

	cr_expect(eq(int, gpuwm_tensors_verify(mapping, NULL, 0), 0), "%s", gpuwm_error()->message);
	cr_expect(eq(int, gpuwm_tensors_verify(mapping, names, 3), 0), "%s", gpuwm_error()->message);
	cr_expect(eq(int, gpuwm_tensors_verify(mapping, names, 0), 0));
	/* And the digests of what came to the same addresses. */
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0));
	cr_expect(eq(int, gpuwm_tensors_verify(mapping, NULL, 0), 0), "%s", gpuwm_error()->message);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(verify, names_the_first_that_differs)
{
	const char *const names[] = {"b", "a"};
	struct gpuwm_mapping *mapping = attach_to("m@damaged");

	cr_expect(eq(int, gpuwm_tensors_verify(mapping, NULL, 0), -EBADMSG));
	cr_expect(strstr(gpuwm_error()->message, "tensor a of m@damaged: the version has digest ") &&
			  strstr(gpuwm_error()->message, "its 100 bytes here have "),
		  "%s", gpuwm_error()->message);
	cr_expect(strstr(gpuwm_error()->detail, "gpuwmctl verify") != NULL, "%s", gpuwm_error()->detail);
	cr_expect(eq(int, gpuwm_tensors_verify(mapping, names, 2), -EBADMSG));
	cr_expect(strstr(gpuwm_error()->message, "tensor b of") != NULL, "%s", gpuwm_error()->message);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(verify, of_what_is_not_there)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	const char *glob = "c";
	struct gpuwm_mapping *mapping = NULL;

	options.globs = &glob;
	options.glob_count = 1;
	cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &mapping), 0));
	cr_expect(eq(int, gpuwm_tensors_verify(mapping, NULL, 0), 0), "what is not mapped is left out");
	cr_expect(eq(int, verify(mapping, "c"), 0));
	cr_expect(eq(int, verify(mapping, "a"), -ENODATA));
	cr_expect(eq(int, verify(mapping, NULL), -ENOENT));
	cr_expect(eq(int, verify(mapping, "x"), -ENOENT));
	cr_expect(strstr(gpuwm_error()->message, "m@v1 has no tensor x") != NULL, "%s", gpuwm_error()->message);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(verify, of_what_this_process_wrote)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping = NULL;
	struct gpuwm_tensor tensor;

	if (!on_host())
		cr_skip("on host only");
	options.private_writes = true;
	cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &mapping), 0));
	cr_assert(eq(int, gpuwm_tensor_find(mapping, "b", &tensor), 0));
	*(unsigned char *)(uintptr_t)tensor.data = 9;
	cr_expect(eq(int, verify(mapping, "a"), 0));
	cr_expect(eq(int, verify(mapping, "b"), -EBADMSG));
	cr_expect(strstr(gpuwm_error()->detail, "private writes") != NULL, "%s", gpuwm_error()->detail);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(verify, without_memory)
{
	const char *names[] = {"a"};
	struct gpuwm_mapping *mapping = attach_to("m@v1");

	for (unsigned nth = 1; nth <= 3; nth++) {
		fail_alloc_arm(nth);
		cr_expect(eq(int, gpuwm_tensors_verify(mapping, nth % 2 ? names : NULL, 1), -ENOMEM));
		cr_assert(fail_alloc_disarm());
	}
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(verify, in_a_child_is_refused)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");

	cr_expect(eq(int, IN_CHILD(gpuwm_tensors_verify(mapping, NULL, 0) == -ECHILD ? 42 : 1), 42 << 8));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}
