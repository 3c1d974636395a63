/* Exports to other frameworks, on a GPU: on tests/fakecuda, or a real one. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>

#include "tests/support/any/own_folder.h"
#include "tests/support/any/threads.h"
#include "tests/support/any/child.h"
#include "tests/support/lib/dlpack.h"

#ifdef GPUWM_CUDA

static char calls[64]; /* the log of the stand-in driver, and of gpuwmd */

static void need_fakecuda(void)
{
	const char *backend = getenv("GPUWM_TEST_BACKEND");

	if (!backend || strcmp(backend, "fakecuda") != 0)
		cr_skip("needs GPUWM_TEST_BACKEND=fakecuda: a real driver tells nobody what it was asked");
	snprintf(calls, sizeof(calls), "%s/calls", own_folder());
	setenv("FAKECUDA_LOG", calls, 1);
	children_leave_early();
}

TestSuite(dlpack_cuda, .init = need_fakecuda, .timeout = 120);
TestSuite(drop_cuda, .init = need_fakecuda, .timeout = 120);

static void begin(void)
{
	export_start();
	strcpy(fake->calls, calls);
}

/* Of the driver, beyond what the library calls. */
static void *symbol(const char *name)
{
	const struct cuda_driver *cuda;
	void *found;

	cr_assert(eq(int, cuda_open(&cuda, NULL), 0));
	found = dlsym(cuda->library, name);
	cr_assert(found != NULL, "%s", name);
	return found;
}

#define CU(name) ((__typeof__(name) *)symbol(#name))
#define GOOD(call) cr_assert(eq(int, (call), CUDA_SUCCESS))

/* How often a line of the log, "function result", is there; `pid` 0: of any process. */
static int called(const char *what, pid_t pid)
{
	FILE *log = fopen(calls, "re");
	char line[256], name[64], text[96];
	int count = 0, by, result;

	while (log && fgets(line, sizeof(line), log)) {
		cr_assert(eq(int, sscanf(line, "%d %*s %63s %d", &by, name, &result), 3));
		snprintf(text, sizeof(text), "%s %d", name, result);
		count += (pid == 0 || by == pid) && (!*what || strcmp(text, what) == 0);
	}
	if (log)
		fclose(log);
	return count;
}

/* Of what was called last, in its order, these. */
static const char *last_of(const char *const *names, size_t count)
{
	static char text[2000];
	FILE *log = fopen(calls, "re");
	char line[256], name[64];

	*text = 0;
	while (fgets(line, sizeof(line), log)) {
		cr_assert(eq(int, sscanf(line, "%*d %*s %63s", name), 1));
		for (size_t i = 0; i < count; i++) {
			if (strcmp(name, names[i]) == 0)
				strcat(strcat(text, *text ? " " : ""), name);
		}
	}
	fclose(log);
	return text;
}

/* ---- what an export says ------------------------------------------------- */

Test(dlpack_cuda, names_this_processs_number_of_the_device)
{
	struct gpuwm_mapping *mapping;
	struct DLManagedTensor *export;
	struct gpuwm_tensor tensor;

	setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
	export_start_on("GPU-fa4e0000-0000-4000-8000-000000000000");
	mapping = attach_to("m@v1");
	export = export_of(mapping, "b");
	gpuwm_tensor_find(mapping, "b", &tensor);
	cr_expect(eq(int, export->dl_tensor.device.device_type, kDLCUDA));
	cr_expect(eq(int, export->dl_tensor.device.device_id, 1));
	cr_expect(export->dl_tensor.data == tensor.data);
	export->deleter(export);
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
	export_stop();
}

/* ---- work that is queued ------------------------------------------------- */

static const struct memory_ops *ops = &memory_cuda;

/* Pinned: a copy to other memory is over when the call is. */
static char *pinned(void)
{
	char *bytes;

	GOOD(CU(cuMemHostAlloc)((void **)&bytes, 4096, 0));
	memset(bytes, 0, 4096);
	return bytes;
}

