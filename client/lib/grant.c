#include "grant.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void grant_in_child(void *object)
{
	struct grant *grant = object;

	for (uint32_t i = 0; grant->segments && i < grant->version.segments; i++) {
		if (grant->segments[i].fd >= 0)
			close(grant->segments[i].fd);
	}
	if (grant->index_fd >= 0)
		close(grant->index_fd);
}

void grant_close_fds(struct grant *grant)
{
	fork_lock();
	grant_in_child(grant);
	fork_unwatch(&grant->hook);
	fork_unlock();
	grant->index_fd = -1;
	free(grant->segments);
	grant->segments = NULL;
}

static int read_segments(struct grant *grant, struct packet *packet, const msgpack_object *segments,
			 uint32_t count, struct error *error)
{
	if (count > PART_SEGMENTS_MAX)
		return error_set(error, -EPROTO, NULL, "get_handles: %u segments", count);
	grant->segments = calloc((size_t)count + 1, sizeof(*grant->segments));
	if (!grant->segments)
		return error_set(error, -ENOMEM, NULL, "out of memory for %u segments", count);
	for (uint32_t i = 0; i < count; i++) {
		struct grant_segment *segment = &grant->segments[i];
		struct fields f;

		fields_of(&f, &segments[i]);
		segment->fd = -1;
		segment->bytes = fields_u64(&f, "bytes");
		grant->version.segments = i + 1;
		grant->version.bytes += segment->bytes;
		if (packet_take_fd(packet, fields_u64(&f, "fd"), &segment->fd) < 0 || f.error.code)
			return error_set(error, -EPROTO, NULL,
					 "get_handles: segment %u came without its descriptor", i);
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
	grant->lease->version = *v;
	return 0;
}

int grant_read(struct reply *reply, struct grant *grant, struct error *error)
{
	const msgpack_object *segments;
	uint64_t index;
	uint32_t count;
	struct fields f;
	int r;

	/* First the number: the caller gives the lease back if the rest can't be read. */
	fields_of(&f, reply->message.body);
	grant->lease->id = fields_u64_or(&f, "lease", 0);
	r = read_version(reply, grant, error);
	if (r < 0)
		return r;
	grant->index_bytes = fields_u64(&f, "index_bytes");
	index = fields_u64(&f, "index");
	segments = fields_array(&f, "segments", &count);
	if (f.error.code)
		return error_set(error, -EPROTO, NULL, "get_handles: %s", f.error.message);
	if (packet_take_fd(&reply->packet, index, &grant->index_fd) < 0)
		return error_set(error, -EPROTO, NULL, "get_handles: the index came without its descriptor");
	return read_segments(grant, &reply->packet, segments, count, error);
}

int grant_describe(struct grant *grant, struct index_map *ret_map, struct error *error)
{
	struct gpuwm_version_info *v = &grant->version;
	struct index_map map;
	int r = index_map_open(grant->index_fd, grant->index_bytes, true, &map, error);

	if (r < 0)
		return r;
	if (map.view.header->segment_count != v->segments)
		r = -EBADMSG;
	for (uint32_t i = 0; r == 0 && i < v->segments; i++) {
		if (map.view.segments[i].bytes != grant->segments[i].bytes)
			r = -EBADMSG;
	}
	if (r < 0) {
		index_map_close(&map);
		return error_set(error, r, NULL, "the index of %s@%s speaks of other segments than gpuwmd",
				 v->model, v->tag);
	}
	v->tensors = map.view.header->tensor_count;
	memcpy(v->layout, map.view.header->layout.bytes, sizeof(v->layout));
	memcpy(v->content, map.view.header->content.bytes, sizeof(v->content));
	*ret_map = map;
	return 0;
}
