/* A worker for the tests on a real GPU.
 *
 *   gpu-worker hold SOCKET REF share|copy   context, attach, sum all words in a kernel, print the sum,
 *                                           stay until stdin ends
 *   gpu-worker compute SOCKET REF           context, attach, sum all words in a kernel over and over until
 *                                           stdin ends; tells rounds, and how many differed from the first
 *   gpu-worker peer SOCKET REF DEVICE       the sum of all words, by a kernel on the second GPU, which reads the
 *                                           memory of DEVICE
 *   gpu-worker readonly SOCKET REF          what happens to writes into a version
 *   gpu-worker store SOCKET REF             the kernel that writes; ends with its context broken
 *   gpu-worker switch SOCKET REF1 REF2      a CUDA graph captured over REF1 sums all words; switches to REF2
 *                                           and back, launches it each time, and compares with fresh
 *                                           attachments; prints what a switch takes beside the bare calls
 *   gpu-worker kill-publish SOCKET NAME before|after   a publisher that kills itself around its commit
 *
 * GPUWM_KERNELS names the PTX file of kernels.cu.
 */
#include "gpu.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static uint64_t sum_words(CUdeviceptr words, uint64_t bytes)
{
	static CUfunction sum; /* one context a process */
	uint64_t count = bytes / 8, total = 0;
	CUdeviceptr result;
	void *arguments[] = {&words, &count, &result};

	CU(cuMemAlloc(&result, 8));
	CU(cuMemsetD8(result, 0, 8));
	if (!sum)
		sum = kernel("sum");
	CU(cuLaunchKernel(sum, 512, 1, 1, 256, 1, 1, 0, 0, arguments, 0));
	CU(cuMemcpyDtoH(&total, result, 8));
	CU(cuMemFree(result));
	return total;
}

static uint64_t sum_all(const struct gpuwm_mapping *mapping)
{
	struct gpuwm_tensor tensor;
	uint64_t total = 0;

	for (uint64_t i = 0; i < gpuwm_tensor_count(mapping); i++) {
		gpuwm_tensor_at(mapping, i, &tensor);
		if (tensor.bytes > 0)
			total += sum_words((CUdeviceptr)tensor.data, tensor.bytes);
	}
	return total;
}

static int peer(const char *socket, const char *ref, const char *device)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_client *client = connect_to(socket);
	const struct gpuwm_device *devices;
	struct gpuwm_mapping *mapping;

	context_make(1);
	/* host comes first */
	if (gpuwm_devices(client, &devices) < 3)
		DIE("there is no second GPU");
	options.device = device;
	options.peers = &devices[2].id;
	options.peer_count = 1;
	if (gpuwm_attach(client, ref, &options, &mapping) < 0)
		DIE("attach: %s", gpuwm_error()->message);
	printf("sum %016llx\n", (unsigned long long)sum_all(mapping));
	gpuwm_detach(mapping);
	gpuwm_close(client);
	return 0;
}

static int compute(const char *socket, const char *ref)
{
	struct gpuwm_client *client = connect_to(socket);
	struct pollfd in = {.fd = 0, .events = POLLIN};
	struct gpuwm_mapping *mapping;
	uint64_t first, rounds = 0, differ = 0;

	context_make(0);
	mapping = attach(client, ref);
	first = sum_all(mapping);
	printf("computing\n");
	fflush(stdout);
	while (poll(&in, 1, 0) == 0) {
		differ += sum_all(mapping) != first;
		rounds++;
	}
	printf("%llu rounds over all bytes, %llu differ\n", (unsigned long long)rounds,
	       (unsigned long long)differ);
	if (gpuwm_detach(mapping) < 0)
		DIE("detach: %s", gpuwm_error()->message);
	gpuwm_close(client);
	return differ || !rounds;
}

static int hold(const char *socket, const char *ref, bool copy)
{
	struct gpuwm_client *client = connect_to(socket);
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor tensor;
	uint64_t total = 0;
	char end;

	context_make(0);
	mapping = attach(client, ref);
	for (uint64_t i = 0; i < gpuwm_tensor_count(mapping); i++) {
		CUdeviceptr data;

		gpuwm_tensor_at(mapping, i, &tensor);
		if (tensor.bytes == 0)
			continue;
		data = (CUdeviceptr)tensor.data;
		if (copy) {
			CU(cuMemAlloc(&data, tensor.bytes));
			CU(cuMemcpyDtoD(data, (CUdeviceptr)tensor.data, tensor.bytes));
		}
		total += sum_words(data, tensor.bytes);
	}
	printf("sum %016llx\n", (unsigned long long)total);
	fflush(stdout);
	while (read(0, &end, 1) > 0)
		;
	gpuwm_detach(mapping);
	gpuwm_close(client);
	return 0;
}

