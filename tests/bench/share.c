/* How long it takes to share something and let go of it: a version without a name of one tensor, from its begin to the end of
 * its lease. The first share makes the context of its checker; later ones find the checker that stayed.
 *
 *   share --socket SOCKET [--device DEVICE] [--firsts N] [--rounds N] [SIZE...]
 */
#include "bench.h"

#include "lib/ceiling.h"
#include "lib/driver.h"
#include "lib/flags.h"
#include "lib/operate.h"
#include "lib/report.h"

#define FIRSTS 3
#define ROUNDS 30

static const char *const sizes[] = {"4K", "64K", "1M", "64M", NULL};

static void fill(struct gpuwm_publish *publish, const char *device)
{
	uint64_t bytes;
	void *data;

	OK(gpuwm_publish_memory(publish, 0, &data, &bytes));
	if (!is_gpu(device)) {
		memset(data, 1, bytes);
		return;
	}
#ifdef GPUWM_CUDA
	CU(driver.cuMemsetD8_v2((CUdeviceptr)data, 1, bytes));
	CU(driver.cuCtxSynchronize());
#endif
}

/* In ms. */
static double share(struct gpuwm_client *client, const char *device, uint64_t bytes)
{
	const struct gpuwm_tensor_spec spec = {.name = "tensor", .dtype = GPUWM_U8, .ndim = 1, .shape = &bytes};
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	const double begin = now_us();
	struct gpuwm_mapping *mapping;
	struct gpuwm_publish *publish;

	options.device = device;
	OK(gpuwm_publish_begin(client, &options, &spec, 1, &publish));
	fill(publish, device);
	OK(gpuwm_publish_commit_attached(publish, &mapping));
	OK(gpuwm_detach(mapping));
	return (now_us() - begin) / 1000;
}

static void measure(struct gpuwm_client *client, const char *device, const char *size, int firsts, int rounds)
{
	const uint64_t bytes = parse_bytes(size);
	double *first = calloc((size_t)firsts, sizeof(*first)), *later = calloc((size_t)rounds, sizeof(*later));

	if (!first || !later)
		DIE("out of memory");
	for (int i = 0; i < firsts; i++) {
		checkers_wait(client);
		standby_wait(client);
		first[i] = share(client, device, bytes);
	}
	for (int i = 0; i < rounds; i++)
		later[i] = share(client, device, bytes);
	result(percentile(first, (size_t)firsts, 0.5), "ms", "%s, first share and release: median of %d", size,
	       firsts);
	result(percentile(later, (size_t)rounds, 0.5), "ms", "%s, later ones: median of %d", size, rounds);
	result(percentile(later, (size_t)rounds, 0.9), "ms", "%s, later ones: p90", size);
	result(later[rounds - 1], "ms", "%s, later ones: max", size);
	free(first);
	free(later);
}

int main(int argc, char **argv)
{
	int firsts = FIRSTS, rounds = ROUNDS;
	const char *socket = NULL, *device = "cuda:0";
	struct gpuwm_client *client;
	const struct flag flags[] = {{"socket", .text = &socket},
				     {"device", .text = &device},
				     {"firsts", .count = &firsts},
				     {"rounds", .count = &rounds},
				     {0}};

	flags_read(argc, argv, flags);
	if (firsts < 1 || rounds < 1)
		DIE("usage: share --socket SOCKET [--device DEVICE] [--firsts N] [--rounds N] [SIZE...]");
	client = worker_connect(socket);
	device = device_id(client, device);
#ifdef GPUWM_CUDA
	if (is_gpu(device)) {
		driver_open(device);
		driver_context();
	}
#endif
	heading("shared on %s", device);
	for (const char *const *size = optind < argc ? (const char *const *)&argv[optind] : sizes; *size;
	     size++)
		measure(client, device, *size, firsts, rounds);
	gpuwm_close(client);
	return 0;
}
