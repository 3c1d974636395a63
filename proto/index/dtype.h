/* Element types: the 22 of safetensors, in their order, then those block types of GGUF that are in wide use. The codes are stable.
 *
 * The same codes stand in enum gpuwm_dtype of the public header, in python/gpuwm/_c/dtypes.py, which a test compares, in docs/protocol.md,
 * and, with DLPack's types, in client/lib/mapping/dlpack.c. */
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
	DTYPE_Q4_0,
	DTYPE_Q4_1,
	DTYPE_Q5_0,
	DTYPE_Q5_1,
	DTYPE_Q8_0,
	DTYPE_Q2_K,
	DTYPE_Q3_K,
	DTYPE_Q4_K,
	DTYPE_Q5_K,
	DTYPE_Q6_K,
	DTYPE_END,
};

/* Who defines a dtype. It says where a block may end. */
enum dtype_family {
	/* An element has bits of its own, which follow on each other through the ends of rows. Only all elements of a tensor together
	 * are whole blocks. */
	DTYPE_SAFETENSORS = 1,
	/* A block has scales for its elements, which are neighbours in one row: the last dimension is whole blocks. */
	DTYPE_GGUF,
};

/* The smallest number of elements that has whole bytes: BF16 has 2 bytes for 1 element, F4 1 byte for 2, Q4_K 144 bytes for 256. */
struct dtype_block {
	uint32_t elements, bytes;
};

/* Returns the name of a dtype, such as "BF16", or NULL if there is no dtype with this code. */
const char *dtype_name(unsigned dtype);
/* Returns what a message calls a dtype: its name, or "dtype 99" if there is none with this code. The text is static, or in `text`. */
#define DTYPE_TEXT_BYTES sizeof("dtype 4294967295")
const char *dtype_text(unsigned dtype, char text[static DTYPE_TEXT_BYTES]);
/* Returns the code of a dtype, or 0 if there is no dtype with this name. Case matters. */
unsigned dtype_from_name(const char *name);
/* Returns the family of a dtype, or 0 if there is no dtype with this code. */
enum dtype_family dtype_family(unsigned dtype);
/* Returns the block of a dtype. It has 0 elements if there is no dtype with this code. */
struct dtype_block dtype_block(unsigned dtype);
/* Returns the bytes of one element. Returns 0 if elements share bytes (F4, Q4_K), and if there is no dtype with this code. */
uint32_t dtype_element_bytes(unsigned dtype);

/* Computes the bytes of a dense tensor: nothing else computes them. Returns 0 and sets *ret_bytes. Fails with -EINVAL if there is
 * no such dtype, or if the shape is not whole blocks. Fails with -EOVERFLOW if the product of the dimensions, or the number of
 * bytes, leaves 64 bits on the way, even if a later dimension is zero: safetensors multiplies from left to right in the same way. */
int dtype_bytes(unsigned dtype, unsigned ndim, const uint64_t *shape, uint64_t *ret_bytes);

#endif
