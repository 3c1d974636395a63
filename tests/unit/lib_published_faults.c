/* Publishing in place on the stand-in for a GPU, whose driver fails. */
#include "tests/support/lib/published.h"
#include "tests/support/any/own_folder.h"

#include <errno.h>

#ifdef GPUWM_CUDA

static char calls[64]; /* the stand-in's log */

static void log_calls(void)
{
	snprintf(calls, sizeof(calls), "%s/calls", own_folder());
	setenv("FAKECUDA_LOG", calls, 1);
}

TestSuite(published_faults, .init = log_calls, .timeout = 120);

/* 900: a stream is being captured. */
Test(published_faults, a_stream_capture_keeps_all_as_it_is)
{
	struct DLManagedTensor *exports[TENSORS];
	struct gpuwm_mapping *mapping = NULL;
	struct gpuwm_publish *publish;

	setenv("FAKECUDA_FAIL", "cuCtxSynchronize:1:900,cuCtxSynchronize:2:900", 1);
	published_start_cuda();
	publish = begin_exported(exports);
	cr_assert(eq(int, gpuwm_publish_commit(publish, NULL), -EBUSY));
	cr_assert(eq(int, gpuwm_publish_commit_attached(publish, &mapping), -EBUSY));
	cr_assert(eq(uint, fake->aborts, 0));
	expect_exports(exports, true);
	cr_assert(eq(int, gpuwm_publish_commit_attached(publish, &mapping), 0), "%s", gpuwm_error()->message);
	expect_exports(exports, false);
	free_exports(exports);
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
	published_stop();
}

/* The calls of the two segments: mapped 1 and 2; for reading 3 and 4, back 4 where 3 fails; for writing again 5. */
static void loses_its_memory(const char *fail)
{
	struct DLManagedTensor *exports[TENSORS];
	struct gpuwm_mapping *mapping = NULL;
	struct gpuwm_publish *publish;

	setenv("FAKECUDA_FAIL", fail, 1);
	published_start_cuda();
	publish = begin_exported(exports);
	refuses("hand_in", -EBADMSG, NULL);
	cr_assert(eq(int, gpuwm_publish_commit_attached(publish, &mapping), -ENOTRECOVERABLE));
	cr_assert(strstr(gpuwm_error()->message, "could not be mapped again") != NULL, "%s",
		  gpuwm_error()->message);
	cr_assert(not(can_read(exports[0]->dl_tensor.data)));
	cr_assert(eq(uint, fake->aborts, 1));
	free_exports(exports);
	published_stop();
}

Test(published_faults, memory_that_is_not_mapped_for_reading_nor_back_is_lost)
{
	loses_its_memory("cuMemMap:3:999,cuMemMap:4:999");
}

Test(published_faults, memory_that_is_not_mapped_for_writing_again_is_lost)
{
	loses_its_memory("cuMemMap:5:999,cuMemMap:6:999");
}

/* Calls of the driver that were logged so far with these words. */
static int logged(const char *words)
{
	FILE *log = fopen(calls, "re");
	char line[256];
	int count = 0;

	while (log && fgets(line, sizeof(line), log))
		count += strstr(line, words) != NULL;
	if (log)
		fclose(log);
	return count;
}

static int calls_logged(void)
{
	return logged(" cu");
}

/* With exports until the end of it, or not. */
static void publish_once(int how, bool exported)
{
	struct DLManagedTensor *exports[TENSORS];
	struct gpuwm_publish *publish = begin_exported(exports);
	struct gpuwm_mapping *mapping = NULL;
	void *place = exports[0]->dl_tensor.data;

	if (!exported)
		free_exports(exports);
	if (how == 0)
		cr_assert(eq(int, gpuwm_publish_abort(publish, NULL), 0));
	else if (how == 1)
		cr_assert(eq(int, gpuwm_publish_commit(publish, NULL), 0));
	else
		cr_assert(eq(int, gpuwm_publish_commit_attached(publish, &mapping), 0));
	if (exported)
		free_exports(exports);
	gpuwm_drop(mapping);
	UNTIL(leases() == 0 && !can_read(place));
}

