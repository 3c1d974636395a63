#include "mapped_part.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(PART_SEGMENTS_MAX <= SUBSET_NOT, "a place fits a byte");

bool subset_has(const struct subset *subset, uint32_t segment)
{
	return segment < PART_SEGMENTS_MAX && subset->place[segment] != SUBSET_NOT;
}

static void subset_wish(struct subset *subset, uint32_t segment)
{
	if (segment < PART_SEGMENTS_MAX)
		subset->place[segment] = 0;
}

static int globs_check(const char *const *globs, size_t count, struct error *error)
{
	if (count > 0 && !globs)
		return error_set(error, -EINVAL, NULL, "%zu globs, which were not given", count);
	for (size_t i = 0; i < count; i++) {
		if (!globs[i])
			return error_set(error, -EINVAL, "\"model.layers.3.*\"", "a glob is missing");
	}
	return 0;
}

/* Whether a tensor is wished for; where its segment is known to be, only globs that have matched nothing yet are asked. */
static bool tensor_matches(const char *name, const char *const *globs, size_t count, bool known, bool *matched)
{
	for (size_t i = 0; i < count; i++) {
		if (known && matched[i])
			continue;
		if (fnmatch(globs[i], name, FNM_NOESCAPE) == 0)
			known = matched[i] = true;
	}
	return known;
}

/* Wishes for the segments of all tensors that match a glob. Fails with -ENOENT if a glob matches none. */
static int subset_wish_matching(struct subset *subset, const struct index_view *view, const char *const *globs,
				size_t count, struct error *error)
{
	bool *matched = calloc(count, sizeof(*matched));
	int r = 0;

	if (!matched)
		return error_set(error, -ENOMEM, NULL, "out of memory for %zu globs", count);
	for (uint32_t i = 0; i < view->header->tensor_count; i++) {
		const struct index_tensor *tensor = &view->tensors[i];
		bool known = tensor->bytes == 0 || subset_has(subset, tensor->segment);

		if (tensor_matches(index_tensor_name(view, tensor), globs, count, known, matched) &&
		    tensor->bytes > 0)
			subset_wish(subset, tensor->segment);
	}
	for (size_t i = 0; i < count && r == 0; i++) {
		if (!matched[i])
			r = error_set(error, -ENOENT, "gpuwmctl show tells the tensors' names",
				      "no tensor matches \"%.512s\"", globs[i]);
	}
	free(matched);
	return r;
}

int subset_of(const struct index_view *view, const char *const *globs, size_t count, struct subset *ret,
	      struct error *error)
{
	int r = globs_check(globs, count, error);

	if (r < 0)
		return r;
	memset(ret->place, SUBSET_NOT, sizeof(ret->place));
	for (uint32_t i = 0; count == 0 && i < view->header->segment_count; i++)
		subset_wish(ret, i);
	if (count > 0)
		r = subset_wish_matching(ret, view, globs, count, error);
	if (r < 0)
		return r;
	/* From 0 for "wished for" to its place. */
	ret->count = 0;
	for (uint32_t i = 0; i < PART_SEGMENTS_MAX; i++) {
		if (subset_has(ret, i))
			ret->place[i] = (uint8_t)ret->count++;
	}
	return 0;
}

bool subset_is(const struct subset *a, const struct subset *b)
{
	return memcmp(a->place, b->place, sizeof(a->place)) == 0;
}
