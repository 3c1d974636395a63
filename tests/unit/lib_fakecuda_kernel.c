/* The rules of modules and launches that the stand-in driver keeps, and gpuwm's images. */
#ifdef GPUWM_CUDA

#include "tests/support/lib/fakecuda.h"

#include "../../memory/memory_internal.h"
#include "../../memory/kernels/pieces.h"
#include "../../proto/index/digest.h"

/* The least text that is PTX. */
static const char PTX[] = ".version 7.4\n.target sm_75\n.visible .entry gpuwm_digest()\n{\n\tret;\n}\n";

static CUdeviceptr memory; /* writable, of the first device */

static void setup(void)
{
	CUmemGenericAllocationHandle handle;

	setenv("FAKECUDA_STRICT", "1", 1);
	fakecuda_open();
	GOOD(cu.cuInit(0));
	GOOD(create(&handle, MIB2, 0));
	memory = map(handle, MIB2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	enter(0);
	GOOD(cu.cuMemsetD8_v2(memory, 0, MIB2));
}

TestSuite(fakecuda_kernel, .init = setup);

static CUfunction kernel(void)
{
	CUfunction function;
	CUmodule module;

	GOOD(cu.cuModuleLoadData(&module, PTX));
	GOOD(cu.cuModuleGetFunction(&function, module, DIGEST_KERNEL));
	return function;
}

static CUresult launch(CUfunction function, unsigned grid, unsigned block, CUdeviceptr pieces,
		       CUdeviceptr slots)
{
	void *arguments[] = {&pieces, &slots};

	return cu.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, NULL, arguments, NULL);
}

Test(fakecuda_kernel, takes_what_is_an_image)
{
	CUfunction function;
	CUmodule module;

	IS(CUDA_ERROR_INVALID_IMAGE, cu.cuModuleLoadData(&module, "neither code nor text of PTX"));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuModuleLoadData(&module, NULL));
	GOOD(cu.cuModuleLoadData(&module, PTX));
	IS(CUDA_ERROR_NOT_FOUND, cu.cuModuleGetFunction(&function, module, "gpuwm_dance"));
	IS(CUDA_ERROR_INVALID_HANDLE, cu.cuModuleGetFunction(&function, NULL, DIGEST_KERNEL));
}

Test(fakecuda_kernel, modules_end_with_their_context)
{
	CUfunction function = kernel();

	GOOD(launch(function, 1, DIGEST_THREADS, memory, memory + 4096));
	GOOD(cu.cuDevicePrimaryCtxRelease_v2(0));
	cu.cuCtxSetCurrent(NULL);
	enter(0);
	IS(CUDA_ERROR_INVALID_HANDLE, launch(function, 1, DIGEST_THREADS, memory, memory + 4096));
}

Test(fakecuda_kernel, a_process_may_make_contexts_for_long)
{
	for (int i = 0; i < 200; i++) {
		kernel();
		GOOD(cu.cuDevicePrimaryCtxRelease_v2(0));
		cu.cuCtxSetCurrent(NULL);
		enter(0);
	}
}

Test(fakecuda_kernel, launches_as_the_contract_says)
{
	CUfunction function = kernel();

	IS(CUDA_ERROR_INVALID_VALUE, launch(function, 0, DIGEST_THREADS, memory, memory + 4096));
	IS(CUDA_ERROR_INVALID_VALUE, launch(function, 1, DIGEST_THREADS / 2, memory, memory + 4096));
	IS(CUDA_ERROR_INVALID_HANDLE, launch(NULL, 1, DIGEST_THREADS, memory, memory + 4096));
}

Test(fakecuda_kernel, adds_digests_to_their_slots)
{
	const char text[] = "bytes of a tensor";
	struct digest_piece pieces[] = {
		{memory + 9, 0, 16, 1}, {memory + 25, 2, sizeof(text) - 16, 1}, {memory + 64, 0, 100, 0}};
	struct digest expected = digest_of(text, sizeof(text)), digest;
	struct digest_slot slots[2];
	struct digest_sum sum;

	GOOD(cu.cuMemcpyHtoD_v2(memory + 9, text, sizeof(text)));
	GOOD(cu.cuMemcpyHtoD_v2(memory + 4096, pieces, sizeof(pieces)));
	GOOD(launch(kernel(), 3, DIGEST_THREADS, memory + 4096, memory + 8192));
	GOOD(cu.cuMemcpyDtoH_v2(slots, memory + 8192, sizeof(slots)));
	sum = (struct digest_sum){slots[1].a, slots[1].b};
	digest = digest_final(&sum, sizeof(text));
	cr_expect(digest_equal(&digest, &expected));
	cr_expect_neq(slots[1].bits, 0);
	cr_expect_eq(slots[0].bits, 0, "all of it is zero");
}

/* The launch itself goes well, as on a GPU. */
Test(fakecuda_kernel, bad_addresses_break_the_context)
{
	struct digest_piece piece = {memory + MIB2 - 8, 0, 16, 0};
	CUstream stream;
	CUdeviceptr pieces = memory, slots = memory + 4096;
	void *arguments[] = {&pieces, &slots};
	CUfunction function = kernel();

	GOOD(cu.cuMemcpyHtoD_v2(memory, &piece, sizeof(piece)));
	GOOD(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	GOOD(cu.cuLaunchKernel(function, 1, 1, 1, DIGEST_THREADS, 1, 1, 0, stream, arguments, NULL));
	IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuStreamSynchronize(stream));
	IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuCtxSynchronize());
}

/* What was compiled is what is launched. */
Test(fakecuda_kernel, the_images_hold_the_kernel_of_the_contract)
{
	const char *ptx = kernel_images[1];
	CUfunction function;
	CUmodule module;

	_Static_assert(sizeof(struct digest_piece) == 24 && sizeof(struct digest_slot) == 24, "as on the GPU");
	_Static_assert(sizeof(struct sha256_leaf) == 16 && sizeof(struct sha256_sum) == 32, "as on the GPU");
	if (!kernel_images[0])
		cr_skip_test("built without nvcc");
	for (int i = 0; i < KERNEL_IMAGES; i++) {
		GOOD(cu.cuModuleLoadData(&module, kernel_images[i]));
		GOOD(cu.cuModuleGetFunction(&function, module, DIGEST_KERNEL));
		GOOD(cu.cuModuleGetFunction(&function, module, SHA256_KERNEL));
	}
	cr_expect(strstr(ptx, ".entry " SHA256_KERNEL));
	cr_expect(strstr(ptx, ".version 7.4\n"));
	cr_expect(strstr(ptx, ".target sm_75\n"));
	cr_expect(strstr(ptx, ".visible .entry " DIGEST_KERNEL "("));
	cr_expect(strstr(ptx, DIGEST_KERNEL "_param_1") && !strstr(ptx, DIGEST_KERNEL "_param_2"),
		  "two arguments");
}

#endif
