/* Exports to other frameworks, on host. */
#include "tests/support/lib/dlpack.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>

TestSuite(dlpack, .init = export_setup, .fini = export_teardown, .timeout = 120);

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
	cr_expect(eq(uint, export->version.minor, 1), "the codes of fp8 came with 1.1");
	cr_expect(eq(u64, export->flags, DLPACK_FLAG_BITMASK_READ_ONLY));
	cr_expect(export->dl_tensor.data == tensor.data);
	cr_expect(eq(i64, export->dl_tensor.shape[1], 20));
	export->deleter(export);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

/* Of a mapping's tensor "b", made to look so: what goes out, as "type/bits/lanes shape/strides ret". */
static const char *say(bool versioned, struct gpuwm_tensor like)
{
	static char text[200];
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct DLManagedTensorVersioned *with = NULL;
	struct DLManagedTensor *without = NULL;
	struct gpuwm_tensor tensor;
	const struct DLTensor *t;
	int r, at;

	gpuwm_tensor_find(mapping, "b", &tensor);
	tensor.dtype = like.dtype;
	tensor.ndim = like.ndim;
	tensor.shape = like.shape;
	tensor.strides = like.strides;
	tensor.bytes = like.bytes;
	r = versioned ? gpuwm_dlpack_versioned(mapping, &tensor, &with)
		      : gpuwm_dlpack(mapping, &tensor, &without);
	cr_assert(ge(int, r, 0), "%s", gpuwm_error()->message);
	t = versioned ? &with->dl_tensor : &without->dl_tensor;
	at = snprintf(text, sizeof(text), "%u/%u/%u", t->dtype.code, t->dtype.bits, t->dtype.lanes);
	for (int i = 0; i < t->ndim; i++)
		at += snprintf(text + at, sizeof(text) - (size_t)at, " %lld/%lld", (long long)t->shape[i],
			       (long long)t->strides[i]);
	snprintf(text + at, sizeof(text) - (size_t)at, "%s %d", t->data ? "" : " NULL", r);
	if (versioned)
		with->deleter(with);
	else
		without->deleter(without);
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
	return text;
}

#define SHAPE(...) ((uint64_t[]){__VA_ARGS__})
#define STRIDES(...) ((int64_t[]){__VA_ARGS__})
#define EXPECT_SAID(text, versioned, ...)                                                                      \
	cr_expect(eq(str, (char *)say(versioned, (struct gpuwm_tensor){__VA_ARGS__}), text))

/* Those of a byte or more: first what an export without a version says, then what a versioned one does. */
Test(dlpack, knows_every_dtype)
{
	static const char *const expected[DTYPE_END][2] = {
		[DTYPE_BOOL] = {"6/8/1 0", "6/8/1 0"},         [DTYPE_U8] = {"1/8/1 0", "1/8/1 0"},
		[DTYPE_I8] = {"0/8/1 0", "0/8/1 0"},           [DTYPE_F8_E5M2] = {"1/8/1 1", "12/8/1 0"},
		[DTYPE_F8_E4M3] = {"1/8/1 1", "10/8/1 0"},     [DTYPE_F8_E8M0] = {"1/8/1 1", "14/8/1 0"},
		[DTYPE_F8_E4M3FNUZ] = {"1/8/1 1", "11/8/1 0"}, [DTYPE_F8_E5M2FNUZ] = {"1/8/1 1", "13/8/1 0"},
		[DTYPE_I16] = {"0/16/1 0", "0/16/1 0"},        [DTYPE_U16] = {"1/16/1 0", "1/16/1 0"},
		[DTYPE_F16] = {"2/16/1 0", "2/16/1 0"},        [DTYPE_BF16] = {"4/16/1 0", "4/16/1 0"},
		[DTYPE_I32] = {"0/32/1 0", "0/32/1 0"},        [DTYPE_U32] = {"1/32/1 0", "1/32/1 0"},
		[DTYPE_F32] = {"2/32/1 0", "2/32/1 0"},        [DTYPE_C64] = {"5/64/1 0", "5/64/1 0"},
		[DTYPE_F64] = {"2/64/1 0", "2/64/1 0"},        [DTYPE_I64] = {"0/64/1 0", "0/64/1 0"},
		[DTYPE_U64] = {"1/64/1 0", "1/64/1 0"},
	};

	for (unsigned dtype = DTYPE_BOOL; dtype < DTYPE_END; dtype++) {
		const uint32_t bytes = dtype_element_bytes(dtype);

		for (unsigned versioned = 0; bytes > 0 && versioned < 2; versioned++)
			cr_expect(eq(str,
				     (char *)say(versioned,
						 (struct gpuwm_tensor){.dtype = dtype, .bytes = bytes}),
				     (char *)expected[dtype][versioned]),
				  "%s", dtype_name(dtype));
	}
}

Test(dlpack, keeps_shape_and_strides_of_fp8)
{
	EXPECT_SAID("1/8/1 4/1 6/4 1", false, .dtype = GPUWM_F8_E4M3, .ndim = 2, .shape = SHAPE(4, 6),
		    .strides = STRIDES(1, 4), .bytes = 24);
	EXPECT_SAID("10/8/1 4/1 6/4 0", true, .dtype = GPUWM_F8_E4M3, .ndim = 2, .shape = SHAPE(4, 6),
		    .strides = STRIDES(1, 4), .bytes = 24);
}

