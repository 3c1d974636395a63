/* A worker for the tests on a real GPU.
 *
 *   gpu-worker hold SOCKET REF share|copy   context, attach, sum all words in a kernel, print the sum,
 *                                           stay until stdin ends
 *   gpu-worker compute SOCKET REF           context, attach, sum all words in a kernel over and over until
 *                                           stdin ends; tells rounds, and how many differed from the first
 *   gpu-worker readonly SOCKET REF          what happens to writes into a version
 *   gpu-worker store SOCKET REF             the kernel that writes; ends with its context broken
 *   gpu-worker kill-publish SOCKET NAME before|after   a publisher that kills itself around its commit
 *
 * GPUWM_KERNELS names the PTX file of kernels.cu.
 */
#include <gpuwm/client.h>

#include <cuda.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIE(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))

static const char *result_name(CUresult result)
{
	const char *name = "?";

	cuGetErrorName(result, &name);
	return name;
}

#define CU(call)                                                                                               \
	do {                                                                                                   \
		CUresult result_ = (call);                                                                     \
		if (result_ != CUDA_SUCCESS)                                                                   \
			DIE("%s: %s", #call, result_name(result_));                                            \
	} while (0)

static CUcontext context_make(void)
{
	CUdevice device;
	CUcontext context;

	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	CU(cuDevicePrimaryCtxRetain(&context, device));
	CU(cuCtxSetCurrent(context));
	return context;
}

static CUfunction kernel(const char *name)
{
	const char *path = getenv("GPUWM_KERNELS");
	FILE *file = path ? fopen(path, "r") : NULL;
	static char text[65536];
	CUmodule module;
	CUfunction function;

	if (!file)
		DIE("GPUWM_KERNELS names no readable file");
	text[fread(text, 1, sizeof text - 1, file)] = 0;
	fclose(file);
	CU(cuModuleLoadData(&module, text));
	CU(cuModuleGetFunction(&function, module, name));
	return function;
}

static struct gpuwm_client *connect_to(const char *socket)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_client *client;

	options.socket = socket;
	if (gpuwm_connect(&options, &client) < 0)
		DIE("connect: %s", gpuwm_error()->message);
	return client;
}

static struct gpuwm_mapping *attach(struct gpuwm_client *client, const char *ref)
{
	struct gpuwm_mapping *mapping;

	if (gpuwm_attach(client, ref, NULL, &mapping) < 0)
		DIE("attach: %s", gpuwm_error()->message);
	return mapping;
}

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

static int compute(const char *socket, const char *ref)
{
	struct gpuwm_client *client = connect_to(socket);
	struct pollfd in = {.fd = 0, .events = POLLIN};
	struct gpuwm_mapping *mapping;
	uint64_t first, rounds = 0, differ = 0;

	context_make();
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

	context_make();
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

	context_make();
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

	context_make();
	mapping = attach(connect_to(socket), ref);
	gpuwm_tensor_at(mapping, 0, &tensor);
	word = (CUdeviceptr)tensor.data;
	CU(cuLaunchKernel(kernel("store"), 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0));
	printf("a kernel's store into the version: %s\n", result_name(cuCtxSynchronize()));
	return 0;
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
	if (argc == 4 && !strcmp(argv[1], "readonly"))
		return readonly(argv[2], argv[3]);
	if (argc == 4 && !strcmp(argv[1], "store"))
		return store(argv[2], argv[3]);
	if (argc == 5 && !strcmp(argv[1], "kill-publish"))
		return kill_publish(argv[2], argv[3], !strcmp(argv[4], "after"));
	DIE("usage: see the head of gpu-worker.c");
}
