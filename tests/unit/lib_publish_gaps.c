/* What the loader zeroes of a publish: all that no tensor covers. */
#include "client/lib/publish/publish_state.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DIRTY 0xa5
#define TENSORS_MAX 8

static struct memory_ops ops;
static unsigned zeroed; /* calls */
static struct gpuwm_publish publish;
static uint64_t shapes[TENSORS_MAX];
static struct error error;

static int zero(const struct memory_device *device, struct memory_segment *segment, struct error *zero_error)
{
	(void)device;
	if (!zeroed--)
		return error_set(zero_error, -EIO, NULL, "the device is gone");
	memset(segment->address, 0, segment->bytes);
	return 0;
}

/* Tensors of these sizes (end with -1), named in this order, in dirty memory with segments of `target` bytes. */
static void planned(uint64_t target, const int64_t *sizes)
{
	struct gpuwm_tensor_spec specs[TENSORS_MAX];
	char names[TENSORS_MAX][2] = {{0}};
	size_t count = 0;

	for (; sizes[count] >= 0; count++) {
		names[count][0] = (char)('a' + count);
		shapes[count] = (uint64_t)sizes[count];
		specs[count] = (struct gpuwm_tensor_spec){
			.name = names[count], .dtype = GPUWM_U8, .ndim = 1, .shape = &shapes[count]};
	}
	ops = memory_host;
	ops.zero = zero;
	ops.fresh_zeros = false;
	publish = (struct gpuwm_publish){.tensor_count = count, .device = {.ops = &ops}};
	cr_assert_eq(plan_make(specs, count, &(struct plan_policy){4096, TENSOR_ALIGN, target, false},
			       &publish.plan, &error),
		     0, "%s", error.message);
	publish.segments = calloc(publish.plan.segment_count, sizeof(*publish.segments));
	for (uint32_t i = 0; i < publish.plan.segment_count; i++) {
		publish.segments[i].bytes = publish.plan.segments[i];
		publish.segments[i].address = malloc(publish.plan.segments[i]);
		memset(publish.segments[i].address, DIRTY, publish.plan.segments[i]);
	}
}

static void ended(void)
{
	for (uint32_t i = 0; i < publish.plan.segment_count; i++)
		free(publish.segments[i].address);
	free(publish.segments);
	plan_clear(&publish.plan);
}

/* Fills the tensors as a copy does after it, and looks at everything else. */
static void expect_zeros(void)
{
	for (size_t i = 0; i < publish.tensor_count; i++) {
		const struct plan_place *place = &publish.plan.places[i];

		memset((char *)publish.segments[place->segment].address + place->offset, 0, place->bytes);
	}
	for (uint32_t i = 0; i < publish.plan.segment_count; i++)
		for (uint64_t at = 0; at < publish.plan.segments[i]; at++)
			cr_assert_eq(((char *)publish.segments[i].address)[at], 0, "segment %u, byte %zu", i,
				     (size_t)at);
}

/* With so many calls, and not one less. */
static void zeroes_with(unsigned calls)
{
	zeroed = calls;
	cr_assert_eq(publish_zero_gaps(&publish, &error), 0, "%s", error.message);
	cr_assert_eq(zeroed, 0, "%u calls less", zeroed);
}

Test(publish_gaps, are_zeroed_to_the_end_of_the_segment)
{
	planned(MIB(1), (const int64_t[]){100, 1000, 256, 0, 7, -1});
	zeroes_with(1);
	expect_zeros();
	ended();
}

Test(publish_gaps, are_zeroed_apart_around_a_large_tensor)
{
	planned(MIB(64), (const int64_t[]){100, MIB(5), 10, 4096 - 512, -1});
	zeroes_with(2);
	cr_assert_eq(*((uint8_t *)publish.segments[0].address + MIB(1)), DIRTY);
	expect_zeros();
	ended();
}

Test(publish_gaps, are_found_in_every_segment)
{
	planned(4096, (const int64_t[]){4000, 4096, 4095, 1, 8000, -1});
	cr_assert_eq(publish.plan.segment_count, 5);
	zeroes_with(4);
	expect_zeros();
	ended();
}

Test(publish_gaps, are_none_where_tensors_fill_their_segments)
{
	planned(8192, (const int64_t[]){4096, 4096, 8192, -1});
	zeroes_with(0);
	expect_zeros();
	ended();
}

Test(publish_gaps, are_all_where_tensors_have_no_bytes)
{
	planned(4096, (const int64_t[]){0, 0, -1});
	zeroes_with(1);
	expect_zeros();
	ended();
}

Test(publish_gaps, tell_what_the_device_says)
{
	planned(4096, (const int64_t[]){4000, 4000, -1});
	zeroed = 1;
	cr_assert_eq(publish_zero_gaps(&publish, &error), -EIO);
	cr_assert_str_eq(error.message, "the device is gone");
	ended();
}
