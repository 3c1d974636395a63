/* Several things at once: two loads that share one GPU's link, and one load to several GPUs.
 *
 *   together --socket SOCKET --device DEVICE [--rounds N] [--check] SOURCE SOURCE   two loads at the same moment
 *   together --socket SOCKET --device DEVICE --device DEVICE... [...] SOURCE        one load, replicas
 */
#include "bench.h"

#include "lib/ceiling.h"
#include "lib/operate.h"
#include "lib/report.h"

#include <getopt.h>

#define MODEL "bench-together"
#define DEVICES_MAX 16
#define ROUNDS_MAX 99
/* Shares of the pinned ceiling. */
#define GOAL_LEAST 0.4
#define GOAL_MOST 0.6
#define GOAL_SUM 0.9
#define GOAL_REPLICAS 1.2 /* times the copy to one GPU */

struct settings {
	const char *socket, *devices[DEVICES_MAX], *sources[2];
	size_t device_count, rounds;
	bool check;
};

struct shares {
	double least[ROUNDS_MAX], most[ROUNDS_MAX], sum[ROUNDS_MAX];
};

static double gb_s_of(const char *source, double ms)
{
	static struct files files;

	files_of(source, &files);
	return (double)files.bytes / 1e6 / ms;
}

static struct job_times load_two(struct gpuwm_client *client, const struct settings *settings,
				 struct shares *shares, size_t round)
{
	static struct files files;
	struct job_times first, second;
	double begin, pinned, a, b;
	uint64_t jobs[2];

	files_of(settings->sources[0], &files);
	pinned = ceiling_pinned(settings->devices[0], files.bytes).gb_s;
	standby_wait(client);
	begin = now_us();
	jobs[0] = load_begin(client, settings->sources[0], MODEL "@1", settings->devices, 1);
	jobs[1] = load_begin(client, settings->sources[1], MODEL "@2", settings->devices, 1);
	first = load_end(client, jobs[0], begin);
	second = load_end(client, jobs[1], begin);
	retire(client, MODEL "@1");
	retire(client, MODEL "@2");
	a = gb_s_of(settings->sources[0], first.copy_ms) / pinned;
	b = gb_s_of(settings->sources[1], second.copy_ms) / pinned;
	shares->least[round] = a < b ? a : b;
	shares->most[round] = a < b ? b : a;
	shares->sum[round] = a + b;
	return second;
}

static void measure_two(struct gpuwm_client *client, const struct settings *settings)
{
	static struct shares shares;
	struct job_times last = load_two(client, settings, &shares, 0);

	for (size_t round = 0; round < settings->rounds; round++)
		last = load_two(client, settings, &shares, round);
	heading("two loads at the same moment into %s, shares of the pinned ceiling; medians of %zu",
		settings->devices[0], settings->rounds);
	result_at_least(percentile(shares.least, settings->rounds, 0.5), GOAL_LEAST, "x",
			"copy of the slower one");
	result_at_most(percentile(shares.most, settings->rounds, 0.5), GOAL_MOST, "x",
		       "copy of the faster one");
	result_at_least(percentile(shares.sum, settings->rounds, 0.5), GOAL_SUM, "x", "both");
	heading("    phases of the last one, ms: %s", last.phases);
	printf("%s", last.notes);
}

static struct job_times load_to(struct gpuwm_client *client, const struct settings *settings, size_t count)
{
	struct job_times times;
	double begin;

	standby_wait(client);
	begin = now_us();
	times = load_end(client, load_begin(client, settings->sources[0], MODEL "@v", settings->devices, count),
			 begin);
	retire(client, MODEL "@v");
	return times;
}

static void measure_replicas(struct gpuwm_client *client, const struct settings *settings)
{
	double one[ROUNDS_MAX], all[ROUNDS_MAX], ready[ROUNDS_MAX], half;
	struct job_times last = load_to(client, settings, settings->device_count);

	for (size_t round = 0; round < settings->rounds; round++) {
		one[round] = load_to(client, settings, 1).copy_ms;
		last = load_to(client, settings, settings->device_count);
		all[round] = last.copy_ms;
		ready[round] = last.ready_ms;
	}
	half = percentile(one, settings->rounds, 0.5);
	heading("one load to %zu GPUs; medians of %zu, interleaved", settings->device_count, settings->rounds);
	result(half, "ms", "copy to one: %.1f GB/s", gb_s_of(settings->sources[0], half));
	result_at_most(percentile(all, settings->rounds, 0.5), GOAL_REPLICAS * half, "ms",
		       "copy to all; goal: %.1f x that to one", GOAL_REPLICAS);
	result(percentile(ready, settings->rounds, 0.5), "ms", "request to ready on all");
	heading("    phases of the last one, ms: %s", last.phases);
	printf("%s", last.notes);
}

static void usage(void)
{
	DIE("usage: together --socket SOCKET --device DEVICE... [--rounds N] [--check] SOURCE [SOURCE]");
}

static struct settings settings_read(int argc, char **argv)
{
	static const struct option options[] = {{"socket", required_argument, NULL, 's'},
						{"device", required_argument, NULL, 'd'},
						{"rounds", required_argument, NULL, 'r'},
						{"check", no_argument, NULL, 'c'},
						{0}};
	struct settings settings = {.rounds = 5};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 's')
			settings.socket = optarg;
		else if (option == 'd' && settings.device_count < DEVICES_MAX)
			settings.devices[settings.device_count++] = optarg;
		else if (option == 'r')
			settings.rounds = parse_bytes(optarg);
		else if (option == 'c')
			settings.check = true;
		else
			usage();
	}
	/* Two sources on one device, or one source on several. */
	if (settings.device_count == 0 || argc - optind != (settings.device_count == 1 ? 2 : 1) ||
	    settings.rounds > ROUNDS_MAX)
		usage();
	settings.sources[0] = argv[optind];
	settings.sources[1] = argv[argc - 1];
	return settings;
}

int main(int argc, char **argv)
{
	static struct files files;
	struct settings settings = settings_read(argc, argv);
	struct gpuwm_client *client = operator_connect(settings.socket);

	for (size_t i = 0; i < settings.device_count; i++)
		settings.devices[i] = device_id(client, settings.devices[i]);
	for (size_t i = 0; i < 2; i++) {
		files_of(settings.sources[i], &files);
		files_warm(&files, 1);
	}
	if (settings.device_count == 1)
		measure_two(client, &settings);
	else
		measure_replicas(client, &settings);
	gpuwm_close(client);
	return settings.check && results_missed() > 0;
}
