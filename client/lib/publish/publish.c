/* A publish begins: its layout, its index so far, and the word of gpuwmd. */
#include "../request/client.h"
#include "../key.h"
#include "publish_state.h"
#include "../request/call.h"
#include "../../../base/grow.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A child that kept the descriptors would keep the memory. */
static void close_in_child(void *object)
{
	struct gpuwm_publish *publish = object;

	for (uint32_t i = 0; publish->segments && i < publish->plan.segment_count; i++) {
		if (publish->segments[i].fd >= 0)
			close(publish->segments[i].fd);
	}
	if (publish->part.index_fd >= 0)
		close(publish->part.index_fd);
}

static bool align_is_valid(uint64_t align)
{
	return align == 0 ||
	       (align >= TENSOR_ALIGN_MIN && align <= TENSOR_ALIGN_MAX && (align & (align - 1)) == 0);
}

static bool segment_bytes_are_valid(uint64_t bytes)
{
	return bytes == 0 ||
	       (bytes >= SEGMENT_BYTES_MIN && bytes <= SEGMENT_BYTES_MAX && bytes % SEGMENT_BYTES_MIN == 0);
}

/* The wish for an owner alone. */
static struct gpuwm_attach_options wish_of(const struct gpuwm_publish_options *options)
{
	return (struct gpuwm_attach_options){.owner_uids = options->owner_uids,
					     .owner_uid_count = options->owner_uid_count,
					     .owner_operator = options->owner_operator};
}

static int options_check(const struct gpuwm_publish_options *options, const struct gpuwm_tensor_spec *specs,
			 size_t count, struct error *error)
{
	const struct gpuwm_attach_options wish = wish_of(options);
	int r = key_check(options->key, options->key_count, error);

	if (r == 0)
		r = owner_check(&wish, error);
	if (r < 0)
		return r;
	if (!options->device)
		return error_set(error, -EINVAL, "set it to host, or to the UUID of one of gpuwmd's devices",
				 "a publish needs a device");
	if (options->rank >= (options->world ? options->world : 1))
		return error_set(error, -EINVAL, "ranks count from 0", "there is no rank %u in a world of %u",
				 options->rank, options->world);
	if (!align_is_valid(options->align))
		return error_set(error, -EINVAL, "a power of two from 16 to 2,097,152; 0: 256",
				 "tensors can't be aligned to %llu bytes", (unsigned long long)options->align);
	if (!segment_bytes_are_valid(options->segment_bytes))
		return error_set(error, -EINVAL, "a multiple of 2 MiB up to 1 TiB; 0: 16 GiB, or what it takes",
				 "segments can't be of %llu bytes", (unsigned long long)options->segment_bytes);
	if ((!options->join_uids && options->join_uid_count) ||
	    (!options->join_gids && options->join_gid_count))
		return error_set(error, -EINVAL, NULL,
				 "join_uids or join_gids have counts, and were not given");
	if (!options->cached && (options->ttl_ms || options->keep_last || options->companion_of))
		return error_set(error, -EINVAL, "set cached too",
				 "ttl_ms, keep_last and companion_of are for cached versions");
	if (!specs && count > 0)
		return error_set(error, -EINVAL, "one spec for each tensor",
				 "%zu tensors, whose specs were not given", count);
	if (count > UINT32_MAX)
		return error_set(error, -EINVAL, "at most 4,294,967,295", "%zu tensors in one part", count);
	return 0;
}

static int make_plan(struct gpuwm_publish *publish, const struct gpuwm_publish_options *options,
		     const struct gpuwm_tensor_spec *specs, size_t count, struct error *error)
{
	const struct memory_device *device = &publish->device;
	struct plan_policy policy;
	uint64_t granularity;
	int r = device->ops->granularity(device, &granularity, error);

	if (r < 0)
		return r;
	policy = (struct plan_policy){
		.granularity = granularity,
		.align = options->align ? options->align : TENSOR_ALIGN,
		.target = options->segment_bytes ? options->segment_bytes : SEGMENT_BYTES_TARGET,
		.exact = options->segment_bytes,
	};
	return plan_make(specs, count, &policy, &publish->plan, error);
}

/* Puts segments and tensors into the builder. */
static int publish_index(struct gpuwm_publish *publish, const struct gpuwm_tensor_spec *specs,
			 struct error *error)
{
	int r = 0;

