/* Whether `gpuwmctl verify` finds one bit that changed, at random places, each by itself: this program maps the
 * version for writing, as no worker does through the library, flips the bit and puts it back afterwards.
 *
 *   flip --socket SOCKET [--places N] [--seed N] REF
 *
 * The version is tainted from the first one on: make one for this.
 */
#include "bench.h"

#include "lib/bare.h"
#include "lib/driver.h"
#include "lib/flags.h"
#include "lib/operate.h"
#include "lib/process.h"
#include "lib/report.h"

static CUdeviceptr map_for_writing(struct bare_part *part)
{
	CUmemAccessDesc rights = driver_access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

	bare_map(part);
	CU(driver.cuMemSetAccess(part->addresses[0], bare_bytes(part), &rights, 1));
	return part->addresses[0];
}

static void flip(CUdeviceptr base, uint64_t bit)
{
	unsigned char byte;

	CU(driver.cuMemcpyDtoH_v2(&byte, base + bit / 8, 1));
	byte = (unsigned char)(byte ^ 1u << bit % 8);
	CU(driver.cuMemsetD8_v2(base + bit / 8, byte, 1));
	CU(driver.cuCtxSynchronize());
}

/* True: it found nothing. */
static bool verified(const char *ref)
{
	const char *const argv[] = {"gpuwmctl", "verify", ref, "--wait", NULL};

	return command_run(argv) == 0;
}

static void measure(struct gpuwm_client *client, const char *ref, unsigned places, unsigned seed)
{
	struct gpuwm_handles *handles;
	struct bare_part part;
	unsigned found = 0;
	CUdeviceptr base;

	OK(gpuwm_get_handles(client, ref, NULL, &handles));
	part = bare_part_of(handles);
	bare_open(gpuwm_handles_version(handles)->device);
	base = map_for_writing(&part);
	if (!verified(ref))
		DIE("%s does not verify before anything was changed", ref);
	srandom(seed);
	for (unsigned i = 0; i < places; i++) {
		uint64_t bit = ((uint64_t)random() << 31 | (uint64_t)random()) % (bare_bytes(&part) * 8);

		flip(base, bit);
		found += !verified(ref);
		flip(base, bit);
	}
	result_at_least(found, places, "", "single flipped bits of %.2f GiB that verify found, of %u (seed %u)",
			(double)bare_bytes(&part) / (double)GIB(1), places, seed);
	OK(gpuwm_handles_release(handles));
	printf("    with all bits back it verifies: %s\n", verified(ref) ? "yes" : "NO");
}

int main(int argc, char **argv)
{
	const char *socket = NULL;
	uint64_t places = 100, seed = (uint64_t)time(NULL);
	struct gpuwm_client *client;
	const struct flag flags[] = {
		{"socket", .text = &socket}, {"places", .number = &places}, {"seed", .number = &seed}, {0}};

	flags_read(argc, argv, flags);
	if (!socket || optind + 1 != argc)
		DIE("usage: flip --socket SOCKET [--places N] [--seed N] REF");
	setenv("GPUWM_SOCKET", socket, 1);
	client = worker_connect(socket);
	measure(client, argv[optind], (unsigned)places, (unsigned)seed);
	gpuwm_close(client);
	return results_missed() > 0;
}
