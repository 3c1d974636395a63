#include "../../include/gpuwm/client.h"
#include "../../proto/index/dtype.h"
#include "../../base/limits.h"

#include <criterion/criterion.h>
#include <errno.h>

static int bytes_of(unsigned dtype, unsigned ndim, const uint64_t *shape, uint64_t *ret)
{
	*ret = 12345;
	return dtype_bytes(dtype, ndim, shape, ret);
}
#define SHAPE(...)                                                                                             \
	sizeof((uint64_t[]){__VA_ARGS__}) / 8, (uint64_t[])                                                    \
	{                                                                                                      \
		__VA_ARGS__                                                                                    \
	}

Test(dtype, the_22_of_safetensors_by_name_and_bits)
{
	static const struct {
		const char *name;
		unsigned bits;
	} all[] = {
		{"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
		{"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
		{"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
		{"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
		{"I64", 64},        {"U64", 64},
	};

	cr_assert_eq(sizeof(all) / sizeof(all[0]), 22);
	cr_assert_eq(DTYPE_END, 23);
	for (unsigned i = 0; i < 22; i++) {
		cr_expect_str_eq(dtype_name(i + 1), all[i].name);
		cr_expect_eq(dtype_bits(i + 1), all[i].bits);
		cr_expect_eq(dtype_from_name(all[i].name), i + 1);
	}
}

Test(dtype, codes_are_those_of_the_public_header)
{
	cr_expect_eq((int)DTYPE_BOOL, (int)GPUWM_BOOL);
	cr_expect_eq((int)DTYPE_F4, (int)GPUWM_F4);
	cr_expect_eq((int)DTYPE_F8_E5M2FNUZ, (int)GPUWM_F8_E5M2FNUZ);
	cr_expect_eq((int)DTYPE_BF16, (int)GPUWM_BF16);
	cr_expect_eq((int)DTYPE_C64, (int)GPUWM_C64);
	cr_expect_eq((int)DTYPE_U64, (int)GPUWM_U64);
}

Test(dtype, what_is_none)
{
	uint64_t bytes;

	cr_expect_null(dtype_name(0));
	cr_expect_null(dtype_name(DTYPE_END));
	cr_expect_eq(dtype_bits(0), 0);
	cr_expect_eq(dtype_bits(65535), 0);
	cr_expect_eq(dtype_from_name("bf16"), 0);
	cr_expect_eq(dtype_from_name(""), 0);
	cr_expect_eq(bytes_of(0, SHAPE(1), &bytes), -EINVAL);
	cr_expect_eq(bytes_of(DTYPE_END, SHAPE(1), &bytes), -EINVAL);
	cr_expect_eq(bytes, 12345);
}

Test(dtype, bytes_of_dense_tensors)
{
	uint64_t bytes;

	cr_expect_eq(bytes_of(DTYPE_BF16, SHAPE(3, 5), &bytes), 0);
	cr_expect_eq(bytes, 30);
	cr_expect_eq(bytes_of(DTYPE_F64, 0, NULL, &bytes), 0);
	cr_expect_eq(bytes, 8);
	cr_expect_eq(bytes_of(DTYPE_F32, SHAPE(4, 0, 7), &bytes), 0);
	cr_expect_eq(bytes, 0);
	cr_expect_eq(bytes_of(DTYPE_U8, SHAPE(UINT64_MAX / 8), &bytes), 0);
	cr_expect_eq(bytes, UINT64_MAX / 8);
}

Test(dtype, elements_below_a_byte)
{
	uint64_t bytes;

	cr_expect_eq(bytes_of(DTYPE_F4, SHAPE(3, 2), &bytes), 0);
	cr_expect_eq(bytes, 3);
	cr_expect_eq(bytes_of(DTYPE_F6_E2M3, SHAPE(4), &bytes), 0);
	cr_expect_eq(bytes, 3);
	cr_expect_eq(bytes_of(DTYPE_F4, SHAPE(3), &bytes), -EINVAL);
	cr_expect_eq(bytes_of(DTYPE_F6_E3M2, 0, NULL, &bytes), -EINVAL);
}

Test(dtype, products_that_leave_64_bits_on_the_way)
{
	uint64_t bytes;

	cr_expect_eq(bytes_of(DTYPE_U8, SHAPE(GIB(4), GIB(4)), &bytes), -EOVERFLOW);
	cr_expect_eq(bytes_of(DTYPE_U8, SHAPE(GIB(4), GIB(4), 0), &bytes), -EOVERFLOW);
	cr_expect_eq(bytes_of(DTYPE_U8, SHAPE(0, GIB(4), GIB(4)), &bytes), 0);
	cr_expect_eq(bytes_of(DTYPE_F4, SHAPE(GIB(4), GIB(1)), &bytes), -EOVERFLOW);
	cr_expect_eq(bytes_of(DTYPE_U64, SHAPE(UINT64_MAX / 64 + 1), &bytes), -EOVERFLOW);
}
