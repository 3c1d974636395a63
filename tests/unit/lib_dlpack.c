/* Exports to other frameworks, on host. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>

#include "tests/support/lib/dlpack.h"
#include "tests/support/any/child.h"

static void setup(void)
{
	children_leave_early();
	fds_before = fd_count();
	export_start_on("host");
}

static void teardown(void)
{
	UNTIL(leases() == 0);
	gpuwm_close(client);
	/* The library's thread may be on its way to close the last of them. */
	UNTIL(fake->peer_count == 2);
	fake_stop(fake);
	UNTIL(fd_count() == fds_before);
}

TestSuite(dlpack, .init = setup, .fini = teardown, .timeout = 120);
TestSuite(drop, .init = setup, .fini = teardown, .timeout = 120);

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

/* ---- what an export says ------------------------------------------------- */

Test(dlpack, is_the_tensor_itself)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct DLManagedTensor *export = export_of(mapping, "b");
	struct gpuwm_tensor tensor;

	gpuwm_tensor_find(mapping, "b", &tensor);
	cr_expect(export->dl_tensor.data == tensor.data);
	cr_expect(eq(u64, export->dl_tensor.byte_offset, 0));
	cr_expect(eq(int, export->dl_tensor.device.device_type, kDLCPU));
	cr_expect(eq(int, export->dl_tensor.device.device_id, 0));
	cr_expect(eq(int, export->dl_tensor.dtype.code, kDLFloat));
	cr_expect(eq(int, export->dl_tensor.dtype.bits, 32));
	cr_expect(eq(int, export->dl_tensor.dtype.lanes, 1));
	cr_expect(eq(int, export->dl_tensor.ndim, 2));
	cr_expect(eq(i64, export->dl_tensor.shape[0], 10));
	cr_expect(eq(i64, export->dl_tensor.shape[1], 20));
	cr_expect(eq(i64, export->dl_tensor.strides[0], 20));
	cr_expect(eq(i64, export->dl_tensor.strides[1], 1));
	export->deleter(export);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(dlpack, says_in_the_versioned_one_that_nobody_may_write)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct DLManagedTensorVersioned *export;
	struct gpuwm_tensor tensor;

	gpuwm_tensor_find(mapping, "b", &tensor);
	cr_assert(eq(int, gpuwm_dlpack_versioned(mapping, &tensor, &export), 0));
	cr_expect(eq(uint, export->version.major, 1));
	cr_expect(eq(u64, export->flags, DLPACK_FLAG_BITMASK_READ_ONLY));
	cr_expect(export->dl_tensor.data == tensor.data);
	cr_expect(eq(i64, export->dl_tensor.shape[1], 20));
	export->deleter(export);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

/* Of a mapping's tensor "b", made to look so: what goes out, as "type/bits shape/strides ret". */
static const char *said(unsigned dtype, uint32_t ndim, const uint64_t *shape, const int64_t *strides,
			uint64_t bytes)
{
	static char text[200];
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct DLManagedTensor *export;
	struct gpuwm_tensor tensor;
	const struct DLTensor *t;
	int r, at;

	gpuwm_tensor_find(mapping, "b", &tensor);
	tensor.dtype = dtype;
	tensor.ndim = ndim;
	tensor.shape = shape;
	tensor.strides = strides;
	tensor.bytes = bytes;
	r = gpuwm_dlpack(mapping, &tensor, &export);
	cr_assert(ge(int, r, 0), "%s", gpuwm_error()->message);
	t = &export->dl_tensor;
	at = snprintf(text, sizeof(text), "%u/%u", t->dtype.code, t->dtype.bits);
	for (int i = 0; i < t->ndim; i++)
		at += snprintf(text + at, sizeof(text) - (size_t)at, " %lld/%lld", (long long)t->shape[i],
			       (long long)t->strides[i]);
	snprintf(text + at, sizeof(text) - (size_t)at, "%s %d", t->data ? "" : " NULL", r);
	export->deleter(export);
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
	return text;
}

Test(dlpack, knows_every_dtype)
{
	static const char *const expected[DTYPE_END] = {
		[DTYPE_BOOL] = "6/8 0",        [DTYPE_U8] = "1/8 0",          [DTYPE_I8] = "0/8 0",
		[DTYPE_F8_E5M2] = "1/8 1",     [DTYPE_F8_E4M3] = "1/8 1",     [DTYPE_F8_E8M0] = "1/8 1",
		[DTYPE_F8_E4M3FNUZ] = "1/8 1", [DTYPE_F8_E5M2FNUZ] = "1/8 1", [DTYPE_I16] = "0/16 0",
		[DTYPE_U16] = "1/16 0",        [DTYPE_F16] = "2/16 0",        [DTYPE_BF16] = "4/16 0",
		[DTYPE_I32] = "0/32 0",        [DTYPE_U32] = "1/32 0",        [DTYPE_F32] = "2/32 0",
		[DTYPE_C64] = "5/64 0",        [DTYPE_F64] = "2/64 0",        [DTYPE_I64] = "0/64 0",
		[DTYPE_U64] = "1/64 0",
	};

	for (unsigned dtype = DTYPE_BOOL; dtype < DTYPE_END; dtype++) {
		if (dtype_bits(dtype) >= 8)
			cr_expect(eq(str, (char *)said(dtype, 0, NULL, NULL, dtype_bits(dtype) / 8),
				     (char *)expected[dtype]),
				  "%s", dtype_name(dtype));
	}
}

