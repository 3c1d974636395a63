#include "attach.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const REMEDY = "attach the other one beside it, or let this one go and attach anew";

#define SHAPE_BYTES 256 /* of a text: what is longer is cut */

static const char *shape_text(const struct index_view *view, const struct index_tensor *tensor,
			      char text[SHAPE_BYTES])
{
	char dtype[DTYPE_TEXT_BYTES];
	int length = snprintf(text, SHAPE_BYTES, "%s [", dtype_text(tensor->dtype, dtype));

	for (uint32_t i = 0; i < tensor->ndim && length < SHAPE_BYTES - 24; i++)
		length += snprintf(text + length, (size_t)(SHAPE_BYTES - length), "%s%" PRIu64, i ? ", " : "",
				   index_shape(view, tensor)[i]);
	snprintf(text + length, (size_t)(SHAPE_BYTES - length), "]");
	return text;
}

static int only_in(const struct layout *layout, const struct index_tensor *tensor, struct error *error)
{
	return error_set(error, -EXDEV, REMEDY, "another layout: only %s@%s has a tensor %.512s", layout->model,
			 layout->tag, index_tensor_name(layout->view, tensor));
}

/* Two tensors of one name. */
static int compare_tensor(const struct layout *now, const struct index_tensor *a, const struct layout *next,
			  const struct index_tensor *b, struct error *error)
{
	const char *name = index_tensor_name(now->view, a);
	char before[SHAPE_BYTES], after[SHAPE_BYTES];

	if (a->dtype != b->dtype || a->ndim != b->ndim ||
	    memcmp(index_shape(now->view, a), index_shape(next->view, b), sizeof(uint64_t) * a->ndim) != 0)
		return error_set(error, -EXDEV, REMEDY,
				 "another layout: tensor %.200s is %s in %s@%s, %s in %s@%s", name,
				 shape_text(now->view, a, before), now->model, now->tag,
				 shape_text(next->view, b, after), next->model, next->tag);
	if (memcmp(index_strides(now->view, a), index_strides(next->view, b), sizeof(int64_t) * a->ndim) != 0)
		return error_set(error, -EXDEV, REMEDY,
				 "another layout: tensor %.512s has other strides in %s@%s than in %s@%s", name,
				 now->model, now->tag, next->model, next->tag);
	if (a->segment != b->segment || a->offset != b->offset)
		return error_set(error, -EXDEV, REMEDY,
				 "another layout: tensor %.200s begins at byte %" PRIu64 " of segment %" PRIu32
				 " in %s@%s, at byte %" PRIu64 " of segment %" PRIu32 " in %s@%s",
				 name, a->offset, a->segment, now->model, now->tag, b->offset, b->segment,
				 next->model, next->tag);
	return 0;
}

static int compare_tensors(const struct layout *now, const struct layout *next, struct error *error)
{
	const uint32_t left = now->view->header->tensor_count, right = next->view->header->tensor_count;
	int r = 0;

	for (uint32_t i = 0; r == 0 && (i < left || i < right); i++) {
		const struct index_tensor *a = &now->view->tensors[i], *b = &next->view->tensors[i];
		int order;

		if (i == left || i == right)
			return only_in(i == left ? next : now, i == left ? b : a, error);
		order = strcmp(index_tensor_name(now->view, a), index_tensor_name(next->view, b));
		if (order != 0)
			return only_in(order < 0 ? now : next, order < 0 ? a : b, error);
		r = compare_tensor(now, a, next, b, error);
	}
	return r;
}

/* Exactly, whatever the digests say: addresses follow from them. */
static int compare_segments(const struct layout *now, const struct layout *next, struct error *error)
{
	const uint32_t left = now->view->header->segment_count, right = next->view->header->segment_count;

	if (left != right)
		return error_set(error, -EXDEV, REMEDY,
				 "another layout: %s@%s has %" PRIu32 " segments, %s@%s has %" PRIu32,
				 now->model, now->tag, left, next->model, next->tag, right);
	for (uint32_t i = 0; i < left; i++) {
		uint64_t before = now->view->segments[i].bytes, after = next->view->segments[i].bytes;

		if (before != after)
			return error_set(error, -EXDEV, REMEDY,
					 "another layout: segment %" PRIu32 " holds %" PRIu64
					 " bytes in %s@%s, %" PRIu64 " in %s@%s",
					 i, before, now->model, now->tag, after, next->model, next->tag);
	}
	return 0;
}

int layout_compare(const struct layout *now, const struct layout *next, struct error *error)
{
	int r = 0;

	if (!digest_equal(&now->view->header->layout, &next->view->header->layout))
		r = compare_tensors(now, next, error);
	return r < 0 ? r : compare_segments(now, next, error);
}
