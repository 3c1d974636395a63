/* What an attached version carries: tensors, texts, files. */
#include "attach.h"

#include <errno.h>
#include <string.h>

static const struct index_view *view_of(const struct gpuwm_mapping *mapping)
{
	return &mapping->part->index.view;
}

static int out_of_range(uint64_t position, uint64_t count, const char *what, struct error *error)
{
	return error_set(error, -ERANGE, NULL, "there is no %s %llu: there are %llu", what,
			 (unsigned long long)position, (unsigned long long)count);
}

int tensor_of(const struct index_view *view, uint64_t position, struct gpuwm_tensor *ret_tensor,
	      struct error *error)
{
	const struct index_tensor *tensor;

	if (position >= view->header->tensor_count)
		return out_of_range(position, view->header->tensor_count, "tensor", error);
	tensor = &view->tensors[position];
	*ret_tensor = (struct gpuwm_tensor){
		.name = index_tensor_name(view, tensor),
		.dtype = (enum gpuwm_dtype)tensor->dtype,
		.ndim = tensor->ndim,
		.shape = index_shape(view, tensor),
		.strides = index_strides(view, tensor),
		.bytes = tensor->bytes,
		.segment = tensor->segment,
		.offset = tensor->offset,
	};
	memcpy(ret_tensor->digest, tensor->digest.bytes, sizeof(ret_tensor->digest));
	return 0;
}

int text_of(const struct index_view *view, uint32_t position, const char **ret_key, const char **ret_value,
	    struct error *error)
{
	if (position >= view->header->metadata_count)
		return out_of_range(position, view->header->metadata_count, "text", error);
	*ret_key = view->heap + view->metadata[position].key;
	*ret_value = view->heap + view->metadata[position].value;
	return 0;
}

int file_of(const struct index_view *view, uint32_t position, const char **ret_name, const void **ret_data,
	    uint32_t *ret_bytes, struct error *error)
{
	if (position >= view->header->file_count)
		return out_of_range(position, view->header->file_count, "file", error);
	*ret_name = view->heap + view->files[position].name;
	*ret_data = view->heap + view->files[position].content;
	*ret_bytes = view->files[position].content_bytes;
	return 0;
}

uint64_t gpuwm_tensor_count(const struct gpuwm_mapping *mapping)
{
	return view_of(mapping)->header->tensor_count;
}

int mapped_part_holds(const struct mapped_part *part, struct gpuwm_tensor *tensor, struct error *error)
{
	const struct index_view *view = &part->index.view;
	const struct memory_segment *segment = mapped_part_segment(part, tensor->segment);
	uint64_t bytes = 0;

	if (part->vacated)
		return mapped_part_check(part, error);
	if (tensor->segment < view->header->segment_count)
		bytes = view->segments[tensor->segment].bytes;
	if (tensor->offset > bytes || tensor->bytes > bytes - tensor->offset)
		return error_set(error, -ERANGE, "its description says what it holds",
				 "the mapping has no tensor %.512s of %llu bytes", tensor->name,
				 (unsigned long long)tensor->bytes);
	if (!segment && tensor->bytes > 0)
		return error_set(error, -ENODATA, "attach with a glob that matches it, or without globs",
				 "tensor %.512s was not mapped: no glob of the attach asked for it",
				 tensor->name);
	tensor->data = tensor->bytes > 0 ? (const char *)segment->address + tensor->offset : NULL;
	return 0;
}

static int tensors_at(const struct gpuwm_mapping *mapping, uint64_t position, uint64_t count,
		      struct gpuwm_tensor *ret_tensors)
{
	const struct memory_segment *segment;
	struct error error;
	int r = fork_check(&mapping->hook, &error);

