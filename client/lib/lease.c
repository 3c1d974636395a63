#include "lease.h"

#include "memory.h"
#include "../../proto/methods.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void lease_close_fds(struct lease *lease)
{
	for (uint32_t i = 0; lease->segments && i < lease->version.segments; i++) {
		if (lease->segments[i].fd >= 0)
			close(lease->segments[i].fd);
		lease->segments[i].fd = -1;
	}
	free(lease->segments);
	lease->segments = NULL;
	if (lease->index_fd >= 0)
		close(lease->index_fd);
	lease->index_fd = -1;
}

static int read_segments(struct lease *lease, struct packet *packet, const msgpack_object *segments,
			 uint32_t count, struct error *error)
{
	if (count > PART_SEGMENTS_MAX)
		return error_set(error, -EPROTO, NULL, "get_handles: %u segments", count);
	lease->segments = calloc((size_t)count + 1, sizeof(*lease->segments));
	if (!lease->segments)
		return error_set(error, -ENOMEM, NULL, "out of memory for %u segments", count);
	for (uint32_t i = 0; i < count; i++) {
		struct lease_segment *segment = &lease->segments[i];
		struct fields f;

		fields_of(&f, &segments[i]);
		segment->fd = -1;
		segment->bytes = fields_u64(&f, "bytes");
		lease->version.segments = i + 1;
		lease->version.bytes += segment->bytes;
		if (packet_take_fd(packet, fields_u64(&f, "fd"), &segment->fd) < 0 || f.error.code)
			return error_set(error, -EPROTO, NULL,
					 "get_handles: segment %u came without its descriptor", i);
	}
	return 0;
}

static int read_grant(struct reply *reply, struct lease *lease, struct error *error)
{
	struct gpuwm_version_info *v = &lease->version;
	const msgpack_object *segments;
	uint64_t index;
	uint32_t count;
	struct fields f;

	fields_of(&f, reply->message.body);
	lease->id = fields_u64(&f, "lease");
	fields_text(&f, "version", v->id, sizeof(v->id));
	fields_text(&f, "model", v->model, sizeof(v->model));
	fields_text(&f, "tag", v->tag, sizeof(v->tag));
	fields_text(&f, "device", v->device, sizeof(v->device));
	v->rank = (uint32_t)fields_u64(&f, "rank");
	v->world = (uint32_t)fields_u64(&f, "world");
	v->generation = fields_u64_or(&f, "generation", 0);
	lease->index_bytes = fields_u64(&f, "index_bytes");
	index = fields_u64(&f, "index");
	segments = fields_array(&f, "segments", &count);
	if (f.error.code)
		return error_set(error, -EPROTO, NULL, "get_handles: %s", f.error.message);
	if (packet_take_fd(&reply->packet, index, &lease->index_fd) < 0)
		return error_set(error, -EPROTO, NULL, "get_handles: the index came without its descriptor");
	return read_segments(lease, &reply->packet, segments, count, error);
}

static int ask(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *options,
	       const char *device, struct lease *lease, struct error *error)
{
	struct message_writer w;
	struct reply reply;
	int r;

	client_request(client, &w, METHOD_GET_HANDLES);
	message_put_text(&w, "ref", ref);
	if (device)
		message_put_text(&w, "device", device);
	message_put_u64(&w, "rank", options->rank);
	message_put_i64(&w, "wait_ms", options->wait_ms);
	message_end(&w);
	r = client_call(client, &w, options->wait_ms, &reply, error);
	if (r < 0)
		return r;
	*lease = (struct lease){.index_fd = -1};
	r = read_grant(&reply, lease, error);
	if (r < 0) {
		lease_close_fds(lease);
		lease_release(client, lease->id, NULL);
	}
	reply_clear(&reply);
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

int lease_take(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *given,
	       struct lease *ret, struct error *error)
{
	struct gpuwm_attach_options options;
	const char *current;
	int r = client_check(client, error);

	if (r == 0 && !ref)
		r = error_set(error, -EINVAL, "model, model@tag, model@alias or a version id",
			      "the ref is NULL");
	if (r == 0)
		r = client_take_options(given, &options, sizeof(options), error);
	if (r < 0)
		return r;
	r = ask(client, ref, &options, options.device, ret, error);
	if (r == -ENODEV && !options.device && (current = current_device(client)))
		r = ask(client, ref, &options, current, ret, error);
	return r;
}

int lease_describe(struct lease *lease, struct index_map *ret_map, struct error *error)
{
	struct gpuwm_version_info *v = &lease->version;
	struct index_map map;
	int r = index_map_open(lease->index_fd, lease->index_bytes, true, &map, error);

	if (r < 0)
		return r;
	if (map.view.header->segment_count != v->segments)
		r = -EBADMSG;
	for (uint32_t i = 0; r == 0 && i < v->segments; i++) {
		if (map.view.segments[i].bytes != lease->segments[i].bytes)
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

int lease_release(struct gpuwm_client *client, uint64_t id, struct error *error)
{
	struct message_writer w;
	int r;

	client_request(client, &w, METHOD_RELEASE);
	message_put_u64(&w, "lease", id);
	message_end(&w);
	r = client_call(client, &w, 0, NULL, error);
	if (r == 0 || r == -ECONNRESET || r == -ECHILD)
		return r;
	if (error)
		error->code = -EIO;
	return -EIO;
}
