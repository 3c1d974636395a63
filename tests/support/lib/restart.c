#include "restart.h"

static unsigned threads_before;

int publish_begin(struct gpuwm_publish **ret_publish)
{
	static const uint64_t shape[] = {256};
	const struct gpuwm_tensor_spec spec = {.name = "t", .dtype = GPUWM_U8, .ndim = 1, .shape = shape};
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);

	options.name = "m@v1";
	options.device = "host";
	return gpuwm_publish_begin(client, &options, &spec, 1, ret_publish);
}

unsigned threads_of_library(void)
{
	return threads() - threads_before;
}

void pause_forget(void)
{
	pthread_mutex_lock(&client->reviver.lock);
	client->reviver.pause_ms = RECONNECT_MIN_MS;
	client->reviver.next_ms = 0;
	pthread_cond_broadcast(&client->reviver.changed);
	pthread_mutex_unlock(&client->reviver.lock);
}

/* How often the client has tried to connect, and succeeded or not. */
static uint64_t attempts(void)
{
	uint64_t round;

	pthread_mutex_lock(&client->reviver.lock);
	round = client->reviver.round;
	pthread_mutex_unlock(&client->reviver.lock);
	return round;
}

void fails_to_connect(unsigned count)
{
	const uint64_t before = attempts();

	UNTIL(attempts() >= before + count);
}

void restart_setup(void)
{
	struct gpuwm_publish *publish;
	void *data;

	client_start("host");
	threads_before = threads();
	cr_assert(eq(int, publish_begin(&publish), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(int, gpuwm_publish_memory(publish, 0, &data, NULL), 0));
	memset(data, 7, 256);
	cr_assert(eq(int, gpuwm_publish_commit(publish, NULL), 0), "%s", gpuwm_error()->message);
	UNTIL(threads_of_library() == 0); /* the one that told of the publisher's life */
}

bool holds_sevens(const struct gpuwm_mapping *mapping)
{
	struct gpuwm_tensor tensor;

	return gpuwm_tensor_at(mapping, 0, &tensor) == 0 && ((const uint8_t *)tensor.data)[255] == 7;
}

void fake_restart(void)
{
	fake_kill(fake);
	fake_run_again(fake);
}

void leases_are(unsigned count)
{
	UNTIL(fake->leases == count);
	cr_assert(eq(int, gpuwm_ping(client, NULL), 0), "%s", gpuwm_error()->message);
}

void dies_at(const char *method, unsigned count)
{
	strcpy(fake->dies_at, method);
	fake->deaths = count;
}

/* A call in a thread, so that gpuwmd can change meanwhile. */
static void *call_run_by(void *data)
{
	int (*const *call)(void) = data;

	return (void *)(intptr_t)(*call)();
}

pthread_t call_begin_in_thread(int (*const *call)(void))
{
	pthread_t thread;

	pthread_create(&thread, NULL, call_run_by, (void *)call);
	return thread;
}

int call_join(pthread_t thread)
{
	void *r;

	pthread_join(thread, &r);
	return (int)(intptr_t)r;
}

void with_restart_ms(int64_t restart_ms)
{
	struct gpuwm_connect_options options = to_fake();

	options.restart_ms = restart_ms;
	gpuwm_close(client);
	client = client_with(&options);
}

void attach_all(struct gpuwm_mapping *mappings[], int count)
{
	for (int i = 0; i < count; i++)
		mappings[i] = attach_to("m");
}

void detach_all(struct gpuwm_mapping *mappings[], int count)
{
	for (int i = 0; i < count; i++)
		cr_expect(eq(int, gpuwm_detach(mappings[i]), 0));
}

void loses_leases(unsigned count, int code, const char *message)
{
	error_set(&fake->loss, code, "the detail", "%s", message);
	fake->lose = count;
}
