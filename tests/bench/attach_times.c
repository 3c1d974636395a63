/* How long each attach takes, of many worker processes that each attach, wait and detach again and again.
 *
 *   attach_times --socket SOCKET [--workers N] [--seconds N] [--pause MS] REF
 *
 * Prints one line of JSON: the number of attaches, and half and 99 of 100 of their times in microseconds.
 */
#include "bench.h"

#include "lib/flags.h"

#include <gpuwm/client.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define WORKERS_MAX 256
#define TIMES_MAX 20000 /* of one worker */

struct settings {
	const char *socket, *ref;
	size_t workers, seconds, pause_ms;
};

/* What a worker measured. */
struct measured {
	size_t count;
	double us[TIMES_MAX];
};

static int attach_once(struct gpuwm_client *client, const char *ref, struct measured *measured)
{
	struct gpuwm_mapping *mapping;
	double begin = now_us();

	if (gpuwm_attach(client, ref, NULL, &mapping) < 0)
		return -1;
	measured->us[measured->count++] = now_us() - begin;
	gpuwm_detach(mapping);
	return 0;
}

/* Each worker begins at a moment of its own within the first pause, so that they do not come all at once. */
static int work(const struct settings *settings, size_t number, struct measured *measured)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	double pause_us = (double)settings->pause_ms * 1000, end = now_us() + (double)settings->seconds * 1e6;
	struct gpuwm_client *client;

	options.socket = settings->socket;
	if (gpuwm_connect(&options, &client) < 0)
		return 1;
	usleep((useconds_t)(pause_us * (double)number / (double)settings->workers));
	while (now_us() < end && measured->count < TIMES_MAX) {
		if (attach_once(client, settings->ref, measured) < 0) {
			fprintf(stderr, "attach: %s\n", gpuwm_error()->message);
			return 1;
		}
		usleep((useconds_t)pause_us);
	}
	gpuwm_close(client);
	return 0;
}

static void report(const struct measured *all, size_t workers)
{
	double *us = calloc(workers, sizeof(all->us));
	size_t count = 0;

	for (size_t i = 0; i < workers; i++) {
		memcpy(us + count, all[i].us, all[i].count * sizeof(*us));
		count += all[i].count;
	}
	if (count == 0)
		DIE("no worker has attached");
	printf("{\"count\": %zu, \"half_us\": %.1f, \"p99_us\": %.1f}\n", count, percentile(us, count, 0.5),
	       percentile(us, count, 0.99));
	free(us);
}

int main(int argc, char **argv)
{
	struct settings settings = {.workers = 64, .seconds = 5, .pause_ms = 100};
	struct measured *all;
	const struct flag flags[] = {{"socket", .text = &settings.socket},
				     {"workers", .number = &settings.workers},
				     {"seconds", .number = &settings.seconds},
				     {"pause", .number = &settings.pause_ms},
				     {0}};
	int status, failed = 0;

	flags_read(argc, argv, flags);
	if (optind + 1 != argc || settings.workers > WORKERS_MAX)
		DIE("usage: attach_times --socket SOCKET [--workers N] [--seconds N] [--pause MS] REF");
	settings.ref = argv[optind];
	all = mmap(NULL, settings.workers * sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		   -1, 0);
	if (all == MAP_FAILED)
		DIE("out of memory");
	for (size_t i = 0; i < settings.workers; i++) {
		if (fork() == 0)
			_exit(work(&settings, i, &all[i]));
	}
	while (wait(&status) > 0)
		failed |= status;
	report(all, settings.workers);
	return failed != 0;
}
