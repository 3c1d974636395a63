#include "client/lib/plan.h"
#include "proto/index/dtype.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENSORS 40

static const struct plan_policy pages = {4096, TENSOR_ALIGN, 4096, false};

/* A model made from a seed; the specs point into it. */
struct model {
	size_t count;
	struct gpuwm_tensor_spec specs[TENSORS];
	uint64_t shapes[TENSORS][3];
	char names[TENSORS][32];
};

static uint64_t random_next(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

static void model_make(struct model *model, uint64_t seed)
{
	static const enum gpuwm_dtype dtypes[] = {GPUWM_U8, GPUWM_BF16, GPUWM_F32, GPUWM_F64, GPUWM_BOOL};

	model->count = random_next(&seed) % TENSORS;
	for (size_t i = 0; i < model->count; i++) {
		snprintf(model->names[i], sizeof(model->names[i]), "t%llu.%zu",
			 (unsigned long long)random_next(&seed) % 100, i);
		model->specs[i] = (struct gpuwm_tensor_spec){
			.name = model->names[i],
			.dtype = dtypes[random_next(&seed) % 5],
			.ndim = (uint32_t)(random_next(&seed) % 4),
			.shape = model->shapes[i],
		};
		for (int d = 0; d < 3; d++)
			model->shapes[i][d] = random_next(&seed) % 24;
		if (i > 0 && random_next(&seed) % 6 == 0) {
			model->specs[i] = model->specs[random_next(&seed) % i];
			model->specs[i].tied_to = model->specs[i].name;
			model->specs[i].name = model->names[i];
		}
	}
}

static void model_shuffle(struct model *model, uint64_t seed, size_t *order)
{
	for (size_t i = 0; i < model->count; i++)
		order[i] = i;
	for (size_t i = model->count; i > 1; i--) {
		size_t other = random_next(&seed) % i, kept = order[i - 1];
		struct gpuwm_tensor_spec spec = model->specs[i - 1];

		model->specs[i - 1] = model->specs[other];
		model->specs[other] = spec;
		order[i - 1] = order[other];
		order[other] = kept;
	}
}

static bool same_place(const struct plan_place *a, const struct plan_place *b)
{
	return a->segment == b->segment && a->offset == b->offset && a->bytes == b->bytes;
}

static void check_places(const struct model *model, const struct plan *plan, uint64_t align)
{
	for (size_t i = 0; i < model->count; i++) {
		const struct plan_place *a = &plan->places[i];

		cr_assert(lt(u32, a->segment, plan->segment_count));
		cr_assert(eq(u64, a->offset % align, 0));
		cr_assert(le(u64, a->offset + a->bytes, plan->segments[a->segment]));
		for (size_t j = 0; j < i; j++) {
			const struct plan_place *b = &plan->places[j];
			bool apart = a->segment != b->segment || a->offset + a->bytes <= b->offset ||
				     b->offset + b->bytes <= a->offset;
			bool tied = model->specs[i].tied_to || model->specs[j].tied_to;

			cr_assert(apart || (tied && same_place(a, b)));
		}
	}
}

/* What the tensors hold, tied ones once. */
static uint64_t model_bytes(const struct model *model, const struct plan *plan)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < model->count; i++)
		bytes += model->specs[i].tied_to ? 0 : plan->places[i].bytes;
	return bytes;
}

/* All that is not a tensor's: what aligning takes in front of one, and what fills a segment up. */
static void check_waste(const struct model *model, const struct plan *plan, uint64_t granularity,
			uint64_t align)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < plan->segment_count; i++) {
		cr_assert(eq(u64, plan->segments[i] % granularity, 0));
		total += plan->segments[i];
	}
	cr_assert(eq(u64, plan->total, total));
	cr_assert(
		le(u64, total,
		   model_bytes(model, plan) + model->count * (align - 1) + plan->segment_count * granularity));
}

static void check_same(const struct model *model, const struct plan *first, const struct plan *second)
{
	cr_assert(eq(u32, first->segment_count, second->segment_count));
	for (uint32_t i = 0; i < first->segment_count; i++)
		cr_assert(eq(u64, first->segments[i], second->segments[i]));
	for (size_t i = 0; i < model->count; i++)
		cr_assert(same_place(&first->places[i], &second->places[i]));
}

Test(plan, places_ten_thousand_models_aligned_apart_without_waste_and_each_time_alike)
{
	static struct model model;

	for (uint64_t seed = 1; seed <= 10000; seed++) {
		uint64_t granularity = UINT64_C(1) << (9 + seed % 8), target = 1 + seed % 50 * 1000;
		uint64_t align = UINT64_C(16) << (seed % 18); /* to 2 MiB */
		const struct plan_policy policy = {granularity, align, target, false};
		struct plan plan = {0}, again = {0};
		struct error error;

		model_make(&model, seed);
		cr_assert(eq(int, plan_make(model.specs, model.count, &policy, &plan, &error), 0));
		check_places(&model, &plan, align);
		check_waste(&model, &plan, granularity, align);
		cr_assert(eq(int, plan_make(model.specs, model.count, &policy, &again, NULL), 0));
		check_same(&model, &plan, &again);
		plan_clear(&plan);
		plan_clear(&again);
	}
}

