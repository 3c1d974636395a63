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

Test(dtype, of_safetensors_and_of_gguf_by_name_and_block)
{
	static const struct {
		const char *name;
		uint32_t elements, bytes;
	} all[] = {
		{"BOOL", 1, 1},     {"F4", 2, 1},          {"F6_E2M3", 4, 3},     {"F6_E3M2", 4, 3},
		{"U8", 1, 1},       {"I8", 1, 1},          {"F8_E5M2", 1, 1},     {"F8_E4M3", 1, 1},
		{"F8_E8M0", 1, 1},  {"F8_E4M3FNUZ", 1, 1}, {"F8_E5M2FNUZ", 1, 1}, {"I16", 1, 2},
		{"U16", 1, 2},      {"F16", 1, 2},         {"BF16", 1, 2},        {"I32", 1, 4},
		{"U32", 1, 4},      {"F32", 1, 4},         {"C64", 1, 8},         {"F64", 1, 8},
		{"I64", 1, 8},      {"U64", 1, 8},         {"Q4_0", 32, 18},      {"Q4_1", 32, 20},
		{"Q5_0", 32, 22},   {"Q5_1", 32, 24},      {"Q8_0", 32, 34},      {"Q2_K", 256, 84},
		{"Q3_K", 256, 110}, {"Q4_K", 256, 144},    {"Q5_K", 256, 176},    {"Q6_K", 256, 210},
	};

	cr_assert_eq(sizeof(all) / sizeof(all[0]), DTYPE_END - 1);
	for (unsigned i = 0; i < DTYPE_END - 1; i++) {
		const struct dtype_block block = dtype_block(i + 1);

		cr_expect_str_eq(dtype_name(i + 1), all[i].name);
		cr_expect_eq(block.elements, all[i].elements, "%s", all[i].name);
		cr_expect_eq(block.bytes, all[i].bytes, "%s", all[i].name);
		cr_expect_eq(dtype_element_bytes(i + 1), all[i].elements == 1 ? all[i].bytes : 0);
		cr_expect_eq(dtype_family(i + 1), i < 22 ? DTYPE_SAFETENSORS : DTYPE_GGUF);
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
	cr_expect_eq((int)DTYPE_Q4_0, (int)GPUWM_Q4_0);
	cr_expect_eq((int)DTYPE_Q2_K, (int)GPUWM_Q2_K);
	cr_expect_eq((int)DTYPE_Q6_K, (int)GPUWM_Q6_K);
}

Test(dtype, what_is_none)
{
	char text[DTYPE_TEXT_BYTES];
	uint64_t bytes;

	cr_expect_null(dtype_name(0));
	cr_expect_null(dtype_name(DTYPE_END));
	cr_expect_eq(dtype_block(0).elements, 0);
	cr_expect_eq(dtype_block(65535).elements, 0);
	cr_expect_eq(dtype_element_bytes(DTYPE_END), 0);
	cr_expect_eq(dtype_family(DTYPE_END), 0);
	cr_expect_str_eq(dtype_text(UINT32_MAX, text), "dtype 4294967295");
	cr_expect_str_eq(dtype_text(DTYPE_Q4_K, text), "Q4_K");
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

Test(dtype, rows_of_gguf_are_whole_blocks)
{
	uint64_t bytes;

	cr_expect_eq(bytes_of(DTYPE_Q4_K, SHAPE(3, 512), &bytes), 0);
	cr_expect_eq(bytes, 3 * 2 * 144);
	cr_expect_eq(bytes_of(DTYPE_Q8_0, SHAPE(32), &bytes), 0);
	cr_expect_eq(bytes, 34);
	cr_expect_eq(bytes_of(DTYPE_Q8_0, SHAPE(5, 0), &bytes), 0);
	cr_expect_eq(bytes, 0);
	cr_expect_eq(bytes_of(DTYPE_Q4_K, SHAPE(255), &bytes), -EINVAL);
	cr_expect_eq(bytes_of(DTYPE_Q4_K, SHAPE(2, 128), &bytes), -EINVAL, "a block of two rows");
	cr_expect_eq(bytes_of(DTYPE_Q4_K, SHAPE(256, 1), &bytes), -EINVAL, "a block of a column");
	cr_expect_eq(bytes_of(DTYPE_Q4_K, 0, NULL, &bytes), -EINVAL);
	cr_expect_eq(bytes, 12345);
}

Test(dtype, products_that_leave_64_bits_on_the_way)
{
	uint64_t bytes;

	cr_expect_eq(bytes_of(DTYPE_U8, SHAPE(GIB(4), GIB(4)), &bytes), -EOVERFLOW);
	cr_expect_eq(bytes_of(DTYPE_U8, SHAPE(GIB(4), GIB(4), 0), &bytes), -EOVERFLOW);
	cr_expect_eq(bytes_of(DTYPE_U8, SHAPE(0, GIB(4), GIB(4)), &bytes), 0);
	cr_expect_eq(bytes_of(DTYPE_U64, SHAPE(UINT64_MAX / 8 + 1), &bytes), -EOVERFLOW);
	cr_expect_eq(bytes_of(DTYPE_U64, SHAPE(UINT64_MAX / 8), &bytes), 0);
	cr_expect_eq(bytes_of(DTYPE_F4, SHAPE(GIB(4), GIB(4)), &bytes), -EOVERFLOW);
	cr_expect_eq(bytes_of(DTYPE_Q8_0, SHAPE(UINT64_MAX / 32 * 32), &bytes), -EOVERFLOW);
	cr_expect_eq(bytes_of(DTYPE_Q4_K, SHAPE(GIB(4), GIB(4)), &bytes), -EOVERFLOW);
}
