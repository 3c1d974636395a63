/* What the publisher puts into a version before it is sealed. */
#include "publish_state.h"

#include "../../../proto/wire/reference.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Gaps with less between them are zeroed in one go: starting a fill costs a GPU as much as these bytes. */
#define GAP_MERGE_BYTES MIB(4)

int publish_place(struct gpuwm_publish *publish, size_t position, void **ret_data, uint64_t *ret_bytes,
		  struct error *error)
{
	const struct plan_place *place;
	int r = fork_check(&publish->hook, error);

	if (r < 0)
		return r;
	if (position >= publish->tensor_count)
		return error_set(error, -ERANGE, NULL, "there is no tensor %zu: the publish has %zu", position,
				 publish->tensor_count);
	place = &publish->plan.places[position];
	r = publish_memory_need(publish, place->segment, error);
	if (r < 0)
		return r;
	*ret_data = (uint8_t *)publish->segments[place->segment].address + place->offset;
	*ret_bytes = place->bytes;
	return 0;
}

int gpuwm_publish_memory(struct gpuwm_publish *publish, size_t position, void **ret_data, uint64_t *ret_bytes)
{
	struct error error;
	void *data = NULL;
	uint64_t bytes = 0;
	int r = publish_place(publish, position, &data, &bytes, &error);

	if (r < 0)
		return client_fail(&error);
	*ret_data = data;
	if (ret_bytes)
		*ret_bytes = bytes;
	return 0;
}

static int publish_write(struct gpuwm_publish *publish, size_t position, uint64_t offset, const void *data,
			 uint64_t bytes, struct error *error)
{
	const struct memory_device *device = &publish->device;
	uint64_t room = 0;
	void *to = NULL;
	int r = publish_place(publish, position, &to, &room, error);

	if (r < 0)
		return r;
	if (offset > room || bytes > room - offset)
		return error_set(error, -ERANGE, NULL, "tensor %zu holds %llu bytes", position,
				 (unsigned long long)room);
	r = device->ops->enter(device, error);
	if (r < 0)
		return r;
	r = device->ops->write(device, (uint8_t *)to + offset, data, bytes, error);
	device->ops->leave(device);
	return r;
}

int gpuwm_publish_write(struct gpuwm_publish *publish, size_t position, uint64_t offset, const void *data,
			uint64_t bytes)
{
	struct error error;
	int r = publish_write(publish, position, offset, data, bytes, &error);

	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_publish_order(const struct gpuwm_publish *publish, size_t *ret_positions)
{
	struct error error;
	size_t *order;
	int r = fork_check(&publish->hook, &error);

	if (r < 0)
		return client_fail(&error);
	order = plan_order(&publish->plan, publish->tensor_count);
	if (!order) {
		error_set(&error, -ENOMEM, NULL, "out of memory for the order of %zu tensors",
			  publish->tensor_count);
		return client_fail(&error);
	}
	if (publish->tensor_count > 0)
		memcpy(ret_positions, order, publish->tensor_count * sizeof(*order));
	free(order);
	return 0;
}

static int added(int r, const char *what, const char *name, struct error *error)
{
	if (r == -EEXIST)
		return error_set(error, r, NULL, "the %s %.512s is there already", what, name);
	if (r == -EINVAL)
		return error_set(error, r, "names and texts are UTF-8, and a file has a name",
				 "the %s %.512s: not possible", what, name);
	if (r == -EFBIG)
		return error_set(error, r, "32 MiB in all", "the %s %.512s does not fit", what, name);
	if (r < 0)
		return error_set(error, r, NULL, "the %s %.512s: %s", what, name, strerror(-r));
	return 0;
}

int gpuwm_publish_metadata(struct gpuwm_publish *publish, const char *key, const char *value)
{
	struct error error;
	int r = fork_check(&publish->hook, &error);

	if (r == 0 && (!key || !value))
		r = error_set(&error, -EINVAL, NULL, "a text needs a key and a value");
	if (r == 0 && strncmp(key, KEY_PREFIX, strlen(KEY_PREFIX)) == 0)
		r = error_set(&error, -EINVAL, "the key of the publish sets it",
			      "the text %.512s: \"" KEY_PREFIX "\" begins the fields of a version's key", key);
	if (r == 0) {
		pthread_mutex_lock(&publish->lock);
		r = added(index_builder_metadata(publish->builder, key, value), "text", key, &error);
		pthread_mutex_unlock(&publish->lock);
	}
	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_publish_file(struct gpuwm_publish *publish, const char *name, const void *data, size_t bytes)
{
	struct error error;
	int r = fork_check(&publish->hook, &error);

	if (r == 0 && (!name || (!data && bytes > 0)))
		r = error_set(&error, -EINVAL, NULL, "a file needs a name and its content");
	if (r == 0) {
		pthread_mutex_lock(&publish->lock);
		r = added(index_builder_file(publish->builder, name, data, bytes), "file", name, &error);
		pthread_mutex_unlock(&publish->lock);
	}
	return r < 0 ? client_fail(&error) : 0;
}

/* What is to be zeroed of one segment, while it grows. */
struct gap {
	uint32_t segment;
	uint64_t from, to; /* equal: nothing yet */
};

static int gap_fill(struct gpuwm_publish *publish, struct gap *gap, struct error *error)
{
	struct memory_segment piece = {
		.fd = -1,
		.address = (uint8_t *)publish->segments[gap->segment].address + gap->from,
		.bytes = gap->to - gap->from,
	};
	int r = piece.bytes ? publish->device.ops->zero(&publish->device, &piece, error) : 0;

	gap->from = gap->to;
	return r;
}

/* Bytes [from, to) of the gap's segment belong to nobody. */
static int gap_add(struct gpuwm_publish *publish, struct gap *gap, uint64_t from, uint64_t to,
		   struct error *error)
{
	int r = 0;

	if (from >= to)
		return 0;
	if (gap->from == gap->to || from - gap->to > GAP_MERGE_BYTES) {
		r = gap_fill(publish, gap, error);
		gap->from = from;
	}
	gap->to = to;
	return r;
}

/* The gaps of one segment; *at: the first of its tensors in the order, moved behind the last. */
static int segment_gaps(struct gpuwm_publish *publish, uint32_t segment, const size_t *order, size_t *at,
			struct error *error)
{
	struct gap gap = {.segment = segment};
	uint64_t end = 0;
	int r = 0;

	for (; r == 0 && *at < publish->tensor_count; (*at)++) {
		const struct plan_place *place = &publish->plan.places[order[*at]];

		if (place->segment != segment)
			break;
		r = gap_add(publish, &gap, end, place->offset, error);
		if (place->offset + place->bytes > end)
			end = place->offset + place->bytes;
	}
	if (r == 0)
		r = gap_add(publish, &gap, end, publish->plan.segments[segment], error);
	return r < 0 ? r : gap_fill(publish, &gap, error);
}

int publish_zero_gaps(struct gpuwm_publish *publish, struct error *error)
{
	size_t *order, at = 0;
	int r = 0;

	if (publish->device.ops->fresh_zeros)
		return 0;
	order = plan_order(&publish->plan, publish->tensor_count);
	if (!order)
		return error_set(error, -ENOMEM, NULL, "out of memory for the layout of %zu tensors",
				 publish->tensor_count);
	for (uint32_t i = 0; r == 0 && i < publish->plan.segment_count; i++)
		r = segment_gaps(publish, i, order, &at, error);
	free(order);
	return r;
}
