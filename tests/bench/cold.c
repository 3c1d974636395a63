/* Loading what is not in the page cache, beside a bare reader with O_DIRECT of other files, in turns; then what
 * is half in it.
 *
 *   cold --socket SOCKET --device DEVICE [--check] SOURCE...
 *
 * An even number of sources of one size: the odd ones are loaded, the even ones read by the bare reader, so that
 * no cache below this machine's has them from the other. They must be this user's own.
 */
#include "bench.h"

#include "lib/ceiling.h"
#include "lib/flags.h"
#include "lib/operate.h"
#include "lib/report.h"

#define REF "bench-cold@v"
#define ROUNDS_MAX 32
#define GOAL_COLD 0.95 /* of the bare reader */
#define GOAL_HALF 1.1 /* times what the disk takes for the cold half */
/* What may be cached of an evicted file: its first pages, read by whoever looks at it. */
#define CACHED_MAX 0.001

struct settings {
	const char *socket, *device;
	char **sources;
	size_t rounds;
	bool check;
};

struct times {
	double direct[ROUNDS_MAX], copy[ROUNDS_MAX], half[ROUNDS_MAX];
	double bytes; /* of one source */
	struct job_times cold, half_cached;
};

static void evict(const struct files *files)
{
	double cached;

	files_evict(files);
	cached = files_cached(files);
	if (cached > CACHED_MAX)
		DIE("%s is %.1f %% in the page cache and does not leave it", files->file[0].path, 100 * cached);
}

static struct job_times load(struct gpuwm_client *client, const struct settings *settings, const char *source)
{
	struct job_times times;

	standby_wait(client);
	times = load_and_wait(client, source, REF, settings->device);
	retire(client, REF);
	return times;
}

static void measure_round(struct gpuwm_client *client, const struct settings *settings, size_t round,
			  struct times *times)
{
	static struct files loaded, read;

	files_of(settings->sources[2 * round], &loaded);
	files_of(settings->sources[2 * round + 1], &read);
	evict(&loaded);
	evict(&read);
	times->bytes = (double)loaded.bytes;
	times->direct[round] = ceiling_direct(&read).gb_s;
	times->cold = load(client, settings, settings->sources[2 * round]);
	times->copy[round] = times->bytes / 1e6 / times->cold.copy_ms;
	evict(&loaded);
	files_warm(&loaded, 0.5);
	printf("    round %zu: cached before the loads: 0, and %.3f\n", round + 1, files_cached(&loaded));
	times->half_cached = load(client, settings, settings->sources[2 * round]);
	times->half[round] = times->half_cached.copy_ms;
}

static void report(const struct settings *settings, struct times *times)
{
	double direct = percentile(times->direct, settings->rounds, 0.5);
	double copy = percentile(times->copy, settings->rounds, 0.5);
	double disk_ms = times->bytes / 2 / 1e6 / direct;

	result(direct, "GB/s", "bare reader, O_DIRECT, %d threads, chunks of %llu MiB", CEILING_READERS_MAX,
	       (unsigned long long)(CEILING_CHUNK >> 20));
	result(copy, "GB/s", "gpuwm's copy of files that are not cached, digests on");
	result_at_least(copy / direct, GOAL_COLD, "x", "copy / bare reader");
	result_at_most(percentile(times->half, settings->rounds, 0.5), GOAL_HALF * disk_ms, "ms",
		       "copy of half-cached files; goal: %.1f x the cold half at disk speed", GOAL_HALF);
	heading("    phases of the last cold one, ms: %s", times->cold.phases);
	printf("%s", times->cold.notes);
	heading("    of the last half-cached one: %s", times->half_cached.phases);
	printf("%s", times->half_cached.notes);
}

int main(int argc, char **argv)
{
	struct settings settings = {.device = "cuda:0"};
	static struct times times;
	struct gpuwm_client *client;
	const struct flag flags[] = {{"socket", .text = &settings.socket},
				     {"device", .text = &settings.device},
				     {"check", .set = &settings.check},
				     {0}};

	flags_read(argc, argv, flags);
	settings.sources = argv + optind;
	settings.rounds = (size_t)(argc - optind) / 2;
	if (settings.rounds < 1 || settings.rounds > ROUNDS_MAX || (argc - optind) % 2)
		DIE("usage: cold --socket SOCKET --device DEVICE [--check] SOURCE SOURCE...");
	client = operator_connect(settings.socket);
	settings.device = device_id(client, settings.device);
	heading("cold loads into %s; medians of %zu, in turns with the bare reader", settings.device,
		settings.rounds);
	for (size_t round = 0; round < settings.rounds; round++)
		measure_round(client, &settings, round, &times);
	report(&settings, &times);
	gpuwm_close(client);
	return settings.check && results_missed() > 0;
}
