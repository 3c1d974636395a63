/* A client connects, says what it learned of gpuwmd, and is closed. */
#include "connect.h"

#include "../request/call.h"
#include "../connection/dial.h"
#include "../request/lease.h"

#include "../../../proto/index/dtype.h"
#include "../../../proto/memory_kind.h"
#include "../../../base/clock.h"
#include "../../../base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
	const struct dtype_block block = dtype_block(dtype);

	return dtype_family(dtype) == DTYPE_SAFETENSORS ? 8 * block.bytes / block.elements : 0;
}

int gpuwm_dtype_block(unsigned dtype, uint32_t *ret_elements, uint32_t *ret_bytes)
{
	const struct dtype_block block = dtype_block(dtype);
	struct error error;

	if (block.elements == 0) {
		error_set(&error, -EINVAL, "client.h has the dtypes", "there is no dtype %u", dtype);
		return client_fail(&error);
	}
	*ret_elements = block.elements;
	*ret_bytes = block.bytes;
	return 0;
}

static int client_add_device(struct gpuwm_client *client, const struct device_told *told, struct error *error)
{
	struct gpuwm_device *device = &client->devices[client->device_count++];

	device->total = told->total;
	device->budget = told->budget;
	device->granularity = told->granularity;
	device->is_cuda = memory_kind_find(told->kind) == &kind_cuda;
	device->id = strdup(told->device);
	device->name = strdup(told->name);
	device->lost = strdup(told->lost ? told->lost->message : "");
	return device->id && device->name && device->lost
		       ? 0
		       : error_set(error, -ENOMEM, NULL, "out of memory for a device");
}

static int client_add_devices(struct gpuwm_client *client, const struct hello_result *hello,
			      struct error *error)
{
	const uint32_t count = hello->devices.count;
	int r = 0;

	client->devices = calloc((size_t)count + 1, sizeof(*client->devices));
	if (!client->devices)
		return error_set(error, -ENOMEM, NULL, "out of memory for %u devices", count);
	for (uint32_t i = 0; i < count && r == 0; i++)
		r = client_add_device(client, &hello->devices.items[i], error);
	return r;
}

/* Keeps the place where the client got a connection: it connects to no other one later. */
static int client_open(struct gpuwm_client *client, const struct socket_places *places, int64_t wait_ms,
		       int64_t timeout_ms, struct error *error)
{
	const struct dial_target to = {.places = places->items,
				       .count = places->count,
				       .name = client->name,
				       .wait_ms = wait_ms,
				       .timeout_ms = timeout_ms,
				       .restart_ms = client->restart_ms};
	struct connection *connection;
	struct hello_result hello;
	struct reply reply;
	size_t at;
	int r;

	if (!client->name)
		return error_set(error, -ENOMEM, NULL, "out of memory for a client");
	r = dial(&to, &at, &connection, &reply, error);
	if (r < 0)
		return r;
	client->place.path = strdup(places->items[at].path);
	client->place.is_users = places->items[at].is_users;
	if (!client->place.path) {
		reply_clear(&reply);
		connection_free(connection);
		return error_set(error, -ENOMEM, NULL, "out of memory for a client");
	}
	client->reviver.connection = connection;
	connection_on_notify(connection, leases_on_notify, client, client->reviver.round);
	r = client_greet(client, &reply, &hello, error);
	if (r == 0)
		r = client_add_devices(client, &hello, error);
	reply_clear(&reply);
	return r;
}

