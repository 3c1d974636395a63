/* How long exports keep memory and lease, on host. */
#include "tests/support/any/child.h"
#include "tests/support/any/threads.h"
#include "tests/support/lib/dlpack.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <inttypes.h>

TestSuite(drop, .init = export_setup, .fini = export_teardown, .timeout = 120);

/* What else is mapped may come to lie where a segment was. */
static bool is_mapped(const void *address)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	bool found = false;

	while (fgets(line, sizeof(line), maps)) {
		uintptr_t from = 0, to = 0;

		sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &from, &to);
		found = found || (from <= (uintptr_t)address && (uintptr_t)address < to &&
				  strstr(line, "memfd:gpuwm-segment"));
	}
	fclose(maps);
	return found;
}

Test(drop, is_refused_to_detach_while_something_is_used)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct DLManagedTensor *a = export_of(mapping, "a"), *b = export_of(mapping, "b");

	cr_expect(eq(int, gpuwm_hold(mapping), 0));
	cr_expect(eq(u64, gpuwm_mapping_exports(mapping), 3));
	cr_expect(eq(int, gpuwm_detach(mapping), -EBUSY));
	cr_expect(strstr(gpuwm_error()->message, "3 tensors still use the memory of m@v1") != NULL, "%s",
		  gpuwm_error()->message);
	a->deleter(a);
	gpuwm_unhold(mapping);
	cr_expect(eq(int, gpuwm_detach(mapping), -EBUSY));
	cr_expect(strstr(gpuwm_error()->message, "1 tensor still uses") != NULL, "%s", gpuwm_error()->message);
	cr_expect(eq(uint, leases(), 1));
	b->deleter(b);
	cr_expect(eq(u64, gpuwm_mapping_exports(mapping), 0));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
	cr_expect(eq(uint, leases(), 0));
}

Test(drop, keeps_memory_and_lease_until_the_last_is_gone)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct DLManagedTensor *a = export_of(mapping, "a"), *b = export_of(mapping, "b");
	const char *data = b->dl_tensor.data;

	gpuwm_drop(mapping);
	a->deleter(a);
	cr_expect(eq(int, gpuwm_ping(client, NULL), 0));
	cr_expect(eq(uint, leases(), 1));
	cr_expect(eq(int, data[799], 1));
	cr_expect(is_mapped(data));
	b->deleter(b);
	UNTIL(leases() == 0);
	cr_expect(is_mapped(data) == false);
}

Test(drop, ends_what_nobody_uses)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	const void *address = gpuwm_mapping_address(mapping, NULL);

	gpuwm_drop(mapping);
	UNTIL(leases() == 0);
	cr_expect(is_mapped(address) == false);
	gpuwm_drop(NULL);
}

Test(drop, of_one_of_two_that_share_a_mapping_leaves_the_other)
{
	struct gpuwm_mapping *one = attach_to("m@v1"), *two = attach_to("m@v1");
	struct DLManagedTensor *of_one = export_of(one, "b"), *of_two = export_of(two, "b");
	const char *data = of_one->dl_tensor.data;

	cr_assert(of_two->dl_tensor.data == data);
	cr_expect(eq(int, gpuwm_detach(two), -EBUSY));
	gpuwm_drop(one);
	of_one->deleter(of_one);
	UNTIL(leases() == 1);
	cr_expect(eq(int, data[0], 1));
	of_two->deleter(of_two);
	cr_expect(eq(int, gpuwm_detach(two), 0));
	cr_expect(eq(uint, leases(), 0));
	cr_expect(is_mapped(data) == false);
}

#define THREADS 8
#define EXPORTS 500

static void *delete_all(void *data)
{
	struct DLManagedTensor **exports = data;

	for (int i = 0; i < EXPORTS; i++)
		exports[i]->deleter(exports[i]);
	return NULL;
}

Test(drop, takes_deleters_from_any_thread)
{
	static struct DLManagedTensor *exports[THREADS][EXPORTS];
	struct gpuwm_mapping *mappings[] = {attach_to("m@v1"), attach_to("m@v2"), attach_to("m@v1")};
	pthread_t threads[THREADS];

	for (int t = 0; t < THREADS; t++)
		for (int i = 0; i < EXPORTS; i++)
			exports[t][i] = export_of(mappings[(t + i) % 3], "b");
	for (int t = 0; t < THREADS; t++)
		cr_assert(eq(int, pthread_create(&threads[t], NULL, delete_all, exports[t]), 0));
	for (int i = 0; i < 3; i++)
		gpuwm_drop(mappings[i]);
	for (int t = 0; t < THREADS; t++)
		pthread_join(threads[t], NULL);
	UNTIL(leases() == 0);
}

Test(drop, keeps_its_client_for_as_long_as_it_must)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct DLManagedTensor *export = export_of(mapping, "b");

	gpuwm_drop(mapping);
	client = gpuwm_close(client);
	cr_expect(eq(uint, leases(), 1));
	export->deleter(export);
	UNTIL(leases() == 0);
}