	if (r == 0)
		r = mapped_part_check(mapping->part, &error);
	for (uint64_t i = 0; r == 0 && i < count; i++) {
		r = tensor_of(view_of(mapping), position + i, &ret_tensors[i], &error);
		if (r < 0)
			break;
		segment = mapped_part_segment(mapping->part, ret_tensors[i].segment);
		ret_tensors[i].data = segment ? (const char *)segment->address + ret_tensors[i].offset : NULL;
	}
	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_tensor_at(const struct gpuwm_mapping *mapping, uint64_t position, struct gpuwm_tensor *ret_tensor)
{
	return tensors_at(mapping, position, 1, ret_tensor);
}

int gpuwm_tensors(const struct gpuwm_mapping *mapping, struct gpuwm_tensor *ret_tensors)
{
	return tensors_at(mapping, 0, gpuwm_tensor_count(mapping), ret_tensors);
}

int64_t tensor_position(const struct gpuwm_mapping *mapping, const char *name, struct error *error)
{
	int64_t position = name ? index_find(view_of(mapping), name) : -ENOENT;

	if (position < 0)
		return error_set(error, -ENOENT, NULL, "%s@%s has no tensor %.512s", mapping->version.model,
				 mapping->version.tag, name ? name : "(none)");
	return position;
}

int gpuwm_tensor_find(const struct gpuwm_mapping *mapping, const char *name, struct gpuwm_tensor *ret_tensor)
{
	struct error error;
	int64_t position = fork_check(&mapping->hook, &error);

	if (position == 0)
		position = tensor_position(mapping, name, &error);
	if (position < 0)
		return client_fail(&error);
	return gpuwm_tensor_at(mapping, (uint64_t)position, ret_tensor);
}

const char *gpuwm_metadata(const struct gpuwm_mapping *mapping, const char *key)
{
	return key ? index_metadata(view_of(mapping), key) : NULL;
}

int gpuwm_metadata_at(const struct gpuwm_mapping *mapping, uint32_t position, const char **ret_key,
		      const char **ret_value)
{
	struct error error;
	int r = fork_check(&mapping->hook, &error);

	if (r == 0)
		r = text_of(view_of(mapping), position, ret_key, ret_value, &error);
	return r < 0 ? client_fail(&error) : 0;
}

const void *gpuwm_file(const struct gpuwm_mapping *mapping, const char *name, uint32_t *ret_bytes)
{
	return name ? index_file(view_of(mapping), name, ret_bytes) : NULL;
}

int gpuwm_file_at(const struct gpuwm_mapping *mapping, uint32_t position, const char **ret_name,
		  const void **ret_data, uint32_t *ret_bytes)
{
	struct error error;
	int r = fork_check(&mapping->hook, &error);

	if (r == 0)
		r = file_of(view_of(mapping), position, ret_name, ret_data, ret_bytes, &error);
	return r < 0 ? client_fail(&error) : 0;
}

static int tensor_read(const struct gpuwm_mapping *mapping, const struct gpuwm_tensor *given, uint64_t offset,
		       void *buffer, uint64_t bytes, struct error *error)
{
	struct mapped_part *part = mapping->part;
	const struct memory_ops *ops = part->device.ops;
	struct gpuwm_tensor tensor = *given;
	int r = fork_check(&mapping->hook, error);

	if (r == 0)
		r = mapped_part_check(part, error);
	if (r == 0)
		r = mapped_part_holds(part, &tensor, error);
	if (r < 0)
		return r;
	if (offset > tensor.bytes || bytes > tensor.bytes - offset)
		return error_set(error, -ERANGE, NULL, "tensor %.512s holds %llu bytes", tensor.name,
				 (unsigned long long)tensor.bytes);
	r = mapped_part_hold(part, error);
	if (r == 0)
		r = ops->enter(&part->device, error);
	if (r < 0)
		return r;
	r = ops->read(&part->device, buffer, (const char *)tensor.data + offset, bytes, error);
	ops->leave(&part->device);
	return r;
}

int gpuwm_tensor_read(const struct gpuwm_mapping *mapping, const struct gpuwm_tensor *tensor, uint64_t offset,
		      void *buffer, uint64_t bytes)
{
	struct error error;
	int r = tensor_read(mapping, tensor, offset, buffer, bytes, &error);

	return r < 0 ? client_fail(&error) : 0;
}