int gpuwm_connect(const struct gpuwm_connect_options *given, struct gpuwm_client **ret_client)
{
	const unsigned known = GPUWM_CONNECT_ADMIN | GPUWM_CONNECT_ONCE;
	struct gpuwm_connect_options options;
	struct socket_places places;
	struct gpuwm_client *client;
	struct error error;
	int r;

	r = client_take_options(given, &options, sizeof(options), &error);
	if (r == 0 && options.flags & ~known)
		r = error_set(&error, -EINVAL, NULL, "there are no such flags of connect: %#x",
			      options.flags & ~known);
	if (r < 0)
		return client_fail(&error);
	client = client_new();
	if (!client) {
		error_set(&error, -ENOMEM, NULL, "out of memory for a client");
		return client_fail(&error);
	}
	client->reviver.once = options.flags & GPUWM_CONNECT_ONCE;
	client->restart_ms = options.restart_ms ? options.restart_ms : RESTART_WAIT_MS;
	if (client->reviver.once)
		client->restart_ms = 0;
	client->lost = options.lost;
	client->lost_data = options.lost_data;
	client->name =
		options.name ? strdup(options.name) : strndup(program_invocation_short_name, NAME_BYTES_MAX);
	/* A program may call itself anything, and some tell there what they do: what fits is told. */
	if (client->name && !options.name)
		utf8_make_line(client->name);
	r = socket_places_find(options.socket, options.flags & GPUWM_CONNECT_ADMIN, &places);
	if (r < 0)
		error_set(&error, r, NULL, "out of memory for a client");
	else
		r = client_open(client, &places, options.wait_ms, options.timeout_ms, &error);
	socket_places_clear(&places);
	if (r < 0) {
		client_drop(client);
		return client_fail(&error);
	}
	*ret_client = client;
	return 0;
}

int client_another(const struct gpuwm_client *like, struct gpuwm_client **ret_client, struct error *error)
{
	const struct socket_places places = {{like->place}, 1};
	struct gpuwm_client *client = client_new();
	int r;

	if (!client)
		return error_set(error, -ENOMEM, NULL, "out of memory for a client");
	client->reviver.once = like->reviver.once;
	client->restart_ms = like->restart_ms;
	client->name = strdup(like->name);
	r = client_open(client, &places, like->restart_ms, dial_again_ms(like->restart_ms), error);
	if (r < 0)
		client_drop(client);
	else
		*ret_client = client;
	return r;
}

int client_adopt(struct connection *connection, struct gpuwm_client **ret_client)
{
	struct gpuwm_client *client = client_new();

	if (!client)
		return -ENOMEM;
	client->reviver.once = true;
	client->reviver.connection = connection;
	*ret_client = client;
	return 0;
}

struct gpuwm_client *gpuwm_close(struct gpuwm_client *client)
{
	/* What is still used keeps the connection, and gpuwmd counts claims by it. */
	if (client && fork_check(&client->hook, NULL) == 0)
		claims_give_up(client);
	return client_drop(client);
}

int gpuwm_ping(struct gpuwm_client *client, uint64_t *ret_ns)
{
	uint64_t before, after;
	struct error error;
	struct call call;
	int r = client_check(client, &error);

	if (r < 0)
		return client_fail(&error);
	call_begin(&call, client, &form_ping, NULL);
	before = clock_steady_ns();
	r = call_run(&call, 0, NULL, &error);
	after = clock_steady_ns();
	if (r < 0)
		return client_fail(&error);
	if (ret_ns)
		*ret_ns = after - before;
	return 0;
}

static const struct greeting *greeting_of(const struct gpuwm_client *client)
{
	return __atomic_load_n(&client->greeting, __ATOMIC_ACQUIRE);
}

const char *gpuwm_instance(const struct gpuwm_client *client)
{
	return greeting_of(client)->instance;
}

const char *gpuwm_socket_path(const struct gpuwm_client *client)
{
	return client->place.path;
}

const char *gpuwm_ledger(const struct gpuwm_client *client)
{
	return greeting_of(client)->ledger;
}

uint64_t gpuwm_epoch(const struct gpuwm_client *client)
{
	return greeting_of(client)->epoch;
}

size_t gpuwm_devices(const struct gpuwm_client *client, const struct gpuwm_device **ret_devices)
{
	*ret_devices = client->devices;
	return client->device_count;
}
