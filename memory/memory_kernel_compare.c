/* Comparing two pieces of a GPU's memory by a kernel, in batches of some GiB. */
#include "memory_internal.h"

#include "cuda.h"
#include "kernels/pieces.h"

#include <errno.h>
#include <stdlib.h>

#define PIECE_BYTES KIB(256) /* of one block, as for digests */
/* Of a batch: at most 4 GiB of each of the two, some milliseconds. A difference is seen at the end of a batch. */
#define BATCH_PIECES 16384

struct run {
	const struct cuda_driver *cuda;
	CUfunction kernel;
	CUstream stream;
	CUdeviceptr differs; /* the result, and behind it the list */
	struct error *error;
	uint64_t result;
	struct compare_piece list[BATCH_PIECES];
};

#define LIST_OFFSET 16

/* Cuts up to BATCH_PIECES pieces from `done` on. Returns their number, and adds their bytes to *ret_bytes. */
static unsigned run_cut(struct run *run, const struct memory_pair *pair, uint64_t done, uint64_t *ret_bytes)
{
	unsigned count = 0;

	for (; count < BATCH_PIECES && done < pair->bytes; count++) {
		uint64_t left = pair->bytes - done, bytes = left < PIECE_BYTES ? left : PIECE_BYTES;

		run->list[count] = (struct compare_piece){.a = (uint64_t)(uintptr_t)pair->a + done,
							  .b = (uint64_t)(uintptr_t)pair->b + done,
							  .bytes = bytes};
		done += bytes;
		*ret_bytes += bytes;
	}
	return count;
}

/* Compares the first `count` pieces of the list, and waits for the result. */
static CUresult run_launch(struct run *run, unsigned count)
{
	const struct cuda_driver *cuda = run->cuda;
	CUdeviceptr pieces = run->differs + LIST_OFFSET;
	void *arguments[] = {&pieces, &run->differs};
	CUresult result =
		cuda->cuMemcpyHtoDAsync_v2(pieces, run->list, count * sizeof(run->list[0]), run->stream);

	if (result == CUDA_SUCCESS)
		result = cuda->cuMemsetD8Async(run->differs, 0, sizeof(run->result), run->stream);
	if (result == CUDA_SUCCESS)
		result = cuda->cuLaunchKernel(run->kernel, count, 1, 1, COMPARE_THREADS, 1, 1, 0, run->stream,
					      arguments, NULL);
	if (result == CUDA_SUCCESS)
		result = cuda->cuMemcpyDtoHAsync_v2(&run->result, run->differs, sizeof(run->result),
						    run->stream);
	return result == CUDA_SUCCESS ? cuda->cuStreamSynchronize(run->stream) : result;
}

static int run_all(struct run *run, const struct memory_pair *pair, memory_progress_fn *progress,
		   void *user_data)
{
	uint64_t done = 0, bytes;
	int r = 0;

	for (; r == 0 && run->result == 0 && done < pair->bytes; done += bytes) {
		CUresult result;

		bytes = 0;
		result = run_launch(run, run_cut(run, pair, done, &bytes));
		if (result != CUDA_SUCCESS)
			return cuda_fail(result, -EIO, run->error, "comparing memory on the GPU");
		r = progress ? progress(bytes, user_data) : 0;
	}
	return r;
}

int kernel_compare(const struct memory_device *device, const struct memory_pair *pair,
		   memory_progress_fn *progress, void *user_data, bool *ret_equal, struct error *error)
{
	const struct cuda_driver *cuda;
	struct kernels kernels;
	CUresult result;
	struct run *run;
	int r = cuda_open(&cuda, error);

	if (r < 0)
		return r;
	if (kernels_load(cuda, device->ordinal, &kernels, NULL) < 0)
		return 1;
	run = calloc(1, sizeof(*run));
	if (!run)
		return error_set(error, -ENOMEM, NULL, "no room for the list of a comparison on a GPU");
	run->cuda = cuda;
	run->kernel = kernels.compare;
	run->error = error;
	result = cuda->cuMemAlloc_v2(&run->differs, LIST_OFFSET + sizeof(run->list));
	if (result == CUDA_SUCCESS)
		result = cuda->cuStreamCreate(&run->stream, CU_STREAM_NON_BLOCKING);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		r = 1; /* there is no room for the list */
	else if (result != CUDA_SUCCESS)
		r = cuda_fail(result, -EIO, error, "preparing a comparison on the GPU");
	if (r == 0)
		r = run_all(run, pair, progress, user_data);
	if (r == 0)
		*ret_equal = run->result == 0;
	if (run->stream) {
		cuda->cuStreamSynchronize(run->stream);
		cuda->cuStreamDestroy_v2(run->stream);
	}
	if (run->differs)
		cuda->cuMemFree_v2(run->differs);
	free(run);
	return r;
}
