/* Exports on a real GPU.
 *
 *   gpu-exports SOCKET REF   lets the last export go behind a kernel of one second, and in captures that were told and that
 *                            were not; tells when the lease ends, and what is left of each capture
 *
 * GPUWM_KERNELS names the PTX file of kernels.cu.
 */
#include "gpu.h"

#include <gpuwm/dlpack.h>

#include <poll.h>
#include <pthread.h>
#include <string.h>

#define SPIN_NS 1000000000ull

static struct gpuwm_client *client;
static CUcontext context;
static CUfunction spin, sum;
static CUstream stream;
static CUdeviceptr total;
static int wrong;

static void expect(bool holds, const char *what)
{
	printf("  %s: %s\n", holds ? "as it should be" : "WRONG", what);
	wrong += !holds;
}

static void gpu_open(void)
{
	context = context_make(0);
	spin = kernel("spin");
	sum = kernel("sum");
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc(&total, 8));
}

/* A handle that was given up, and the largest tensor of it. */
static struct DLManagedTensor *export_largest(const char *ref, uint64_t *ret_bytes)
{
	struct gpuwm_tensor tensor, largest = {0};
	struct DLManagedTensor *export;
	struct gpuwm_mapping *mapping = attach(client, ref);

	for (uint64_t i = 0; gpuwm_tensor_at(mapping, i, &tensor) == 0; i++)
		largest = tensor.bytes > largest.bytes ? tensor : largest;
	if (gpuwm_dlpack(mapping, &largest, &export) < 0)
		DIE("export: %s", gpuwm_error()->message);
	gpuwm_drop(mapping);
	*ret_bytes = largest.bytes;
	return export;
}

static int leases(void)
{
	char *json, *at;
	int count;

	if (gpuwm_query(client, "status", NULL, &json) < 0)
		DIE("status: %s", gpuwm_error()->message);
	at = strstr(json, "\"leases\":");
	count = at ? atoi(at + strlen("\"leases\":")) : -1;
	free(json);
	return count;
}

static bool lease_ends(double within_ms)
{
	double deadline = now_ms() + within_ms;

	while (leases() > 0 && now_ms() < deadline)
		poll(NULL, 0, 1);
	return leases() == 0;
}

static void queue_sum(const struct DLManagedTensor *export, uint64_t bytes)
{
	uint64_t count = bytes / 8;
	void *arguments[] = {(void *)&export->dl_tensor.data, &count, &total};

	CU(cuMemsetD8Async(total, 0, 8, stream));
	CU(cuLaunchKernel(sum, 512, 1, 1, 256, 1, 1, 0, stream, arguments, 0));
}

static uint64_t sum_found(void)
{
	uint64_t value;

	CU(cuStreamSynchronize(stream));
	CU(cuMemcpyDtoH(&value, total, 8));
	return value;
}

static void queue_spin(void)
{
	uint64_t ns = SPIN_NS;
	void *arguments[] = {&ns};

	CU(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0));
}

static void behind_a_kernel(const char *ref)
{
	struct DLManagedTensor *export;
	uint64_t bytes, expected;
	double began, took;

	printf("the last export goes behind a kernel of one second\n");
	export = export_largest(ref, &bytes);
	queue_sum(export, bytes);
	expected = sum_found();
	queue_spin();
	queue_sum(export, bytes);
	began = now_ms();
	export->deleter(export);
	took = now_ms() - began;
	printf("  the deleter took %.3f ms\n", took);
	expect(took < 1, "the deleter waits for nothing");
	poll(NULL, 0, 500);
	expect(leases() == 1, "the lease is there half a second later");
	expect(sum_found() == expected, "what was queued behind it read the right bytes");
	expect(lease_ends(2000), "the lease ends with the work");
}

static CUresult capture(const char *ref, CUstreamCaptureMode mode, bool told)
{
	struct DLManagedTensor *export;
	CUgraph graph = NULL;
	CUresult result;
	uint64_t bytes;

	export = export_largest(ref, &bytes);
	if (told)
		gpuwm_capture_begin();
	CU(cuStreamBeginCapture(stream, mode));
	export->deleter(export);
	poll(NULL, 0, 300);
	expect(leases() == 1, "the lease is there in the capture");
	result = cuStreamEndCapture(stream, &graph);
	if (graph)
		cuGraphDestroy(graph);
	if (told)
		gpuwm_capture_end();
	expect(lease_ends(2000), "the lease ends after it");
	return result;
}

static void in_captures(const char *ref)
{
	static const char *const names[] = {"global", "thread-local", "relaxed"};

	for (int mode = 0; mode < 3; mode++) {
		printf("the last export goes in a %s capture that was told\n", names[mode]);
		expect(capture(ref, (CUstreamCaptureMode)mode, true) == CUDA_SUCCESS, "the capture is whole");
		printf("... and in one that was not\n");
		printf("  its end: %s\n", result_name(capture(ref, (CUstreamCaptureMode)mode, false)));
	}
}

/* What another way to wait for a context would be worth: cuMemFree "may" do it, and is allowed to relaxed threads. */
static void *free_memory(void *unused)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr memory;
	double began;

	(void)unused;
	CU(cuCtxSetCurrent(context));
	CU(cuThreadExchangeStreamCaptureMode(&mode));
	CU(cuMemAlloc(&memory, 1 << 20));
	began = now_ms();
	CU(cuMemFree(memory));
	printf("  cuMemFree took %.1f ms\n", now_ms() - began);
	return NULL;
}

static void for_the_record(void)
{
	CUstream captured;
	CUgraph graph = NULL;
	pthread_t thread;

	printf("for the record: cuMemFree by a relaxed thread, behind a kernel of one second, in a global capture of another stream\n");
	CU(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
	queue_spin();
	CU(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
	pthread_create(&thread, NULL, free_memory, NULL);
	pthread_join(thread, NULL);
	printf("  the end of the capture: %s\n", result_name(cuStreamEndCapture(captured, &graph)));
	if (graph)
		cuGraphDestroy(graph);
	CU(cuStreamSynchronize(stream));
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return fprintf(stderr, "usage: gpu-exports SOCKET REF\n"), 2;
	client = connect_to(argv[1]);
	gpu_open();
	behind_a_kernel(argv[2]);
	in_captures(argv[2]);
	for_the_record();
	gpuwm_close(client);
	return wrong > 0;
}