Test(plan, does_not_depend_on_the_order_of_the_specs)
{
	const struct plan_policy policy = {4096, TENSOR_ALIGN, 20000, false};
	static struct model model;
	size_t order[TENSORS];

	for (uint64_t seed = 1; seed <= 2000; seed++) {
		struct plan first = {0}, second = {0};

		model_make(&model, seed);
		cr_assert(eq(int, plan_make(model.specs, model.count, &policy, &first, NULL), 0));
		model_shuffle(&model, seed, order);
		cr_assert(eq(int, plan_make(model.specs, model.count, &policy, &second, NULL), 0));
		cr_assert(eq(u32, first.segment_count, second.segment_count));
		for (size_t i = 0; i < model.count; i++)
			cr_assert(same_place(&first.places[order[i]], &second.places[i]));
		plan_clear(&first);
		plan_clear(&second);
	}
}

Test(plan, makes_larger_segments_rather_than_more_than_a_packet_holds)
{
	enum { COUNT = 3000 };
	const struct plan_policy smallest = {4096, TENSOR_ALIGN, 1, false};
	static struct gpuwm_tensor_spec specs[COUNT];
	static char names[COUNT][16];
	const uint64_t shape[] = {1000};
	struct plan plan = {0};

	for (size_t i = 0; i < COUNT; i++) {
		snprintf(names[i], sizeof(names[i]), "t%zu", i);
		specs[i] = (struct gpuwm_tensor_spec){
			.name = names[i], .dtype = GPUWM_F32, .ndim = 1, .shape = shape};
	}
	cr_assert(eq(int, plan_make(specs, COUNT, &smallest, &plan, NULL), 0));
	cr_assert(le(u32, plan.segment_count, PART_SEGMENTS_MAX));
	cr_assert(lt(u32, PART_SEGMENTS_MAX / 4, plan.segment_count));
	plan_clear(&plan);
}

Test(plan, gives_a_tied_group_the_place_of_its_first_name_whoever_is_the_root)
{
	const uint64_t shape[] = {100};
	struct gpuwm_tensor_spec specs[] = {
		{.name = "b", .dtype = GPUWM_U8, .ndim = 1, .shape = shape},
		{.name = "a", .dtype = GPUWM_U8, .ndim = 1, .shape = shape, .tied_to = "c"},
		{.name = "c", .dtype = GPUWM_U8, .ndim = 1, .shape = shape},
	};
	struct plan plan = {0};

	cr_assert(eq(int, plan_make(specs, 3, &pages, &plan, NULL), 0));
	cr_assert(eq(u64, plan.places[1].offset, 0));
	cr_assert(same_place(&plan.places[1], &plan.places[2]));
	cr_assert(eq(u64, plan.places[0].offset, 256));
	plan_clear(&plan);
}

Test(plan, gives_tensors_without_bytes_a_place_and_no_tensors_no_segment)
{
	const uint64_t shape[] = {0, 5};
	const struct gpuwm_tensor_spec spec = {.name = "e", .dtype = GPUWM_F32, .ndim = 2, .shape = shape};
	struct plan plan = {0};

	cr_assert(eq(int, plan_make(&spec, 1, &pages, &plan, NULL), 0));
	cr_assert(eq(u32, plan.segment_count, 1));
	cr_assert(eq(u64, plan.total, 4096));
	plan_clear(&plan);
	cr_assert(eq(int, plan_make(NULL, 0, &pages, &plan, NULL), 0));
	cr_assert(eq(u32, plan.segment_count, 0));
	plan_clear(&plan);
}

/* Refused with -EINVAL, and a message that names what is wrong. */
static void refused(const struct gpuwm_tensor_spec *specs, size_t count, const char *words)
{
	struct plan plan = {0};
	struct error error = {0};

	cr_assert(eq(int, plan_make(specs, count, &pages, &plan, &error), -EINVAL));
	cr_assert(strstr(error.message, words) != NULL, "%s", error.message);
	cr_assert(lt(sz, 0, strlen(error.detail)), "no remedy: %s", error.message);
}

