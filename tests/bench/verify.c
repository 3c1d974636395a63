/* `gpuwmctl verify` beside what reading the same memory costs at least.
 *
 *   verify --socket SOCKET [--rounds N] [--check] REF
 *
 * GPUWM_KERNELS names the PTX of tests/gpu/kernels.cu: a kernel there that only reads is the measure; without it
 * there is none, and the figures stand alone.
 */
#include "bench.h"

#include "lib/driver.h"
#include "lib/operate.h"
#include "lib/process.h"
#include "lib/report.h"

#include <getopt.h>

#define ROUNDS_MAX 99
#define READS 8
#define GOAL 0.9

struct plan {
	const char *socket, *ref;
};

/* ---- the bandwidth ---- */

/* The shortest of some launches, in ms. */
static double time_read(unsigned blocks, CUdeviceptr pairs, uint64_t count, CUdeviceptr total)
{
	void *arguments[] = {&pairs, &count, &total};
	CUfunction function = driver_kernel("read_all");
	CUevent begin, end;
	float best = 0, ms;

	CU(driver.cuEventCreate(&begin, CU_EVENT_DEFAULT));
	CU(driver.cuEventCreate(&end, CU_EVENT_DEFAULT));
	for (int i = 0; i < READS; i++) {
		CU(driver.cuEventRecord(begin, NULL));
		CU(driver.cuLaunchKernel(function, blocks, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL));
		CU(driver.cuEventRecord(end, NULL));
		CU(driver.cuEventSynchronize(end));
		CU(driver.cuEventElapsedTime(&ms, begin, end));
		best = i == 0 || ms < best ? ms : best;
	}
	return best;
}

/* In a child: GB/s of the best of some grids. */
static void run_bandwidth(void *data, void *result)
{
	const struct plan *plan = data;
	struct gpuwm_client *client = worker_connect(plan->socket);
	struct gpuwm_mapping *mapping;
	double best = 0;
	CUdeviceptr total;
	const void *base;
	uint64_t bytes;
	int sms = 0;

	OK(gpuwm_attach(client, plan->ref, NULL, &mapping));
	driver_open(gpuwm_mapping_version(mapping)->device);
	driver_context();
	CU(driver.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, driver.device));
	base = gpuwm_mapping_address(mapping, &bytes);
	CU(driver.cuMemAlloc_v2(&total, sizeof(uint64_t)));
	for (unsigned each = 4; each <= 64; each *= 2) {
		double ms = time_read(each * (unsigned)sms, (CUdeviceptr)base, bytes / 16, total);
		double gb_s = (double)bytes / 1e6 / ms;

		best = gb_s > best ? gb_s : best;
	}
	*(double *)result = best;
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
}

/* ---- the command ---- */

static double time_command(const char *ref)
{
	const char *const argv[] = {"gpuwmctl", "verify", ref, "--wait", NULL};
	double begin = now_us();

	if (command_run(argv) != 0)
		DIE("gpuwmctl verify %s failed", ref);
	return (now_us() - begin) / 1000;
}

/* The rate in the note of the last verify job, in GB/s as all rates here. */
static double noted_rate(struct gpuwm_client *client, char *text, size_t bytes)
{
	char notes[2048] = "";
	const char *unit;

	job_notes(client, "verify", notes, sizeof notes);
	snprintf(text, bytes, "%s", notes);
	unit = strstr(notes, " GiB/s");
	if (!unit)
		DIE("verify noted no rate: %s", notes);
	while (unit > notes && strchr("0123456789.", unit[-1]))
		unit--;
	return strtod(unit, NULL) * 1.073741824;
}

static void measure(struct gpuwm_client *client, const struct plan *plan, size_t rounds)
{
	static double ready[ROUNDS_MAX], kernel[ROUNDS_MAX], read[ROUNDS_MAX];
	char notes[2048];
	double bandwidth;

	for (size_t i = 0; i < rounds; i++) {
		if (driver_has_kernels())
			child_run(run_bandwidth, (void *)plan, &read[i], sizeof read[i]);
		standby_wait(client);
		ready[i] = time_command(plan->ref);
		kernel[i] = noted_rate(client, notes, sizeof notes);
	}
	heading("verify of %s; medians of %zu", plan->ref, rounds);
	bandwidth = percentile(read, rounds, 0.5);
	result(percentile(ready, rounds, 0.5), "ms", "gpuwmctl verify, whole command");
	if (driver_has_kernels()) {
		result(bandwidth, "GB/s", "a kernel that only reads the same memory");
		result_at_least(percentile(kernel, rounds, 0.5), GOAL * bandwidth, "GB/s",
				"verify, kernel time; goal: %.1f x", GOAL);
	} else {
		result(percentile(kernel, rounds, 0.5), "GB/s", "verify, as it noted");
	}
	printf("%s", notes);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"socket", required_argument, NULL, 's'},
						{"rounds", required_argument, NULL, 'r'},
						{"check", no_argument, NULL, 'c'},
						{0}};
	struct plan plan = {0};
	struct gpuwm_client *client;
	size_t rounds = 5;
	bool check = false;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 's')
			plan.socket = optarg;
		else if (option == 'r')
			rounds = parse_bytes(optarg);
		else if (option == 'c')
			check = true;
		else
			return 2;
	}
	if (!plan.socket || optind + 1 != argc || rounds > ROUNDS_MAX)
		DIE("usage: verify --socket SOCKET [--rounds N] [--check] REF");
	plan.ref = argv[optind];
	setenv("GPUWM_SOCKET", plan.socket, 1);
	client = operator_connect(plan.socket);
	measure(client, &plan, rounds);
	gpuwm_close(client);
	return check && results_missed() > 0;
}
