#include "save.h"

#include "../mapping/tensor.h"

#include "../../../proto/index/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As other programs cut checkpoints: what is larger is awkward to move about. A tensor is never cut. */
#define SHARD_BYTES_DEFAULT UINT64_C(5000000000)
/* The name that stands for the texts in a safetensors header. */
#define TEXTS_NAME "__metadata__"

/* ---- the mappings ---------------------------------------------------------- */

static int check_mapping(const struct save *save, size_t rank)
{
	const struct gpuwm_mapping *mapping = save->mappings[rank];
	const struct gpuwm_version_info *first = &save->mappings[0]->version, *version = &mapping->version;

	if (strcmp(version->id, first->id) != 0)
		return error_set(save->error, -EINVAL, "attach all ranks of one version",
				 "%s@%s and %s@%s are two versions", first->model, first->tag, version->model,
				 version->tag);
	if (version->rank != rank || save_view(mapping)->header->world != save->world)
		return error_set(save->error, -EINVAL, "give one mapping of each rank, in their order",
				 "mapping %zu of %zu is of rank %u, and %s@%s has %u ranks", rank, save->world,
				 version->rank, version->model, version->tag,
				 save_view(mapping)->header->world);
	return 0;
}

int save_check(struct save *save)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < save->world; i++) {
		r = check_mapping(save, i);
		save->tensor_count += save_view(save->mappings[i])->header->tensor_count;
	}
	return r;
}

/* ---- files ----------------------------------------------------------------- */

/* A file larger than the limit has one tensor. */
static bool has_room(const struct save *save, const struct save_file *file, uint64_t bytes)
{
	uint64_t most = save->options.shard_bytes ? save->options.shard_bytes : SHARD_BYTES_DEFAULT;

	return file->count == 0 || (file->bytes < most && bytes <= most - file->bytes);
}

/* The file that the next tensor of the rank goes into. */
static struct save_file *file_for(struct save *save, const struct gpuwm_mapping *mapping,
				  struct save_tensor *tensor)
{
	struct save_file *last = save->file_count ? &save->files[save->file_count - 1] : NULL;
	bool mine = last && last->mapping == mapping;

	if (!mine || !has_room(save, last, tensor->tensor.bytes)) {
		last = &save->files[save->file_count++];
		*last = (struct save_file){.mapping = mapping, .first = !mine, .tensors = tensor};
	}
	return last;
}

static int add_tensor(struct save *save, const struct gpuwm_mapping *mapping, uint64_t position,
		      struct save_tensor *tensor)
{
	struct save_file *file;
	int r = tensor_of(save_view(mapping), position, &tensor->tensor, save->error);

	if (r == 0)
		r = mapped_part_holds(mapping->part, &tensor->tensor, save->error);
	if (r < 0)
		return r;
	if (strcmp(tensor->tensor.name, TEXTS_NAME) == 0)
		return error_set(save->error, -ENOTSUP, NULL,
				 "a safetensors file can't have a tensor \"" TEXTS_NAME "\"");
	file = file_for(save, mapping, tensor);
	file->bytes += tensor->tensor.bytes;
	file->count++;
	save->bytes += tensor->tensor.bytes;
	return 0;
}

/* A rank without tensors has a file too: else the loader would miss its number. */
static int add_rank(struct save *save, size_t rank, size_t *at)
{
	const struct gpuwm_mapping *mapping = save->mappings[rank];
	const uint32_t count = save_view(mapping)->header->tensor_count;
	int r = 0;

	if (count == 0)
		save->files[save->file_count++] =
			(struct save_file){.mapping = mapping, .first = true, .tensors = &save->tensors[*at]};
	for (uint32_t i = 0; r == 0 && i < count; i++)
		r = add_tensor(save, mapping, i, &save->tensors[(*at)++]);
	return r;
}

/* ---- order and names ---------------------------------------------------------- */

/* As the reference writes them: large elements first, so that each tensor is aligned to its own. */
static int by_element(const void *a, const void *b)
{
	const struct gpuwm_tensor *x = &((const struct save_tensor *)a)->tensor,
				  *y = &((const struct save_tensor *)b)->tensor;
	unsigned left = dtype_bits(x->dtype), right = dtype_bits(y->dtype);

	if (left != right)
		return left > right ? -1 : 1;
	return strcmp(x->name, y->name);
}

static void place_tensors(struct save_file *file)
{
	uint64_t at = 0;

	qsort(file->tensors, file->count, sizeof(*file->tensors), by_element);
	for (size_t i = 0; i < file->count; i++) {
		file->tensors[i].at = at;
		at += file->tensors[i].tensor.bytes;
	}
}

static void name_file(const struct save *save, struct save_file *file, size_t position, unsigned part)
{
	if (save->world > 1)
		snprintf(file->name, sizeof(file->name), "model-rank-%u-part-%u.safetensors",
			 file->mapping->version.rank, part);
	else if (save->file_count == 1)
		strcpy(file->name, "model.safetensors");
	else
		snprintf(file->name, sizeof(file->name), "model-%05zu-of-%05zu.safetensors", position + 1,
			 save->file_count);
}

int save_plan(struct save *save)
{
	size_t at = 0;
	unsigned part = 0;
	int r = 0;

	save->tensors = calloc(save->tensor_count + 1, sizeof(*save->tensors));
	save->files = calloc(save->tensor_count + save->world, sizeof(*save->files));
	if (!save->tensors || !save->files)
		return error_set(save->error, -ENOMEM, NULL, "out of memory for %zu tensors",
				 save->tensor_count);
	for (size_t i = 0; r == 0 && i < save->world; i++)
		r = add_rank(save, i, &at);
	for (size_t i = 0; r == 0 && i < save->file_count; i++) {
		part = save->files[i].first ? 0 : part + 1;
		place_tensors(&save->files[i]);
		name_file(save, &save->files[i], i, part);
	}
	return r;
}
