/* Element types: the 22 of safetensors, in their order, with stable codes.
 *
 * The same codes stand in enum gpuwm_dtype of the public header, in python/gpuwm/_c/dtypes.py, which a test compares, in docs/protocol.md,
 * and, with DLPack's types, in client/lib/mapping/dlpack.c.
 *
 * Each element of a type has the same number of bits. A format that packs blocks of elements, as GGUF's Q4_K (144 bytes for 256 elements),
 * has no such number: dtype_bytes would have to count blocks, and whoever calls dtype_bits could no longer ask for one element. */
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

/* Returns the name of a dtype, such as "BF16", or NULL if there is no dtype with this code. */
const char *dtype_name(unsigned dtype);
/* Returns the bits of one element, or 0 if there is no dtype with this code. */
unsigned dtype_bits(unsigned dtype);
/* Returns the code of a dtype, or 0 if there is no dtype with this name. Case matters. */
unsigned dtype_from_name(const char *name);

/* Computes the bytes of a dense tensor. Returns 0 and sets *ret_bytes. Fails with -EINVAL if there
 * is no such dtype, or if the bits of all elements are not whole bytes. Fails with -EOVERFLOW if
 * the product of the dimensions leaves 64 bits on the way, even if a later dimension is zero:
 * safetensors multiplies from left to right in the same way. */
int dtype_bytes(unsigned dtype, unsigned ndim, const uint64_t *shape, uint64_t *ret_bytes);

#endif
