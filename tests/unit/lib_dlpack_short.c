/* Exports where memory or threads are short. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dlfcn.h>
#include <errno.h>

#include "tests/support/fail_alloc.h"
#include "tests/support/lib/dlpack.h"

static bool no_threads;

/* In front of the real one. */
__attribute__((visibility("default"))) int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
							  void *(*function)(void *), void *data)
{
	static __typeof__(pthread_create) *next;

	if (!next)
		next = (__typeof__(pthread_create) *)dlsym(RTLD_NEXT, "pthread_create");
	return no_threads ? EAGAIN : next(thread, attributes, function, data);
}

static struct gpuwm_mapping *mapping;
static struct gpuwm_tensor tensor;

static void setup(void)
{
	export_start_on("host");
	mapping = attach_to("m@v1");
	gpuwm_tensor_find(mapping, "b", &tensor);
}

TestSuite(dlpack_short, .init = setup, .fini = export_stop, .timeout = 120);

/* Whatever it was that failed: an export, or none and a reason. */
static int export_once(bool versioned_)
{
	struct DLManagedTensorVersioned *versioned;
	struct DLManagedTensor *plain;
	int r = versioned_ ? gpuwm_dlpack_versioned(mapping, &tensor, &versioned)
			   : gpuwm_dlpack(mapping, &tensor, &plain);

	if (r == 0 && versioned_)
		versioned->deleter(versioned);
	else if (r == 0)
		plain->deleter(plain);
	cr_assert(eq(u64, gpuwm_mapping_exports(mapping), 0));
	return r;
}

Test(dlpack_short, says_so_when_memory_is_short)
{
	for (int versioned = 0; versioned < 2; versioned++) {
		int refused = 0, r;

		for (unsigned n = 1; fail_alloc_arm(n), r = export_once(versioned), fail_alloc_disarm(); n++) {
			/* Making the thread takes memory too. */
			cr_assert(r == 0 || r == -ENOMEM || r == -EAGAIN, "%d", r);
			refused += r == -ENOMEM;
		}
		cr_assert(eq(int, r, 0));
		cr_assert(ge(int, refused, 1));
	}
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

Test(dlpack_short, says_so_when_there_is_no_thread_to_be_had)
{
	struct DLManagedTensor *export = NULL;

	no_threads = true;
	cr_expect(eq(int, gpuwm_dlpack(mapping, &tensor, &export), -EAGAIN));
	cr_expect(strstr(gpuwm_error()->detail, "RLIMIT_NPROC") != NULL, "%s", gpuwm_error()->detail);
	cr_expect(eq(int, gpuwm_hold(mapping), -EAGAIN));
	cr_expect(export == NULL);
	cr_expect(eq(u64, gpuwm_mapping_exports(mapping), 0));
	no_threads = false;
	cr_expect(eq(int, gpuwm_dlpack(mapping, &tensor, &export), 0));
	export->deleter(export);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(dlpack_short, keeps_what_was_dropped_until_there_is_a_thread)
{
	struct gpuwm_mapping *other = attach_to("m@v2");

	no_threads = true;
	gpuwm_drop(mapping);
	cr_expect(eq(int, gpuwm_ping(client, NULL), 0));
	cr_expect(eq(uint, leases(), 2));
	no_threads = false;
	gpuwm_drop(other);
	UNTIL(leases() == 0);
}
