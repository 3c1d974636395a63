/* Many threads of one process, with a gpuwmd under them that is killed again and again: a plain program, since
 * Criterion does not run under ThreadSanitizer.
 *   restart-threads KILLS
 * Publishes rt@v1 to $GPUWM_SOCKET, whose admin.sock it may use. 0: nothing went wrong. */
#include <gpuwm/client.h>
#include <gpuwm/dlpack.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 65536
#define PATTERN 0x5a
#define START_MS 20000

static struct gpuwm_client *shared, *admin;
static atomic_bool over;
static atomic_uint done, lost;

static void die(const char *what)
{
	fprintf(stderr, "restart-threads: %s: %s (%s)\n", what, gpuwm_error()->message, gpuwm_error()->detail);
	exit(1);
}

static void on_lost(const struct gpuwm_lost *what, void *user_data)
{
	(void)user_data;
	fprintf(stderr, "restart-threads: lost: %s\n", what->error.message);
	lost++;
}

static struct gpuwm_client *connect_to(unsigned flags)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_client *client;

	options.flags = flags;
	options.wait_ms = START_MS;
	options.lost = on_lost;
	if (gpuwm_connect(&options, &client) < 0)
		die("connect");
	return client;
}

static void publish(void)
{
	static const uint64_t shape[] = {BYTES};
	const struct gpuwm_tensor_spec spec = {.name = "t", .dtype = GPUWM_U8, .ndim = 1, .shape = shape};
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	struct gpuwm_publish *publish;
	void *data;

	options.name = "rt@v1";
	options.device = "host";
	if (gpuwm_publish_begin(admin, &options, &spec, 1, &publish) < 0)
		die("publish");
	gpuwm_publish_memory(publish, 0, &data, NULL);
	memset(data, PATTERN, BYTES);
	if (gpuwm_publish_commit(publish, NULL) < 0)
		die("commit");
}

static void look(const struct gpuwm_mapping *mapping)
{
	struct gpuwm_tensor tensor;
	const uint8_t *data;

	if (gpuwm_mapping_check(mapping) < 0 || gpuwm_tensor_at(mapping, 0, &tensor) < 0)
		die("check");
	data = tensor.data;
	for (int i = 0; i < BYTES; i++) {
		if (data[i] != PATTERN)
			die("other bytes");
	}
}

static void come_and_go(struct gpuwm_client *client)
{
	struct gpuwm_mapping *mapping;

	if (gpuwm_attach(client, "rt", NULL, &mapping) < 0)
		die("attach");
	look(mapping);
	if (gpuwm_detach(mapping) < 0)
		die("detach");
}

static void *attaches(void *unused)
{
	for (; !over; done++)
		come_and_go(shared);
	return unused;
}

static void *stays(void *unused)
{
	struct gpuwm_mapping *mapping;

	if (gpuwm_attach(shared, "rt", NULL, &mapping) < 0)
		die("attach");
	for (; !over; done++)
		look(mapping);
	if (gpuwm_detach(mapping) < 0)
		die("detach");
	return unused;
}

static void *lives_and_dies(void *unused)
{
	for (; !over; done++) {
		struct gpuwm_client *client = connect_to(0);
		struct gpuwm_mapping *mapping;

		if (gpuwm_attach(client, "rt", NULL, &mapping) < 0)
			die("attach");
		gpuwm_close(client);
		look(mapping);
		if (gpuwm_detach(mapping) < 0)
			die("detach");
	}
	return unused;
}

/* Exports that one thread makes and another one ends, of mappings that were dropped. */
static _Atomic(struct DLManagedTensor *) passed_on;

static void take_over(struct DLManagedTensor *next)
{
	struct DLManagedTensor *taken = atomic_exchange(&passed_on, next);

	if (!taken)
		return;
	if (((uint8_t *)taken->dl_tensor.data)[BYTES - 1] != PATTERN)
		die("other bytes in an export");
	taken->deleter(taken);
}

static void *exports(void *unused)
{
	for (; !over; done++) {
		struct DLManagedTensor *export;
		struct gpuwm_mapping *mapping;
		struct gpuwm_tensor tensor;

		if (gpuwm_attach(shared, "rt", NULL, &mapping) < 0)
			die("attach");
		if (gpuwm_tensor_at(mapping, 0, &tensor) < 0 || gpuwm_dlpack(mapping, &tensor, &export) < 0)
			die("export");
		gpuwm_drop(mapping);
		take_over(export);
	}
	take_over(NULL);
	return unused;
}

static void *asks(void *unused)
{
	char instance[33] = "";
	unsigned changes = 0;

	for (; !over; done++) {
		char *json = NULL;

		if (gpuwm_ping(shared, NULL) < 0 || gpuwm_query(shared, "list", NULL, &json) < 0)
			die("ask");
		free(json);
		changes += strcmp(instance, gpuwm_instance(shared)) != 0;
		snprintf(instance, sizeof(instance), "%s", gpuwm_instance(shared));
		if (gpuwm_epoch(shared) == 0 || strlen(gpuwm_ledger(shared)) != 32)
			die("who is it");
	}
	printf("%u instances were seen\n", changes);
	return unused;
}

static void kill_once(void)
{
	char *json, *pid;

	if (gpuwm_query(admin, "status", NULL, &json) < 0)
		die("status");
	pid = strstr(json, "\"pid\":");
	if (!pid || kill(atoi(pid + strlen("\"pid\":")), SIGKILL) < 0)
		die("kill");
	free(json);
}

int main(int argc, char **argv)
{
	void *(*const functions[])(void *) = {attaches, attaches, stays, lives_and_dies,
					      exports,  exports,  asks};
	pthread_t threads[sizeof(functions) / sizeof(functions[0])];
	const size_t count = sizeof(functions) / sizeof(functions[0]);
	int kills = argc > 1 ? atoi(argv[1]) : 0;

	if (kills <= 0)
		return fprintf(stderr, "usage: restart-threads KILLS\n"), 2;
	shared = connect_to(0);
	admin = connect_to(GPUWM_CONNECT_ADMIN);
	publish();
	for (size_t i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, functions[i], NULL);
	for (int i = 0; i < kills; i++) {
		/* Mostly longer than a client takes for a gpuwmd that dies at once. */
		poll(NULL, 0, i % 4 ? 60 : i % 40);
		kill_once();
	}
	over = true;
	for (size_t i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	gpuwm_close(shared);
	gpuwm_close(admin);
	printf("%u rounds, %u leases lost\n", done, lost);
	return lost > 0;
}
