#include "plan.h"

#include "../../proto/index/dtype.h"
#include "../../proto/index/index.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A spec on its way to a place. */
struct item {
	const struct gpuwm_tensor_spec *spec;
	size_t position; /* in the specs */
	uint64_t bytes;
	struct item *root; /* whose memory this shares: itself when not tied */
	bool placed; /* roots */
	struct plan_place place; /* roots */
};

static uint64_t round_up(uint64_t value, uint64_t multiple)
{
	return (value + multiple - 1) / multiple * multiple;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct item *)a)->spec->name, ((const struct item *)b)->spec->name);
}

/* Sets the bytes of an item. */
static int item_measure(struct item *item, struct error *error)
{
	const struct gpuwm_tensor_spec *spec = item->spec;
	const struct dtype_block block = dtype_block(spec->dtype);
	char remedy[64];
	int r = dtype_bytes(spec->dtype, spec->ndim, spec->shape, &item->bytes);

	if (r == 0)
		return 0;
	if (r == -EOVERFLOW)
		return error_set(error, -EINVAL, "check its shape and dtype",
				 "tensor %.512s: its shape gives more than 64 bits of size", spec->name);
	if (block.elements == 0)
		return error_set(error, -EINVAL, "client.h has the dtypes",
				 "tensor %.512s: there is no dtype %u", spec->name, (unsigned)spec->dtype);
	if (dtype_family(spec->dtype) != DTYPE_GGUF)
		return error_set(error, -EINVAL, "check its shape and dtype",
				 "tensor %.512s: its shape gives no whole number of bytes", spec->name);
	snprintf(remedy, sizeof(remedy), "the last dimension of %s is a multiple of %u",
		 dtype_name(spec->dtype), block.elements);
	if (spec->ndim == 0)
		return error_set(error, -EINVAL, remedy, "tensor %.512s is %s and has no dimension", spec->name,
				 dtype_name(spec->dtype));
	return error_set(error, -EINVAL, remedy,
			 "tensor %.512s is %s: its last dimension of %llu is not whole blocks", spec->name,
			 dtype_name(spec->dtype), (unsigned long long)spec->shape[spec->ndim - 1]);
}

static int item_check(struct item *item, struct error *error)
{
	const struct gpuwm_tensor_spec *spec = item->spec;
	int r;

	if (!spec->name || !*spec->name || strlen(spec->name) > TENSOR_NAME_BYTES_MAX)
		return error_set(error, -EINVAL, "1 to 65,535 bytes", "tensor %zu has no name, or one too long",
				 item->position);
	if (spec->ndim > TENSOR_DIMS_MAX)
		return error_set(error, -EINVAL, "at most 64", "tensor %.512s has %u dimensions", spec->name,
				 spec->ndim);
	if (spec->ndim > 0 && !spec->shape)
		return error_set(error, -EINVAL, "shape has ndim entries", "tensor %.512s has no shape",
				 spec->name);
	r = item_measure(item, error);
	if (r < 0)
		return r;
	if (spec->strides && !index_strides_dense(spec->dtype, spec->ndim, spec->shape, spec->strides))
		return error_set(error, -EINVAL, "copy it to a contiguous tensor first",
				 "tensor %.512s: its strides are no permutation of dense", spec->name);
	return 0;
}

static int item_tie(struct item *items, size_t count, struct item *item, struct error *error)
{
	struct item *root = item;
	size_t steps = 0;

	while (root->spec->tied_to && steps++ <= count) {
		const char *name = root->spec->tied_to;
		const struct gpuwm_tensor_spec spec = {.name = name};
		const struct item key = {.spec = &spec};

		root = bsearch(&key, items, count, sizeof(*items), by_name);
		if (!root)
			return error_set(error, -EINVAL, "name another tensor of the same publish",
					 "tensor %.512s is tied to %.400s, which is not here", item->spec->name,
					 name);
	}
	if (root->spec->tied_to)
		return error_set(error, -EINVAL, "leave tied_to out in one of them",
				 "tensor %.512s is tied to itself", item->spec->name);
	if (root->spec->dtype != item->spec->dtype || root->bytes != item->bytes)
		return error_set(error, -EINVAL, "tied tensors have the same dtype and as many bytes",
				 "tensor %.400s is tied to %.400s of another dtype or size", item->spec->name,
				 root->spec->name);
	item->root = root;
	return 0;
}

static int items_check(struct item *items, size_t count, struct error *error)
{
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i++)
		r = item_check(&items[i], error);
	if (r < 0)
		return r;
	qsort(items, count, sizeof(*items), by_name);
	for (size_t i = 0; i + 1 < count; i++) {
		if (strcmp(items[i].spec->name, items[i + 1].spec->name) == 0)
			return error_set(error, -EINVAL,
					 "give each a name of its own; tied_to lets two share their memory",
					 "the tensor %.512s is there twice", items[i].spec->name);
	}
	for (size_t i = 0; i < count && r == 0; i++)
		r = item_tie(items, count, &items[i], error);
	return r;
}

/* What all tensors take when each is aligned; the total must leave room for rounding. */
static int items_total(const struct item *items, size_t count, uint64_t granularity, uint64_t align,
		       struct error *error)
{
	const uint64_t most = UINT64_MAX / 4 - granularity - align;
	uint64_t total = 0;

	for (size_t i = 0; i < count; i++) {
		uint64_t bytes = items[i].root == &items[i] ? items[i].bytes : 0;

		if (bytes > most || total + bytes > most)
			return error_set(error, -EFBIG, "check their shapes",
					 "the tensors are larger than any memory");
		total = round_up(total + bytes, align);
	}
	return 0;
}

/* Places everything with segments of at most `target`: the number of segments.
 * `segments` (PART_SEGMENTS_MAX entries) gets the bytes used of each. */