Test(dlpack, counts_bytes_where_elements_are_smaller)
{
	EXPECT_SAID("1/8/1 3/4 4/1 1", false, .dtype = GPUWM_F4, .ndim = 2, .shape = SHAPE(3, 8),
		    .strides = STRIDES(8, 1), .bytes = 12);
	EXPECT_SAID("1/8/1 4/3 3/1 1/1 1", false, .dtype = GPUWM_F4, .ndim = 3, .shape = SHAPE(4, 3, 2),
		    .strides = STRIDES(6, 2, 1), .bytes = 12);
	EXPECT_SAID("1/8/1 2/3 3/1 1", false, .dtype = GPUWM_F6_E2M3, .ndim = 2, .shape = SHAPE(2, 4),
		    .strides = STRIDES(4, 1), .bytes = 6);
	/* Rows that are no whole bytes. */
	EXPECT_SAID("1/8/1 3/1 1", false, .dtype = GPUWM_F4, .ndim = 2, .shape = SHAPE(2, 3),
		    .strides = STRIDES(3, 1), .bytes = 3);
}

Test(dlpack, has_pairs_of_fp4_for_consumers_of_versioned_exports)
{
	EXPECT_SAID("17/4/2 3/4 4/1 0", true, .dtype = GPUWM_F4, .ndim = 2, .shape = SHAPE(3, 8),
		    .strides = STRIDES(8, 1), .bytes = 12);
	EXPECT_SAID("17/4/2 4/3 3/1 1/1 0", true, .dtype = GPUWM_F4, .ndim = 3, .shape = SHAPE(4, 3, 2),
		    .strides = STRIDES(6, 2, 1), .bytes = 12);
	EXPECT_SAID("1/8/1 3/1 1", true, .dtype = GPUWM_F4, .ndim = 2, .shape = SHAPE(2, 3),
		    .strides = STRIDES(3, 1), .bytes = 3);
	EXPECT_SAID("1/8/1 2/3 3/1 1", true, .dtype = GPUWM_F6_E3M2, .ndim = 2, .shape = SHAPE(2, 4),
		    .strides = STRIDES(4, 1), .bytes = 6);
}

Test(dlpack, of_an_empty_tensor_has_its_shape_and_no_data)
{
	EXPECT_SAID("2/32/1 0/5 5/1 NULL 0", false, .dtype = GPUWM_F32, .ndim = 2, .shape = SHAPE(0, 5),
		    .strides = STRIDES(5, 1));
	EXPECT_SAID("1/8/1 0/4 4/1 NULL 1", false, .dtype = GPUWM_F4, .ndim = 2, .shape = SHAPE(0, 8),
		    .strides = STRIDES(8, 1));
	EXPECT_SAID("17/4/2 0/4 4/1 NULL 0", true, .dtype = GPUWM_F4, .ndim = 2, .shape = SHAPE(0, 8),
		    .strides = STRIDES(8, 1));
	EXPECT_SAID("17/4/2 8/1 0/1 NULL 0", true, .dtype = GPUWM_F4, .ndim = 2, .shape = SHAPE(8, 0),
		    .strides = STRIDES(2, 1));
	EXPECT_SAID("1/8/1 0/1 NULL 1", true, .dtype = GPUWM_F4, .ndim = 2, .shape = SHAPE(0, 3),
		    .strides = STRIDES(3, 1));
	/* The product of the dimensions is above 64 bits. */
	EXPECT_SAID("17/4/2 0/1 4611686018427387904/1 2305843009213693952/1 NULL 0", true, .dtype = GPUWM_F4,
		    .ndim = 3, .shape = SHAPE(0, UINT64_C(1) << 62, UINT64_C(1) << 62),
		    .strides = STRIDES(2, 2, 1));
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

/* DTYPE_END stands for a dtype of a newer publisher: nobody checks an index that gpuwmd has had checked. */
Test(dlpack, refuses_and_names_a_dtype_that_it_has_no_type_for)
{
	struct gpuwm_mapping *mapping = attach_to("m@v1");
	struct DLManagedTensorVersioned *versioned = NULL;
	struct DLManagedTensor *export = NULL;
	struct gpuwm_tensor tensor;

	gpuwm_tensor_find(mapping, "b", &tensor);
	tensor.dtype = GPUWM_Q4_K;
	cr_expect(eq(int, gpuwm_dlpack(mapping, &tensor, &export), -ENOTSUP));
	cr_expect(strstr(gpuwm_error()->message, "tensor b is Q4_K, which DLPack has no type for") != NULL,
		  "%s", gpuwm_error()->message);
	cr_expect(strstr(gpuwm_error()->detail, "memoryview()") != NULL, "%s", gpuwm_error()->detail);
	cr_expect(eq(int, gpuwm_dlpack_versioned(mapping, &tensor, &versioned), -ENOTSUP));
	tensor.dtype = (enum gpuwm_dtype)DTYPE_END;
	cr_expect(eq(int, gpuwm_dlpack(mapping, &tensor, &export), -ENOTSUP));
	cr_expect(strstr(gpuwm_error()->message, "tensor b is dtype 33,") != NULL, "%s",
		  gpuwm_error()->message);
	tensor.dtype = (enum gpuwm_dtype) - 1;
	cr_expect(eq(int, gpuwm_dlpack(mapping, &tensor, &export), -ENOTSUP));
	cr_expect(export == NULL && versioned == NULL);
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
