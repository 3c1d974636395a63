#include "switch_cuda.h"

#include "tests/support/any/own_folder.h"

#ifdef GPUWM_CUDA

#include <dlfcn.h>
#include <sys/wait.h>

static char calls[64]; /* the log of the stand-in driver, and of gpuwmd */

void switch_cuda_start(void)
{
	struct gpuwm_connect_options options;
	struct made made = made_default("v1", 1);
	char id[CUDA_ID_BYTES];

	fake = fake_start();
	strcpy(fake->calls, calls);
	cr_assert(eq(int, cuda_id(0, id, NULL), 0));
	cr_assert(eq(int, memory_device_open(id, &device, NULL), 0));
	strcpy(fake->device, id);
	made_add(fake, &device, &made);
	made = made_default("v2", 2);
	made_add(fake, &device, &made);
	options = to_fake();
	client = client_with(&options);
}

void need_driver(void)
{
	if (!getenv("GPUWM_TEST_BACKEND") || strcmp(getenv("GPUWM_TEST_BACKEND"), "host") == 0)
		cr_skip("GPUWM_TEST_BACKEND is not set: no CUDA driver to test with");
	snprintf(calls, sizeof(calls), "%s/calls", own_folder());
	setenv("FAKECUDA_LOG", calls, 1);
}

void forget_calls(void)
{
	unlink(calls);
}

void *symbol(const char *name)
{
	const struct cuda_driver *cuda;
	void *found;

	cr_assert(eq(int, cuda_open(&cuda, NULL), 0));
	found = dlsym(cuda->library, name);
	cr_assert(found != NULL, "%s", name);
	return found;
}

void queue_read(const struct gpuwm_mapping *mapping, char *ret_bytes)
{
	__typeof__(cuStreamCreate) *create = (__typeof__(cuStreamCreate) *)symbol("cuStreamCreate");
	__typeof__(cuMemcpyDtoHAsync_v2) *copy =
		(__typeof__(cuMemcpyDtoHAsync_v2) *)symbol("cuMemcpyDtoHAsync_v2");
	struct gpuwm_tensor tensor;
	CUstream stream;

	gpuwm_tensor_at(mapping, 2, &tensor);
	cr_assert(eq(int, create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS));
	cr_assert(eq(int, copy(ret_bytes, (CUdeviceptr)tensor.data, tensor.bytes, stream), CUDA_SUCCESS));
}

void need_fakecuda(void)
{
	if (strcmp(getenv("GPUWM_TEST_BACKEND"), "fakecuda") != 0)
		cr_skip("a real driver fails when it likes, and tells nobody what it was asked");
}

void switch_cuda_stop(struct gpuwm_mapping *mapping)
{
	cr_assert(eq(int, gpuwm_detach(mapping), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(uint, fake->leases, 0));
	gpuwm_close(client);
	fake_stop(fake);
}

bool context_active(void)
{
	const struct cuda_driver *cuda;
	unsigned flags;
	int active = 0;

	cuda_open(&cuda, NULL);
	cuda->cuDevicePrimaryCtxGetState(0, &flags, &active);
	return active;
}

long log_end(void)
{
	FILE *log = fopen(calls, "re");
	long end;

	cr_assert(log != NULL);
	fseek(log, 0, SEEK_END);
	end = ftell(log);
	fclose(log);
	return end;
}

const char *log_since(long from)
{
	static const char *const silent[] = {
		"cuCtxGetCurrent",     "cuCtxGetDevice",           "cuDevicePrimaryCtxGetState",
		"cuStreamIsCapturing", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2",
		"cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"};
	static char text[2000];
	FILE *log = fopen(calls, "re");
	char line[256], name[64];

	*text = 0;
	fseek(log, from, SEEK_SET);
	while (fgets(line, sizeof(line), log)) {
		bool asks = sscanf(line, "%*d %*s %63s", name) != 1;

		for (size_t i = 0; i < sizeof(silent) / sizeof(silent[0]); i++)
			asks = asks || strcmp(name, silent[i]) == 0;
		if (!asks)
			strcat(strcat(text, *text ? " " : ""), name);
	}
	fclose(log);
	return text;
}

bool log_has(const char *words)
{
	FILE *log = fopen(calls, "re");
	char line[256];
	bool has = false;

	while (fgets(line, sizeof(line), log))
		has = has || strstr(line, words);
	fclose(log);
	return has;
}

int calls_of(void (*prepare)(void), void (*act)(void), int *ret_during)
{
	int ends[2], counts[2] = {0};
	pid_t child;

	cr_assert(eq(int, pipe(ends), 0));
	child = fork();
	if (child == 0) {
		char line[256];
		FILE *log;
		long from;

		prepare();
		from = log_end();
		act();
		log = fopen(calls, "re");
		while (fgets(line, sizeof(line), log))
			counts[ftell(log) > from] += strstr(line, " cu") != NULL;
		_exit(write(ends[1], counts, sizeof(counts)) != sizeof(counts));
	}
	waitpid(child, NULL, 0);
	cr_assert(eq(sz, (size_t)read(ends[0], counts, sizeof(counts)), sizeof(counts)));
	close(ends[0]);
	close(ends[1]);
	*ret_during = counts[1];
	return counts[0];
}

void call_fails(int n)
{
	char fail[64];

	snprintf(fail, sizeof(fail), "*:%d:999", n);
	setenv("FAKECUDA_FAIL", fail, 1);
}

int status_with(int n, int (*test)(int n))
{
	int status = -1;
	pid_t child;

	unlink(calls);
	child = fork();
	if (child == 0)
		_exit(test(n));
	waitpid(child, &status, 0);
	return status;
}

#endif