Test(dlpack, keeps_shape_and_strides_of_bytes_that_stand_for_fp8)
{
	cr_expect(eq(str, (char *)said(DTYPE_F8_E4M3, 2, (uint64_t[]){4, 6}, (int64_t[]){1, 4}, 24),
		     "1/8 4/1 6/4 1"));
}

Test(dlpack, counts_bytes_where_elements_are_smaller)
{
	const int64_t strides[] = {6, 2, 1};

	cr_expect(
		eq(str, (char *)said(DTYPE_F4, 2, (uint64_t[]){3, 8}, (int64_t[]){8, 1}, 12), "1/8 3/4 4/1 1"));
	cr_expect(eq(str, (char *)said(DTYPE_F4, 3, (uint64_t[]){4, 3, 2}, strides, 12), "1/8 4/3 3/1 1/1 1"));
	cr_expect(eq(str, (char *)said(DTYPE_F6_E2M3, 2, (uint64_t[]){2, 4}, (int64_t[]){4, 1}, 6),
		     "1/8 2/3 3/1 1"));
	/* Rows that are no whole bytes. */
	cr_expect(eq(str, (char *)said(DTYPE_F4, 2, (uint64_t[]){2, 3}, (int64_t[]){3, 1}, 3), "1/8 3/1 1"));
}

Test(dlpack, of_an_empty_tensor_has_no_data)
{
	const uint64_t large[] = {0, UINT64_C(1) << 62, UINT64_C(1) << 62};

	cr_expect(eq(str, (char *)said(DTYPE_F32, 2, (uint64_t[]){0, 5}, (int64_t[]){5, 1}, 0),
		     "2/32 0/5 5/1 NULL 0"));
	cr_expect(eq(str, (char *)said(DTYPE_F4, 3, large, (int64_t[]){1, 1, 1}, 0), "1/8 0/1 NULL 1"));
}

Test(dlpack, refuses_what_it_can_not_say)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct DLManagedTensor *export = NULL;
	struct gpuwm_tensor tensor;
	uint64_t large[] = {0, UINT64_MAX};

	gpuwm_tensor_find(mapping, "b", &tensor);
	tensor.shape = large;
	tensor.bytes = 0;
	cr_expect(eq(int, gpuwm_dlpack(mapping, &tensor, &export), -EOVERFLOW));
	cr_expect(strstr(gpuwm_error()->message, "tensor b ") != NULL, "%s", gpuwm_error()->message);
	gpuwm_tensor_find(mapping, "b", &tensor);
	tensor.segment = 9;
	cr_expect(eq(int, gpuwm_dlpack(mapping, &tensor, &export), -ERANGE));
	gpuwm_tensor_find(mapping, "b", &tensor);
	tensor.offset = UINT64_MAX;
	cr_expect(eq(int, gpuwm_dlpack(mapping, &tensor, &export), -ERANGE));
	cr_expect(export == NULL);
	cr_expect(eq(u64, gpuwm_mapping_exports(mapping), 0));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(dlpack, of_several_is_all_or_none)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct DLManagedTensor *exports[3], *none[3] = {NULL};
	struct gpuwm_tensor tensors[3];

	cr_assert(eq(int, gpuwm_dlpack_many(mapping, (uint64_t[]){1, 0, 1}, 3, exports), 0));
	cr_expect(eq(u64, gpuwm_mapping_exports(mapping), 3));
	cr_assert(eq(int, gpuwm_tensors(mapping, tensors), 0));
	for (unsigned i = 0; i < 3; i++) {
		cr_expect(exports[i]->dl_tensor.data == tensors[i != 1].data);
		exports[i]->deleter(exports[i]);
	}
	cr_expect(eq(int, gpuwm_dlpack_many(mapping, (uint64_t[]){1, 0, 9}, 3, none), -ERANGE));
	cr_expect(not(none[0] || none[1] || none[2]), "who frees what is there would free it twice");
	cr_expect(strstr(gpuwm_error()->message, "no tensor 9") != NULL, "%s", gpuwm_error()->message);
	cr_expect(eq(u64, gpuwm_mapping_exports(mapping), 0));
	cr_expect(eq(int, gpuwm_dlpack_many(mapping, NULL, 0, NULL), 0));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(dlpack, outlives_a_switch_with_its_shape)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct DLManagedTensor *export = export_of(mapping, "b");

	cr_assert(eq(int, ((char *)export->dl_tensor.data)[799], 1));
	cr_assert(eq(int, gpuwm_switch(mapping, "m@v2", NULL), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(int, ((char *)export->dl_tensor.data)[799], 2));
	cr_assert(eq(i64, export->dl_tensor.shape[1], 20));
	export->deleter(export);
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

/* ---- how long memory and lease live -------------------------------------- */

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

static unsigned threads(void)
{
	DIR *folder = opendir("/proc/self/task");
	unsigned count = 0;

	while (readdir(folder))
		count++;
	closedir(folder);
	return count - 2; /* "." and ".." */
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