static int readonly(const char *socket, const char *ref)
{
	struct gpuwm_client *client = connect_to(socket);
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor tensor;
	uint64_t before, after;
	char bytes[64] = {0};

	context_make(0);
	mapping = attach(client, ref);
	gpuwm_tensor_at(mapping, 0, &tensor);
	before = sum_words((CUdeviceptr)tensor.data, tensor.bytes);
	printf("cuMemsetD8 into the version: %s\n", result_name(cuMemsetD8((CUdeviceptr)tensor.data, 1, 64)));
	printf("cuMemcpyHtoD into the version: %s\n",
	       result_name(cuMemcpyHtoD((CUdeviceptr)tensor.data, bytes, sizeof bytes)));
	after = sum_words((CUdeviceptr)tensor.data, tensor.bytes);
	printf("the context lives on and the bytes are %s\n", before == after ? "unchanged" : "CHANGED");
	return before != after;
}

static int store(const char *socket, const char *ref)
{
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor tensor;
	CUdeviceptr word;
	void *arguments[] = {&word};

	context_make(0);
	mapping = attach(connect_to(socket), ref);
	gpuwm_tensor_at(mapping, 0, &tensor);
	word = (CUdeviceptr)tensor.data;
	CU(cuLaunchKernel(kernel("store"), 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0));
	printf("a kernel's store into the version: %s\n", result_name(cuCtxSynchronize()));
	return 0;
}

/* ---- switching --------------------------------------------------------- */

#define ROUNDS 40 /* to and fro; the medians are of these */

