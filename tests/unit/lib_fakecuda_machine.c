/* What tests/fakecuda shows of its machine, and the faults that it injects. */
#ifdef GPUWM_CUDA

#include "tests/support/lib/fakecuda.h"
#include "tests/support/any/own_folder.h"

#include <fcntl.h>
#include <sys/prctl.h>

TestSuite(fakecuda_machine, .init = fakecuda_open);

static unsigned last_byte_of_uuid(int device)
{
	CUuuid uuid;

	GOOD(cu.cuDeviceGetUuid_v2(&uuid, device));
	cr_assert((unsigned char)uuid.bytes[0] == 0xfa && (unsigned char)uuid.bytes[8] == 0x80);
	return (unsigned char)uuid.bytes[15];
}

Test(fakecuda_machine, has_devices_with_uuids_names_and_memory)
{
	char name[64];
	size_t bytes;
	int count, value;

	setenv("FAKECUDA_DEVICES", "3", 1);
	setenv("FAKECUDA_MEMORY", "64M", 1);
	GOOD(cu.cuInit(0));
	GOOD(cu.cuDeviceGetCount(&count));
	cr_assert(count == 3 && last_byte_of_uuid(0) == 0 && last_byte_of_uuid(2) == 2);
	GOOD(cu.cuDeviceGetName(name, sizeof name, 2));
	cr_assert_str_eq(name, "Stand-in GPU 2");
	GOOD(cu.cuDeviceTotalMem_v2(&bytes, 1));
	cr_assert(bytes == (64u << 20));
	GOOD(cu.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
	cr_assert(value == 1);
	IS(CUDA_ERROR_INVALID_DEVICE, cu.cuDeviceGetName(name, sizeof name, 3));
}

Test(fakecuda_machine, shows_the_visible_devices_in_their_order)
{
	int count;

	setenv("FAKECUDA_DEVICES", "4", 1);
	setenv("CUDA_VISIBLE_DEVICES", "3,GPU-fa4e0000-0000-4000-8000-000000000001,9,0", 1);
	GOOD(cu.cuInit(0));
	GOOD(cu.cuDeviceGetCount(&count));
	cr_assert(count == 2, "the list ends before what names no device");
	cr_assert(last_byte_of_uuid(0) == 3 && last_byte_of_uuid(1) == 1);
}

Test(fakecuda_machine, shows_all_devices_to_management)
{
	unsigned count;

	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	cr_assert(nvml.nvmlDeviceGetCount_v2(&count) != 0, "nothing works before nvmlInit");
	cr_assert(nvml.nvmlInit_v2() == 0 && nvml.nvmlDeviceGetCount_v2(&count) == 0 && count == 2);
}

Test(fakecuda_machine, can_have_no_device)
{
	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	IS(CUDA_ERROR_NO_DEVICE, cu.cuInit(0));
}

Test(fakecuda_machine, runs_out_of_memory_a_device)
{
	CUmemGenericAllocationHandle first, second;
	size_t free_bytes, total;

	setenv("FAKECUDA_MEMORY", "8M", 1);
	GOOD(cu.cuInit(0));
	enter(0);
	GOOD(create(&first, 3 * MIB2, 0));
	IS(CUDA_ERROR_OUT_OF_MEMORY, create(&second, 2 * MIB2, 0));
	GOOD(create(&second, 2 * MIB2, 1));
	GOOD(cu.cuMemGetInfo_v2(&free_bytes, &total));
	cr_assert(total == 4 * MIB2 && free_bytes == MIB2 && used() == 3 * MIB2);
	GOOD(cu.cuMemRelease(first));
	GOOD(cu.cuMemGetInfo_v2(&free_bytes, &total));
	cr_assert(free_bytes == total && used() == 0);
}

Test(fakecuda_machine, takes_memory_for_a_context)
{
	CUcontext context, other;
	unsigned flags;
	int active, device;

	setenv("FAKECUDA_CONTEXT", "16M", 1);
	GOOD(cu.cuInit(0));
	cr_assert(used() == 0, "initialising makes no context");
	context = enter(0);
	GOOD(cu.cuDevicePrimaryCtxRetain(&other, 0));
	cr_assert(other == context && used() == 8 * MIB2);
	GOOD(cu.cuDevicePrimaryCtxRelease_v2(0));
	GOOD(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
	cr_assert(active);
	GOOD(cu.cuCtxCreate_v2(&other, 0, 1));
	GOOD(cu.cuCtxGetDevice(&device));
	cr_assert(device == 1);
	GOOD(cu.cuCtxDestroy_v2(other));
	GOOD(cu.cuCtxGetCurrent(&other));
	cr_assert(other == context);
	GOOD(cu.cuDevicePrimaryCtxRelease_v2(0));
	IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu.cuCtxSynchronize());
	IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuDevicePrimaryCtxRelease_v2(0));
	cr_assert(used() == 0);
}

