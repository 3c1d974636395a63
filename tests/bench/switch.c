/* gpuwm_switch from one version to another and back, beside the bare calls on the same segments, interleaved; and
 * a CUDA graph, captured before, that reads the new bytes afterwards.
 *
 *   switch --socket SOCKET [--rounds N] [--check] REF OTHER
 *
 * Two versions of one layout and different bytes, each the same byte all over (publish makes such). GPUWM_KERNELS
 * names the PTX of tests/gpu/kernels.cu; without it a word is read back instead of the graph's sum.
 */
#include "bench.h"

#include "lib/bare.h"
#include "lib/driver.h"
#include "lib/flags.h"
#include "lib/operate.h"
#include "lib/report.h"

#define ROUNDS_MAX 999
#define GOAL_MS 2.5
#define GOAL 1.25

/* Sums the first tensor. */
struct graph {
	CUgraphExec exec;
	CUstream stream;
	CUdeviceptr words, total;
	uint64_t count;
};

struct times {
	double switched[ROUNDS_MAX], bare[ROUNDS_MAX], trip[ROUNDS_MAX];
};

/* ---- the graph ---- */

static void capture(struct graph *graph)
{
	void *arguments[] = {&graph->words, &graph->count, &graph->total};
	CUfunction sum = driver_kernel("sum");
	CUgraph captured;

	CU(driver.cuMemAlloc_v2(&graph->total, sizeof(uint64_t)));
	CU(driver.cuStreamCreate(&graph->stream, CU_STREAM_NON_BLOCKING));
	CU(driver.cuStreamBeginCapture_v2(graph->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CU(driver.cuLaunchKernel(sum, 512, 1, 1, 256, 1, 1, 0, graph->stream, arguments, NULL));
	CU(driver.cuStreamEndCapture(graph->stream, &captured));
	CU(driver.cuGraphInstantiateWithFlags(&graph->exec, captured, 0));
}

static uint64_t run_graph(const struct graph *graph)
{
	uint64_t total;

	CU(driver.cuMemsetD8_v2(graph->total, 0, sizeof total));
	CU(driver.cuGraphLaunch(graph->exec, graph->stream));
	CU(driver.cuStreamSynchronize(graph->stream));
	CU(driver.cuMemcpyDtoH_v2(&total, graph->total, sizeof total));
	return total;
}

/* What every word of a version is. */
static uint64_t word_of(struct gpuwm_client *client, const char *ref)
{
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor tensor;
	uint64_t word;

	OK(gpuwm_attach(client, ref, NULL, &mapping));
	OK(gpuwm_tensor_at(mapping, 0, &tensor));
	OK(gpuwm_tensor_read(mapping, &tensor, 0, &word, sizeof word));
	OK(gpuwm_detach(mapping));
	return word;
}

static void must_read(const struct graph *graph, uint64_t word)
{
	uint64_t found;

	CU(driver.cuMemcpyDtoH_v2(&found, graph->words, sizeof found));
	if (found != word)
		DIE("the pointer reads %016llx, the version holds %016llx", (unsigned long long)found,
		    (unsigned long long)word);
	if (graph->exec && run_graph(graph) != word * graph->count)
		DIE("the captured graph does not read the new version");
}

/* ---- the bare calls ---- */

/* Device idle, the old segments unmapped, the new ones in their place, one call for the access. */
static void bare_switch(struct bare_part *old, struct bare_part *new)
{
	CUmemAccessDesc rights = driver_access(CU_MEM_ACCESS_FLAGS_PROT_READ);

	CU(driver.cuCtxSynchronize());
	for (size_t i = 0; i < old->count; i++) {
		CUmemGenericAllocationHandle handle;

		CU(driver.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t) new->segments[i].fd,
							 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
		new->segments[i].handle = handle;
		new->addresses[i] = old->addresses[i];
		CU(driver.cuMemUnmap(old->addresses[i], old->segments[i].bytes));
		CU(driver.cuMemMap(new->addresses[i], new->segments[i].bytes, 0, handle, 0));
	}
	CU(driver.cuMemSetAccess(new->addresses[0], bare_bytes(new), &rights, 1));
	for (size_t i = 0; i < old->count; i++)
		CU(driver.cuMemRelease(old->segments[i].handle));
}

static double time_round_trip(const char *socket, const char *ref)
{
	static uint8_t buffer[PACKET_BYTES_MAX + 1];
	struct packet packet = {.data = buffer};
	int sock = connect_and_greet(socket, &packet);
	struct request get;
	double begin, took;

	request_get_handles(ref, &get);
	begin = now_us();
	round_trip(sock, &get, &packet);
	took = now_us() - begin;
	packet_drop(&packet);
	close(sock);
	return took / 1000;
}

static void measure(struct gpuwm_client *client, const char *socket, char **refs, size_t rounds,
		    struct times *times)
{
	uint64_t words[2] = {word_of(client, refs[0]), word_of(client, refs[1])};
	struct gpuwm_handles *handles[2];
	struct gpuwm_mapping *mapping;
	struct bare_part parts[2];
	struct gpuwm_tensor tensor;
	struct graph graph = {0};

	if (words[0] == words[1])
		DIE("%s and %s hold the same bytes", refs[0], refs[1]);
	for (int i = 0; i < 2; i++) {
		OK(gpuwm_get_handles(client, refs[i], NULL, &handles[i]));
		parts[i] = bare_part_of(handles[i]);
	}
	bare_map(&parts[0]);
	OK(gpuwm_attach(client, refs[0], NULL, &mapping));
	OK(gpuwm_tensor_at(mapping, 0, &tensor));
	graph.words = (CUdeviceptr)tensor.data;
	graph.count = tensor.bytes / sizeof(uint64_t);
	if (driver_has_kernels())
		capture(&graph);
	must_read(&graph, words[0]);
	for (size_t i = 0; i < rounds; i++) {
		size_t next = (i + 1) % 2;
		double begin = now_us();

		OK(gpuwm_switch(mapping, refs[next], NULL));
		times->switched[i] = (now_us() - begin) / 1000;
		must_read(&graph, words[next]);
		begin = now_us();
		bare_switch(&parts[i % 2], &parts[next]);
		times->bare[i] = (now_us() - begin) / 1000;
		times->trip[i] = time_round_trip(socket, refs[next]);
	}
	bare_unmap(&parts[rounds % 2]);
	OK(gpuwm_detach(mapping));
	OK(gpuwm_handles_release(handles[0]));
	OK(gpuwm_handles_release(handles[1]));
}

static void report(struct gpuwm_client *client, char **refs, size_t rounds, struct times *times)
{
	double bare = percentile(times->bare, rounds, 0.5);
	double limit = GOAL * bare > GOAL_MS ? GOAL * bare : GOAL_MS;
	struct gpuwm_handles *handles;

	OK(gpuwm_get_handles(client, refs[0], NULL, &handles));
	heading("switch of %.2f GiB in %u segments, there and back; medians of %zu, interleaved",
		(double)gpuwm_handles_version(handles)->bytes / (double)GIB(1),
		gpuwm_handles_version(handles)->segments, rounds);
	OK(gpuwm_handles_release(handles));
	result(bare, "ms", "bare: idle, import, unmap, map, access, release of the same segments");
	result(percentile(times->trip, rounds, 0.5), "ms", "get_handles round trip");
	result_at_most(percentile(times->switched, rounds, 0.5), limit, "ms",
		       "gpuwm_switch; goal: %.1f ms or %.2f x bare", GOAL_MS, GOAL);
	result(times->switched[rounds - 1], "ms", "gpuwm_switch, longest");
	heading("    each of %zu times the same pointer%s read the new version's bytes", rounds,
		driver_has_kernels() ? " and the CUDA graph captured before" : " (no kernels here, no graph)");
}

int main(int argc, char **argv)
{
	static struct times times;
	const char *socket = NULL;
	struct gpuwm_client *client;
	struct gpuwm_handles *handles;
	size_t rounds = 50;
	bool check = false;
	const struct flag flags[] = {
		{"socket", .text = &socket}, {"rounds", .number = &rounds}, {"check", .set = &check}, {0}};

	flags_read(argc, argv, flags);
	if (!socket || optind + 2 != argc || rounds > ROUNDS_MAX)
		DIE("usage: switch --socket SOCKET [--rounds N] [--check] REF OTHER");
	client = worker_connect(socket);
	OK(gpuwm_get_handles(client, argv[optind], NULL, &handles));
	bare_open(gpuwm_handles_version(handles)->device);
	OK(gpuwm_handles_release(handles));
	measure(client, socket, argv + optind, rounds, &times);
	report(client, argv + optind, rounds, &times);
	gpuwm_close(client);
	return check && results_missed() > 0;
}