	for (uint32_t i = 0; i < publish->plan.segment_count && r == 0; i++)
		r = index_builder_segment(publish->builder, publish->plan.segments[i]);
	if (r < 0)
		return error_set(error, r, NULL, "the segments do not fit the index: %s", strerror(-r));
	for (size_t i = 0; i < publish->tensor_count && r == 0; i++) {
		const struct plan_place *place = &publish->plan.places[i];
		struct index_tensor_spec spec = {
			.name = specs[i].name,
			.dtype = specs[i].dtype,
			.ndim = specs[i].ndim,
			.shape = specs[i].shape,
			.strides = specs[i].strides,
			.segment = place->segment,
			.offset = place->offset,
		};

		r = index_builder_tensor(publish->builder, &spec, error);
	}
	return r;
}

/* What is published with a key is only switched to what has the same, and by the owners that are wished for. */
static int make_mapping(struct gpuwm_publish *publish, const struct gpuwm_publish_options *options,
			struct error *error)
{
	struct gpuwm_mapping *mapping = calloc(1, sizeof(*mapping));
	struct gpuwm_key_field *key = mapping ? key_copy(options->key, options->key_count) : NULL;
	struct mapped_part *part = key ? mapped_part_new(&publish->device) : NULL;
	const struct gpuwm_attach_options wish = wish_of(options);

	if (!part) {
		free(key);
		free(mapping);
		return error_set(error, -ENOMEM, NULL, "out of memory for a publish");
	}
	mapping_init(mapping, part);
	mapping->key = key;
	mapping->key_count = options->key_count;
	mapping->owner = owner_of(&wish);
	publish->mapping = mapping;
	return 0;
}

/* The layout, the index so far, and room for the digests: all that needs no daemon. */
static int publish_prepare(struct gpuwm_publish *publish, const struct gpuwm_publish_options *options,
			   const struct gpuwm_tensor_spec *specs, size_t count, struct error *error)
{
	int r = make_plan(publish, options, specs, count, error);

	if (r < 0)
		return r;
	publish->tensor_count = count;
	publish->digests = calloc(count + 1, sizeof(*publish->digests));
	publish->have_digest = calloc(count + 1, 1);
	publish->segments = calloc((size_t)publish->plan.segment_count + 1, sizeof(*publish->segments));
	publish->made = calloc((size_t)publish->plan.segment_count + 1, 1);
	publish->builder = index_builder_new(publish->part.rank, publish->world);
	if (!publish->digests || !publish->have_digest || !publish->segments || !publish->made ||
	    !publish->builder)
		return error_set(error, -ENOMEM, NULL, "out of memory for a publish of %zu tensors", count);
	for (uint32_t i = 0; i < publish->plan.segment_count; i++)
		publish->segments[i] = (struct memory_segment){.fd = -1, .bytes = publish->plan.segments[i]};
	fork_watch(&publish->hook, close_in_child, publish);
	r = publish->bare ? 0 : make_mapping(publish, options, error);
	if (r == 0)
		r = publish_index(publish, specs, error);
	return r < 0 ? r : key_put(publish->builder, options->key, options->key_count, error);
}

/* How often gpuwmd wants to hear of a publisher that does not say it. */
#define ALIVE_MS (PUBLISH_SILENCE_MS / PUBLISH_SIGNS)

static int take_checker(struct gpuwm_publish *publish, struct packet *packet, uint64_t position,
			struct error *error)
{
	int fd = -1, r;

	if (packet_take_fd(packet, position, &fd) < 0)
		return error_set(error, -EPROTO, NULL, "publish_begin: the checker's socket is missing");
	r = connection_new(fd, &publish->checker);
	if (r < 0) {
		close(fd);
		error_set(error, r, NULL, "out of memory for the checker's connection");
	}
	return r;
}

/* gpuwmd has checked it. */
static void split_name(struct gpuwm_publish *publish, const char *name)
{
	const char *at = strchr(name, '@');
	size_t model = at ? (size_t)(at - name) : strlen(name);

	snprintf(publish->model, sizeof(publish->model), "%.*s", (int)model, name);
	snprintf(publish->tag, sizeof(publish->tag), "%s", at ? at + 1 : "");
}

