/* What reading a version in host memory costs a worker that has just attached, with and without
 * gpuwm_attach_options.populate, interleaved.
 *
 *   pages --socket SOCKET [--rounds N] MODEL@TAG
 *
 * Medians of rounds in ms. Whether the memory lies in huge pages is the kernel's doing:
 * /sys/kernel/mm/transparent_hugepage/shmem_enabled, when the version was made.
 */
#include "bench.h"

#include "lib/flags.h"
#include "lib/operate.h"
#include "lib/report.h"

#define ROUNDS_MAX 999

static double times[2][3][ROUNDS_MAX]; /* plain or populated: attaching, reading all, detaching */
static volatile uint64_t sink;

/* A word of each cache line of all tensors. */
static void read_all(const struct gpuwm_mapping *mapping)
{
	struct gpuwm_tensor tensor;
	uint64_t sum = 0;

	for (uint64_t i = 0; gpuwm_tensor_at(mapping, i, &tensor) == 0; i++) {
		const uint64_t *words = tensor.data;

		for (uint64_t w = 0; w < tensor.bytes / 8; w += 8)
			sum += words[w];
	}
	sink = sum;
}

static void live(struct gpuwm_client *client, const char *ref, bool populate, size_t round)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;
	double marks[4];

	options.device = "host";
	options.populate = populate;
	marks[0] = now_us();
	OK(gpuwm_attach(client, ref, &options, &mapping));
	marks[1] = now_us();
	read_all(mapping);
	marks[2] = now_us();
	OK(gpuwm_detach(mapping));
	marks[3] = now_us();
	for (int i = 0; i < 3; i++)
		times[populate][i][round] = (marks[i + 1] - marks[i]) / 1000;
}

static void tell(const char *name, double (*of)[ROUNDS_MAX], size_t rounds)
{
	static const char *const what[] = {"attach", "first read of all bytes", "detach"};

	for (int i = 0; i < 3; i++)
		result(percentile(of[i], rounds, 0.5), "ms", "%s: %s", name, what[i]);
}

int main(int argc, char **argv)
{
	const char *socket = NULL;
	struct gpuwm_client *client;
	size_t rounds = 21;
	const struct flag flags[] = {{"socket", .text = &socket}, {"rounds", .number = &rounds}, {0}};

	flags_read(argc, argv, flags);
	if (optind + 1 != argc || rounds > ROUNDS_MAX)
		DIE("usage: pages --socket SOCKET [--rounds N] MODEL@TAG");
	client = worker_connect(socket);
	for (size_t i = 0; i < rounds; i++) {
		live(client, argv[optind], false, i);
		live(client, argv[optind], true, i);
	}
	tell("plain", times[false], rounds);
	tell("populated", times[true], rounds);
	gpuwm_close(client);
	return 0;
}
