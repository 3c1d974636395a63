#include "client.h"

#include "../../proto/dtype.h"
#include "../../proto/methods.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *gpuwm_library_version(void)
{
	return GPUWM_VERSION;
}

const char *gpuwm_dtype_name(unsigned dtype)
{
	return dtype_name(dtype);
}

unsigned gpuwm_dtype_bits(unsigned dtype)
{
	return dtype_bits(dtype);
}

struct gpuwm_client *client_keep(struct gpuwm_client *client)
{
	__atomic_add_fetch(&client->uses, 1, __ATOMIC_RELAXED);
	return client;
}

struct gpuwm_client *client_drop(struct gpuwm_client *client)
{
	if (!client || __atomic_sub_fetch(&client->uses, 1, __ATOMIC_ACQ_REL) > 0)
		return NULL;
	connection_free(client->connection);
	for (size_t i = 0; i < client->device_count; i++) {
		free((char *)client->devices[i].id);
		free((char *)client->devices[i].name);
	}
	free(client->devices);
	free(client->socket);
	free(client->name);
	free(client);
	return NULL;
}

struct gpuwm_client *gpuwm_close(struct gpuwm_client *client)
{
	return client_drop(client);
}

int client_check(const struct gpuwm_client *client, struct error *error)
{
	if (!client)
		return error_set(error, -EINVAL, NULL, "the client is NULL");
	return connection_check(client->connection, error);
}

/* `size` is the first member of every options struct: an array of size_t reaches all of it. */
int client_take_options(const void *given, void *ret_options, size_t known, struct error *error)
{
	const unsigned char *bytes = given;
	size_t size = given ? *(const size_t *)given : sizeof(size);

	if (size < sizeof(size) || size > OPTIONS_BYTES_MAX || size % sizeof(size))
		return error_set(error, -EINVAL, "begin with GPUWM_OPTIONS(struct …)",
				 "the options say that their size is %zu, which none has", size);
	for (size_t i = known; i < size; i++) {
		if (bytes[i])
			return error_set(error, -EINVAL,
					 "use a libgpuwm-client at least as new as the header, or leave at "
					 "zero what this one does not know",
					 "compiled against a newer gpuwm: the options are of size %zu, this "
					 "library (" GPUWM_VERSION ") knows %zu",
					 size, known);
	}
	memset(ret_options, 0, known);
	if (given)
		memcpy(ret_options, given, size < known ? size : known);
	*(size_t *)ret_options = known;
	return 0;
}

void client_request(struct gpuwm_client *client, struct message_writer *request, const char *method)
{
	(void)client;
	message_writer_init(request, PACKET_BYTES_MAX);
	message_request(request, request_next_id(), method);
}

int client_call(struct gpuwm_client *client, struct message_writer *request, int64_t wait_ms,
		struct reply *ret_reply, struct error *error)
{
	int64_t wait = wait_ms;
	int r;

	if (wait_ms >= 0)
		wait = wait_ms > INT64_MAX - CALL_TIMEOUT_MS ? -1 : wait_ms + CALL_TIMEOUT_MS;
	r = connection_call(client->connection, request, NULL, 0, wait, ret_reply, error);
	message_writer_clear(request);
	return r;
}

static int read_device(struct gpuwm_client *client, const msgpack_object *map, struct error *error)
{
	struct gpuwm_device *device = &client->devices[client->device_count];
	char id[DEVICE_BYTES_MAX + 1], name[TEXT_BYTES_MAX + 1], kind[16];
	struct fields f;

	fields_of(&f, map);
	fields_text(&f, "device", id, sizeof(id));
	fields_text(&f, "kind", kind, sizeof(kind));
	fields_text(&f, "name", name, sizeof(name));
	device->total = fields_u64(&f, "total");
	device->budget = fields_u64(&f, "budget");
	device->granularity = fields_u64(&f, "granularity");
	device->is_cuda = strcmp(kind, "cuda") == 0;
	if (f.error.code)
		return error_set(error, -EPROTO, NULL, "hello: a device: %s", f.error.message);
	device->id = strdup(id);
	device->name = strdup(name);
	client->device_count++;
	return device->id && device->name ? 0 : error_set(error, -ENOMEM, NULL, "out of memory for a device");
}

