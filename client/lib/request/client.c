#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The parent's client is of no use to a child, but its memory is. */
static void in_child(void *object)
{
	struct gpuwm_client *client = object;

	reviver_in_child(&client->reviver);
}

struct gpuwm_client *client_new(void)
{
	struct gpuwm_client *client = calloc(1, sizeof(*client));

	if (!client)
		return NULL;
	client->uses = 1;
	reviver_init(&client->reviver);
	fork_watch(&client->hook, in_child, client);
	return client;
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
	/* The parent's thread is not in a child. */
	if (fork_check(&client->hook, NULL) < 0 || reviver_stop(&client->reviver))
		client_free(client);
	return NULL;
}

void client_free(struct gpuwm_client *client)
{
	fork_unwatch(&client->hook);
	claims_free(&client->reviver);
	reviver_clear(&client->reviver, fork_check(&client->hook, NULL) < 0);
	for (struct greeting *greeting = client->greeting, *older; greeting; greeting = older) {
		older = greeting->older;
		free(greeting);
	}
	for (size_t i = 0; i < client->device_count; i++) {
		free((char *)client->devices[i].id);
		free((char *)client->devices[i].name);
		free((char *)client->devices[i].lost);
	}
	free(client->devices);
	free(client->place.path);
	free(client->name);
	free(client);
}

int client_check(const struct gpuwm_client *client, struct error *error)
{
	if (!client)
		return error_set(error, -EINVAL, NULL, "no client was given");
	return fork_check(&client->hook, error);
}

int client_take_id(const char *text, const char *what, struct version_id *ret, struct error *error)
{
	if (!text || hex128_parse(text, ret->bytes) == 0)
		return 0;
	return error_set(error, -EINVAL, NULL, "\"%s\" is not 32 lower-case hexadecimal digits", what);
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

int client_greet(struct gpuwm_client *client, const struct reply *reply, struct hello_result *ret_hello,
		 struct error *error)
{
	struct greeting *greeting;
	int r = reply_read(reply, &form_hello, ret_hello, error);

	if (r < 0)
		return r;
	greeting = calloc(1, sizeof(*greeting));
	if (!greeting)
		return error_set(error, -ENOMEM, NULL, "out of memory for the greeting of gpuwmd");
	hex128_format(ret_hello->instance->bytes, greeting->instance);
	hex128_format(ret_hello->ledger->bytes, greeting->ledger);
	greeting->epoch = ret_hello->epoch;
	greeting->older = client->greeting;
	/* The same gpuwmd again: nothing is new. */
	if (client->greeting && strcmp(client->greeting->instance, greeting->instance) == 0)
		free(greeting);
	else
		__atomic_store_n(&client->greeting, greeting, __ATOMIC_RELEASE);
	return 0;
}
