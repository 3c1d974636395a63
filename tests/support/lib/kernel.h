/* What a kernel's arithmetic needs to run on the CPU, thread by thread: include it before kernels/NAME_thread.h. */
#ifndef GPUWM_TESTS_LIB_KERNEL_H
#define GPUWM_TESTS_LIB_KERNEL_H

#include <criterion/criterion.h>
#include <stdint.h>

#pragma GCC diagnostic ignored "-Wunknown-pragmas" /* unroll */
#pragma GCC diagnostic ignored "-Wunused-function" /* not every kernel loads all kinds */
#define __device__
#define __forceinline__ inline

typedef struct {
	uint32_t x, y, z, w;
} uint4;

static uint4 load_vector(const uint4 *from)
{
	cr_assert_eq((uintptr_t)from % 16, 0);
	return *from;
}

static uint4 load_block_vector(const uint4 *from)
{
	return load_vector(from);
}

static uint64_t load_word(const uint64_t *from)
{
	cr_assert_eq((uintptr_t)from % 8, 0);
	return *from;
}

static uint8_t load_byte(const uint8_t *from)
{
	return *from;
}

#endif
