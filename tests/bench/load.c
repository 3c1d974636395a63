/* Loading what is in the page cache, beside what the hardware gives without gpuwm, interleaved.
 *
 *   load --socket SOCKET --device DEVICE [--rounds N] [--kept] [--check] SOURCE
 *
 * On a GPU: pinned memory copied to it, and readers into a pinned ring; each load once with gpuwmd's
 * standby loader and once without. --kept: each load in a context that was kept (keep_context of gpuwmd's configuration),
 * beside pinned memory alone. On host: readers into a memfd. --check: exit 1 where a goal is missed.
 */
#include "bench.h"

#include "lib/ceiling.h"
#include "lib/flags.h"
#include "lib/operate.h"
#include "lib/process.h"
#include "lib/report.h"

#define MODEL "bench-load"
#define ROUNDS_MAX 99
#define GOAL_COPY 0.95 /* of the pinned ceiling */
#define GOAL_HOST 0.8 /* of bare readers */
#define GOAL_READY_MS 200.0 /* beside the copy at its goal */
#define GOAL_READY_NEW_MS 400.0 /* the same with a loader that has to be started */
#define GOAL_READY_KEPT_MS 40.0 /* in a kept context, beside the ceiling itself */
#define KEPT_NOTE "its CUDA contexts were kept for it" /* of a load's notes */
#define GOAL_MEMORY_MIB 192.0 /* beside a bare process */

struct settings {
	const char *socket, *device, *source;
	size_t rounds;
	bool kept, check;
};

struct times {
	double pinned[ROUNDS_MAX], read[ROUNDS_MAX], read_cpu[ROUNDS_MAX], read_pace[ROUNDS_MAX];
	double copy[ROUNDS_MAX], ready[ROUNDS_MAX], ready_new[ROUNDS_MAX], cpu[ROUNDS_MAX];
	double memory[ROUNDS_MAX]; /* beside a bare process */
	struct job_times last;
};

static double half(double *values, const struct settings *settings)
{
	return percentile(values, settings->rounds, 0.5);
}

static void load_once(struct gpuwm_client *client, const struct settings *settings, const struct files *files,
		      size_t round, struct times *times, uint64_t bare_peak)
{
	struct loaders *loaders;
	struct usage usage;

	standby_wait(client);
	loaders = loaders_watch(gpuwmd_pid(client));
	times->last = load_and_wait(client, settings->source, MODEL "@standby", settings->device);
	usage = loaders_seen(loaders);
	times->ready[round] = times->last.ready_ms;
	times->copy[round] = (double)files->bytes / 1e6 / times->last.copy_ms;
	times->cpu[round] = usage.cpu_s;
	times->memory[round] = ((double)usage.peak_bytes - (double)bare_peak) / (double)MIB(1);
	retire(client, MODEL "@standby");
}

/* gpuwmd starts the next loader at once only when the last standby one lived for a while. */
static void load_without_standby(struct gpuwm_client *client, const struct settings *settings, size_t round,
				 struct times *times)
{
	standby_wait(client);
	usleep((LOADER_RETRY_MS + 100) * 1000);
	loaders_kill(gpuwmd_pid(client));
	times->ready_new[round] =
		load_and_wait(client, settings->source, MODEL "@new", settings->device).ready_ms;
	retire(client, MODEL "@new");
}

/* The first one may make the context that the others find. */
static void measure_kept(struct gpuwm_client *client, const struct settings *settings,
			 const struct files *files, size_t round, bool first, struct times *times)
{
	times->pinned[round] = ceiling_pinned(settings->device, files->bytes).gb_s;
	if (!first)
		kept_wait(client, settings->device);
	times->last = load_and_wait(client, settings->source, MODEL "@kept", settings->device);
	if (!first && !strstr(times->last.notes, KEPT_NOTE))
		DIE("a load did not get the context that was kept");
	times->ready[round] = times->last.ready_ms;
	times->copy[round] = (double)files->bytes / 1e6 / times->last.copy_ms;
	retire(client, MODEL "@kept");
}

static void measure_round(struct gpuwm_client *client, const struct settings *settings,
			  const struct files *files, size_t round, struct times *times)
{
	struct ceiling pinned = {0}, read;

	if (is_gpu(settings->device))
		pinned = ceiling_pinned(settings->device, files->bytes);
	read = ceiling_read(settings->device, files);
	times->pinned[round] = pinned.gb_s;
	times->read[round] = read.gb_s;
	times->read_cpu[round] = read.cpu_s;
	load_once(client, settings, files, round, times, read.peak_bytes);
	if (is_gpu(settings->device))
		load_without_standby(client, settings, round, times);
	times->read_pace[round] = (double)files->bytes / 1e6 / times->ready[round] / read.gb_s;
	if (files_cached(files) < 1)
		DIE("%s does not stay in the page cache", settings->source);
}

