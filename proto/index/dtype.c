#include "dtype.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

static const struct {
	const char *name;
	unsigned bits;
} dtypes[DTYPE_END] = {
	[DTYPE_BOOL] = {"BOOL", 8},
	[DTYPE_F4] = {"F4", 4},
	[DTYPE_F6_E2M3] = {"F6_E2M3", 6},
	[DTYPE_F6_E3M2] = {"F6_E3M2", 6},
	[DTYPE_U8] = {"U8", 8},
	[DTYPE_I8] = {"I8", 8},
	[DTYPE_F8_E5M2] = {"F8_E5M2", 8},
	[DTYPE_F8_E4M3] = {"F8_E4M3", 8},
	[DTYPE_F8_E8M0] = {"F8_E8M0", 8},
	[DTYPE_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
	[DTYPE_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
	[DTYPE_I16] = {"I16", 16},
	[DTYPE_U16] = {"U16", 16},
	[DTYPE_F16] = {"F16", 16},
	[DTYPE_BF16] = {"BF16", 16},
	[DTYPE_I32] = {"I32", 32},
	[DTYPE_U32] = {"U32", 32},
	[DTYPE_F32] = {"F32", 32},
	[DTYPE_C64] = {"C64", 64},
	[DTYPE_F64] = {"F64", 64},
	[DTYPE_I64] = {"I64", 64},
	[DTYPE_U64] = {"U64", 64},
};

const char *dtype_name(unsigned dtype)
{
	return dtype < DTYPE_END ? dtypes[dtype].name : NULL;
}

unsigned dtype_bits(unsigned dtype)
{
	return dtype < DTYPE_END ? dtypes[dtype].bits : 0;
}

unsigned dtype_from_name(const char *name)
{
	for (unsigned i = 1; i < DTYPE_END; i++)
		if (!strcmp(dtypes[i].name, name))
			return i;
	return 0;
}

int dtype_bytes(unsigned dtype, unsigned ndim, const uint64_t *shape, uint64_t *ret_bytes)
{
	uint64_t elements = 1, bits;

	if (!dtype_bits(dtype))
		return -EINVAL;
	for (unsigned i = 0; i < ndim; i++)
		if (__builtin_mul_overflow(elements, shape[i], &elements))
			return -EOVERFLOW;
	if (__builtin_mul_overflow(elements, (uint64_t)dtype_bits(dtype), &bits))
		return -EOVERFLOW;
	if (bits % 8)
		return -EINVAL;
	*ret_bytes = bits / 8;
	return 0;
}
