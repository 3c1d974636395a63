#include "strided.h"

#include "dtype.h"

#include <string.h>

bool strided_is_plain(unsigned dtype, unsigned ndim, const uint64_t *shape, const int64_t *strides)
{
	uint64_t expected = 1;
	bool plain = true;

	for (unsigned i = ndim; i-- > 0;) {
		if (shape[i] == 0)
			return true;
		if (shape[i] == 1)
			continue;
		plain = plain && strides[i] == (int64_t)expected;
		expected *= shape[i];
	}
	return plain || !dtype_element_bytes(dtype);
}

/* Dimensions of one element have no say in the order. */
static void add_dimension(struct strided *strided, uint64_t size, uint64_t step)
{
	if (size == 1)
		return;
	strided->shape[strided->ndim] = size;
	strided->steps[strided->ndim++] = step;
}

void strided_to_rows(unsigned dtype, unsigned ndim, const uint64_t *shape, const int64_t *strides,
		     struct strided *ret)
{
	*ret = (struct strided){.element = dtype_element_bytes(dtype)};
	for (unsigned i = 0; i < ndim; i++)
		add_dimension(ret, shape[i], (uint64_t)strides[i]);
}

/* Returns the dimension with the largest stride below `below`. */
static unsigned next_in_memory(const struct strided *rows, uint64_t below)
{
	unsigned found = rows->ndim;

	for (unsigned i = 0; i < rows->ndim; i++)
		if (rows->steps[i] < below && (found == rows->ndim || rows->steps[i] > rows->steps[found]))
			found = i;
	return found;
}

void strided_to_memory(unsigned dtype, unsigned ndim, const uint64_t *shape, const int64_t *strides,
		       struct strided *ret)
{
	uint64_t row_steps[TENSOR_DIMS_MAX], step = 1, below = UINT64_MAX;
	struct strided rows;

	strided_to_rows(dtype, ndim, shape, strides, &rows);
	for (unsigned i = rows.ndim; i-- > 0; step *= rows.shape[i])
		row_steps[i] = step;
	*ret = (struct strided){.element = rows.element};
	for (unsigned k = 0; k < rows.ndim; k++) {
		unsigned i = next_in_memory(&rows, below);

		add_dimension(ret, rows.shape[i], row_steps[i]);
		below = rows.steps[i];
	}
}

/* Copies `count` elements that lie `step` apart. */
static void copy_run(size_t element, const char *from, uint64_t step, uint64_t count, char *to)
{
	uint64_t apart = step * element;

	if (step == 1) {
		memcpy(to, from, count * element);
		return;
	}
	/* With a constant size each memcpy is one load and one store. */
	switch (element) {
	case 1:
		for (uint64_t i = 0; i < count; i++, to++, from += apart)
			*to = *from;
		break;
	case 2:
		for (uint64_t i = 0; i < count; i++, to += 2, from += apart)
			memcpy(to, from, 2);
		break;
	case 4:
		for (uint64_t i = 0; i < count; i++, to += 4, from += apart)
			memcpy(to, from, 4);
		break;
	default:
		for (uint64_t i = 0; i < count; i++, to += element, from += apart)
			memcpy(to, from, element);
	}
}

void strided_gather(const struct strided *strided, const void *from, uint64_t first, uint64_t count, void *to)
{
	const unsigned last = strided->ndim - 1;
	char *place = to;

	while (count > 0) {
		uint64_t left = first, at = 0, in_row = first % strided->shape[last], run;

		for (unsigned i = strided->ndim; i-- > 0; left /= strided->shape[i])
			at += left % strided->shape[i] * strided->steps[i];
		run = strided->shape[last] - in_row;
		run = run < count ? run : count;
		copy_run(strided->element, (const char *)from + at * strided->element, strided->steps[last],
			 run, place);
		place += run * strided->element;
		first += run;
		count -= run;
	}
}