/* The result of hello. */
static int read_hello(struct gpuwm_client *client, const msgpack_object *body, struct error *error)
{
	const msgpack_object *devices;
	uint32_t count;
	struct fields f;
	int r = 0;

	fields_of(&f, body);
	fields_text(&f, "instance", client->instance, sizeof(client->instance));
	devices = fields_array(&f, "devices", &count);
	if (f.error.code)
		return error_set(error, -EPROTO, NULL, "hello: %s", f.error.message);
	client->devices = calloc((size_t)count + 1, sizeof(*client->devices));
	if (!client->devices)
		return error_set(error, -ENOMEM, NULL, "out of memory for %u devices", count);
	for (uint32_t i = 0; i < count && r == 0; i++)
		r = read_device(client, &devices[i], error);
	return r;
}

static int client_open(struct gpuwm_client *client, int64_t wait_ms, struct error *error)
{
	struct reply reply;
	int r;

	if (!client->socket || !client->name)
		return error_set(error, -ENOMEM, NULL, "out of memory for a client");
	r = client_dial(client->socket, client->name, wait_ms, &client->connection, &reply, error);
	if (r < 0)
		return r;
	r = read_hello(client, reply.message.body, error);
	reply_clear(&reply);
	return r;
}

int gpuwm_connect(const struct gpuwm_connect_options *given, struct gpuwm_client **ret_client)
{
	struct gpuwm_connect_options options;
	struct gpuwm_client *client;
	struct error error;
	int r;

	r = client_take_options(given, &options, sizeof(options), &error);
	if (r == 0 && (options.flags & ~(unsigned)GPUWM_CONNECT_ADMIN))
		r = error_set(&error, -EINVAL, NULL, "there are no such flags of connect: %#x", options.flags);
	if (r < 0)
		return client_fail(&error);
	client = calloc(1, sizeof(*client));
	if (!client) {
		error_set(&error, -ENOMEM, NULL, "out of memory for a client");
		return client_fail(&error);
	}
	client->uses = 1;
	client->socket = client_socket_path(options.socket, options.flags);
	client->name = strdup(options.name ? options.name : program_invocation_short_name);
	r = client_open(client, options.wait_ms, &error);
	if (r < 0) {
		client_drop(client);
		return client_fail(&error);
	}
	*ret_client = client;
	return 0;
}

int client_adopt(struct connection *connection, struct gpuwm_client **ret_client)
{
	struct gpuwm_client *client = calloc(1, sizeof(*client));

	if (!client)
		return -ENOMEM;
	client->uses = 1;
	client->connection = connection;
	*ret_client = client;
	return 0;
}

int gpuwm_ping(struct gpuwm_client *client, uint64_t *ret_ns)
{
	struct timespec before, after;
	struct message_writer w;
	struct error error;
	int r = client_check(client, &error);

	if (r < 0)
		return client_fail(&error);
	client_request(client, &w, METHOD_PING);
	message_end(&w);
	clock_gettime(CLOCK_MONOTONIC, &before);
	r = client_call(client, &w, 0, NULL, &error);
	clock_gettime(CLOCK_MONOTONIC, &after);
	if (r < 0)
		return client_fail(&error);
	if (ret_ns)
		*ret_ns = (uint64_t)(after.tv_sec - before.tv_sec) * 1000000000u + (uint64_t)after.tv_nsec -
			  (uint64_t)before.tv_nsec;
	return 0;
}

const char *gpuwm_instance(const struct gpuwm_client *client)
{
	return client->instance;
}

size_t gpuwm_devices(const struct gpuwm_client *client, const struct gpuwm_device **ret_devices)
{
	*ret_devices = client->devices;
	return client->device_count;
}
