/* Many workers that attach to one version at the same moment, beside as many bare processes that have the
 * descriptors already and map them with the fewest calls. The same processes do both, in turns.
 *
 *   crowd --socket SOCKET [--workers N] [--rounds N] [--check] REF
 */
#include "bench.h"

#include "lib/bare.h"
#include "lib/flags.h"
#include "lib/operate.h"
#include "lib/report.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define WORKERS_MAX 256
#define ROUNDS_MAX 99
#define GOAL 1.3

/* Between all of the processes. */
struct shared {
	pthread_barrier_t together;
	double bare_us[ROUNDS_MAX][WORKERS_MAX], attach_us[ROUNDS_MAX][WORKERS_MAX]; /* since the start */
	double begin_us; /* of this turn */
};

struct settings {
	const char *socket, *ref;
	size_t workers, rounds;
};

static void wait_for_all(struct shared *shared)
{
	pthread_barrier_wait(&shared->together);
}

/* All begin when the last one is ready; the next turn begins when the last one is done. */
static void begin_turn(struct shared *shared, size_t number)
{
	wait_for_all(shared);
	if (number == 0)
		shared->begin_us = now_us();
	wait_for_all(shared);
}

static void turn_bare(struct shared *shared, size_t number, struct bare_part *part, double *ret_us)
{
	begin_turn(shared, number);
	bare_map(part);
	*ret_us = now_us() - shared->begin_us;
	wait_for_all(shared);
	bare_unmap(part);
}

static void turn_attach(struct shared *shared, size_t number, struct gpuwm_client *client, const char *ref,
			double *ret_us)
{
	struct gpuwm_mapping *mapping;

	begin_turn(shared, number);
	OK(gpuwm_attach(client, ref, NULL, &mapping));
	*ret_us = now_us() - shared->begin_us;
	wait_for_all(shared);
	OK(gpuwm_detach(mapping));
}

static void run_worker(struct shared *shared, const struct settings *settings, size_t number)
{
	struct gpuwm_client *client = worker_connect(settings->socket);
	struct gpuwm_handles *handles;
	struct bare_part part;

	OK(gpuwm_get_handles(client, settings->ref, NULL, &handles));
	part = bare_part_of(handles);
	bare_open(gpuwm_handles_version(handles)->device);
	for (size_t i = 0; i < settings->rounds; i++) {
		turn_bare(shared, number, &part, &shared->bare_us[i][number]);
		turn_attach(shared, number, client, settings->ref, &shared->attach_us[i][number]);
	}
	OK(gpuwm_handles_release(handles));
	gpuwm_close(client);
}

/* The last worker's time in each round; the median of those. */
static double last_one(double (*times)[WORKERS_MAX], const struct settings *settings)
{
	double last[ROUNDS_MAX];

	for (size_t i = 0; i < settings->rounds; i++)
		last[i] = percentile(times[i], settings->workers, 1);
	return percentile(last, settings->rounds, 0.5);
}

/* Where one fails the others would wait for it for ever. */
static void wait_for_end(const pid_t *workers, size_t count)
{
	int status;

	for (size_t ended = 0; ended < count; ended++) {
		if (wait(&status) > 0 && status == 0)
			continue;
		for (size_t i = 0; i < count; i++)
			kill(workers[i], SIGKILL);
		DIE("a worker failed");
	}
}

static void start_workers(struct shared *shared, const struct settings *settings)
{
	pid_t workers[WORKERS_MAX];

	for (size_t i = 0; i < settings->workers; i++) {
		workers[i] = fork();
		if (workers[i] == 0) {
			run_worker(shared, settings, i);
			_exit(0);
		}
		if (workers[i] < 0)
			DIE("fork: %s", strerror(errno));
	}
	wait_for_end(workers, settings->workers);
}

static void measure(const struct settings *settings)
{
	struct shared *shared =
		mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t attributes;
	double bare;

	if (shared == MAP_FAILED)
		DIE("out of memory");
	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->together, &attributes, (unsigned)settings->workers);
	start_workers(shared, settings);
	heading("%zu workers attach %s at the same moment; medians of %zu rounds, interleaved",
		settings->workers, settings->ref, settings->rounds);
	bare = last_one(shared->bare_us, settings) / 1000;
	result(bare, "ms", "until the last of the bare processes has mapped it");
	result_at_most(last_one(shared->attach_us, settings) / 1000, GOAL * bare, "ms",
		       "until the last worker has attached; goal: %.1f x bare", GOAL);
	munmap(shared, sizeof *shared);
}

int main(int argc, char **argv)
{
	struct settings settings = {.workers = 64, .rounds = 9};
	bool check = false;
	const struct flag flags[] = {{"socket", .text = &settings.socket},
				     {"workers", .number = &settings.workers},
				     {"rounds", .number = &settings.rounds},
				     {"check", .set = &check},
				     {0}};

	flags_read(argc, argv, flags);
	if (optind + 1 != argc || settings.workers > WORKERS_MAX || settings.rounds > ROUNDS_MAX)
		DIE("usage: crowd --socket SOCKET [--workers N] [--rounds N] [--check] REF");
	settings.ref = argv[optind];
	measure(&settings);
	return check && results_missed() > 0;
}