static int take_given(struct gpuwm_publish *publish, struct packet *packet,
		      const struct publish_begin_result *result, struct error *error)
{
	int *segment = &publish->segments[0].fd, *index = &publish->part.index_fd;

	if (!result->segment || publish->plan.segment_count != 1 ||
	    packet_take_fd(packet, *result->segment, segment) < 0 ||
	    packet_take_fd(packet, *result->index, index) < 0)
		return error_set(error, -EPROTO, NULL, "publish_begin: the memory is missing");
	publish->given = true;
	return file_grow(*segment, publish->plan.total, "no room for a version in host memory",
			 "see free -m; retire what nobody needs", error);
}

static int read_begin(struct gpuwm_publish *publish, struct reply *reply, struct error *error)
{
	struct publish_begin_result result;
	struct fields f;
	int r;

	/* First the id: the caller aborts the publish if the rest can't be read. */
	fields_of(&f, reply->message.body);
	fields_hex128(&f, "publish", publish->publish.bytes);
	if (!f.error.code)
		hex128_format(publish->publish.bytes, publish->id);
	r = reply_read(reply, &form_publish_begin, &result, error);
	if (r < 0)
		return r;
	hex128_format(result.version->bytes, publish->version);
	publish->nameless = result.name != NULL;
	if (result.name)
		split_name(publish, result.name);
	publish->alive.every_ms = result.alive_ms ? (int64_t)*result.alive_ms : ALIVE_MS;
	if (result.index)
		return take_given(publish, &reply->packet, &result, error);
	return result.checker ? take_checker(publish, &reply->packet, *result.checker, error) : 0;
}

/* gpuwmd has begun the publish: takes what its answer brings, and clears the answer. */
static int publish_begun(struct gpuwm_publish *publish, struct reply *reply, struct error *error)
{
	struct connection *connection;
	uint64_t round;
	int r;

	fork_lock();
	r = read_begin(publish, reply, error);
	fork_unlock();
	reply_clear(reply);
	if (r == 0 && (publish->checker || publish->given)) {
		r = reconnect_take(publish->client, publish->round, 0, &connection, &round, error);
		if (r == 0)
			r = alive_begin(&publish->alive, connection, publish->alive.every_ms, error);
	}
	/* Else it would keep its budget and a loader for as long as the connection goes on. */
	if (r < 0 && *publish->id)
		publish_tell_abort(publish, error->message, NULL);
	return r;
}

/* Waits as long as memory that is being freed is in the way: to give up would cost the client's leases. */
static int ask_begin(struct gpuwm_publish *publish, const struct gpuwm_publish_options *options,
		     struct error *error)
{
	const struct join_params join = {
		.uids = {options->join_uids, (uint32_t)options->join_uid_count},
		.gids = {options->join_gids, (uint32_t)options->join_gid_count},
	};
	struct version_id joined = {{0}}, belongs_to = {{0}};
	const struct cache_params cache = {options->ttl_ms, options->keep_last,
					   options->companion_of ? &belongs_to : NULL};
	const struct publish_begin_params params = {
		.name.text = options->name,
		.device = options->device,
		.rank = publish->part.rank,
		.world = publish->world,
		.bytes = publish->plan.total,
		.publish = options->join ? &joined : NULL,
		.join = join.uids.count + join.gids.count > 0 ? &join : NULL,
		.alias = options->alias,
		.give = !options->name && !memory_kind_of(options->device)->is_gpu &&
			publish->plan.segment_count == 1 && publish->plan.total <= GIVEN_BYTES_MAX,
		.cache = options->cached ? &cache : NULL,
		.segments = publish->plan.segment_count,
	};
	struct reply reply;
	struct call call;
	int r = client_take_id(options->join, "publish", &joined, error);

	if (r == 0)
		r = client_take_id(options->companion_of, "companion_of", &belongs_to, error);
	if (r < 0)
		return r;
	call_begin(&call, publish->client, &form_publish_begin, &params);
	call.has_work = true;
	call.work_ms = -1;
	r = call_run(&call, options->wait_ms, &reply, error);
	if (r < 0)
		return r;
	publish->round = call.round;
	if (options->name && !options->join) /* the publish has taken over what the client claimed */
		free(claims_take(&publish->client->reviver, options->name));
	return publish_begun(publish, &reply, error);
}

