/* A worker's start: from its exec to the end of its first kernel, on weights that it attached, beside a bare
 * process that makes a context and runs the same kernel; pairs, interleaved.
 *
 *   start --socket SOCKET [--pairs N] [--label TEXT] [--check] REF
 *
 * GPUWM_KERNELS names the PTX of tests/gpu/kernels.cu; without it a word is copied back instead of a kernel.
 */
#include "bench.h"

#include "lib/driver.h"
#include "lib/flags.h"
#include "lib/operate.h"
#include "lib/report.h"

#include <spawn.h>
#include <sys/wait.h>

#define PAIRS_MAX 999
#define GOAL_MS 5.0
#define FIRST_BYTES MIB(1) /* what the first kernel reads */

extern char **environ;

/* ---- the two that are started ---- */

static int run_bare(const char *device)
{
	struct first_kernel first;
	CUdeviceptr words;

	driver_open(device);
	driver_context();
	first = driver_first_kernel_make();
	CU(driver.cuMemAlloc_v2(&words, FIRST_BYTES));
	driver_first_kernel_run(&first, words, FIRST_BYTES);
	return putchar('.') < 0 || fflush(stdout) != 0;
}

static int run_worker(const char *device, const char *socket, const char *ref)
{
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor tensor;
	struct first_kernel first;
	struct gpuwm_client *client = worker_connect(socket);

	driver_open(device);
	driver_context();
	first = driver_first_kernel_make();
	OK(gpuwm_attach(client, ref, NULL, &mapping));
	OK(gpuwm_tensor_at(mapping, 0, &tensor));
	driver_first_kernel_run(&first, (CUdeviceptr)tensor.data,
				tensor.bytes < FIRST_BYTES ? tensor.bytes : FIRST_BYTES);
	if (putchar('.') < 0 || fflush(stdout) != 0)
		return 1;
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	return 0;
}

/* ---- measuring ---- */

/* Until it has told that its kernel is done, in ms. */
static double time_start(char *const argv[])
{
	posix_spawn_file_actions_t actions;
	int ends[2], status;
	double begin, took;
	pid_t pid;
	char dot;

	if (pipe(ends) < 0)
		DIE("pipe: %s", strerror(errno));
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	posix_spawn_file_actions_addclose(&actions, ends[0]);
	begin = now_us();
	if (posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ) != 0)
		DIE("can't start %s", argv[1]);
	close(ends[1]);
	if (read(ends[0], &dot, 1) != 1)
		DIE("the %s process failed", argv[1]);
	took = now_us() - begin;
	close(ends[0]);
	posix_spawn_file_actions_destroy(&actions);
	if (waitpid(pid, &status, 0) != pid || status != 0)
		DIE("the %s process failed at its end", argv[1]);
	return took / 1000;
}

static void measure(const char *device, const char *socket, const char *ref, size_t pairs, const char *label)
{
	static double bare[PAIRS_MAX], worker[PAIRS_MAX];
	char *const bare_argv[] = {"start", "bare", (char *)device, NULL};
	char *const worker_argv[] = {"start", "worker", (char *)device, (char *)socket, (char *)ref, NULL};
	double bare_half;

	time_start(bare_argv);
	time_start(worker_argv);
	for (size_t i = 0; i < pairs; i++) {
		bare[i] = time_start(bare_argv);
		worker[i] = time_start(worker_argv);
	}
	heading("exec to the end of the first %s, %s; medians of %zu pairs, interleaved",
		driver_has_kernels() ? "kernel" : "copy (no kernels here)", label, pairs);
	bare_half = percentile(bare, pairs, 0.5);
	result(bare_half, "ms", "bare: cuInit, context, kernel");
	result_at_most(percentile(worker, pairs, 0.5), bare_half + GOAL_MS, "ms",
		       "worker: connect, cuInit, context, attach, kernel; goal: bare + %.0f", GOAL_MS);
	result(bare[pairs / 10], "ms", "bare, p10; p90 %.1f", bare[pairs * 9 / 10]);
	result(worker[pairs / 10], "ms", "worker, p10; p90 %.1f", worker[pairs * 9 / 10]);
}

/* The GPU that the version is on. */
static const char *device_of(const char *socket, const char *ref)
{
	static char device[64];
	struct gpuwm_client *client = worker_connect(socket);
	struct gpuwm_handles *handles;

	OK(gpuwm_get_handles(client, ref, NULL, &handles));
	snprintf(device, sizeof device, "%s", gpuwm_handles_version(handles)->device);
	OK(gpuwm_handles_release(handles));
	gpuwm_close(client);
	return device;
}

int main(int argc, char **argv)
{
	const char *socket = NULL, *label = "";
	size_t pairs = 30;
	bool check = false;

	if (argc == 3 && strcmp(argv[1], "bare") == 0)
		return run_bare(argv[2]);
	if (argc == 5 && strcmp(argv[1], "worker") == 0)
		return run_worker(argv[2], argv[3], argv[4]);
	const struct flag flags[] = {{"socket", .text = &socket},
				     {"pairs", .number = &pairs},
				     {"label", .text = &label},
				     {"check", .set = &check},
				     {0}};

	flags_read(argc, argv, flags);
	if (!socket || optind + 1 != argc || pairs > PAIRS_MAX)
		DIE("usage: start --socket SOCKET [--pairs N] [--label TEXT] [--check] REF");
	measure(device_of(socket, argv[optind]), socket, argv[optind], pairs, label);
	return check && results_missed() > 0;
}
