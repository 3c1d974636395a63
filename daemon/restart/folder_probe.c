#include "folder_probe.h"

#include "../../base/clock.h"
#include "../../base/thread.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define STACK_BYTES (64 << 10)

struct probe {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool answered, left; /* left: nobody waits, and the thread frees it */
	char path[];
};

/* One thread that waits for ever is enough. */
static atomic_bool hangs;

static void probe_free(struct probe *probe)
{
	pthread_cond_destroy(&probe->changed);
	pthread_mutex_destroy(&probe->lock);
	free(probe);
}

static void *probe_run(void *data)
{
	struct probe *probe = data;
	DIR *folder = opendir(probe->path);
	bool left;

	if (folder) {
		/* cppcheck-suppress readdirCalled ; the folder is this thread's own */
		readdir(folder);
		closedir(folder);
	}
	pthread_mutex_lock(&probe->lock);
	probe->answered = true;
	left = probe->left;
	pthread_cond_signal(&probe->changed);
	pthread_mutex_unlock(&probe->lock);
	if (left) {
		probe_free(probe);
		hangs = false;
	}
	return NULL;
}

static bool probe_answers(struct probe *probe, int64_t wait_ms)
{
	const int64_t deadline = clock_deadline(wait_ms);
	bool answered;

	pthread_mutex_lock(&probe->lock);
	while (!probe->answered && clock_left(deadline) > 0)
		clock_wait(&probe->changed, &probe->lock, deadline);
	answered = probe->answered;
	if (!answered)
		hangs = probe->left = true;
	pthread_mutex_unlock(&probe->lock);
	return answered;
}

int folder_probe(const char *path, int64_t wait_ms)
{
	const size_t bytes = strlen(path) + 1;
	struct probe *probe;
	pthread_t thread;
	int r;

	if (hangs)
		return -ETIMEDOUT;
	probe = calloc(1, sizeof(*probe) + bytes);
	if (!probe)
		return -ENOMEM;
	memcpy(probe->path, path, bytes);
	pthread_mutex_init(&probe->lock, NULL);
	clock_condition(&probe->changed);
	r = -thread_begin(&thread, STACK_BYTES, probe_run, probe);
	if (r < 0) {
		probe_free(probe);
		return r;
	}
	if (!probe_answers(probe, wait_ms)) {
		pthread_detach(thread);
		return -ETIMEDOUT;
	}
	pthread_join(thread, NULL);
	probe_free(probe);
	return 0;
}