static int publish_open(struct gpuwm_publish *publish, const struct gpuwm_publish_options *options,
			const struct gpuwm_tensor_spec *specs, size_t count, struct error *error)
{
	int r = memory_device_open(options->device, &publish->device, error);

	if (r == 0)
		r = publish_prepare(publish, options, specs, count, error);
	if (r == 0)
		r = ask_begin(publish, options, error);
	if (r < 0)
		return r;
	if (options->name)
		split_name(publish, options->name);
	r = publish_memory_begin(publish, options->stepwise, error);
	if (r < 0)
		publish_tell_abort(publish, error->message, NULL);
	return r;
}

static int publish_begin(struct gpuwm_client *client, const struct gpuwm_publish_options *given,
			 const struct gpuwm_tensor_spec *specs, size_t count, bool bare,
			 struct gpuwm_publish **ret_publish)
{
	struct gpuwm_publish_options options;
	struct gpuwm_publish *publish;
	struct error error;
	int r = client_check(client, &error);

	if (r == 0)
		r = client_take_options(given, &options, sizeof(options), &error);
	if (r == 0)
		r = options_check(&options, specs, count, &error);
	if (r < 0)
		return client_fail(&error);
	publish = calloc(1, sizeof(*publish));
	if (!publish) {
		error_set(&error, -ENOMEM, NULL, "out of memory for a publish");
		return client_fail(&error);
	}
	publish->bare = bare;
	publish->client = client_keep(client);
	pthread_mutex_init(&publish->lock, NULL);
	pthread_mutex_init(&publish->making, NULL);
	publish->part = (struct publish_part){.index_fd = -1, .rank = options.rank};
	publish->world = options.world ? options.world : 1;
	r = publish_open(publish, &options, specs, count, &error);
	if (r < 0) {
		publish_free(publish);
		return client_fail(&error);
	}
	*ret_publish = publish;
	return 0;
}

int gpuwm_publish_begin(struct gpuwm_client *client, const struct gpuwm_publish_options *options,
			const struct gpuwm_tensor_spec *specs, size_t count, struct gpuwm_publish **ret_publish)
{
	return publish_begin(client, options, specs, count, false, ret_publish);
}

int publish_begin_bare(struct gpuwm_client *client, const struct gpuwm_publish_options *options,
		       const struct gpuwm_tensor_spec *specs, size_t count, struct gpuwm_publish **ret_publish)
{
	return publish_begin(client, options, specs, count, true, ret_publish);
}

/* ---- what its other steps ask ---- */

struct gpuwm_publish *publish_free(struct gpuwm_publish *publish)
{
	if (!publish)
		return NULL;
	alive_end(&publish->alive);
	publish_memory_end(publish);
	fork_unwatch(&publish->hook);
	if (publish->part.index_fd >= 0)
		close(publish->part.index_fd);
	connection_free(publish->checker);
	index_builder_free(publish->builder);
	plan_clear(&publish->plan);
	free(publish->segments);
	free(publish->made);
	free(publish->digests);
	free(publish->have_digest);
	client_drop(publish->client);
	pthread_mutex_destroy(&publish->lock);
	pthread_mutex_destroy(&publish->making);
	free(publish);
	return NULL;
}

const char *gpuwm_publish_id(const struct gpuwm_publish *publish)
{
	return publish->id;
}

const struct version_id *publish_number(const struct gpuwm_publish *publish)
{
	return &publish->publish;
}

const struct plan *publish_plan(const struct gpuwm_publish *publish)
{
	return &publish->plan;
}

const struct memory_device *publish_device(const struct gpuwm_publish *publish)
{
	return &publish->device;
}

struct memory_segment *publish_segment(struct gpuwm_publish *publish, uint32_t position)
{
	return &publish->segments[position];
}

void publish_digest(struct gpuwm_publish *publish, size_t position, const struct digest *digest)
{
	publish->digests[position] = *digest;
	publish->have_digest[position] = 1;
}

int publish_tell_abort(struct gpuwm_publish *publish, const char *reason, struct error *error)
{
	struct call call;
	int r;

	publish_memory_end(publish);
	call_begin(&call, publish->client, &form_publish_abort,
		   &(struct publish_abort_params){.publish = &publish->publish, .reason = reason});
	call.only = publish->round;
	r = call_run(&call, 0, NULL, error);
	return r == -ECONNRESET || r == -ECONNABORTED ? 0 : r;
}