static void report_gpu(const struct settings *settings, const struct files *files, struct times *times)
{
	double pinned = half(times->pinned, settings), copy = half(times->copy, settings);
	double copy_ms = (double)files->bytes / 1e6 / (GOAL_COPY * pinned);

	result(pinned, "GB/s", "pinned memory to the GPU: the ceiling");
	result(half(times->read, settings), "GB/s", "bare readers into a pinned ring, no digests");
	result(copy, "GB/s", "gpuwm's copy, digests on");
	result_at_least(copy / pinned, GOAL_COPY, "x", "copy / ceiling");
	result_at_most(half(times->ready, settings), copy_ms + GOAL_READY_MS, "ms",
		       "request to ready; copy at %.2f of the ceiling is %.0f ms", GOAL_COPY, copy_ms);
	result_at_most(half(times->ready_new, settings), copy_ms + GOAL_READY_NEW_MS, "ms",
		       "request to ready without the standby loader");
}

static void report_kept(const struct settings *settings, const struct files *files, struct times *times)
{
	double pinned = half(times->pinned, settings), copy = half(times->copy, settings);
	double ceiling_ms = (double)files->bytes / 1e6 / pinned;

	heading("load of %.2f GiB in %zu files, cached, into %s, in a kept context; medians of %zu, interleaved",
		(double)files->bytes / (double)GIB(1), files->count, settings->device, settings->rounds);
	result(pinned, "GB/s", "pinned memory to the GPU: the ceiling");
	result(copy, "GB/s", "gpuwm's copy, digests on");
	result_at_least(copy / pinned, GOAL_COPY, "x", "copy / ceiling");
	result_at_most(half(times->ready, settings), ceiling_ms + GOAL_READY_KEPT_MS, "ms",
		       "request to ready; at the ceiling itself %.0f ms", ceiling_ms);
	heading("    phases of the last one, ms: %s", times->last.phases);
	printf("%s", times->last.notes);
}

static void report_host(const struct settings *settings, struct times *times)
{
	result(half(times->read, settings), "GB/s", "bare readers into a memfd, no digests");
	result(half(times->copy, settings), "GB/s", "gpuwm's copy, digests on");
	result_at_least(half(times->read_pace, settings), GOAL_HOST, "x",
			"load, request to ready / bare readers");
	result(half(times->ready, settings), "ms", "request to ready");
}

static void report(const struct settings *settings, const struct files *files, struct times *times)
{
	heading("load of %.2f GiB in %zu files, cached, into %s; medians of %zu, interleaved",
		(double)files->bytes / (double)GIB(1), files->count, settings->device, settings->rounds);
	is_gpu(settings->device) ? report_gpu(settings, files, times) : report_host(settings, times);
	result(half(times->cpu, settings), "s", "CPU of the loader; bare readers %.2f s",
	       half(times->read_cpu, settings));
	/* On host the version's own memory is in the loader's figure. */
	if (is_gpu(settings->device))
		result_at_most(percentile(times->memory, settings->rounds, 1), GOAL_MEMORY_MIB, "MiB",
			       "loader's peak memory beside a bare process with a context, largest");
	heading("    phases of the last one, ms: %s", times->last.phases);
	printf("%s", times->last.notes);
}

static struct settings settings_read(int argc, char **argv)
{
	struct settings settings = {.rounds = 5, .device = "cuda:0"};
	const struct flag flags[] = {
		{"socket", .text = &settings.socket},   {"device", .text = &settings.device},
		{"rounds", .number = &settings.rounds}, {"kept", .set = &settings.kept},
		{"check", .set = &settings.check},      {0}};

	flags_read(argc, argv, flags);
	if (optind + 1 != argc || settings.rounds < 1 || settings.rounds > ROUNDS_MAX)
		DIE("usage: load --socket SOCKET --device DEVICE [--rounds N] [--kept] [--check] SOURCE");
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
	if (settings.kept && !is_gpu(settings.device))
		DIE("--kept needs a GPU: there are no contexts on %s", settings.device);
	/* Once for nothing: the machine's memory grows on first touch. */
	if (settings.kept)
		measure_kept(client, &settings, &files, 0, true, &times);
	else
		measure_round(client, &settings, &files, 0, &times);
	for (size_t round = 0; round < settings.rounds; round++) {
		if (settings.kept)
			measure_kept(client, &settings, &files, round, false, &times);
		else
			measure_round(client, &settings, &files, round, &times);
	}
	settings.kept ? report_kept(&settings, &files, &times) : report(&settings, &files, &times);
	gpuwm_close(client);
	return settings.check && results_missed() > 0;
}
