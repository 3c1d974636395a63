/* Element types: the 22 of safetensors, in their order, with stable codes.
 * The public header carries the same codes as enum gpuwm_dtype. */
#ifndef GPUWM_PROTO_DTYPE_H
#define GPUWM_PROTO_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

enum dtype {
	DTYPE_BOOL = 1,
	DTYPE_F4,
	DTYPE_F6_E2M3,
	DTYPE_F6_E3M2,
	DTYPE_U8,
	DTYPE_I8,
	DTYPE_F8_E5M2,
	DTYPE_F8_E4M3,
	DTYPE_F8_E8M0,
	DTYPE_F8_E4M3FNUZ,
	DTYPE_F8_E5M2FNUZ,
	DTYPE_I16,
	DTYPE_U16,
	DTYPE_F16,
	DTYPE_BF16,
	DTYPE_I32,
	DTYPE_U32,
	DTYPE_F32,
	DTYPE_C64,
	DTYPE_F64,
	DTYPE_I64,
	DTYPE_U64,
	DTYPE_END,
};

/* "BF16"; NULL for a code that is none. */
const char *dtype_name(unsigned dtype);
/* Bits of one element; 0 for a code that is none. */
unsigned dtype_bits(unsigned dtype);
/* 0 for a name that is none (case matters). */
unsigned dtype_from_name(const char *name);

/* Bytes of a dense tensor. -EINVAL: no such dtype, or no whole number of bytes;
 * -EOVERFLOW: the product, taken from left to right as safetensors does, leaves
 * 64 bits on the way (also where a later dimension is zero). */
int dtype_bytes(unsigned dtype, unsigned ndim, const uint64_t *shape, uint64_t *ret_bytes);

#endif
