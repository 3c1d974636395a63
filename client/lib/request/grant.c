#include "lease.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void grant_in_child(void *object)
{
	struct grant *grant = object;

	part_close(&grant->part);
}

void grant_close_fds(struct grant *grant)
{
	fork_lock();
	part_close(&grant->part);
	fork_unwatch(&grant->hook);
	fork_unlock();
	free(grant->copy);
	grant->copy = NULL;
}

/* Whose record has checked the handles of the segments. */
static int read_copy(const struct get_handles_result *result, struct grant *grant, struct error *error)
{
	const uint32_t count = result->handles.count;
	struct memory_copy *copy;

	if (!result->transport || strcmp(result->transport, TRANSPORT_FD) == 0)
		return 0;
	copy = calloc(1, sizeof(*copy) + count * sizeof(copy->segments[0]));
	if (!copy)
		return error_set(error, -ENOMEM, NULL, "out of memory for the handles of a copy");
	grant->copy = copy;
	grant->lease->copied = true;
	copy->count = count;
	copy->holder = result->holder ? *result->holder : 0;
	if (!result->event || ipc_handle_parse(result->event, &copy->event) < 0)
		return error_set(error, -EPROTO, NULL, "get_handles: no event of a copy");
	for (uint32_t i = 0; i < count; i++) {
		ipc_handle_parse(result->handles.items[i].handle, &copy->segments[i].handle);
		copy->segments[i].bytes = result->handles.items[i].bytes;
	}
	return 0;
}

static int read_version(const struct reply *reply, struct grant *grant, struct error *error)
{
	struct gpuwm_version_info *v = &grant->version;
	struct get_handles_result result;
	int r = reply_read(reply, &form_get_handles, &result, error);

	if (r < 0)
		return r;
	hex128_format(result.version->bytes, v->id);
	snprintf(v->model, sizeof(v->model), "%s", result.model);
	snprintf(v->tag, sizeof(v->tag), "%s", result.tag);
	snprintf(v->device, sizeof(v->device), "%s", result.device);
	v->rank = (uint32_t)result.rank;
	v->world = (uint32_t)result.world;
	v->generation = result.generation;
	grant->lease->room = result.room;
	grant->lease->version = *v;
	return read_copy(&result, grant, error);
}

static uint64_t segment_bytes(const struct grant *grant, uint32_t segment)
{
	return grant->copy ? grant->copy->segments[segment].bytes : grant->part.segments[segment].bytes;
}

int grant_read(struct reply *reply, struct grant *grant, struct error *error)
{
	struct gpuwm_version_info *v = &grant->version;
	struct fields f;
	int r;

	/* First the number: the caller gives the lease back if the rest can't be read. */
	fields_of(&f, reply->message.body);
	grant->lease->id = fields_u64_or(&f, "lease", 0);
	r = read_version(reply, grant, error);
	if (r < 0)
		return r;
	part_read(&f, &reply->packet, &grant->part);
	if (f.error.code)
		return error_set(error, -EPROTO, NULL, "get_handles: %s", f.error.message);
	v->segments = grant->copy ? grant->copy->count : grant->part.segment_count;
	for (uint32_t i = 0; i < v->segments; i++)
		v->bytes += segment_bytes(grant, i);
	return 0;
}

/* Whether the index is of this grant. A checker has seen to that, if the version has a name. */
static int check_index(const struct grant *grant, const struct index_view *view, struct error *error)
{
	const struct gpuwm_version_info *v = &grant->version;
	bool same = view->header->segment_count == v->segments;

	if (view->header->rank != v->rank || view->header->world != v->world)
		return error_set(error, -EBADMSG, NULL,
				 "the index of %s@%s is of rank %u of %u, not of %u of %u", v->model, v->tag,
				 view->header->rank, view->header->world, v->rank, v->world);
	for (uint32_t i = 0; same && i < v->segments; i++)
		same = view->segments[i].bytes == segment_bytes(grant, i);
	if (!same)
		return error_set(error, -EBADMSG, NULL,
				 "the index of %s@%s names other segments than gpuwmd does", v->model, v->tag);
	return 0;
}

int grant_describe(struct grant *grant, struct index_map *ret_map, struct error *error)
{
	struct gpuwm_version_info *v = &grant->version;
	struct index_map map;
	/* Nobody may have checked the index of a version without a name. */
	const bool trusted = !name_is_nameless(v->model);
	int r = index_map_open(grant->part.index.fd, grant->part.index.bytes, trusted, &map, error);

	if (r < 0)
		return r;
	r = check_index(grant, &map.view, error);
	if (r < 0) {
		index_map_close(&map);
		return r;
	}
	v->tensors = map.view.header->tensor_count;
	memcpy(v->layout, map.view.header->layout.bytes, sizeof(v->layout));
	memcpy(v->content, map.view.header->content.bytes, sizeof(v->content));
	*ret_map = map;
	return 0;
}
