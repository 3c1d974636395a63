/* Digests on a GPU: two streams that take batches of pieces in turns, so that the lists of one travel while the
 * kernel runs on the other's, and the last blocks of one run beside the first of the next. */
#include "memory_internal.h"

#include "cuda.h"
#include "kernels/pieces.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of one block. Large enough that beginning and ending it are nothing (a block reads some 4 GB/s), small
 * enough that those of the last round end at nearly the same time. */
#define PIECE_BYTES KIB(256)
/* Of a batch: at most 4 GiB, 1 ms of an H200, in which the other batch's lists (768 KiB) are long made and gone. */
#define BATCH_PIECES 16384
#define BATCHES 2
#define GPUS_MAX 256 /* whose kernel is remembered; more than a machine has */

/* ---- the kernel ------------------------------------------------------------ */

/* A module lives as long as its context; ids of contexts are not used twice. */
static struct {
	unsigned long long context; /* 0: none */
	struct kernels kernels;
} loaded[GPUS_MAX];
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static CUresult load_image(const struct cuda_driver *cuda, const void *image, struct kernels *ret)
{
	CUfunction digest = NULL, compare = NULL, sha256 = NULL;
	CUmodule module;
	CUresult result = cuda->cuModuleLoadData(&module, image);

	if (result == CUDA_SUCCESS)
		result = cuda->cuModuleGetFunction(&digest, module, DIGEST_KERNEL);
	if (result == CUDA_SUCCESS)
		result = cuda->cuModuleGetFunction(&compare, module, COMPARE_KERNEL);
	if (result == CUDA_SUCCESS)
		result = cuda->cuModuleGetFunction(&sha256, module, SHA256_KERNEL);
	*ret = (struct kernels){digest, compare, sha256};
	return result;
}

/* Loads the first image that driver and GPU take. */
static int load_module(const struct cuda_driver *cuda, struct kernels *ret, struct error *error)
{
	CUresult result = CUDA_SUCCESS;

	if (!kernel_images[0])
		return error_set(error, -ENOTSUP, NULL, "this program was built without nvcc");
	for (size_t i = 0; kernel_images[i]; i++) {
		result = load_image(cuda, kernel_images[i], ret);
		if (result == CUDA_SUCCESS)
			return 0;
	}
	return cuda_fail(result, -ENOTSUP, error, "the driver loads no image of the kernel " DIGEST_KERNEL);
}

int kernels_load(const struct cuda_driver *cuda, int ordinal, struct kernels *ret, struct error *error)
{
	unsigned long long id = 0;
	CUcontext context = NULL;
	CUresult result = cuda->cuCtxGetCurrent(&context);
	int r = 0;

	if (result == CUDA_SUCCESS)
		result = cuda->cuCtxGetId(context, &id);
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -EIO, error, "asking for the CUDA context");
	if (ordinal >= GPUS_MAX)
		return error_set(error, -ENOTSUP, NULL, "it is the GPU number %d, only %d are provided for",
				 ordinal, GPUS_MAX);
	pthread_mutex_lock(&loading);
	if (loaded[ordinal].context != id || !loaded[ordinal].kernels.digest) {
		r = load_module(cuda, &loaded[ordinal].kernels, error);
		loaded[ordinal].context = r == 0 ? id : 0;
	}
	*ret = loaded[ordinal].kernels;
	pthread_mutex_unlock(&loading);
	return r;
}

void kernel_load(const struct memory_device *device)
{
	const struct cuda_driver *cuda;
	struct kernels kernels;

	if (cuda_open(&cuda, NULL) == 0)
		kernels_load(cuda, device->ordinal, &kernels, NULL);
}

/* ---- batches ----------------------------------------------------------------- */

struct batch {
	CUstream stream;
	CUdeviceptr pieces, slots; /* on the device */
	struct digest_piece list[BATCH_PIECES];
	struct digest_slot sums[BATCH_PIECES];
	size_t spans[BATCH_PIECES]; /* of each slot */
	uint32_t piece_count, slot_count; /* 0: nothing is on its way */
	uint64_t bytes;
	unsigned number;
};

/* When the kernel of a batch began and ended. Three: that of a batch is asked while the next one's runs. */
#define MARKS 3
struct mark {
	CUevent begin, end;
};

struct run {
	struct digesting *work;
	const struct cuda_driver *cuda;
	CUfunction kernel;
	CUdeviceptr memory;
	struct mark marks[MARKS];
	struct batch batches[BATCHES];
};