static CUstream stream_new(unsigned flags)
{
	CUstream stream;

	GOOD(CU(cuStreamCreate)(&stream, flags));
	return stream;
}

Test(drop_cuda, waits_for_what_is_queued_then_unmaps_then_gives_the_lease_back)
{
	static const char *const names[] = {"cuMemcpyDtoHAsync_v2", "cuCtxSynchronize", "cuMemUnmap",
					    "cuMemAddressFree", "release"};
	struct gpuwm_mapping *mapping;
	struct DLManagedTensor *export;
	char *bytes;

	begin();
	cr_assert(eq(int, ops->hold(&device, NULL), 0));
	cr_assert(eq(int, ops->enter(&device, NULL), 0));
	bytes = pinned();
	unlink(calls); /* of the making of versions */
	mapping = attach_to("m@v1");
	export = export_of(mapping, "c");
	GOOD(CU(cuMemcpyDtoHAsync_v2)(bytes, (CUdeviceptr) export->dl_tensor.data, 50,
				      stream_new(CU_STREAM_NON_BLOCKING)));
	gpuwm_drop(mapping);
	cr_expect(eq(int, bytes[49], 0));
	export->deleter(export);
	UNTIL(leases() == 0);
	cr_expect(eq(int, bytes[49], 1));
	cr_expect(eq(str, (char *)last_of(names, 5),
		     "cuMemcpyDtoHAsync_v2 cuCtxSynchronize cuMemUnmap cuMemAddressFree release"));
	ops->leave(&device);
	ops->unhold(&device);
	export_stop();
}

Test(drop_cuda, unmaps_what_a_broken_context_used)
{
	struct gpuwm_mapping *mapping;

	setenv("FAKECUDA_FAIL", "cuCtxSynchronize:1:700", 1);
	begin();
	cr_assert(eq(int, ops->hold(&device, NULL), 0));
	mapping = attach_to("m@v1");
	gpuwm_drop(mapping);
	UNTIL(leases() == 0);
	cr_expect(eq(int, called("cuCtxSynchronize 700", 0), 1));
	export_stop();
}

/* ---- captures ------------------------------------------------------------ */

/* Whether a capture that is begun now is still sound at its end. */
static CUresult capture_ends(CUstream stream)
{
	CUgraph graph;
	CUresult result = CU(cuStreamEndCapture)(stream, &graph);

	if (result == CUDA_SUCCESS)
		GOOD(CU(cuGraphDestroy)(graph));
	return result;
}

static CUstream capture_begun(unsigned flags, CUstreamCaptureMode mode)
{
	CUstream stream = stream_new(flags);

	GOOD(CU(cuStreamBeginCapture_v2)(stream, mode));
	return stream;
}

/* The library's thread asks each memory that waits, in turns, whether it can end: this one tells that all were asked. */
static struct keep probe;
static _Atomic int probed;
#define PROBES 3

static int probe_end(struct keep *keep)
{
	(void)keep;
	return ++probed < PROBES ? -EBUSY : 0;
}

Test(drop_cuda, leaves_a_capture_alone_that_was_told)
{
	struct gpuwm_mapping *mapping, *other;
	struct DLManagedTensor *export;
	CUstream stream;

	begin();
	cr_assert(eq(int, ops->enter(&device, NULL), 0));
	mapping = attach_to("m@v1");
	other = attach_to("m@v2");
	export = export_of(mapping, "b");
	gpuwm_drop(mapping);
	gpuwm_capture_begin();
	stream = capture_begun(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_GLOBAL);
	export->deleter(export);
	cr_expect(eq(int, gpuwm_detach(other), -EBUSY));
	cr_expect(eq(int, gpuwm_switch(other, "m@v1", NULL), -EBUSY));
	cr_expect(eq(int, gpuwm_tensors_verify(other, NULL, 0), -EBUSY));
	keep_init(&probe, probe_end);
	keep_give_up(&probe);
	UNTIL(probed == PROBES);
	cr_expect(eq(uint, leases(), 2));
	cr_expect(eq(int, capture_ends(stream), CUDA_SUCCESS));
	gpuwm_capture_end();
	UNTIL(leases() == 1);
	cr_expect(eq(int, gpuwm_detach(other), 0));
	ops->leave(&device);
	export_stop();
}

