#include "cut.h"

#include "../../base/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A tensor of scales, and the weight that they belong to. */
struct scaled {
	const struct source_tensor *weight, *scales;
	const struct cut_tensor *weight_cut, *scales_cut;
};

static int by_name(const void *a, const void *b)
{
	const struct source_tensor *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

/* Returns how many bytes of the name are the weight's, or 0 if it is no name of scales. */
static size_t weight_name(const char *name)
{
	static const char *const ends[] = {"_scale", "_scale_inv"};
	size_t bytes = strlen(name);

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		size_t end = strlen(ends[i]);

		if (bytes > end && strcmp(name + bytes - end, ends[i]) == 0)
			return bytes - end;
	}
	return 0;
}

/* Returns the rows of the weight that one scale is for, or 0 if sizes do not tell: 192 rows with 2 scales may have blocks of 96 or of 128. */
static uint64_t block_of(const uint64_t sizes[2], const struct source_tensor *weight, uint64_t scales,
			 uint32_t dimension)
{
	const uint64_t rows = weight->shape[dimension];
	uint64_t size = 0;

	/* Experts may stand in a dimension before. */
	if (weight->ndim >= 2 && dimension + 2 >= weight->ndim)
		size = sizes[dimension + 2 - weight->ndim];
	if (size > 0 && (rows + size - 1) / size == scales)
		return size;
	return rows % scales == 0 ? rows / scales : 0;
}

/* sizes: as cut_config_block has them; 0: not known. */
static int check_pair(const struct cut *cut, const struct scaled *pair, const uint64_t sizes[2],
		      struct error *error)
{
	const uint32_t dimension = pair->weight_cut->dimension;
	uint64_t rows, scales, block;

	if (pair->weight_cut->dimension == CUT_WHOLE || pair->scales_cut->dimension != dimension)
		return 0;
	rows = pair->weight->shape[dimension];
	scales = pair->scales->shape[dimension];
	if (scales <= 1 || rows == 0)
		return 0;
	block = block_of(sizes, pair->weight, scales, dimension);
	if (block > 0 && rows / cut->rank_count % block == 0)
		return 0;
	if (block == 0)
		return error_set(error, -EINVAL, "a rule with copy gives both tensors to all ranks",
				 "the tensor \"%.*s\" has %" PRIu64 " rows in dimension %u and %" PRIu64
				 " scales for them, and config.json does not say how many rows share a scale",
				 text_shown(pair->weight->name), pair->weight->name, rows, dimension, scales);
	return error_set(error, -EINVAL, "take fewer ranks; a rule with copy gives both tensors to all ranks",
			 "the tensor \"%.*s\" has a scale for %" PRIu64
			 " rows each in dimension %u, and %u ranks would have %" PRIu64
			 " rows each: a block would be torn from its scale",
			 text_shown(pair->weight->name), pair->weight->name, block, dimension, cut->rank_count,
			 rows / cut->rank_count);
}

/* Finds the weight among the tensors in the order of their names. */
static const struct source_tensor *find(const struct source_tensor *const *sorted, size_t count,
					const char *name, size_t bytes)
{
	size_t first = 0;

	while (count > 0) {
		size_t half = count / 2;
		const char *at = sorted[first + half]->name;
		int order = strncmp(at, name, bytes);

		if (order == 0 && at[bytes] == '\0')
			return sorted[first + half];
		if (order < 0) {
			first += half + 1;
			count -= half + 1;
		} else {
			count = half;
		}
	}
	return NULL;
}

int cut_scales_check(const struct cut *cut, struct error *error)
{
	const struct source *source = cut->source;
	const struct source_tensor **sorted = calloc(source->tensor_count + 1, sizeof(*sorted));
	uint64_t sizes[2] = {0};
	int r = 0;

	if (!sorted)
		return error_set(error, -ENOMEM, NULL, "no room to look for scales among %zu tensors",
				 source->tensor_count);
	for (size_t i = 0; i < source->tensor_count; i++)
		sorted[i] = &source->tensors[i];
	qsort(sorted, source->tensor_count, sizeof(*sorted), by_name);
	cut_config_block(source, sizes);
	for (size_t i = 0; r == 0 && i < source->tensor_count; i++) {
		struct scaled pair = {.scales = &source->tensors[i], .scales_cut = &cut->tensors[i]};
		size_t bytes = weight_name(pair.scales->name);

		if (bytes > 0 && cut_is_split(pair.scales_cut))
			pair.weight = find(sorted, source->tensor_count, pair.scales->name, bytes);
		if (!pair.weight)
			continue;
		pair.weight_cut = &cut->tensors[pair.weight - source->tensors];
		r = check_pair(cut, &pair, sizes, error);
	}
	free(sorted);
	return r;
}
