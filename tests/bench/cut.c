/* One checkpoint cut into ranks, a GPU each, beside what the machine gives without gpuwm: pinned memory to all these GPUs at
 * once, and bare pread on every processor. In the same rounds: the same checkpoint, whole, on the first GPU.
 *
 *   cut --socket SOCKET --ranks N --plan FILE [--device DEVICE] [--rounds N] [--check] SOURCE
 *
 * --device: all ranks on this one device. The source is read into the page cache first. --check: exit 1 where the goal is
 * missed.
 */
#include "bench.h"

#include "lib/ceiling.h"
#include "lib/flags.h"
#include "lib/operate.h"
#include "lib/report.h"

#define MODEL "bench-cut"
#define ROUNDS_MAX 99
#define GOAL 0.9 /* of the lower ceiling */

struct settings {
	const char *socket, *plan_path, *device, *source;
	const char *devices[CEILING_GPUS_MAX];
	size_t device_count, rounds;
	uint64_t ranks;
	char *plan;
	bool check;
};

struct times {
	double links[ROUNDS_MAX], pread[ROUNDS_MAX], share[ROUNDS_MAX];
	double copy[ROUNDS_MAX], ready[ROUNDS_MAX], whole[ROUNDS_MAX], whole_ready[ROUNDS_MAX];
	struct job_times last;
};

static double gb_s(const struct files *files, double ms)
{
	return (double)files->bytes / 1e6 / ms;
}

static struct job_times load_cut(struct gpuwm_client *client, const struct settings *settings)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	struct job_times times;
	double begin;
	uint64_t job;

	options.source = settings->source;
	options.name = MODEL "@cut";
	options.devices = settings->devices;
	options.device_count = settings->device_count;
	options.ranks = (uint32_t)settings->ranks;
	options.cut = settings->plan;
	standby_wait(client);
	begin = now_us();
	OK(gpuwm_load(client, &options, &job));
	times = load_end(client, job, begin);
	retire(client, MODEL "@cut");
	return times;
}

static void measure_round(struct gpuwm_client *client, const struct settings *settings,
			  const struct files *files, size_t round, struct times *times)
{
	struct job_times whole;
	double least;

	times->pread[round] = ceiling_pread(files).gb_s;
	times->links[round] = is_gpu(settings->devices[0])
				      ? ceiling_links(settings->devices, settings->device_count,
						      files->bytes / settings->device_count)
				      : times->pread[round];
	times->last = load_cut(client, settings);
	times->copy[round] = gb_s(files, times->last.copy_ms);
	times->ready[round] = times->last.ready_ms;
	least = times->links[round] < times->pread[round] ? times->links[round] : times->pread[round];
	times->share[round] = times->copy[round] / least;
	standby_wait(client);
	whole = load_and_wait(client, settings->source, MODEL "@whole", settings->devices[0]);
	times->whole[round] = gb_s(files, whole.copy_ms);
	times->whole_ready[round] = whole.ready_ms;
	retire(client, MODEL "@whole");
	if (files_cached(files) < 1)
		DIE("%s does not stay in the page cache", settings->source);
}

static double half(double *values, const struct settings *settings)
{
	return percentile(values, settings->rounds, 0.5);
}

static void report(const struct settings *settings, const struct files *files, struct times *times)
{
	heading("%.2f GiB in %zu files, cached, cut into %llu ranks on %zu devices; medians of %zu, interleaved",
		(double)files->bytes / (double)GIB(1), files->count, (unsigned long long)settings->ranks,
		settings->device_count, settings->rounds);
	result(half(times->links, settings), "GB/s", "pinned memory to all these devices at once");
	result(half(times->pread, settings), "GB/s", "bare pread on every processor (%ld)",
	       sysconf(_SC_NPROCESSORS_ONLN));
	result(half(times->copy, settings), "GB/s", "gpuwm's cut, digests on");
	result_at_least(half(times->share, settings), GOAL, "x", "cut / the lower of both");
	result(half(times->ready, settings), "ms", "request to ready");
	result(half(times->whole, settings), "GB/s", "gpuwm's copy of the whole to the first device");
	result(half(times->whole_ready, settings), "ms", "request to ready of the whole");
	heading("    phases of the last cut, ms: %s", times->last.phases);
	printf("%s", times->last.notes);
}

static char *plan_read(const char *path)
{
	char *text = calloc(1, CUT_BYTES_MAX + 1);
	FILE *file = path ? fopen(path, "re") : NULL;

	if (!text || !file || fread(text, 1, CUT_BYTES_MAX, file) == 0)
		DIE("--plan: %s can't be read", path ? path : "it is missing");
	fclose(file);
	return text;
}

static struct settings settings_read(int argc, char **argv)
{
	struct settings settings = {.rounds = 5, .ranks = 2};
	const struct flag flags[] = {{"socket", .text = &settings.socket},
				     {"ranks", .number = &settings.ranks},
				     {"plan", .text = &settings.plan_path},
				     {"device", .text = &settings.device},
				     {"rounds", .number = &settings.rounds},
				     {"check", .set = &settings.check},
				     {0}};

	flags_read(argc, argv, flags);
	if (optind + 1 != argc || settings.rounds < 1 || settings.rounds > ROUNDS_MAX || settings.ranks < 1 ||
	    settings.ranks > CEILING_GPUS_MAX)
		DIE("usage: cut --socket SOCKET --ranks N --plan FILE [--device DEVICE] [--rounds N] [--check] SOURCE");
	settings.source = argv[optind];
	settings.plan = plan_read(settings.plan_path);
	return settings;
}

static void find_devices(struct gpuwm_client *client, struct settings *settings)
{
	char name[32];

	settings->device_count = settings->device ? 1 : settings->ranks;
	for (size_t i = 0; i < settings->device_count; i++) {
		snprintf(name, sizeof name, "cuda:%zu", i);
		settings->devices[i] = device_id(client, settings->device ? settings->device : name);
	}
}

int main(int argc, char **argv)
{
	static struct times times;
	static struct files files;
	struct settings settings = settings_read(argc, argv);
	struct gpuwm_client *client = operator_connect(settings.socket);

	find_devices(client, &settings);
	files_of(settings.source, &files);
	files_warm(&files, 1);
	files_hold(&files);
	/* Once for nothing: the machine's memory grows on first touch. */
	measure_round(client, &settings, &files, 0, &times);
	for (size_t round = 0; round < settings.rounds; round++)
		measure_round(client, &settings, &files, round, &times);
	report(&settings, &files, &times);
	gpuwm_close(client);
	free(settings.plan);
	return settings.check && results_missed() > 0;
}
