#include "grant.h"

#include "call.h"
#include "clock.h"
#include "memory.h"
#include "../../proto/methods.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void grant_close_fds(struct grant *grant)
{
	for (uint32_t i = 0; grant->segments && i < grant->version.segments; i++) {
		if (grant->segments[i].fd >= 0)
			close(grant->segments[i].fd);
		grant->segments[i].fd = -1;
	}
	free(grant->segments);
	grant->segments = NULL;
	if (grant->index_fd >= 0)
		close(grant->index_fd);
	grant->index_fd = -1;
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

static int read_grant(struct reply *reply, struct grant *grant, struct error *error)
{
	struct gpuwm_version_info *v = &grant->version;
	const msgpack_object *segments;
	uint64_t index;
	uint32_t count;
	struct fields f;

	fields_of(&f, reply->message.body);
	grant->lease->id = fields_u64(&f, "lease");
	fields_text(&f, "version", v->id, sizeof(v->id));
	fields_text(&f, "model", v->model, sizeof(v->model));
	fields_text(&f, "tag", v->tag, sizeof(v->tag));
	fields_text(&f, "device", v->device, sizeof(v->device));
	v->rank = (uint32_t)fields_u64(&f, "rank");
	v->world = (uint32_t)fields_u64(&f, "world");
	v->generation = fields_u64_or(&f, "generation", 0);
	grant->index_bytes = fields_u64(&f, "index_bytes");
	index = fields_u64(&f, "index");
	segments = fields_array(&f, "segments", &count);
	grant->lease->version = *v;
	if (f.error.code)
		return error_set(error, -EPROTO, NULL, "get_handles: %s", f.error.message);
	if (packet_take_fd(&reply->packet, index, &grant->index_fd) < 0)
		return error_set(error, -EPROTO, NULL, "get_handles: the index came without its descriptor");
	return read_segments(grant, &reply->packet, segments, count, error);
}

/* 1: granted, and the lease is the client's; 0: the connection ended right after it had
 * answered, and so did the lease. */
static int ask_once(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *options,
		    int64_t wait_ms, struct grant *grant, struct error *error)
{
	struct call call;
	struct reply reply;
	bool held;
	int r;

	call_begin(&call, client, METHOD_GET_HANDLES);
	message_put_text(&call.request, "ref", ref);
	if (options->device)
		message_put_text(&call.request, "device", options->device);
	message_put_u64(&call.request, "rank", options->rank);
	if (options->look)
		message_put_bool(&call.request, "look", true);
	r = call_run(&call, wait_ms, &reply, error);
	if (r < 0)
		return r;
	r = read_grant(&reply, grant, error);
	reply_clear(&reply);
	held = lease_hold(client, grant->lease, call.round);
	if (r == 0 && held)
		return 1;
	grant_close_fds(grant);
	if (held) {
		lease_release(client, grant->lease, NULL);
		grant->lease = NULL;
	}
	return r;
}

static int ask(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *options,
	       struct grant *ret, struct error *error)
{
	const int64_t deadline = clock_deadline(options->wait_ms);
	int64_t wait_ms = options->wait_ms;
	struct lease *lease = calloc(1, sizeof(*lease));
	int r;

	if (!lease)
		return error_set(error, -ENOMEM, NULL, "out of memory for a lease");
	do {
		*ret = (struct grant){.lease = lease, .index_fd = -1};
		r = ask_once(client, ref, options, wait_ms, ret, error);
		wait_ms = wait_ms > 0 ? clock_left(deadline) : wait_ms;
	} while (r == 0);
	if (r > 0)
		return 0;
	free(ret->lease);
	return r;
}

/* The client's name of the device of this thread's CUDA context: the driver
 * tells the bytes of a UUID, gpuwmd knows whether it is a "GPU-" or a "MIG-". */
static const char *current_device(const struct gpuwm_client *client)
{
	char id[DEVICE_BYTES_MAX + 1];

	if (memory_current_device(id) < 0)
		return NULL;
	for (size_t i = 0; i < client->device_count; i++) {
		const struct gpuwm_device *device = &client->devices[i];

		if (device->is_cuda && strlen(device->id) > 4 && strcasecmp(device->id + 4, id + 4) == 0)
			return device->id;
	}
	return NULL;
}

int grant_take(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *given,
	       struct grant *ret, struct error *error)
{
	struct gpuwm_attach_options options;
	int r = client_check(client, error);

	if (r == 0 && !ref)
		r = error_set(error, -EINVAL, "model, model@tag, model@alias or a version id",
			      "the ref is NULL");
	if (r == 0)
		r = client_take_options(given, &options, sizeof(options), error);
	if (r < 0)
		return r;
	r = reviver_watch(client, error);
	if (r < 0)
		return r;
	r = ask(client, ref, &options, ret, error);
	if (r == -ENODEV && !options.device && (options.device = current_device(client)))
		r = ask(client, ref, &options, ret, error);
	return r;
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
