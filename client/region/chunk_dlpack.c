/* Exports of tensors in chunks. */
#include "chunk.h"
#include "../lib/mapping/dlpack.h"
#include "../../proto/index/dtype.h"

#include <errno.h>

#define NDIM_MAX 64 /* of PyTorch */

/* The elements that a view reaches, counted from its offset. False: more than there are numbers. */
static bool reach(const struct gpuwm_tensor *tensor, int64_t *ret_low, int64_t *ret_high)
{
	*ret_low = *ret_high = 0;
	for (uint32_t i = 0; i < tensor->ndim; i++) {
		int64_t step;

		if (tensor->shape[i] > INT64_MAX ||
		    __builtin_mul_overflow((int64_t)tensor->shape[i] - 1, tensor->strides[i], &step) ||
		    __builtin_add_overflow(step < 0 ? *ret_low : *ret_high, step,
					   step < 0 ? ret_low : ret_high))
			return false;
	}
	return true;
}

/* Elements of whole bytes. */
static bool is_inside(const struct gpuwm_tensor *tensor, uint64_t room)
{
	const int64_t bytes = dtype_element_bytes(tensor->dtype);
	int64_t low, high, first, end;

	if (tensor->offset > room)
		return false;
	for (uint32_t i = 0; i < tensor->ndim; i++) {
		if (tensor->shape[i] == 0)
			return true;
	}
	if (!reach(tensor, &low, &high) || __builtin_mul_overflow(low, bytes, &first) ||
	    __builtin_add_overflow(high, 1, &end) || __builtin_mul_overflow(end, bytes, &end))
		return false;
	return first >= -(int64_t)tensor->offset && end >= 0 && (uint64_t)end <= room - tensor->offset;
}

static int dense_strides(const struct gpuwm_chunk_view *view, int64_t strides[NDIM_MAX])
{
	uint64_t stride = 1;

	for (uint32_t i = view->ndim; i-- > 0;) {
		strides[i] = (int64_t)stride;
		if (__builtin_mul_overflow(stride, view->shape[i] ? view->shape[i] : 1, &stride) ||
		    stride > INT64_MAX)
			return -EINVAL;
	}
	return 0;
}

static int is_wrong(const char *why, struct error *error)
{
	return error_set(error, -EINVAL, NULL, "no tensor of the chunk can be exported like this: %s", why);
}

/* Describes the view as a tensor. strides is room for those of a dense one. */
static int tensor_of_view(const struct gpuwm_chunk *chunk, const struct gpuwm_chunk_view *view,
			  int64_t strides[NDIM_MAX], struct gpuwm_tensor *ret, struct error *error)
{
	const bool packed = view && dtype_element_bytes(view->dtype) == 0;

	if (!view || view->ndim > NDIM_MAX || (!view->shape && view->ndim > 0))
		return is_wrong("the view was not given, or it has no shape of at most 64 dimensions", error);
	if (!dtype_name(view->dtype))
		return is_wrong("there is no such dtype", error);
	if (packed && (view->strides || view->ndim == 0))
		return is_wrong("elements that share bytes are dense, in one dimension or more", error);
	*ret = (struct gpuwm_tensor){
		.name = "in a chunk",
		.dtype = (enum gpuwm_dtype)view->dtype,
		.ndim = view->ndim,
		.shape = view->shape,
		.strides = view->strides ? view->strides : strides,
		.data = (char *)gpuwm_chunk_address(chunk) + view->offset,
		.bytes = 1, /* not 0, so that its address counts */
		.offset = view->offset,
	};
	if (!view->strides && dense_strides(view, strides) < 0)
		return is_wrong("it has more elements than there are numbers", error);
	if (!packed)
		return is_inside(ret, chunk->use.bytes) ? 0 : is_wrong("it is not inside the chunk", error);
	if (dtype_bytes(view->dtype, view->ndim, view->shape, &ret->bytes) < 0 ||
	    view->offset > chunk->use.bytes || ret->bytes > chunk->use.bytes - view->offset)
		return is_wrong("it is not inside the chunk, or has no whole number of bytes", error);
	return 0;
}

/* What an export is made of, until it is made. */
struct prepared {
	int64_t strides[NDIM_MAX];
	struct gpuwm_tensor tensor;
	struct dlpack_source from;
};

static int export_prepare(struct gpuwm_chunk *chunk, const struct gpuwm_chunk_view *view, struct prepared *ret,
			  struct error *error)
{
	struct gpuwm_region *region;
	int r = chunk ? chunk_usable(chunk, chunk->filling, error)
		      : error_set(error, -EINVAL, NULL, "no chunk was given");

	if (r == 0)
		r = tensor_of_view(chunk, view, ret->strides, &ret->tensor, error);
	if (r < 0)
		return r;
	region = chunk->use.region;
	ret->from = (struct dlpack_source){
		.device = &region->device,
		.tensor = &ret->tensor,
		.writable = chunk->filling,
		/* An export of what is being filled keeps the region alone: the chunk may be offered meanwhile. */
		.keep = chunk->filling ? &region->keep : &chunk->keep,
	};
	return 0;
}

int gpuwm_chunk_dlpack(struct gpuwm_chunk *chunk, const struct gpuwm_chunk_view *view,
		       struct DLManagedTensor **ret)
{
	struct prepared prepared;
	struct error error;
	int r = export_prepare(chunk, view, &prepared, &error);

	if (r == 0)
		r = dlpack_export(&prepared.from, ret, &error);
	return r < 0 ? client_fail(&error) : r;
}

int gpuwm_chunk_dlpack_versioned(struct gpuwm_chunk *chunk, const struct gpuwm_chunk_view *view,
				 struct DLManagedTensorVersioned **ret)
{
	struct prepared prepared;
	struct error error;
	int r = export_prepare(chunk, view, &prepared, &error);

	if (r == 0)
		r = dlpack_export_versioned(&prepared.from, ret, &error);
	return r < 0 ? client_fail(&error) : r;
}
