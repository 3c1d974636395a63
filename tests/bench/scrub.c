/* A worker that serves, with gpuwmd's scrub beside it and without, in turns: how long each of its kernels takes.
 *
 *   scrub --socket SOCKET --config FILE [--seconds N] [--rounds N] REF
 *
 * FILE is the configuration that gpuwmd was started with: this program writes it, and tells gpuwmd by SIGHUP.
 * GPUWM_KERNELS names the PTX of tests/gpu/kernels.cu.
 */
#include "bench.h"

#include "lib/driver.h"
#include "lib/flags.h"
#include "lib/operate.h"
#include "lib/report.h"

#include <signal.h>

#define SAMPLES_MAX 4000000
#define ROUNDS_MAX 9
/* What one kernel of the worker reads: a layer's worth, some 30 us. */
#define STEP_BYTES MIB(64)
#define PATIENCE_US 60e6

struct served {
	float *us;
	size_t count;
};

struct worker {
	struct gpuwm_mapping *mapping;
	CUdeviceptr base, total;
	CUfunction sum;
	CUstream stream;
	uint64_t steps, next;
};

static void worker_open(struct worker *worker, const char *socket, const char *ref)
{
	uint64_t bytes;

	OK(gpuwm_attach(worker_connect(socket), ref, NULL, &worker->mapping));
	driver_open(gpuwm_mapping_version(worker->mapping)->device);
	driver_context();
	worker->base = (CUdeviceptr)gpuwm_mapping_address(worker->mapping, &bytes);
	worker->steps = bytes / STEP_BYTES;
	CU(driver.cuMemAlloc_v2(&worker->total, sizeof(uint64_t)));
	CU(driver.cuStreamCreate(&worker->stream, CU_STREAM_NON_BLOCKING));
	if (driver_has_kernels())
		worker->sum = driver_kernel("sum");
	if (worker->steps == 0)
		DIE("%s is smaller than one step", ref);
}

/* One request: a kernel over the next part of the weights. */
static void serve(struct worker *worker)
{
	CUdeviceptr words = worker->base + worker->next++ % worker->steps * STEP_BYTES;
	uint64_t count = STEP_BYTES / 8, word;
	void *arguments[] = {&words, &count, &worker->total};

	if (worker->sum) {
		CU(driver.cuLaunchKernel(worker->sum, 512, 1, 1, 256, 1, 1, 0, worker->stream, arguments,
					 NULL));
		CU(driver.cuStreamSynchronize(worker->stream));
	} else {
		CU(driver.cuMemcpyDtoH_v2(&word, words, sizeof word));
	}
}

static void serve_for(struct worker *worker, double seconds, struct served *ret)
{
	double end = now_us() + seconds * 1e6, begin = now_us(), now;

	while ((now = now_us()) < end && ret->count < SAMPLES_MAX) {
		begin = now;
		serve(worker);
		ret->us[ret->count++] = (float)(now_us() - begin);
	}
}

static void configure(struct gpuwm_client *client, const char *path, unsigned interval)
{
	FILE *file = fopen(path, "we");

	if (!file || fprintf(file, "[scrub]\ninterval = %u\n", interval) < 0 || fclose(file) != 0)
		DIE("%s: %s", path, strerror(errno));
	if (kill(gpuwmd_pid(client), SIGHUP) < 0)
		DIE("SIGHUP to gpuwmd: %s", strerror(errno));
}

/* Off: no pass is running any more. */
static void scrub_stop(struct gpuwm_client *client, const char *path)
{
	double begin = now_us();

	configure(client, path, 0);
	while (scrub_of(client).running) {
		if (now_us() - begin > PATIENCE_US)
			DIE("the scrub does not stop");
		usleep(10000);
	}
}

static int compare_floats(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return x < y ? -1 : x > y;
}

static void tell(struct served *served, const char *what)
{
	qsort(served->us, served->count, sizeof *served->us, compare_floats);
	result(served->us[served->count / 2], "us", "%s: p50 of %zu kernels", what, served->count);
	result(served->us[(size_t)((double)served->count * 0.99)], "us", "%s: p99", what);
	result(served->us[(size_t)((double)served->count * 0.9999)], "us", "%s: p99.99", what);
	result(served->us[served->count - 1], "us", "%s: longest", what);
}

static void measure(const char *socket, const char *config, const char *ref, double seconds, size_t rounds)
{
	struct gpuwm_client *client = operator_connect(socket);
	struct served without = {malloc(SAMPLES_MAX * sizeof(float)), 0};
	struct served with = {malloc(SAMPLES_MAX * sizeof(float)), 0};
	struct worker worker = {0};
	uint64_t before = scrub_of(client).passes;

	if (!without.us || !with.us)
		DIE("out of memory");
	worker_open(&worker, socket, ref);
	for (int i = 0; i < 100; i++)
		serve(&worker);
	for (size_t i = 0; i < rounds; i++) {
		scrub_stop(client, config);
		serve_for(&worker, seconds, &without);
		configure(client, config, 1);
		serve_for(&worker, seconds, &with);
	}
	scrub_stop(client, config);
	heading("a worker whose kernels read 64 MiB of %s each, %zu x %.0f s without and with the scrub, in turns",
		ref, rounds, seconds);
	tell(&without, "without the scrub");
	tell(&with, "with passes one second apart");
	result((double)(scrub_of(client).passes - before), "", "passes meanwhile");
	OK(gpuwm_detach(worker.mapping));
	gpuwm_close(client);
}

int main(int argc, char **argv)
{
	const char *socket = NULL, *config = NULL;
	uint64_t seconds = 10, rounds = 3;
	const struct flag flags[] = {{"socket", .text = &socket},
				     {"config", .text = &config},
				     {"seconds", .number = &seconds},
				     {"rounds", .number = &rounds},
				     {0}};

	flags_read(argc, argv, flags);
	if (!socket || !config || optind + 1 != argc || rounds > ROUNDS_MAX)
		DIE("usage: scrub --socket SOCKET --config FILE [--seconds N] [--rounds N] REF");
	measure(socket, config, argv[optind], (double)seconds, rounds);
	return 0;
}