Test(drop_cuda, finds_a_capture_on_a_stream_that_goes_with_the_default_one)
{
	struct gpuwm_mapping *mapping;
	CUstream stream;

	begin();
	cr_assert(eq(int, ops->enter(&device, NULL), 0));
	mapping = attach_to("m@v1");
	stream = capture_begun(CU_STREAM_DEFAULT, CU_STREAM_CAPTURE_MODE_GLOBAL);
	gpuwm_drop(mapping);
	UNTIL(called("cuStreamIsCapturing 906", 0) > 1);
	cr_expect(eq(uint, leases(), 1));
	cr_expect(eq(int, capture_ends(stream), CUDA_SUCCESS));
	UNTIL(leases() == 0);
	ops->leave(&device);
	export_stop();
}

Test(drop_cuda, waits_for_the_end_of_a_capture_that_was_not_told)
{
	struct gpuwm_mapping *mapping;
	CUstream stream;

	begin();
	cr_assert(eq(int, ops->enter(&device, NULL), 0));
	mapping = attach_to("m@v1");
	stream = capture_begun(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	gpuwm_drop(mapping);
	UNTIL(called("cuCtxSynchronize 900", 0) > 1);
	cr_expect(eq(uint, leases(), 1));
	/* The driver's rule: gpuwm_capture_begin is for that. */
	cr_expect(eq(int, capture_ends(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
	UNTIL(leases() == 0);
	ops->leave(&device);
	export_stop();
}

/* Its calls are unsafe ones, which a capture of another thread may forbid. */
Test(drop_cuda, leaves_captures_on_other_devices_alone)
{
	struct gpuwm_mapping *mapping;
	struct memory_device second;
	CUstream stream;
	char id[CUDA_ID_BYTES];

	begin();
	cr_assert(eq(int, cuda_id(1, id, NULL), 0));
	cr_assert(eq(int, memory_device_open(id, &second, NULL), 0));
	cr_assert(eq(int, ops->enter(&second, NULL), 0));
	mapping = attach_to("m@v1");
	stream = capture_begun(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_GLOBAL);
	gpuwm_drop(mapping);
	UNTIL(leases() == 0);
	cr_expect(eq(int, capture_ends(stream), CUDA_SUCCESS));
	ops->leave(&second);
	export_stop();
}

/* ---- exit, and forked children ------------------------------------------- */

static struct DLManagedTensor *left;

/* From here on the log is of interest. */
static void log_mark(void)
{
	FILE *log = fopen(calls, "ae");

	fprintf(log, "%d test mark 0\n", getpid());
	fclose(log);
}

/* Calls of the driver before the mark, and after it. */
static void calls_around_mark(int ret_counts[2])
{
	FILE *log = fopen(calls, "re");
	char line[256];
	bool marked = false;

	memset(ret_counts, 0, 2 * sizeof(ret_counts[0]));
	while (fgets(line, sizeof(line), log)) {
		ret_counts[marked] += strstr(line, " cu") != NULL;
		marked = marked || strstr(line, " test mark ");
	}
	fclose(log);
	cr_assert(marked);
}

/* Comes after the library's own end, which was registered later. The library's thread takes what was left, and stays. */
static void delete_left(void)
{
	const int64_t deadline = until_deadline();

	log_mark();
	left->deleter(left);
	while (!thread_sleeps_in(getpid(), "gpuwm-reaper", CALL_PAUSE)) {
		if (!until_pause(deadline))
			_exit(1); /* no cr_assert: the process is in exit */
	}
}

Test(drop_cuda, asks_the_driver_nothing_in_exit)
{
	int counts[2];
	pid_t child = fork();

	if (child == 0) {
		struct gpuwm_mapping *mapping;

		atexit(delete_left);
		begin();
		mapping = attach_to("m@v1");
		left = export_of(mapping, "b");
		gpuwm_drop(mapping);
		exit(42);
	}
	cr_expect(eq(int, child_status(child), 42 << 8));
	calls_around_mark(counts);
	cr_expect(lt(int, 0, counts[0]));
	cr_expect(eq(int, counts[1], 0));
}

Test(drop_cuda, keeps_exit_waiting_for_a_moment_only)
{
	pid_t child = fork();

	if (child == 0) {
		setenv("FAKECUDA_HANG", "cuCtxSynchronize:1", 1);
		begin();
		cr_assert(eq(int, ops->hold(&device, NULL), 0));
		unlink(calls); /* of the making of versions */
		gpuwm_drop(attach_to("m@v1"));
		UNTIL(called("cuCtxSynchronize -1", 0) == 1);
		exit(42);
	}
	cr_expect(eq(int, child_status(child), 42 << 8));
	cr_expect(eq(int, called("cuMemUnmap 0", 0), 0));
}

Test(drop_cuda, asks_the_driver_nothing_in_a_forked_child)
{
	struct gpuwm_mapping *mapping;
	struct DLManagedTensor *export;
	pid_t child;

	begin();
	mapping = attach_to("m@v1");
	export = export_of(mapping, "b");
	gpuwm_drop(mapping);
	child = fork();
	if (child == 0) {
		export->deleter(export);
		gpuwm_capture_begin();
		gpuwm_capture_end();
		exit(42);
	}
	cr_expect(eq(int, child_status(child), 42 << 8));
	cr_expect(eq(int, called("", child), 0));
	cr_expect(eq(int, gpuwm_ping(client, NULL), 0));
	cr_expect(eq(uint, leases(), 1));
	export->deleter(export);
	export_stop();
}

/* ---- faults -------------------------------------------------------------- */

/* In a process of its own, whose n-th call of the driver fails: the lease goes all the same. */
static int with_failing_call(int n)
{
	struct gpuwm_mapping *mapping;
	char fail[32];

	snprintf(fail, sizeof(fail), "*:%d:999", n);
	setenv("FAKECUDA_FAIL", fail, 1);
	begin();
	cr_assert(eq(int, ops->hold(&device, NULL), 0));
	mapping = attach_to("m@v1");
	gpuwm_drop(mapping);
	for (int i = 0; i < 10000 && leases() > 0; i++)
		poll(NULL, 0, 1);
	return leases() > 0 ? 1 : 42;
}

/* How many calls go before the drop, and how many it makes. */
static void calls_of_drop(int ret_counts[2])
{
	pid_t child = fork();

	if (child == 0) {
		struct gpuwm_mapping *mapping;

		begin();
		cr_assert(eq(int, ops->hold(&device, NULL), 0));
		mapping = attach_to("m@v1");
		log_mark();
		gpuwm_drop(mapping);
		UNTIL(leases() == 0);
		_exit(42);
	}
	cr_assert(eq(int, child_status(child), 42 << 8));
	calls_around_mark(ret_counts);
}

Test(drop_cuda, ends_whichever_call_fails)
{
	int counts[2];

	calls_of_drop(counts);
	cr_assert(lt(int, 8, counts[1]));
	for (int n = counts[0] + 1; n <= counts[0] + counts[1]; n++) {
		cr_assert(eq(int, IN_CHILD(with_failing_call(n)), 42 << 8), "call %d", n - counts[0]);
	}
}

#else

Test(dlpack_cuda, needs_the_header)
{
	cr_skip("built without cuda.h");
}

#endif
