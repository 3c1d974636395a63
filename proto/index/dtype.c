#include "dtype.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	enum dtype_family family;
	struct dtype_block block;
} dtypes[DTYPE_END] = {
	[DTYPE_BOOL] = {"BOOL", DTYPE_SAFETENSORS, {1, 1}},
	[DTYPE_F4] = {"F4", DTYPE_SAFETENSORS, {2, 1}},
	[DTYPE_F6_E2M3] = {"F6_E2M3", DTYPE_SAFETENSORS, {4, 3}},
	[DTYPE_F6_E3M2] = {"F6_E3M2", DTYPE_SAFETENSORS, {4, 3}},
	[DTYPE_U8] = {"U8", DTYPE_SAFETENSORS, {1, 1}},
	[DTYPE_I8] = {"I8", DTYPE_SAFETENSORS, {1, 1}},
	[DTYPE_F8_E5M2] = {"F8_E5M2", DTYPE_SAFETENSORS, {1, 1}},
	[DTYPE_F8_E4M3] = {"F8_E4M3", DTYPE_SAFETENSORS, {1, 1}},
	[DTYPE_F8_E8M0] = {"F8_E8M0", DTYPE_SAFETENSORS, {1, 1}},
	[DTYPE_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", DTYPE_SAFETENSORS, {1, 1}},
	[DTYPE_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", DTYPE_SAFETENSORS, {1, 1}},
	[DTYPE_I16] = {"I16", DTYPE_SAFETENSORS, {1, 2}},
	[DTYPE_U16] = {"U16", DTYPE_SAFETENSORS, {1, 2}},
	[DTYPE_F16] = {"F16", DTYPE_SAFETENSORS, {1, 2}},
	[DTYPE_BF16] = {"BF16", DTYPE_SAFETENSORS, {1, 2}},
	[DTYPE_I32] = {"I32", DTYPE_SAFETENSORS, {1, 4}},
	[DTYPE_U32] = {"U32", DTYPE_SAFETENSORS, {1, 4}},
	[DTYPE_F32] = {"F32", DTYPE_SAFETENSORS, {1, 4}},
	[DTYPE_C64] = {"C64", DTYPE_SAFETENSORS, {1, 8}},
	[DTYPE_F64] = {"F64", DTYPE_SAFETENSORS, {1, 8}},
	[DTYPE_I64] = {"I64", DTYPE_SAFETENSORS, {1, 8}},
	[DTYPE_U64] = {"U64", DTYPE_SAFETENSORS, {1, 8}},
	[DTYPE_Q4_0] = {"Q4_0", DTYPE_GGUF, {32, 18}},
	[DTYPE_Q4_1] = {"Q4_1", DTYPE_GGUF, {32, 20}},
	[DTYPE_Q5_0] = {"Q5_0", DTYPE_GGUF, {32, 22}},
	[DTYPE_Q5_1] = {"Q5_1", DTYPE_GGUF, {32, 24}},
	[DTYPE_Q8_0] = {"Q8_0", DTYPE_GGUF, {32, 34}},
	[DTYPE_Q2_K] = {"Q2_K", DTYPE_GGUF, {256, 84}},
	[DTYPE_Q3_K] = {"Q3_K", DTYPE_GGUF, {256, 110}},
	[DTYPE_Q4_K] = {"Q4_K", DTYPE_GGUF, {256, 144}},
	[DTYPE_Q5_K] = {"Q5_K", DTYPE_GGUF, {256, 176}},
	[DTYPE_Q6_K] = {"Q6_K", DTYPE_GGUF, {256, 210}},
};

const char *dtype_name(unsigned dtype)
{
	return dtype < DTYPE_END ? dtypes[dtype].name : NULL;
}

const char *dtype_text(unsigned dtype, char text[static DTYPE_TEXT_BYTES])
{
	if (dtype_name(dtype))
		return dtype_name(dtype);
	snprintf(text, DTYPE_TEXT_BYTES, "dtype %u", dtype);
	return text;
}

unsigned dtype_from_name(const char *name)
{
	for (unsigned i = 1; i < DTYPE_END; i++)
		if (!strcmp(dtypes[i].name, name))
			return i;
	return 0;
}

enum dtype_family dtype_family(unsigned dtype)
{
	return dtype < DTYPE_END ? dtypes[dtype].family : 0;
}

struct dtype_block dtype_block(unsigned dtype)
{
	return dtype < DTYPE_END ? dtypes[dtype].block : (struct dtype_block){0};
}

uint32_t dtype_element_bytes(unsigned dtype)
{
	const struct dtype_block block = dtype_block(dtype);

	return block.elements == 1 ? block.bytes : 0;
}

int dtype_bytes(unsigned dtype, unsigned ndim, const uint64_t *shape, uint64_t *ret_bytes)
{
	const struct dtype_block block = dtype_block(dtype);
	uint64_t elements = 1, bytes;

	if (!block.elements)
		return -EINVAL;
	for (unsigned i = 0; i < ndim; i++)
		if (__builtin_mul_overflow(elements, shape[i], &elements))
			return -EOVERFLOW;
	if (dtype_family(dtype) == DTYPE_GGUF && (ndim == 0 || shape[ndim - 1] % block.elements))
		return -EINVAL;
	if (elements % block.elements)
		return -EINVAL;
	if (__builtin_mul_overflow(elements / block.elements, (uint64_t)block.bytes, &bytes))
		return -EOVERFLOW;
	*ret_bytes = bytes;
	return 0;
}