#define PIECES_BYTES (BATCH_PIECES * sizeof(struct digest_piece))
#define SLOTS_BYTES (BATCH_PIECES * sizeof(struct digest_slot))

static int run_failed(const struct run *run, CUresult result, const char *what)
{
	return cuda_fail(result, -EIO, run->work->error, what);
}

static CUresult run_prepare(struct run *run)
{
	const struct cuda_driver *cuda = run->cuda;
	CUresult result = cuda->cuMemAlloc_v2(&run->memory, BATCHES * (PIECES_BYTES + SLOTS_BYTES));

	for (size_t i = 0; result == CUDA_SUCCESS && i < BATCHES; i++) {
		run->batches[i].pieces = run->memory + i * (PIECES_BYTES + SLOTS_BYTES);
		run->batches[i].slots = run->batches[i].pieces + PIECES_BYTES;
		result = cuda->cuStreamCreate(&run->batches[i].stream, CU_STREAM_NON_BLOCKING);
	}
	for (size_t i = 0; result == CUDA_SUCCESS && i < MARKS; i++) {
		result = cuda->cuEventCreate(&run->marks[i].begin, CU_EVENT_DEFAULT);
		if (result == CUDA_SUCCESS)
			result = cuda->cuEventCreate(&run->marks[i].end, CU_EVENT_DEFAULT);
	}
	return result;
}

/* Waits for what still runs: freeing its memory does. */
static void run_free(struct run *run)
{
	const struct cuda_driver *cuda = run->cuda;

	for (size_t i = 0; i < BATCHES; i++)
		if (run->batches[i].stream) {
			cuda->cuStreamSynchronize(run->batches[i].stream);
			cuda->cuStreamDestroy_v2(run->batches[i].stream);
		}
	for (size_t i = 0; i < MARKS; i++) {
		if (run->marks[i].begin)
			cuda->cuEventDestroy_v2(run->marks[i].begin);
		if (run->marks[i].end)
			cuda->cuEventDestroy_v2(run->marks[i].end);
	}
	if (run->memory)
		cuda->cuMemFree_v2(run->memory);
	free(run);
}

/* Takes pieces for a batch. False: there are none left. */
static bool batch_fill(struct run *run, struct batch *batch)
{
	const struct memory_pace *pace = run->work->pace;
	uint64_t most = pace ? pace->chunk : UINT64_MAX;
	struct digest_part part;

	batch->piece_count = batch->slot_count = 0;
	batch->bytes = 0;
	while (batch->piece_count < BATCH_PIECES && most - batch->bytes >= 16) {
		uint64_t room = most - batch->bytes;

		if (!digest_take(run->work, room < PIECE_BYTES ? room : PIECE_BYTES, &part))
			break;
		if (batch->slot_count == 0 || batch->spans[batch->slot_count - 1] != part.span)
			batch->spans[batch->slot_count++] = part.span;
		batch->list[batch->piece_count++] = (struct digest_piece){
			.address = (uint64_t)(uintptr_t)run->work->spans[part.span].address + part.offset,
			.first = part.offset / 8,
			.bytes = (uint32_t)part.bytes,
			.slot = batch->slot_count - 1,
		};
		batch->bytes += part.bytes;
	}
	return batch->piece_count > 0;
}

/* The list and a kernel for it go on their way. */
static int batch_launch(struct run *run, struct batch *batch, unsigned number)
{
	const struct cuda_driver *cuda = run->cuda;
	const struct mark *mark = &run->marks[number % MARKS];
	void *arguments[] = {&batch->pieces, &batch->slots};
	CUresult result;

	batch->number = number;
	result = cuda->cuMemcpyHtoDAsync_v2(batch->pieces, batch->list,
					    batch->piece_count * sizeof(batch->list[0]), batch->stream);
	if (result == CUDA_SUCCESS)
		result = cuda->cuMemsetD8Async(batch->slots, 0, batch->slot_count * sizeof(batch->sums[0]),
					       batch->stream);
	if (result == CUDA_SUCCESS)
		result = cuda->cuEventRecord(mark->begin, batch->stream);
	if (result == CUDA_SUCCESS)
		result = cuda->cuLaunchKernel(run->kernel, batch->piece_count, 1, 1, DIGEST_THREADS, 1, 1, 0,
					      batch->stream, arguments, NULL);
	if (result == CUDA_SUCCESS)
		result = cuda->cuEventRecord(mark->end, batch->stream);
	return result == CUDA_SUCCESS ? 0 : run_failed(run, result, "starting the digest on the GPU");
}