Test(published_faults, addresses_and_memory_go_however_it_ends)
{
	published_start_cuda();
	for (int how = 0; how < 3; how++) {
		publish_once(how, false);
		publish_once(how, true);
	}
	UNTIL(logged("cuMemAddressFree 0") == logged("cuMemAddressReserve 0"));
	cr_assert(eq(int, logged("cuMemAddressReserve 0"), 6));
	UNTIL(logged("cuMemRelease 0") == logged("cuMemCreate 0"));
	UNTIL(logged("cuDevicePrimaryCtxRelease_v2 0") == logged("cuDevicePrimaryCtxRetain 0"));
	published_stop();
}

/* How many calls go before the commit, and how many it makes. */
static int calls_before(int *ret_during)
{
	int ends[2], counts[2] = {0};
	pid_t child;

	cr_assert(eq(int, pipe(ends), 0));
	child = fork();
	if (child == 0) {
		struct DLManagedTensor *exports[TENSORS];
		struct gpuwm_mapping *mapping = NULL;
		struct gpuwm_publish *publish;

		published_start_cuda();
		publish = begin_exported(exports);
		counts[0] = calls_logged();
		gpuwm_publish_commit_attached(publish, &mapping);
		counts[1] = calls_logged() - counts[0];
		_exit(write(ends[1], counts, sizeof(counts)) != sizeof(counts));
	}
	waitpid(child, NULL, 0);
	cr_assert(eq(sz, (size_t)read(ends[0], counts, sizeof(counts)), sizeof(counts)));
	*ret_during = counts[1];
	return counts[0];
}

enum outcome { COMMITTED = 10, FAILED = 11 };

/* In a process of its own, whose n-th call of the driver fails, one of a commit's: the exports have their bytes, as the
 * version's or as the process's own, and let go of them. */
static int with_failing_call(int n)
{
	struct DLManagedTensor *exports[TENSORS];
	struct gpuwm_mapping *mapping = NULL;
	struct gpuwm_publish *publish;
	char fail[64];
	void *place;
	int r;

	snprintf(fail, sizeof(fail), "*:%d:999", n);
	setenv("FAKECUDA_FAIL", fail, 1);
	published_start_cuda();
	publish = begin_exported(exports);
	place = exports[0]->dl_tensor.data;
	r = gpuwm_publish_commit_attached(publish, &mapping);
	if (r < 0 && (!*gpuwm_error()->message || r == -ENOTRECOVERABLE))
		return 1;
	expect_exports(exports, r < 0);
	if (leases() != (r >= 0 ? 1 : 0))
		return 2;
	free_exports(exports);
	gpuwm_drop(mapping);
	UNTIL(leases() == 0 && !can_read(place));
	return r < 0 ? FAILED : COMMITTED;
}

Test(published_faults, exports_keep_their_bytes_whichever_call_fails)
{
	int failed = 0, before, during;

	if (!getenv("GPUWM_TEST_BACKEND") || strcmp(getenv("GPUWM_TEST_BACKEND"), "fakecuda") != 0)
		cr_skip("injects failures of the driver");
	before = calls_before(&during);
	cr_assert(lt(int, 10, during));
	for (int n = before + 1; n <= before + during; n++) {
		int status;
		pid_t child = fork();

		if (child == 0)
			_exit(with_failing_call(n));
		status = child_status(child);
		cr_assert(status == COMMITTED << 8 || status == FAILED << 8, "call %d of %d: %#x", n - before,
			  during, status);
		failed += status == FAILED << 8;
	}
	/* Waiting, entering, digesting, unmapping, mapping and exporting. */
	cr_assert(ge(int, failed, 8));
}

#else

Test(published_faults, needs_the_header)
{
	cr_skip("built without cuda.h");
}

#endif