static int by_value(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

static double median(double *values, size_t count)
{
	qsort(values, count, sizeof *values, by_value);
	return values[count / 2];
}

static uint64_t fresh_sum(struct gpuwm_client *client, const char *ref)
{
	struct gpuwm_mapping *mapping = attach(client, ref);
	uint64_t total = sum_all(mapping);

	if (gpuwm_detach(mapping) < 0)
		DIE("detach: %s", gpuwm_error()->message);
	return total;
}

/* Every launch puts the sum of what lies in the mapping then into *total. */
static CUgraphExec capture_sum(const struct gpuwm_mapping *mapping, CUstream stream, CUdeviceptr total)
{
	CUfunction sum = kernel("sum");
	struct gpuwm_tensor tensor;
	CUgraphExec launch;
	CUgraph graph;

	CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CU(cuMemsetD8Async(total, 0, 8, stream));
	for (uint64_t i = 0; i < gpuwm_tensor_count(mapping); i++) {
		uint64_t count;
		void *arguments[] = {&tensor.data, &count, &total};

		gpuwm_tensor_at(mapping, i, &tensor);
		count = tensor.bytes / 8;
		if (count > 0)
			CU(cuLaunchKernel(sum, 512, 1, 1, 256, 1, 1, 0, stream, arguments, 0));
	}
	CU(cuStreamEndCapture(stream, &graph));
	CU(cuGraphInstantiate(&launch, graph, 0));
	CU(cuGraphDestroy(graph));
	return launch;
}

static uint64_t launch_sum(CUgraphExec graph, CUstream stream, CUdeviceptr total)
{
	uint64_t value;

	CU(cuGraphLaunch(graph, stream));
	CU(cuStreamSynchronize(stream));
	CU(cuMemcpyDtoH(&value, total, 8));
	return value;
}

static void switch_in_capture(struct gpuwm_mapping *mapping, const char *ref, CUstream stream)
{
	CUgraph graph = NULL;
	int r;

	CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	r = gpuwm_switch(mapping, ref, NULL);
	printf("a switch while a stream is captured: %s\n", r < 0 ? gpuwm_error()->name : "DONE");
	cuStreamEndCapture(stream, &graph);
	if (graph)
		cuGraphDestroy(graph);
	if (r != -EBUSY)
		DIE("a switch was not refused while a stream was captured: %d", r);
}

/* One version's segments, as somebody maps them who calls the driver himself. */
struct bare {
	struct gpuwm_handles *handles;
	CUmemGenericAllocationHandle imported[256];
	uint32_t count;
	uint64_t bytes;
};

static void bare_open(struct bare *bare, struct gpuwm_client *client, const char *ref)
{
	if (gpuwm_get_handles(client, ref, NULL, &bare->handles) < 0)
		DIE("get_handles: %s", gpuwm_error()->message);
	bare->count = gpuwm_handles_version(bare->handles)->segments;
	bare->bytes = gpuwm_handles_version(bare->handles)->bytes;
}

static void bare_import(struct bare *bare)
{
	for (uint32_t i = 0; i < bare->count; i++) {
		int fd = gpuwm_handles_segment(bare->handles, i, NULL);

		CU(cuMemImportFromShareableHandle(&bare->imported[i], (void *)(uintptr_t)fd,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	}
}

static void bare_map(const struct bare *bare, CUdeviceptr base)
{
	CUmemAccessDesc rights = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
	uint64_t done = 0, bytes;

	for (uint32_t i = 0; i < bare->count; i++) {
		gpuwm_handles_segment(bare->handles, i, &bytes);
		CU(cuMemMap(base + done, bytes, 0, bare->imported[i], 0));
		done += bytes;
	}
	CU(cuMemSetAccess(base, done, &rights, 1));
}

static void bare_release(const struct bare *bare)
{
	for (uint32_t i = 0; i < bare->count; i++)
		CU(cuMemRelease(bare->imported[i]));
}

/* What a switch can't do without: the other version in, unmapped, mapped, accessible, the old one out. */
static double bare_switch(const struct bare *now, struct bare *next, CUdeviceptr base)
{
	double began = now_ms();

	bare_import(next);
	CU(cuCtxSynchronize());
	CU(cuMemUnmap(base, now->bytes));
	bare_map(next, base);
	bare_release(now);
	return now_ms() - began;
}

static double round_trip(struct gpuwm_client *client)
{
	double began = now_ms();

	if (gpuwm_ping(client, NULL) < 0)
		DIE("ping: %s", gpuwm_error()->message);
	return now_ms() - began;
}

static int switch_versions(const char *socket, const char *first, const char *second)
{
	struct gpuwm_client *client = connect_to(socket);
	static double ours[ROUNDS], bares[ROUNDS], trips[ROUNDS];
	const char *const refs[] = {first, second};
	struct gpuwm_mapping *mapping;
	struct bare bare[2];
	uint64_t sums[2], wrong = 0;
	CUdeviceptr total, base;
	CUgraphExec graph;
	CUstream stream;

	context_make(0);
	sums[0] = fresh_sum(client, first);
	sums[1] = fresh_sum(client, second);
	CU(cuMemAlloc(&total, 8));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	mapping = attach(client, first);
	graph = capture_sum(mapping, stream, total);
	switch_in_capture(mapping, second, stream);
	wrong += launch_sum(graph, stream, total) != sums[0];
	for (int i = 0; i < 2; i++)
		bare_open(&bare[i], client, refs[i]);
	CU(cuMemAddressReserve(&base, bare[0].bytes, 0, 0, 0));
	bare_import(&bare[0]);
	bare_map(&bare[0], base);
	for (int i = 0; i < ROUNDS; i++) {
		int to = (i + 1) % 2;
		double began;

		trips[i] = round_trip(client);
		bares[i] = bare_switch(&bare[i % 2], &bare[to], base);
		began = now_ms();
		if (gpuwm_switch(mapping, refs[to], NULL) < 0)
			DIE("switch: %s", gpuwm_error()->message);
		ours[i] = now_ms() - began;
		wrong += launch_sum(graph, stream, total) != sums[to];
	}
	printf("%d switches of %.1f GiB in %u segments: the captured graph gave %s\n", ROUNDS,
	       (double)bare[0].bytes / (1 << 30), bare[0].count,
	       wrong ? "WRONG SUMS" : "the sum of a fresh attachment each time");
	printf("switch %.3f ms, bare calls %.3f ms, one round trip %.3f ms (medians): %.2f x of bare and two round "
	       "trips\n",
	       median(ours, ROUNDS), median(bares, ROUNDS), median(trips, ROUNDS),
	       median(ours, ROUNDS) / (median(bares, ROUNDS) + 2 * median(trips, ROUNDS)));
	if (sums[0] == sums[1])
		DIE("both versions have the same sum: this shows nothing");
	if (gpuwm_detach(mapping) < 0)
		DIE("detach: %s", gpuwm_error()->message);
	return wrong > 0;
}

static int kill_publish(const char *socket, const char *name, bool after)
{
	struct gpuwm_client *client = connect_to(socket);
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	struct gpuwm_tensor_spec spec = {.name = "t", .dtype = GPUWM_U8, .ndim = 1};
	const struct gpuwm_device *devices;
	struct gpuwm_publish *publish;
	struct gpuwm_version_info version;
	uint64_t shape = 1ull << 30;

	if (gpuwm_devices(client, &devices) < 2)
		DIE("no GPU");
	options.name = name;
	options.device = devices[1].id;
	spec.shape = &shape;
	if (gpuwm_publish_begin(client, &options, &spec, 1, &publish) < 0)
		DIE("publish: %s", gpuwm_error()->message);
	if (after && gpuwm_publish_commit(publish, &version) < 0)
		DIE("commit: %s", gpuwm_error()->message);
	raise(SIGKILL);
	return 1;
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "hold"))
		return hold(argv[2], argv[3], !strcmp(argv[4], "copy"));
	if (argc == 4 && !strcmp(argv[1], "compute"))
		return compute(argv[2], argv[3]);
	if (argc == 5 && !strcmp(argv[1], "peer"))
		return peer(argv[2], argv[3], argv[4]);
	if (argc == 4 && !strcmp(argv[1], "readonly"))
		return readonly(argv[2], argv[3]);
	if (argc == 4 && !strcmp(argv[1], "store"))
		return store(argv[2], argv[3]);
	if (argc == 5 && !strcmp(argv[1], "switch"))
		return switch_versions(argv[2], argv[3], argv[4]);
	if (argc == 5 && !strcmp(argv[1], "kill-publish"))
		return kill_publish(argv[2], argv[3], !strcmp(argv[4], "after"));
	DIE("usage: see the head of gpu-worker.c");
}
