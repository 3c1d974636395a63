/* Modules, and the kernels that run here: gpuwm's digest, comparison and SHA-256, computed by the CPU. Other
 * programs' kernels are for a machine with a GPU; no module has them. */
#include "driver.h"

#include "../../memory/kernels/pieces.h"

#include <stdlib.h>
#include <string.h>

#define FATBIN_MAGIC 0xba55ed50u
#define MODULES_MAX 64
#define BLOCK_BYTES (1u << 20) /* a multiple of 8 */

struct CUmod_st {
	unsigned long long context; /* its id; 0: none */
};

enum kernel { KERNEL_DIGEST, KERNEL_COMPARE, KERNEL_SHA256, KERNELS };

static stream_work_fn digest, compare;

static const struct {
	const char *name;
	unsigned threads; /* of a block */
	stream_work_fn *run;
} kernels[KERNELS] = {
	[KERNEL_DIGEST] = {DIGEST_KERNEL, DIGEST_THREADS, digest},
	[KERNEL_COMPARE] = {COMPARE_KERNEL, COMPARE_THREADS, compare},
	[KERNEL_SHA256] = {SHA256_KERNEL, SHA256_THREADS, kernel_sha256},
};

/* What a launch needs of a function is which module it is of, and which kernel it is. */
struct CUfunc_st {
	CUmodule module;
	enum kernel kernel;
};

static struct CUmod_st modules[MODULES_MAX];
static struct CUfunc_st functions[MODULES_MAX * KERNELS]; /* those of each module, one after the other */

static bool is_image(const void *image)
{
	uint32_t magic;

	memcpy(&magic, image, sizeof(magic));
	return magic == FATBIN_MAGIC || memcmp(image, "\177ELF", 4) == 0;
}

/* PTX is text, and the entries that it has stand in it. */
static bool is_ptx(const char *text)
{
	return strstr(text, ".version") && strstr(text, ".target") && strstr(text, ".entry");
}

DRIVER_CALL(cuModuleLoadData, NEEDS_CONTEXT, (CUmodule * ret, const void *image), (ret, image))
{
	CUmodule module = modules;

	if (!ret || !image)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_image(image) && !is_ptx(image))
		return CUDA_ERROR_INVALID_IMAGE;
	while (module < modules + MODULES_MAX && module->context)
		module++;
	if (module == modules + MODULES_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	module->context = context_id();
	for (int i = 0; i < KERNELS; i++)
		functions[(module - modules) * KERNELS + i] = (struct CUfunc_st){module, (enum kernel)i};
	*ret = module;
	return CUDA_SUCCESS;
}

void modules_end(unsigned long long context)
{
	for (CUmodule m = modules; m < modules + MODULES_MAX; m++)
		if (m->context == context)
			m->context = 0;
}

static bool is_module(CUmodule module)
{
	return module >= modules && module < modules + MODULES_MAX && module->context == context_id();
}