static size_t items_place(struct item *items, size_t count, uint64_t align, uint64_t target, uint64_t *segments)
{
	size_t segment = 0;
	uint64_t used = 0;

	for (size_t i = 0; i < count; i++)
		items[i].root->placed = false;
	for (size_t i = 0; i < count; i++) {
		struct item *root = items[i].root;
		uint64_t offset = round_up(used, align);

		/* A tied group lies where the first of its names would, whoever is the root. */
		if (root->placed)
			continue;
		root->placed = true;
		if (root->bytes == 0) {
			root->place = (struct plan_place){0};
			continue;
		}
		if (used > 0 && (offset >= target || root->bytes > target - offset)) {
			segment++;
			offset = 0;
		}
		root->place = (struct plan_place){(uint32_t)segment, offset, root->bytes};
		used = offset + root->bytes;
		if (segment < PART_SEGMENTS_MAX)
			segments[segment] = used;
	}
	return count > 0 ? segment + 1 : 0;
}

/* Tensors in their segments. */
struct placing {
	struct item *items;
	size_t count;
	uint64_t used[PART_SEGMENTS_MAX]; /* bytes of each segment */
	size_t segment_count;
};

static int plan_fill(struct plan *plan, const struct placing *placing, uint64_t granularity,
		     struct error *error)
{
	const size_t count = placing->count, segment_count = placing->segment_count;

	plan->places = calloc(count + 1, sizeof(*plan->places));
	plan->segments = calloc(segment_count + 1, sizeof(*plan->segments));
	if (!plan->places || !plan->segments) {
		plan_clear(plan);
		return error_set(error, -ENOMEM, NULL, "out of memory for the layout of %zu tensors", count);
	}
	for (size_t i = 0; i < count; i++)
		plan->places[placing->items[i].position] = placing->items[i].root->place;
	plan->segment_count = (uint32_t)segment_count;
	for (size_t i = 0; i < segment_count; i++) {
		/* Tensors without bytes only: they still need a segment to have a place in. */
		plan->segments[i] = round_up(placing->used[i] ? placing->used[i] : 1, granularity);
		plan->total += plan->segments[i];
	}
	return 0;
}

/* The smallest that gives no more segments than there may be: more bytes never give more of them. */
static uint64_t smallest_target(struct item *items, size_t count, const struct plan_policy *policy)
{
	uint64_t used[PART_SEGMENTS_MAX], few = policy->target / SEGMENT_BYTES_MIN, enough = few, middle;

	while (items_place(items, count, policy->align, enough * SEGMENT_BYTES_MIN, used) > PART_SEGMENTS_MAX)
		enough *= 2;
	while (enough - few > 1) {
		middle = few + (enough - few) / 2;
		if (items_place(items, count, policy->align, middle * SEGMENT_BYTES_MIN, used) >
		    PART_SEGMENTS_MAX)
			few = middle;
		else
			enough = middle;
	}
	return enough * SEGMENT_BYTES_MIN;
}

static int place_all(struct placing *placing, const struct plan_policy *policy, struct error *error)
{
	uint64_t target = policy->target ? policy->target : 1;
	char smallest[64];

	while ((placing->segment_count = items_place(placing->items, placing->count, policy->align, target,
						     placing->used)) > PART_SEGMENTS_MAX &&
	       !policy->exact)
		target *= 2;
	if (placing->segment_count <= PART_SEGMENTS_MAX)
		return 0;
	snprintf(smallest, sizeof(smallest), "segment_bytes of %llu is the smallest that fits",
		 (unsigned long long)smallest_target(placing->items, placing->count, policy));
	return error_set(error, -EINVAL, smallest,
			 "segments of %llu bytes would be %zu, and a part has at most %d",
			 (unsigned long long)target, placing->segment_count, PART_SEGMENTS_MAX);
}

int plan_make(const struct gpuwm_tensor_spec *specs, size_t count, const struct plan_policy *policy,
	      struct plan *ret_plan, struct error *error)
{
	struct placing placing = {.items = calloc(count + 1, sizeof(*placing.items)), .count = count};
	struct plan plan = {0};
	int r;

	if (!placing.items)
		return error_set(error, -ENOMEM, NULL, "out of memory for the layout of %zu tensors", count);
	for (size_t i = 0; i < count; i++)
		placing.items[i] = (struct item){.spec = &specs[i], .position = i};
	r = items_check(placing.items, count, error);
	if (r == 0)
		r = items_total(placing.items, count, policy->granularity, policy->align, error);
	if (r == 0)
		r = place_all(&placing, policy, error);
	if (r == 0)
		r = plan_fill(&plan, &placing, policy->granularity, error);
	free(placing.items);
	if (r == 0)
		*ret_plan = plan;
	return r;
}

void plan_clear(struct plan *plan)
{
	free(plan->places);
	free(plan->segments);
	*plan = (struct plan){0};
}

/* Tensors that share a place stand side by side. Empty tensors share a place with whatever begins there. */
static int by_place(const void *a, const void *b, void *plan)
{
	const struct plan_place *x = &((const struct plan *)plan)->places[*(const size_t *)a];
	const struct plan_place *y = &((const struct plan *)plan)->places[*(const size_t *)b];

	if (x->segment != y->segment)
		return x->segment < y->segment ? -1 : 1;
	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

size_t *plan_order(const struct plan *plan, size_t count)
{
	size_t *order = calloc(count + 1, sizeof(*order));

	for (size_t i = 0; order && i < count; i++)
		order[i] = i;
	if (order)
		qsort_r(order, count, sizeof(*order), by_place, (void *)plan);
	return order;
}

bool plan_shares_place(const struct plan *plan, size_t a, size_t b)
{
	return by_place(&a, &b, (void *)plan) == 0;
}
