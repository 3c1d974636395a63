#include "grant.h"

#include "call.h"
#include "clock.h"
#include "key.h"
#include "memory.h"
#include "owner.h"
#include "../../proto/methods.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void close_in_child(void *object)
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
	close_in_child(grant);
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

enum asked { ASK_AGAIN, GRANTED, CLAIMED };

/* What is asked for. */
struct asking {
	const char *method, *key, *name; /* `name` is the method's parameter `key` */
	struct gpuwm_attach_options options;
	uint64_t round; /* of the connection that answered */
};

static int call_for(struct gpuwm_client *client, struct asking *asking, int64_t wait_ms, struct reply *reply,
		    struct error *error)
{
	struct call call;
	int r;

	call_begin(&call, client, asking->method);
	message_put_text(&call.request, asking->key, asking->name);
	if (asking->options.device)
		message_put_text(&call.request, "device", asking->options.device);
	message_put_u64(&call.request, "rank", asking->options.rank);
	if (asking->options.look)
		message_put_bool(&call.request, "look", true);
	owner_put(&call.request, &asking->options);
	r = call_run(&call, wait_ms, reply, error);
	asking->round = call.round;
	return r;
}

static bool is_claimed(const struct reply *reply)
{
	struct fields f;

	fields_of(&f, reply->message.body);
	return fields_bool_or(&f, "claimed", false);
}

/* An `asked`. GRANTED: the lease is the client's; ASK_AGAIN: the connection ended right after it had
 * answered, and so did the lease. */
static int ask_once(struct gpuwm_client *client, struct asking *asking, int64_t wait_ms, struct grant *grant,
		    struct error *error)
{
	struct reply reply;
	bool held;
	int r = call_for(client, asking, wait_ms, &reply, error);

	if (r < 0)
		return r;
	if (is_claimed(&reply)) {
		reply_clear(&reply);
		return CLAIMED;
	}
	fork_lock();
	fork_watch(&grant->hook, close_in_child, grant);
	r = read_grant(&reply, grant, error);
	fork_unlock();
	reply_clear(&reply);
	held = lease_hold(client, grant->lease, asking->round);
	if (r == 0 && held)
		return GRANTED;
	grant_close_fds(grant);
	if (held) {
		lease_release(client, grant->lease, NULL);
		grant->lease = NULL;
	}
	return r < 0 ? r : ASK_AGAIN;
}

/* GRANTED, CLAIMED or why not. */
static int ask(struct gpuwm_client *client, struct asking *asking, struct grant *ret, struct error *error)
{
	const int64_t deadline = clock_deadline(asking->options.wait_ms);
	int64_t wait_ms = asking->options.wait_ms;
	struct lease *lease = calloc(1, sizeof(*lease));
	int r;

	if (!lease)
		return error_set(error, -ENOMEM, NULL, "out of memory for a lease");
	do {
		*ret = (struct grant){.lease = lease, .index_fd = -1};
		r = ask_once(client, asking, wait_ms, ret, error);
		wait_ms = wait_ms > 0 ? clock_left(deadline) : wait_ms;
	} while (r == ASK_AGAIN);
	if (r != GRANTED)
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

static int take(struct gpuwm_client *client, struct asking *asking, const struct gpuwm_attach_options *given,
		struct grant *ret, struct error *error)
{
	struct gpuwm_attach_options *options = &asking->options;
	int r = client_take_options(given, options, sizeof(*options), error);

	if (r == 0)
		r = key_check(options->key, options->key_count, error);
	if (r == 0)
		r = owner_check(options, error);
	if (r == 0)
		r = reviver_watch(client, error);
	if (r < 0)
		return r;
	r = ask(client, asking, ret, error);
	if (r == -ENODEV && !options->device && (options->device = current_device(client)))
		r = ask(client, asking, ret, error);
	return r;
}

int grant_take(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *options,
	       struct grant *ret, struct error *error)
{
	struct asking asking = {.method = METHOD_GET_HANDLES, .key = "ref", .name = ref};
	int r = client_check(client, error);

	if (r == 0 && !ref)
		r = error_set(error, -EINVAL, "model, model@tag, model@alias or a version id",
			      "the ref is NULL");
	if (r == 0)
		r = take(client, &asking, options, ret, error);
	return r < 0 ? r : 0;
}

int grant_claim(struct gpuwm_client *client, const char *name, const struct gpuwm_attach_options *options,
		struct grant *ret, uint64_t *ret_round, struct error *error)
{
	struct asking asking = {.method = METHOD_CLAIM, .key = "name", .name = name};
	int r = take(client, &asking, options, ret, error);

	if (r != CLAIMED)
		return r < 0 ? r : 0;
	*ret_round = asking.round;
	return 1;
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