Test(plan, refuses_what_has_no_layout_and_names_the_tensor)
{
	const uint64_t shape[] = {4, 6}, odd[] = {3}, rows[] = {256, 255}, huge[] = {UINT64_MAX, UINT64_MAX};
	const int64_t broken[] = {7, 1};
	const struct gpuwm_tensor_spec good = {.name = "x", .dtype = GPUWM_F32, .ndim = 2, .shape = shape};
	struct gpuwm_tensor_spec specs[] = {good, good};

	refused(specs, 2, "x is there twice");
	specs[1].name = "y";
	specs[1].dtype = 99;
	refused(specs, 2, "y: there is no dtype 99");
	specs[1].dtype = GPUWM_F32;
	specs[1].shape = huge;
	refused(specs, 2, "y: its shape gives more than 64 bits");
	specs[1] = (struct gpuwm_tensor_spec){.name = "y", .dtype = GPUWM_F4, .ndim = 1, .shape = odd};
	refused(specs, 2, "y: its shape gives no whole number of bytes");
	specs[1] = (struct gpuwm_tensor_spec){.name = "y", .dtype = GPUWM_Q4_K, .ndim = 2, .shape = rows};
	refused(specs, 2, "y is Q4_K: its last dimension of 255 is not whole blocks");
	specs[1].ndim = 0;
	refused(specs, 2, "y is Q4_K and has no dimension");
	specs[1] = good;
	specs[1].name = "y";
	specs[1].strides = broken;
	refused(specs, 2, "y: its strides");
	specs[1].strides = NULL;
	specs[1].tied_to = "z";
	refused(specs, 2, "y is tied to z, which is not here");
	specs[1].tied_to = "y";
	refused(specs, 2, "y is tied to itself");
	specs[1].tied_to = "x";
	specs[1].dtype = GPUWM_U8;
	refused(specs, 2, "y is tied to x of another dtype or size");
	specs[1] = good;
	specs[1].name = NULL;
	refused(specs, 2, "tensor 1 has no name");
	specs[1].name = "";
	refused(specs, 2, "tensor 1 has no name");
	specs[1].name = "y";
	specs[1].ndim = 65;
	refused(specs, 2, "y has 65 dimensions");
	specs[1].ndim = 1;
	specs[1].shape = NULL;
	refused(specs, 2, "y has no shape");
}

Test(plan, takes_permuted_strides)
{
	const uint64_t shape[] = {4, 1, 6};
	const int64_t strides[] = {1, 77, 4};
	const struct gpuwm_tensor_spec spec = {
		.name = "x", .dtype = GPUWM_F32, .ndim = 3, .shape = shape, .strides = strides};
	struct plan plan = {0};

	cr_assert(eq(int, plan_make(&spec, 1, &pages, &plan, NULL), 0));
	cr_assert(eq(u64, plan.places[0].bytes, 96));
	plan_clear(&plan);
}

Test(plan, refuses_more_than_any_memory_holds)
{
	const uint64_t shape[] = {UINT64_C(1) << 60};
	const char *const names[] = {"a", "b", "c", "d", "e"};
	struct gpuwm_tensor_spec specs[5];
	struct plan plan = {0};

	for (int i = 0; i < 5; i++)
		specs[i] = (struct gpuwm_tensor_spec){
			.name = names[i], .dtype = GPUWM_U8, .ndim = 1, .shape = shape};
	cr_assert(eq(int, plan_make(specs, 5, &pages, &plan, NULL), -EFBIG));
	cr_assert(eq(int, plan_make(specs, 3, &pages, &plan, NULL), 0));
	plan_clear(&plan);
}

static const struct plan_policy *exactly(uint64_t mib, struct plan_policy *ret)
{
	*ret = (struct plan_policy){MIB(2), TENSOR_ALIGN, MIB(mib), true};
	return ret;
}

/* 300 tensors of 3 MiB: 252 segments hold them when two go into some. */
Test(plan, names_the_smallest_segment_that_fits)
{
	enum { MANY = 300 };
	struct plan_policy policy;
	const uint64_t shape[] = {MIB(3)};
	struct gpuwm_tensor_spec specs[MANY];
	char names[MANY][16];
	struct plan plan = {0};
	struct error error = {0};

	for (int i = 0; i < MANY; i++) {
		snprintf(names[i], sizeof names[i], "t%03d", i);
		specs[i] = (struct gpuwm_tensor_spec){
			.name = names[i], .dtype = GPUWM_U8, .ndim = 1, .shape = shape};
	}
	cr_assert(eq(int, plan_make(specs, MANY, exactly(2, &policy), &plan, &error), -EINVAL));
	cr_assert(strstr(error.message, "would be 300, and a part has at most 252") != NULL, "%s",
		  error.message);
	cr_assert(strstr(error.detail, "segment_bytes of 6291456 is") != NULL, "%s", error.detail);
	cr_assert(eq(int, plan_make(specs, MANY, exactly(4, &policy), &plan, &error), -EINVAL));
	cr_assert(eq(int, plan_make(specs, MANY, exactly(6, &policy), &plan, &error), 0));
	cr_assert(eq(u32, plan.segment_count, 150));
	plan_clear(&plan);
	cr_assert(eq(int, plan_make(specs, 252, exactly(2, &policy), &plan, &error), 0));
	cr_assert(eq(u32, plan.segment_count, 252));
	plan_clear(&plan);
}