Test(fakecuda_machine, keeps_a_stack_of_contexts_a_thread)
{
	CUcontext first, second, back;

	GOOD(cu.cuInit(0));
	first = enter(0);
	GOOD(cu.cuDevicePrimaryCtxRetain(&second, 1));
	GOOD(cu.cuCtxPushCurrent_v2(second));
	GOOD(cu.cuCtxPopCurrent_v2(&back));
	cr_assert(back == second);
	GOOD(cu.cuCtxGetCurrent(&back));
	cr_assert(back == first);
	GOOD(cu.cuCtxSetCurrent(NULL));
	IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxPopCurrent_v2(&back));
	IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxPushCurrent_v2((CUcontext)&back));
}

Test(fakecuda_machine, pins_host_memory_once)
{
	static char area[8192];
	void *host;

	GOOD(cu.cuInit(0));
	enter(0);
	GOOD(cu.cuMemHostRegister_v2(area, sizeof area, 0));
	IS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cu.cuMemHostRegister_v2(area + 4096, 4096, 0));
	GOOD(cu.cuMemHostUnregister(area));
	IS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cu.cuMemHostUnregister(area));
	GOOD(cu.cuMemHostAlloc(&host, 4096, 0));
	memset(host, 1, 4096);
	GOOD(cu.cuMemFreeHost(host));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFreeHost(host));
}

Test(fakecuda_machine, knows_its_streams_and_events)
{
	CUstream stream;
	CUevent start, end;
	float ms = -1;

	GOOD(cu.cuInit(0));
	enter(0);
	GOOD(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	GOOD(cu.cuEventCreate(&start, 0));
	GOOD(cu.cuEventCreate(&end, 0));
	GOOD(cu.cuEventRecord(start, stream));
	IS(CUDA_ERROR_INVALID_HANDLE, cu.cuEventElapsedTime_v2(&ms, start, end));
	GOOD(cu.cuEventRecord(end, NULL));
	GOOD(cu.cuEventElapsedTime_v2(&ms, start, end));
	cr_assert(ms >= 0);
	GOOD(cu.cuStreamDestroy_v2(stream));
	IS(CUDA_ERROR_INVALID_HANDLE, cu.cuStreamSynchronize(stream));
}

Test(fakecuda_machine, finds_the_newest_version_of_a_function)
{
	void *function = NULL;

	GOOD(cu.cuGetProcAddress_v2("cuMemAlloc", &function, 13000, 0, NULL));
	cr_assert(function == (void *)cu.cuMemAlloc_v2);
	IS(CUDA_ERROR_NOT_FOUND, cu.cuGetProcAddress_v2("cuNothing", &function, 13000, 0, NULL));
}

Test(fakecuda_machine, fails_the_call_that_it_is_told_to)
{
	CUmemGenericAllocationHandle handle;
	int count;

	setenv("FAKECUDA_FAIL", "cuMemCreate:2:2,*:5:999,cuDeviceGetCount:0:101", 1);
	GOOD(cu.cuInit(0));
	IS(CUDA_ERROR_INVALID_DEVICE, cu.cuDeviceGetCount(&count));
	GOOD(create(&handle, MIB2, 0));
	IS(CUDA_ERROR_OUT_OF_MEMORY, create(&handle, MIB2, 0));
	IS(CUDA_ERROR_UNKNOWN, create(&handle, MIB2, 0));
	GOOD(create(&handle, MIB2, 0));
	IS(CUDA_ERROR_INVALID_DEVICE, cu.cuDeviceGetCount(&count));
	cr_assert(used() == 2 * MIB2, "a failed call does nothing");
}

Test(fakecuda_machine, fails_in_the_named_program_only)
{
	setenv("FAKECUDA_FAIL", "cuInit:1:999", 1);
	setenv("FAKECUDA_FAIL_ONLY", "gpuwm-loader", 1);
	GOOD(cu.cuInit(0));
}

Test(fakecuda_machine, fails_in_the_named_program)
{
	setenv("FAKECUDA_FAIL", "cuInit:1:999", 1);
	setenv("FAKECUDA_FAIL_ONLY", "gpuwm-load", 1);
	prctl(PR_SET_NAME, "gpuwm-loader");
	IS(CUDA_ERROR_UNKNOWN, cu.cuInit(0));
}

Test(fakecuda_machine, stays_broken_after_an_illegal_address)
{
	CUmemGenericAllocationHandle handle;

	setenv("FAKECUDA_FAIL", "cuCtxSynchronize:1:700", 1);
	GOOD(cu.cuInit(0));
	enter(0);
	IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuCtxSynchronize());
	IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuStreamSynchronize(NULL));
	GOOD(create(&handle, MIB2, 0));
}

