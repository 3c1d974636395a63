/* A version that goes to host memory and to files and comes back, beside pinned memory copied to the GPU in the same rounds.
 *
 *   tiers --socket SOCKET [--device DEVICE] [--rounds N] [--check] SOURCE
 *
 * A worker, in a process of its own that has called cuInit, attaches to the version on each tier. What it waits for there is
 * the promotion. On host there is only the way from files. --check: exit 1 where a goal is missed.
 */
#include "bench.h"

#include "lib/ceiling.h"
#include "lib/driver.h"
#include "lib/flags.h"
#include "lib/operate.h"
#include "lib/process.h"
#include "lib/report.h"

#define REF "bench-tiers@1"
#define ROUNDS_MAX 99
#define WAIT_MS 600000
#define GOAL_PROMOTE 0.9 /* the copy from host memory, of the pinned ceiling */

enum way { RESIDENT, FROM_HOST, FROM_FILES, WAYS };

struct settings {
	const char *socket, *device, *source;
	size_t rounds;
	bool check;
};

struct times {
	double pinned[ROUNDS_MAX];
	double attach_ms[WAYS][ROUNDS_MAX];
	double copy[WAYS][ROUNDS_MAX]; /* GB/s of the promotion's copy */
	double demote_ms[WAYS][ROUNDS_MAX]; /* to where it is promoted from */
	double down[ROUNDS_MAX]; /* GB/s of the copy to host memory */
	struct job_times last[WAYS], last_down[WAYS];
};

/* ---- a worker -------------------------------------------------------------- */

/* In a child: ms until the version is mapped. */
static void run_attach(void *data, void *result)
{
	const struct settings *settings = data;
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_client *client = worker_connect(settings->socket);
	struct gpuwm_mapping *mapping;
	double begin;

	if (is_gpu(settings->device))
		driver_open(settings->device);
	options.wait_ms = WAIT_MS;
	begin = now_us();
	OK(gpuwm_attach(client, REF, &options, &mapping));
	*(double *)result = (now_us() - begin) / 1000;
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
}

static double attach_ms(const struct settings *settings)
{
	double ms;

	child_run(run_attach, (void *)settings, &ms, sizeof ms);
	return ms;
}

/* ---- the tiers -------------------------------------------------------------- */

static struct job_times demote(struct gpuwm_client *client, const char *tier)
{
	uint64_t jobs[GPUWM_MOVE_JOBS_MAX];
	size_t count;
	double begin = now_us();

	OK(gpuwm_demote(client, REF, tier, jobs, &count));
	if (count != 1)
		DIE("%zu parts are demoted to %s, not 1", count, tier);
	return load_end(client, jobs[0], begin);
}

static double rate(uint64_t bytes, double ms)
{
	return ms > 0 ? (double)bytes / 1e6 / ms : 0;
}

static void measure_way(struct gpuwm_client *client, const struct settings *settings, const struct files *files,
			enum way way, size_t round, struct times *times)
{
	standby_wait(client);
	if (way != RESIDENT) {
		times->last_down[way] = demote(client, way == FROM_HOST ? "host" : "files");
		times->demote_ms[way][round] = times->last_down[way].ready_ms;
		standby_wait(client);
	}
	if (way == FROM_HOST)
		times->down[round] = rate(files->bytes, times->last_down[way].copy_ms);
	times->attach_ms[way][round] = attach_ms(settings);
	if (way == RESIDENT)
		return;
	times->last[way] = job_last(client, "move");
	times->copy[way][round] = rate(files->bytes, times->last[way].copy_ms);
}

static void measure_round(struct gpuwm_client *client, const struct settings *settings,
			  const struct files *files, size_t round, struct times *times)
{
	const bool gpu = is_gpu(settings->device);

	if (gpu)
		times->pinned[round] = ceiling_pinned(settings->device, files->bytes).gb_s;
	measure_way(client, settings, files, RESIDENT, round, times);
	if (gpu)
		measure_way(client, settings, files, FROM_HOST, round, times);
	measure_way(client, settings, files, FROM_FILES, round, times);
}

/* ---- the report ------------------------------------------------------------- */

static void report_host_tier(const struct settings *settings, struct times *times)
{
	const size_t rounds = settings->rounds;
	double pinned = percentile(times->pinned, rounds, 0.5);
	double copy = percentile(times->copy[FROM_HOST], rounds, 0.5);

	result(pinned, "GB/s", "pinned memory to the GPU: the ceiling");
	result(percentile(times->attach_ms[FROM_HOST], rounds, 0.5), "ms", "attach, in host memory");
	result(copy, "GB/s", "its copy to the GPU");
	result_at_least(copy / pinned, GOAL_PROMOTE, "x", "copy / ceiling");
	result(percentile(times->demote_ms[FROM_HOST], rounds, 0.5), "ms", "demote to host memory");
	result(percentile(times->down, rounds, 0.5), "GB/s", "its copy, when the pages are there");
	heading("    phases of the last promotion, ms: %s", times->last[FROM_HOST].phases);
	printf("%s", times->last[FROM_HOST].notes);
	heading("    phases of the last demotion, ms: %s", times->last_down[FROM_HOST].phases);
	printf("%s", times->last_down[FROM_HOST].notes);
}

static void report(const struct settings *settings, const struct files *files, struct times *times)
{
	const size_t rounds = settings->rounds;

	heading("%.2f GiB on the tiers of %s; medians of %zu, interleaved",
		(double)files->bytes / (double)GIB(1), settings->device, rounds);
	result(percentile(times->attach_ms[RESIDENT], rounds, 0.5), "ms", "attach, resident");
	if (is_gpu(settings->device))
		report_host_tier(settings, times);
	result(percentile(times->attach_ms[FROM_FILES], rounds, 0.5), "ms", "attach, on files that are cached");
	result(percentile(times->copy[FROM_FILES], rounds, 0.5), "GB/s", "its copy, digests on");
	result(percentile(times->demote_ms[FROM_FILES], rounds, 0.5), "ms",
	       "demote to files, which are read and compared");
	heading("    phases of the last promotion, ms: %s", times->last[FROM_FILES].phases);
	printf("%s", times->last[FROM_FILES].notes);
}

static struct settings settings_read(int argc, char **argv)
{
	struct settings settings = {.rounds = 5, .device = "cuda:0"};
	const struct flag flags[] = {{"socket", .text = &settings.socket},
				     {"device", .text = &settings.device},
				     {"rounds", .number = &settings.rounds},
				     {"check", .set = &settings.check},
				     {0}};

	flags_read(argc, argv, flags);
	if (optind + 1 != argc || settings.rounds < 1 || settings.rounds > ROUNDS_MAX)
		DIE("usage: tiers --socket SOCKET [--device DEVICE] [--rounds N] [--check] SOURCE");
	settings.source = argv[optind];
	return settings;
}

int main(int argc, char **argv)
{
	static struct times times;
	static struct files files;
	struct settings settings = settings_read(argc, argv);
	struct gpuwm_client *client = operator_connect(settings.socket);

	settings.device = device_id(client, settings.device);
	files_of(settings.source, &files);
	files_warm(&files, 1);
	files_hold(&files);
	load_and_wait(client, settings.source, REF, settings.device);
	/* Once for nothing: the machine's memory grows on first touch. */
	measure_round(client, &settings, &files, 0, &times);
	for (size_t round = 0; round < settings.rounds; round++)
		measure_round(client, &settings, &files, round, &times);
	report(&settings, &files, &times);
	retire(client, REF);
	gpuwm_close(client);
	return settings.check && results_missed() > 0;
}