DRIVER_CALL(cuModuleGetFunction, NEEDS_CONTEXT, (CUfunction * ret, CUmodule module, const char *name),
	    (ret, module, name))
{
	if (!ret || !name)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_module(module))
		return CUDA_ERROR_INVALID_HANDLE;
	for (int i = 0; i < KERNELS; i++) {
		if (strcmp(name, kernels[i].name) == 0) {
			*ret = &functions[(module - modules) * KERNELS + i];
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_NOT_FOUND;
}

/* ---- the digest ------------------------------------------------------------- */

static uint64_t rotate(uint64_t word)
{
	return word << 32 | word >> 32;
}

static uint64_t product(uint64_t x)
{
	return (x & UINT32_MAX) * (x >> 32);
}

static void add_word(struct digest_slot *sum, uint64_t index, uint64_t word)
{
	sum->a += word + product(word ^ (index + 1) * 0x9E3779B97F4A7C15ull);
	sum->b += rotate(word) + product(word ^ (index + 1) * 0xC2B2AE3D27D4EB4Full);
	sum->bits |= word;
}

static CUresult read_device(int ordinal, CUdeviceptr from, void *to, uint64_t bytes)
{
	return copy_out(&(struct stream_work){.from = from, .host = to, .bytes = bytes, .ordinal = ordinal});
}

static CUresult add_piece(int ordinal, const struct digest_piece *piece, struct digest_slot *sum)
{
	uint64_t index = piece->first, size;
	CUresult result = CUDA_SUCCESS;
	uint8_t *block = malloc(BLOCK_BYTES);

	if (!block)
		abort();
	for (uint64_t done = 0; result == CUDA_SUCCESS && done < piece->bytes; done += size) {
		size = piece->bytes - done < BLOCK_BYTES ? piece->bytes - done : BLOCK_BYTES;
		result = read_device(ordinal, piece->address + done, block, size);
		for (uint64_t at = 0; result == CUDA_SUCCESS && at < size; at += 8) {
			uint64_t word = 0;

			memcpy(&word, block + at, size - at < 8 ? size - at : 8);
			add_word(sum, index++, word);
		}
	}
	free(block);
	return result;
}

/* One block of the grid. */
static CUresult digest_piece(const struct stream_work *work, unsigned number)
{
	struct digest_slot slot, sum = {0};
	struct digest_piece piece;
	struct stream_work to = {.host = &slot, .bytes = sizeof(slot), .ordinal = work->ordinal};
	CUresult result =
		read_device(work->ordinal, work->from + number * sizeof(piece), &piece, sizeof(piece));

	if (result == CUDA_SUCCESS)
		result = add_piece(work->ordinal, &piece, &sum);
	if (result != CUDA_SUCCESS)
		return result;
	to.from = to.to = work->to + piece.slot * sizeof(slot);
	result = copy_out(&to);
	slot.a += sum.a;
	slot.b += sum.b;
	slot.bits |= sum.bits;
	return result == CUDA_SUCCESS ? copy_in(&to) : result;
}

/* A bad address is found when the kernel runs: CUDA_ERROR_ILLEGAL_ADDRESS for who waits. */
static CUresult digest(const struct stream_work *work)
{
	CUresult result = CUDA_SUCCESS;

	for (unsigned i = 0; result == CUDA_SUCCESS && i < work->value; i++)
		result = digest_piece(work, i);
	return result;
}

/* ---- the comparison --------------------------------------------------------- */

static CUresult differ(int ordinal, const struct compare_piece *piece, bool *ret)
{
	uint8_t *a = malloc(piece->bytes + 1), *b = malloc(piece->bytes + 1);
	CUresult result;

	if (!a || !b)
		abort();
	result = read_device(ordinal, piece->a, a, piece->bytes);
	if (result == CUDA_SUCCESS)
		result = read_device(ordinal, piece->b, b, piece->bytes);
	if (result == CUDA_SUCCESS && memcmp(a, b, piece->bytes) != 0)
		*ret = true;
	free(a);
	free(b);
	return result;
}

/* As the real one, it only ever sets the result. */
static CUresult compare(const struct stream_work *work)
{
	uint64_t one = 1;
	struct stream_work to = {
		.from = work->to, .to = work->to, .host = &one, .bytes = sizeof(one), .ordinal = work->ordinal};
	CUresult result = CUDA_SUCCESS;
	bool differs = false;

	for (unsigned i = 0; result == CUDA_SUCCESS && i < work->value; i++) {
		struct compare_piece piece;

		result = read_device(work->ordinal, work->from + i * sizeof(piece), &piece, sizeof(piece));
		if (result == CUDA_SUCCESS && (piece.a % 16 || piece.b % 16 || piece.bytes % 16))
			result = CUDA_ERROR_MISALIGNED_ADDRESS;
		if (result == CUDA_SUCCESS)
			result = differ(work->ordinal, &piece, &differs);
	}
	return result == CUDA_SUCCESS && differs ? copy_in(&to) : result;
}

DRIVER_CALL(cuLaunchKernel, NEEDS_CONTEXT,
	    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
	     unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **arguments,
	     void **extra),
	    (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, arguments, extra))
{
	struct stream_work work = {.value = grid_x};

	if (function < functions || function >= functions + MODULES_MAX * KERNELS ||
	    !is_module(function->module))
		return CUDA_ERROR_INVALID_HANDLE;
	if (grid_x == 0 || grid_x > INT32_MAX || grid_y != 1 || grid_z != 1 ||
	    block_x != kernels[function->kernel].threads || block_y != 1 || block_z != 1 || shared ||
	    !arguments || extra)
		return CUDA_ERROR_INVALID_VALUE;
	context_check(&work.ordinal);
	work.from = *(const CUdeviceptr *)arguments[0];
	work.to = *(const CUdeviceptr *)arguments[1];
	return stream_later(stream, kernels[function->kernel].run, &work);
}