/* The log as text, "" when there is none yet. */
static const char *log_text(const char *path)
{
	static char text[4096];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);

	text[n > 0 ? n : 0] = 0;
	if (fd >= 0)
		close(fd);
	return text;
}

static void log_to(char path[64])
{
	snprintf(path, 64, "%s/log", own_folder());
	unlink(path);
	setenv("FAKECUDA_LOG", path, 1);
}

Test(fakecuda_machine, logs_each_call_and_its_result)
{
	char path[64], expected[256];
	int count, pid = getpid();

	log_to(path);
	prctl(PR_SET_NAME, "logged");
	IS(CUDA_ERROR_NOT_INITIALIZED, cu.cuDeviceGetCount(&count));
	GOOD(cu.cuInit(0));
	cr_assert(nvml.nvmlInit_v2() == 0);
	snprintf(expected, sizeof expected,
		 "%d logged cuDeviceGetCount 3\n%d logged cuInit 0\n%d logged nvmlInit_v2 0\n", pid, pid, pid);
	cr_assert_str_eq(log_text(path), expected);
	unlink(path);
}

Test(fakecuda_machine, hangs_in_the_call_that_it_is_told_to, .timeout = 120)
{
	char path[64];
	pid_t child;
	int status;

	log_to(path);
	setenv("FAKECUDA_HANG", "cuDriverGetVersion:2", 1);
	child = fork();
	if (child == 0) {
		cu.cuDriverGetVersion(&status);
		cu.cuDriverGetVersion(&status);
		_exit(0);
	}
	while (!strstr(log_text(path), "cuDriverGetVersion -1"))
		usleep(1000);
	cr_assert(waitpid(child, &status, WNOHANG) == 0);
	kill(child, SIGKILL);
	cr_assert(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
	cr_assert(strstr(log_text(path), "cuDriverGetVersion 0"), "the first call returned");
	unlink(path);
}

static void lost_say(const char *path, const char *lines)
{
	FILE *file = fopen(path, "we");

	cr_assert(file && fputs(lines, file) >= 0 && fclose(file) == 0);
}

Test(fakecuda_machine, loses_one_device_and_not_the_other)
{
	CUmemGenericAllocationHandle handle;
	char path[] = "/tmp/fakecuda-lost-XXXXXX";
	CUcontext context;

	close(mkstemp(path));
	setenv("FAKECUDA_LOST", path, 1);
	GOOD(cu.cuInit(0));
	enter(0);
	GOOD(cu.cuCtxSynchronize());
	lost_say(path, "0 ecc\n");
	IS(CUDA_ERROR_ECC_UNCORRECTABLE, cu.cuCtxSynchronize());
	lost_say(path, "0 unavailable\n");
	IS(CUDA_ERROR_DEVICE_UNAVAILABLE, create(&handle, MIB2, 0));
	lost_say(path, "");
	IS(CUDA_ERROR_ECC_UNCORRECTABLE, cu.cuCtxSynchronize()); /* a context that broke stays broken */
	lost_say(path, "1 unavailable\n");
	IS(CUDA_ERROR_DEVICE_UNAVAILABLE, cu.cuDevicePrimaryCtxRetain(&context, 1));
	GOOD(create(&handle, MIB2, 0));
	GOOD(cu.cuMemRelease(handle));
	unlink(path);
}

Test(fakecuda_machine, hides_a_device_that_left_from_those_who_come)
{
	char path[] = "/tmp/fakecuda-lost-XXXXXX";
	void *device;
	int count;

	close(mkstemp(path));
	setenv("FAKECUDA_LOST", path, 1);
	lost_say(path, "0 absent\n");
	GOOD(cu.cuInit(0));
	GOOD(cu.cuDeviceGetCount(&count));
	cr_assert(count == 1 && last_byte_of_uuid(0) == 1);
	cr_assert(nvml.nvmlInit_v2() == 0);
	cr_assert(nvml.nvmlDeviceGetHandleByUUID("GPU-fa4e0000-0000-4000-8000-000000000000", &device) == 6);
	unlink(path);
}

Test(fakecuda_machine, ends_a_program_whose_settings_make_no_sense)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		signal(SIGABRT, SIG_DFL);
		setenv("FAKECUDA_MEMORY", "much", 1);
		cu.cuInit(0);
		_exit(0);
	}
	cr_assert(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

#endif