/* How long the kernel of a batch ran beyond the end of the one before it. */
static int batch_time(const struct run *run, const struct batch *batch, double *ret_seconds)
{
	const struct mark *mark = &run->marks[batch->number % MARKS];
	float ms = 0, beyond = 0;
	CUresult result = run->cuda->cuEventElapsedTime(&ms, mark->begin, mark->end);

	if (result == CUDA_SUCCESS && batch->number > 0) {
		mark = &run->marks[(batch->number - 1) % MARKS];
		result = run->cuda->cuEventElapsedTime(&beyond, mark->end,
						       run->marks[batch->number % MARKS].end);
		ms = beyond < ms ? beyond : ms;
	}
	if (result != CUDA_SUCCESS)
		return run_failed(run, result, "timing the digest on the GPU");
	*ret_seconds = ms > 0 ? ms / 1e3 : 0;
	return 0;
}

/* Waits for a batch that is on its way, and adds up what it found. */
static int batch_collect(struct run *run, struct batch *batch)
{
	const struct cuda_driver *cuda = run->cuda;
	double seconds = 0;
	CUresult result;
	int r;

	if (batch->piece_count == 0)
		return 0;
	result = cuda->cuMemcpyDtoHAsync_v2(batch->sums, batch->slots,
					    batch->slot_count * sizeof(batch->sums[0]), batch->stream);
	if (result == CUDA_SUCCESS)
		result = cuda->cuStreamSynchronize(batch->stream);
	if (result != CUDA_SUCCESS)
		return run_failed(run, result, "digesting on the GPU");
	for (uint32_t i = 0; i < batch->slot_count; i++) {
		struct tally *tally = &run->work->tallies[batch->spans[i]];

		digest_merge(&tally->sum, &(struct digest_sum){batch->sums[i].a, batch->sums[i].b});
		tally->bits |= batch->sums[i].bits;
	}
	batch->piece_count = 0;
	r = batch_time(run, batch, &seconds);
	run->work->report.seconds += seconds;
	if (r == 0)
		r = digest_tell(run->work, batch->bytes);
	return r == 0 ? digest_rest(run->work, seconds) : r;
}

static int run_batches(struct run *run)
{
	/* With pauses, one batch at a time. */
	unsigned lanes = run->work->pace ? 1 : BATCHES, number = 0;
	int r = 0;

	for (; r == 0; number++) {
		struct batch *batch = &run->batches[number % lanes];

		r = batch_collect(run, batch);
		if (r == 0 && !batch_fill(run, batch))
			break;
		if (r == 0)
			r = batch_launch(run, batch, number);
	}
	for (unsigned i = 1; r == 0 && i < lanes; i++)
		r = batch_collect(run, &run->batches[(number + i) % lanes]);
	return r;
}

/* Says why the memory is read back instead. */
static int do_without(struct digesting *work, const struct error *why)
{
	snprintf(work->report.note, sizeof(work->report.note),
		 "the CPU computed the digests on %s, which is slower: %.400s%s%.200s", work->device->id,
		 why->message, why->detail[0] ? ": " : "", why->detail);
	return 1;
}

/* 0, 1 (the note is set) or -errno. */
static int run_start(struct run *run)
{
	struct digesting *work = run->work;
	struct error why = {0};
	CUresult result;
	struct kernels kernels;
	int r = kernels_load(run->cuda, work->device->ordinal, &kernels, &why);

	if (r < 0)
		return do_without(work, &why);
	run->kernel = kernels.digest;
	result = run_prepare(run);
	if (result == CUDA_ERROR_OUT_OF_MEMORY) {
		cuda_fail(result, -ENOSPC, &why, "no room for the kernel's lists (1.5 MiB)");
		return do_without(work, &why);
	}
	return result == CUDA_SUCCESS ? 0 : run_failed(run, result, "preparing a digest on the GPU");
}

int kernel_digests(struct digesting *work)
{
	struct run *run;
	const struct cuda_driver *cuda;
	int r = cuda_open(&cuda, work->error);

	if (r < 0)
		return r;
	run = calloc(1, sizeof(*run));
	if (!run)
		return error_set(work->error, -ENOMEM, NULL, "no room for the lists of a digest on a GPU");
	run->work = work;
	run->cuda = cuda;
	r = run_start(run);
	work->report.kernel = r == 0;
	if (r == 0)
		r = run_batches(run);
	run_free(run);
	return r;
}
