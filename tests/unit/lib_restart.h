/* What tests of restarts share: a fake gpuwmd with one version, and a client of it. */
#ifndef LIB_RESTART_H
#define LIB_RESTART_H

#include "client/lib/client.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <sys/wait.h>

#include "lib_fake.h"

static struct fake *fake;
static struct gpuwm_client *client;
static int fds_before;
static unsigned threads_before;

static inline struct gpuwm_connect_options to_fake(void)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);

	options.socket = fake->path;
	options.name = "test";
	return options;
}

static inline struct gpuwm_client *client_with(const struct gpuwm_connect_options *options)
{
	struct gpuwm_client *made = NULL;

	cr_assert(eq(int, gpuwm_connect(options, &made), 0), "%s", gpuwm_error()->message);
	return made;
}

static inline int publish_begin(struct gpuwm_publish **ret_publish)
{
	static const uint64_t shape[] = {256};
	const struct gpuwm_tensor_spec spec = {.name = "t", .dtype = GPUWM_U8, .ndim = 1, .shape = shape};
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);

	options.name = "m@v1";
	options.device = "host";
	return gpuwm_publish_begin(client, &options, &spec, 1, ret_publish);
}

#define THREAD_EXITING                                                                                         \
	0x4u /* PF_EXITING of the kernel: it was joined, or can be, and is listed for a moment more */

static inline bool thread_runs(const char *number)
{
	char path[300], text[512];
	unsigned flags = THREAD_EXITING;
	const char *rest;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%s/stat", number);
	file = fopen(path, "re");
	if (!file)
		return false;
	rest = fgets(text, sizeof(text), file) ? strrchr(text, ')') : NULL;
	fclose(file);
	return rest && sscanf(rest, ") %*c %*d %*d %*d %*d %*d %u", &flags) == 1 && !(flags & THREAD_EXITING);
}

static inline unsigned threads(void)
{
	DIR *folder = opendir("/proc/self/task");
	unsigned count = 0;

	for (struct dirent *entry; (entry = readdir(folder));)
		count += entry->d_name[0] != '.' && thread_runs(entry->d_name);
	closedir(folder);
	return count;
}

/* Of the library: besides those that a client without leases has. */
static inline unsigned threads_of_library(void)
{
	return threads() - threads_before;
}

/* Forgets how often gpuwmd went away lately, so that a test need not wait. */
static inline void pause_forget(void)
{
	pthread_mutex_lock(&client->reviver.lock);
	client->reviver.pause_ms = RECONNECT_MIN_MS;
	client->reviver.next_ms = 0;
	pthread_cond_broadcast(&client->reviver.changed);
	pthread_mutex_unlock(&client->reviver.lock);
}

/* How often the client has tried to connect, and succeeded or not. */
static inline uint64_t attempts(void)
{
	uint64_t round;

	pthread_mutex_lock(&client->reviver.lock);
	round = client->reviver.round;
	pthread_mutex_unlock(&client->reviver.lock);
	return round;
}

/* Waits until the client has tried `count` more times to connect. Call it while no gpuwmd listens: each attempt fails. */
static inline void fails_to_connect(unsigned count)
{
	const uint64_t before = attempts();

	UNTIL(attempts() >= before + count);
}

static inline void restart_setup(void)
{
	struct gpuwm_connect_options options;
	struct gpuwm_publish *publish;
	void *data;

	fds_before = open_fds();
	fake = fake_start();
	options = to_fake();
	client = client_with(&options);
	threads_before = threads();
	cr_assert(eq(int, publish_begin(&publish), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(int, gpuwm_publish_memory(publish, 0, &data, NULL), 0));
	memset(data, 7, 256);
	cr_assert(eq(int, gpuwm_publish_commit(publish, NULL), 0), "%s", gpuwm_error()->message);
	UNTIL(threads_of_library() == 0); /* the one that told of the publisher's life */
}

static inline void restart_teardown(void)
{
	gpuwm_close(client);
	fake_stop(fake);
	cr_assert(eq(int, open_fds(), fds_before));
}

static inline struct gpuwm_mapping *attach(void)
{
	struct gpuwm_mapping *mapping = NULL;

	cr_assert(eq(int, gpuwm_attach(client, "m", NULL, &mapping), 0), "%s", gpuwm_error()->message);
	return mapping;
}

static inline bool holds_sevens(const struct gpuwm_mapping *mapping)
{
	struct gpuwm_tensor tensor;

	return gpuwm_tensor_at(mapping, 0, &tensor) == 0 && ((const uint8_t *)tensor.data)[255] == 7;
}

static inline void fake_restart(void)
{
	fake_kill(fake);
	fake_run_again(fake);
}

/* Waits until gpuwmd knows of so many leases again, and the client of that. */
static inline void leases_are(unsigned count)
{
	UNTIL(fake->leases == count);
	cr_assert(eq(int, gpuwm_ping(client, NULL), 0), "%s", gpuwm_error()->message);
}

/* The next `count` requests for this method kill gpuwmd. */
static inline void dies_at(const char *method, unsigned count)
{
	strcpy(fake->dies_at, method);
	fake->deaths = count;
}

static inline void refuses(const char *method, int code, const char *message)
{
	error_set(&fake->refusal, code, NULL, "%s", message);
	strcpy(fake->refuse, method);
}

/* A call in a thread, so that gpuwmd can change meanwhile. */
static inline void *call_run_by(void *data)
{
	int (*const *call)(void) = data;

	return (void *)(intptr_t)(*call)();
}

static inline pthread_t call_begin_in_thread(int (*const *call)(void))
{
	pthread_t thread;

	pthread_create(&thread, NULL, call_run_by, (void *)call);
	return thread;
}

static inline int call_join(pthread_t thread)
{
	void *r;

	pthread_join(thread, &r);
	return (int)(intptr_t)r;
}

/* The test's client is one that waits so long for the next gpuwmd. */
static inline void with_restart_ms(int64_t restart_ms)
{
	struct gpuwm_connect_options options = to_fake();

	options.restart_ms = restart_ms;
	gpuwm_close(client);
	client = client_with(&options);
}

#endif
