/* Attaching through the library beside bare driver calls (mmap on host) on the
 * same descriptors, interleaved.
 *
 *   attach --socket SOCKET REF                    a version that is there
 *   attach --socket SOCKET --publish SIZE         one of its own, on the first GPU or on host:
 *          [--tensors N] [--device ID]            published, measured, retired
 *   [--rounds N] [--check]                        --check: exit 1 where the goal is missed
 */
#include "bench.h"

#include "lib/bare.h"
#include "lib/flags.h"
#include "lib/operate.h"
#include "lib/publish.h"
#include "lib/report.h"

#define MODEL "bench-attach"
#define GOAL 1.25

struct settings {
	const char *socket, *ref, *device;
	uint64_t publish_bytes, tensors;
	int rounds;
	bool check;
};

struct times {
	double *attach, *detach, *map, *unmap, *trip;
};

static uint8_t buffer[PACKET_BYTES_MAX + 1];

/* Returns its name. */
static const char *publish(struct gpuwm_client *client, const struct settings *settings)
{
	const struct gpuwm_device *devices;
	size_t count = gpuwm_devices(client, &devices);
	struct filling filling = {
		.name = MODEL "@filled",
		.device = settings->device ? settings->device : devices[count > 1 ? 1 : 0].id,
		.bytes = settings->publish_bytes,
		.tensors = settings->tensors,
		.byte = 1,
	};

	publish_filled(client, &filling);
	return filling.name;
}

/* The bare round trip that an attach can't be without. */
static double time_round_trip(int sock, const struct request *get)
{
	struct packet packet = {.data = buffer};
	struct request give;
	double start = now_us(), took;

	round_trip(sock, get, &packet);
	took = now_us() - start;
	request_release(answer_u64(&packet, "lease"), &give);
	packet_drop(&packet);
	round_trip(sock, &give, &packet);
	return took;
}

static void measure(struct gpuwm_client *client, const struct settings *settings, const char *ref,
		    struct times *times, struct gpuwm_version_info *ret_version)
{
	struct bare_part part;
	struct packet packet = {.data = buffer};
	struct gpuwm_mapping *mapping;
	struct gpuwm_handles *handles;
	struct request get;
	int sock = connect_and_greet(settings->socket, &packet);

	request_get_handles(ref, &get);
	OK(gpuwm_get_handles(client, ref, NULL, &handles));
	*ret_version = *gpuwm_handles_version(handles);
	part = bare_part_of(handles);
	bare_open(ret_version->device);
	/* One round to warm up. */
	for (int i = -1; i < settings->rounds; i++) {
		int at = i < 0 ? 0 : i;
		double start = now_us();

		OK(gpuwm_attach(client, ref, NULL, &mapping));
		times->attach[at] = now_us() - start;
		start = now_us();
		OK(gpuwm_detach(mapping));
		times->detach[at] = now_us() - start;
		start = now_us();
		bare_map(&part);
		times->map[at] = now_us() - start;
		start = now_us();
		bare_unmap(&part);
		times->unmap[at] = now_us() - start;
		times->trip[at] = time_round_trip(sock, &get);
	}
	OK(gpuwm_handles_release(handles));
	close(sock);
}

static void report(const struct settings *settings, struct times *times,
		   const struct gpuwm_version_info *version)
{
	size_t n = (size_t)settings->rounds;
	double attach = percentile(times->attach, n, 0.5), map = percentile(times->map, n, 0.5);
	double trip = percentile(times->trip, n, 0.5);

	heading("attach of %.2f GiB on %s, %llu tensors in %u segments; medians of %d, interleaved",
		(double)version->bytes / (double)GIB(1), version->device, (unsigned long long)version->tensors,
		version->segments, settings->rounds);
	result(map, "us", "bare import, map and access of the same descriptors");
	result(trip, "us", "get_handles round trip");
	/* The goal is the driver's: on host a map takes 3 us and is no measure. */
	if (bare_is_cuda())
		result_at_most(attach, GOAL * map + trip, "us", "gpuwm_attach; goal: %.2f x bare + round trip",
			       GOAL);
	else
		result(attach, "us", "gpuwm_attach");
	result(percentile(times->unmap, n, 0.5), "us", "bare unmap and release");
	result(percentile(times->detach, n, 0.5), "us", "gpuwm_detach");
}

static struct settings settings_read(int argc, char **argv)
{
	struct settings settings = {.tensors = 1000, .rounds = 50};
	const struct flag flags[] = {{"socket", .text = &settings.socket},
				     {"publish", .number = &settings.publish_bytes},
				     {"tensors", .number = &settings.tensors},
				     {"device", .text = &settings.device},
				     {"rounds", .count = &settings.rounds},
				     {"check", .set = &settings.check},
				     {0}};

	flags_read(argc, argv, flags);
	settings.ref = argv[optind];
	if (!settings.socket || !settings.ref == !settings.publish_bytes)
		DIE("usage: attach --socket SOCKET (REF | --publish SIZE [--tensors N] [--device ID]) [--rounds N] [--check]");
	return settings;
}

int main(int argc, char **argv)
{
	struct settings settings = settings_read(argc, argv);
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_version_info version;
	struct gpuwm_client *client;
	struct times times;
	double *values = calloc((size_t)settings.rounds * 5, sizeof(*values));
	const char *ref = settings.ref;

	options.socket = settings.socket;
	OK(gpuwm_connect(&options, &client));
	if (!ref)
		ref = publish(client, &settings);
	times = (struct times){values, values + settings.rounds, values + 2 * settings.rounds,
			       values + 3 * settings.rounds, values + 4 * settings.rounds};
	measure(client, &settings, ref, &times, &version);
	report(&settings, &times, &version);
	if (!settings.ref) {
		struct gpuwm_client *operator= operator_connect(settings.socket);

		retire(operator, ref);
		gpuwm_close(operator);
	}
	gpuwm_close(client);
	free(values);
	return settings.check && results_missed() > 0;
}