Test(drop, keeps_its_lease_through_a_restart)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct DLManagedTensor *export = export_of(mapping, "b");

	gpuwm_drop(mapping);
	fake_kill(fake);
	fake_run_again(fake);
	UNTIL(leases() == 1);
	export->deleter(export);
	UNTIL(leases() == 0);
}

static struct gpuwm_mapping *waited_for;

static void *wait_for_ever(void *unused)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);

	options.wait_ms = -1;
	gpuwm_attach(client, "m@v2", &options, &waited_for);
	return unused;
}

/* Who waits for a version may wait for what is dropped. */
Test(drop, gives_its_lease_back_while_another_call_waits)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	unsigned before = fake->requests;
	pthread_t thread;

	strcpy(fake->silent, "get_handles");
	cr_assert(eq(int, pthread_create(&thread, NULL, wait_for_ever, NULL), 0));
	UNTIL(fake->requests == before + 1);
	gpuwm_drop(mapping);
	UNTIL(fake->releases == 1);
	*fake->silent = 0;
	fake_kill(fake);
	fake_run_again(fake);
	pthread_join(thread, NULL);
	cr_assert(waited_for != NULL);
	cr_expect(eq(int, filled_with(waited_for), 2));
	cr_expect(eq(int, gpuwm_detach(waited_for), 0));
}

Test(drop, has_one_thread_for_all)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	unsigned before = threads();

	for (int i = 0; i < 20; i++)
		gpuwm_drop(attach_to("m@v2"));
	cr_expect(eq(uint, threads(), before + 1));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

/* ---- a forked child ------------------------------------------------------ */

static int in_child(struct gpuwm_mapping *mapping, struct DLManagedTensor *export)
{
	struct gpuwm_tensor tensor = {.name = "b"};
	struct DLManagedTensor *more;

	if (((char *)export->dl_tensor.data)[799] != 1)
		return 1;
	if (gpuwm_dlpack(mapping, &tensor, &more) != -ECHILD || gpuwm_hold(mapping) != -ECHILD)
		return 2;
	gpuwm_unhold(mapping);
	export->deleter(export);
	gpuwm_drop(mapping);
	if (gpuwm_detach(mapping) != -ECHILD)
		return 3;
	return 42;
}

Test(drop, in_a_forked_child_concerns_nobody)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct DLManagedTensor *export = export_of(mapping, "b");

	cr_expect(eq(int, IN_CHILD(in_child(mapping, export)), 42 << 8));
	cr_expect(eq(int, IN_CHILD((exit(0), 1)), 0), "with everything that runs in exit");
	cr_expect(eq(int, gpuwm_ping(client, NULL), 0));
	cr_expect(eq(uint, leases(), 1));
	cr_expect(eq(u64, gpuwm_mapping_exports(mapping), 1));
	cr_expect(eq(int, ((char *)export->dl_tensor.data)[799], 1));
	export->deleter(export);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

/* One of its own has a thread of its own, which is not to end what the child was left. */
static int with_a_client_in_child(struct DLManagedTensor *inherited)
{
	const unsigned char *byte = inherited->dl_tensor.data;
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_mapping *mapping;
	struct gpuwm_client *own;
	const void *address;

	options.socket = fake->path;
	if (gpuwm_connect(&options, &own) < 0 || gpuwm_attach(own, "m@v1", NULL, &mapping) < 0)
		return 1;
	address = gpuwm_mapping_address(mapping, NULL);
	inherited->deleter(inherited);
	gpuwm_drop(mapping);
	for (int i = 0; i < 5000; i++) {
		if (!is_mapped(address))
			return is_mapped(byte) && *byte == 1 ? 42 : 3;
		poll(NULL, 0, 1);
	}
	return 2;
}

Test(drop, works_in_a_forked_child_that_connected_itself)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct DLManagedTensor *export = export_of(mapping, "b");

	gpuwm_drop(attach_to("m@v2"));
	UNTIL(leases() == 1);
	gpuwm_drop(mapping);
	cr_expect(eq(int, IN_CHILD(with_a_client_in_child(export)), 42 << 8));
	cr_expect(eq(int, gpuwm_ping(client, NULL), 0));
	UNTIL(leases() == 1);
	export->deleter(export);
}

/* ---- exit ---------------------------------------------------------------- */

static struct DLManagedTensor *left;

static void delete_left(void)
{
	left->deleter(left);
}

/* Registered first, so that it comes after the library's own end. */
Test(drop, in_exit_is_left_to_the_kernel)
{
	pid_t child = fork();

	if (child == 0) {
		struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
		struct gpuwm_mapping *mapping;
		struct gpuwm_client *own;

		atexit(delete_left);
		options.socket = fake->path;
		if (gpuwm_connect(&options, &own) < 0 || gpuwm_attach(own, "m@v1", NULL, &mapping) < 0)
			_exit(1);
		left = export_of(mapping, "b");
		gpuwm_drop(mapping);
		exit(42);
	}
	cr_expect(eq(int, child_status(child), 42 << 8));
	UNTIL(leases() == 0);
}
