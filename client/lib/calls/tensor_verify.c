/* Whether what this process reads is what was checked when the version was made. */
#include "../mapping/attach.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What is to be read. */
struct reading {
	struct gpuwm_tensor *tensors;
	struct memory_span *spans; /* each one's bytes */
	struct memory_sum *sums;
	size_t count;
};

static int reading_new(struct reading *reading, size_t count, struct error *error)
{
	reading->tensors = calloc(count + 1, sizeof(*reading->tensors));
	reading->spans = calloc(count + 1, sizeof(*reading->spans));
	reading->sums = calloc(count + 1, sizeof(*reading->sums));
	if (!reading->tensors || !reading->spans || !reading->sums)
		return error_set(error, -ENOMEM, NULL, "out of memory for the digests of %zu tensors", count);
	return 0;
}

static void reading_add(struct reading *reading, const struct gpuwm_tensor *tensor)
{
	reading->tensors[reading->count] = *tensor;
	reading->spans[reading->count++] = (struct memory_span){tensor->data, tensor->bytes};
}

static int read_mapped(const struct gpuwm_mapping *mapping, struct reading *reading, struct error *error)
{
	const struct index_view *view = &mapping->part->index.view;
	struct gpuwm_tensor tensor;
	int r = reading_new(reading, view->header->tensor_count, error);

	for (uint64_t i = 0; r == 0 && i < view->header->tensor_count; i++) {
		r = tensor_of(view, i, &tensor, error);
		if (r == 0 && mapped_part_holds(mapping->part, &tensor, NULL) == 0)
			reading_add(reading, &tensor);
	}
	return r;
}

static int read_named(const struct gpuwm_mapping *mapping, const char *const *names, size_t count,
		      struct reading *reading, struct error *error)
{
	const struct index_view *view = &mapping->part->index.view;
	struct gpuwm_tensor tensor;
	int r = reading_new(reading, count, error);

	for (size_t i = 0; r == 0 && i < count; i++) {
		int64_t position = tensor_position(mapping, names[i], error);

		if (position < 0)
			return (int)position;
		r = tensor_of(view, (uint64_t)position, &tensor, error);
		if (r == 0)
			r = mapped_part_holds(mapping->part, &tensor, error);
		if (r == 0)
			reading_add(reading, &tensor);
	}
	return r;
}

static int reading_digest(struct mapped_part *part, const struct reading *reading, struct error *error)
{
	const struct memory_device *device = &part->device;
	/* What it allocates is not allowed beside a capture. */
	int r = device->ops->idle(device, error);

	if (r == 0)
		r = mapped_part_hold(part, error);
	if (r == 0)
		r = device->ops->enter(device, error);
	if (r < 0)
		return r;
	r = memory_digests(device, reading->spans, reading->count, NULL, reading->sums, error);
	device->ops->leave(device);
	return r;
}

static int reading_compare(const struct gpuwm_mapping *mapping, const struct reading *reading,
			   struct error *error)
{
	for (size_t i = 0; i < reading->count; i++) {
		const struct gpuwm_tensor *tensor = &reading->tensors[i];
		char said[VERSION_ID_TEXT], found[VERSION_ID_TEXT];

		if (memcmp(tensor->digest, reading->sums[i].digest.bytes, sizeof(tensor->digest)) == 0)
			continue;
		hex128_format(tensor->digest, said);
		hex128_format(reading->sums[i].digest.bytes, found);
		return error_set(
			error, -EBADMSG,
			mapping->part->device.private_writes
				? "this process may have written it: it was attached with private writes"
				: "the memory was written, or is damaged: `gpuwmctl verify` looks at all of "
				  "it, for everybody",
			"tensor %.512s of %s@%s: the version has digest %s, its %" PRIu64 " bytes here have %s",
			tensor->name, mapping->version.model, mapping->version.tag, said, tensor->bytes, found);
	}
	return 0;
}

int gpuwm_tensors_verify(const struct gpuwm_mapping *mapping, const char *const *names, size_t count)
{
	struct reading reading = {0};
	struct error error;
	int r = fork_check(&mapping->hook, &error);

	if (r == 0)
		r = mapped_part_check(mapping->part, &error);
	if (r == 0)
		r = names ? read_named(mapping, names, count, &reading, &error)
			  : read_mapped(mapping, &reading, &error);
	if (r == 0 && reading.count > 0)
		r = reading_digest(mapping->part, &reading, &error);
	if (r == 0)
		r = reading_compare(mapping, &reading, &error);
	free(reading.tensors);
	free(reading.spans);
	free(reading.sums);
	return r < 0 ? client_fail(&error) : 0;
}
