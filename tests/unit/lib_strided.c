/* Two orders of a tensor's elements, against the plain definition of strides. */
#include "proto/index/strided.h"
#include "proto/index/dtype.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX 65536

/* A shape, and the order of its dimensions in memory, the slowest first. */
struct sample {
	unsigned dtype, ndim;
	uint64_t shape[5];
	unsigned order[5];
};

static const struct sample samples[] = {
	{DTYPE_U8, 2, {5, 7}, {1, 0}},
	{DTYPE_BF16, 2, {64, 33}, {1, 0}},
	{DTYPE_F32, 3, {3, 4, 5}, {2, 0, 1}},
	{DTYPE_F32, 3, {3, 4, 5}, {1, 0, 2}},
	{DTYPE_I64, 4, {3, 1, 4, 2}, {2, 0, 1, 3}},
	{DTYPE_C64, 5, {2, 3, 2, 3, 2}, {4, 3, 2, 1, 0}},
	{DTYPE_F16, 4, {2, 8, 3, 3}, {0, 2, 3, 1}}, /* channels last */
};
#define SAMPLES (sizeof(samples) / sizeof(samples[0]))

static uint64_t strides_of(const struct sample *s, int64_t ret[5])
{
	uint64_t step = 1;

	for (unsigned k = s->ndim; k-- > 0; step *= s->shape[s->order[k]])
		ret[s->order[k]] = (int64_t)step;
	return step;
}

/* By the definition, one element after the other. */
static void to_rows(const struct sample *s, const int64_t *strides, const uint8_t *from, uint8_t *to)
{
	size_t element = dtype_element_bytes(s->dtype);
	uint64_t count = strides_of(s, (int64_t[5]){0});

	for (uint64_t i = 0; i < count; i++) {
		uint64_t left = i, at = 0;

		for (unsigned d = s->ndim; d-- > 0; left /= s->shape[d])
			at += left % s->shape[d] * (uint64_t)strides[d];
		memcpy(to + i * element, from + at * element, element);
	}
}

static uint8_t memory[BYTES_MAX], rows[BYTES_MAX], got[BYTES_MAX];

static void gather(const struct strided *strided, const uint8_t *from, uint64_t count, uint64_t step)
{
	memset(got, 0xee, sizeof(got));
	for (uint64_t at = 0; at < count; at += step)
		strided_gather(strided, from, at, count - at < step ? count - at : step,
			       got + at * strided->element);
}

Test(strided, both_orders_are_those_of_the_strides)
{
	static const uint64_t steps[] = {1, 3, 16, BYTES_MAX};

	for (size_t i = 0; i < sizeof(memory); i++)
		memory[i] = (uint8_t)rand();
	for (size_t i = 0; i < 4 * SAMPLES; i++) {
		const struct sample *s = &samples[i / 4];
		struct strided strided;
		int64_t strides[5];
		uint64_t count = strides_of(s, strides), bytes = count * dtype_element_bytes(s->dtype);

		cr_assert_not(strided_is_plain(s->dtype, s->ndim, s->shape, strides));
		to_rows(s, strides, memory, rows);
		strided_to_rows(s->dtype, s->ndim, s->shape, strides, &strided);
		gather(&strided, memory, count, steps[i % 4]);
		cr_expect_eq(memcmp(got, rows, bytes), 0, "rows of sample %zu", i / 4);
		strided_to_memory(s->dtype, s->ndim, s->shape, strides, &strided);
		gather(&strided, rows, count, steps[i % 4]);
		cr_expect_eq(memcmp(got, memory, bytes), 0, "memory of sample %zu", i / 4);
	}
}

Test(strided, what_is_plain_is_known)
{
	cr_expect(strided_is_plain(DTYPE_F32, 2, (uint64_t[]){2, 3}, (int64_t[]){3, 1}));
	cr_expect(strided_is_plain(DTYPE_F32, 3, (uint64_t[]){2, 1, 3}, (int64_t[]){3, 77, 1}));
	cr_expect(strided_is_plain(DTYPE_F32, 2, (uint64_t[]){0, 3}, (int64_t[]){1, 9}));
	cr_expect(strided_is_plain(DTYPE_F32, 2, (uint64_t[]){3, 0}, (int64_t[]){1, 9}));
	cr_expect(strided_is_plain(DTYPE_F32, 0, NULL, NULL));
	cr_expect_not(strided_is_plain(DTYPE_F32, 2, (uint64_t[]){2, 3}, (int64_t[]){1, 2}));
	/* Of a dtype that a newer gpuwm has: nobody divides by its element's bytes. */
	cr_expect(strided_is_plain(DTYPE_END, 2, (uint64_t[]){2, 3}, (int64_t[]){1, 2}));
}
