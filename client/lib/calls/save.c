/* A version is saved: which tensor comes into which file, and the steps in their order. */
#include "save.h"

#include "../mapping/attach.h"

#include "../../../proto/index/dtype.h"
#include "../request/client.h"

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

static int plan_add_tensor(struct save *save, const struct gpuwm_mapping *mapping, uint64_t position,
			   struct save_tensor *tensor)
{
	const uint64_t most = save->options.shard_bytes ? save->options.shard_bytes : SHARD_BYTES_DEFAULT;
	struct save_file *file = save->file_count ? &save->files[save->file_count - 1] : NULL;
	const bool mine = file && file->mapping == mapping;
	char dtype[DTYPE_TEXT_BYTES];
	uint64_t bytes;
	int r = tensor_of(save_view(mapping), position, &tensor->tensor, save->error);

	if (r == 0)
		r = mapped_part_holds(mapping->part, &tensor->tensor, save->error);
	if (r < 0)
		return r;
	if (strcmp(tensor->tensor.name, TEXTS_NAME) == 0)
		return error_set(save->error, -ENOTSUP, NULL,
				 "a safetensors file can't have a tensor \"" TEXTS_NAME "\"");
	if (dtype_family(tensor->tensor.dtype) != DTYPE_SAFETENSORS)
		return error_set(save->error, -ENOTSUP, "a subset without it can be saved: attach with globs",
				 "tensor %.512s is %s, which safetensors files can't have", tensor->tensor.name,
				 dtype_text(tensor->tensor.dtype, dtype));
	bytes = tensor->tensor.bytes;
	/* A file larger than the limit has one tensor. */
	if (!mine || (file->count > 0 && (file->bytes >= most || bytes > most - file->bytes))) {
		file = &save->files[save->file_count++];
		*file = (struct save_file){.mapping = mapping, .first = !mine, .tensors = tensor};
	}
	file->bytes += bytes;
	file->count++;
	save->bytes += bytes;
	return 0;
}

/* A rank without tensors has a file too: else the loader would miss its number. */
static int plan_add_rank(struct save *save, size_t rank, size_t *at)
{
	const struct gpuwm_mapping *mapping = save->mappings[rank];
	const uint32_t count = save_view(mapping)->header->tensor_count;
	int r = 0;

	if (count == 0)
		save->files[save->file_count++] =
			(struct save_file){.mapping = mapping, .first = true, .tensors = &save->tensors[*at]};
	for (uint32_t i = 0; r == 0 && i < count; i++)
		r = plan_add_tensor(save, mapping, i, &save->tensors[(*at)++]);
	return r;
}

/* ---- order and names ---------------------------------------------------------- */

/* As the reference writes them: large elements first, so that each tensor is aligned to its own. */
static int by_element(const void *a, const void *b)
{
	const struct gpuwm_tensor *x = &((const struct save_tensor *)a)->tensor,
				  *y = &((const struct save_tensor *)b)->tensor;
	const struct dtype_block of_x = dtype_block(x->dtype), of_y = dtype_block(y->dtype);
	const uint32_t left = of_x.bytes * of_y.elements, right = of_y.bytes * of_x.elements;

	if (left != right)
		return left > right ? -1 : 1;
	return strcmp(x->name, y->name);
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
		r = plan_add_rank(save, i, &at);
	for (size_t i = 0; r == 0 && i < save->file_count; i++) {
		struct save_file *file = &save->files[i];
		uint64_t place = 0;

		qsort(file->tensors, file->count, sizeof(*file->tensors), by_element);
		for (size_t k = 0; k < file->count; k++) {
			file->tensors[k].at = place;
			place += file->tensors[k].tensor.bytes;
		}
		part = file->first ? 0 : part + 1;
		if (save->world > 1)
			snprintf(file->name, sizeof(file->name), "model-rank-%u-part-%u.safetensors",
				 file->mapping->version.rank, part);
		else if (save->file_count == 1)
			strcpy(file->name, "model.safetensors");
		else
			snprintf(file->name, sizeof(file->name), "model-%05zu-of-%05zu.safetensors", i + 1,
				 save->file_count);
	}
	return r;
}

/* ---- the steps, in their order ---- */

int gpuwm_save(const struct gpuwm_mapping *const *mappings, size_t count, const char *folder,
	       const struct gpuwm_save_options *options)
{
	struct error error;
	struct save save = {
		.mappings = mappings, .world = count, .path = folder, .folder = -1, .error = &error};
	int r = client_take_options(options, &save.options, sizeof(save.options), &error);

	if (r == 0 && (count == 0 || !mappings || !folder || !folder[0]))
		r = error_set(&error, -EINVAL, NULL, "a save needs a mapping and a folder");
	for (size_t i = 0; r == 0 && i < count; i++) {
		r = fork_check(&mappings[i]->hook, &error);
		if (r == 0)
			r = mapped_part_check(mappings[i]->part, &error);
	}
	if (r == 0)
		r = save_check(&save);
	if (r == 0)
		r = save_plan(&save);
	if (r == 0)
		r = save_folder_open(&save);
	if (r == 0)
		r = save_write(&save);
	if (r == 0)
		r = save_folder_commit(&save);
	save_folder_close(&save, r != 0);
	free(save.tensors);
	free(save.files);
	return r < 0 ? client_fail(&error) : 0;
}
