/* The rules of the driver that tests/fakecuda keeps, within one process. */
#ifdef GPUWM_CUDA

#include "tests/support/lib/fakecuda.h"

#include <fcntl.h>

TestSuite(fakecuda, .init = fakecuda_open);

Test(fakecuda, does_nothing_before_init)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	int count, version;

	IS(CUDA_ERROR_NOT_INITIALIZED, cu.cuDeviceGetCount(&count));
	IS(CUDA_ERROR_NOT_INITIALIZED, create(&handle, MIB2, 0));
	IS(CUDA_ERROR_NOT_INITIALIZED, cu.cuMemAddressReserve(&address, MIB2, 0, 0, 0));
	IS(CUDA_ERROR_NOT_INITIALIZED, cu.cuCtxSynchronize());
	GOOD(cu.cuDriverGetVersion(&version));
	cr_assert(version >= 12000);
}

Test(fakecuda, refuses_a_forked_child)
{
	int count, status;
	pid_t child;

	GOOD(cu.cuInit(0));
	child = fork();
	if (child == 0)
		_exit(cu.cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
		      cu.cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED);
	cr_assert(waitpid(child, &status, 0) == child);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	GOOD(cu.cuDeviceGetCount(&count));
}

Test(fakecuda, needs_a_context_for_bytes_but_not_for_memory)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	char bytes[16] = {0};
	size_t free_bytes, total;
	void *host;

	GOOD(cu.cuInit(0));
	GOOD(create(&handle, MIB2, 0));
	address = map(handle, MIB2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuMemcpyHtoD_v2(address, bytes, 16));
	IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuMemcpyDtoH_v2(bytes, address, 16));
	IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuMemsetD8_v2(address, 0, 16));
	IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuMemGetInfo_v2(&free_bytes, &total));
	IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuMemHostAlloc(&host, 16, 0));
	IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxSynchronize());
	enter(0);
	GOOD(cu.cuMemcpyHtoD_v2(address, bytes, 16));
	GOOD(cu.cuMemGetInfo_v2(&free_bytes, &total));
}

Test(fakecuda, maps_a_handle_whole_or_not_at_all)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;

	GOOD(cu.cuInit(0));
	GOOD(create(&handle, 2 * MIB2, 0));
	GOOD(cu.cuMemAddressReserve(&address, 4 * MIB2, 0, 0, 0));
	IS(CUDA_ERROR_NOT_SUPPORTED, cu.cuMemMap(address, MIB2, 0, handle, 0));
	IS(CUDA_ERROR_NOT_SUPPORTED, cu.cuMemMap(address, MIB2, MIB2, handle, 0));
	IS(CUDA_ERROR_NOT_SUPPORTED, cu.cuMemMap(address, 4 * MIB2, 0, handle, 0));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemMap(address, 2 * MIB2 - 4096, 0, handle, 0));
	GOOD(cu.cuMemMap(address, 2 * MIB2, 0, handle, 0));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemUnmap(address, MIB2));
	IS(CUDA_ERROR_INVALID_VALUE, set_access(address, MIB2, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
}

Test(fakecuda, takes_multiples_of_the_granularity)
{
	CUmemAllocationProp prop = properties(0);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	size_t granularity;

	GOOD(cu.cuInit(0));
	GOOD(cu.cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	cr_assert(granularity == MIB2);
	IS(CUDA_ERROR_INVALID_VALUE, create(&handle, 0, 0));
	IS(CUDA_ERROR_INVALID_VALUE, create(&handle, MIB2 + 4096, 0));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemAddressReserve(&address, 4096, 0, 0, 0));
	IS(CUDA_ERROR_INVALID_DEVICE, create(&handle, MIB2, 2));
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
	IS(CUDA_ERROR_NOT_PERMITTED, cu.cuMemCreate(&handle, MIB2, &prop, 0));
}

Test(fakecuda, never_exports_what_it_imported)
{
	CUmemGenericAllocationHandle handle, imported;
	CUmemAllocationProp prop = properties(0);
	int fd, again;

	GOOD(cu.cuInit(0));
	GOOD(create(&handle, MIB2, 0));
	GOOD(export(handle, &fd));
	cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	GOOD(import(&imported, fd));
	IS(CUDA_ERROR_INVALID_VALUE, export(imported, &again));
	GOOD(export(handle, &again));
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
	GOOD(cu.cuMemCreate(&handle, MIB2, &prop, 0));
	IS(CUDA_ERROR_INVALID_VALUE, export(handle, &again));
}

Test(fakecuda, imports_nothing_but_its_exports)
{
	CUmemGenericAllocationHandle handle;
	int ends[2], memfd = memfd_create("gpuwm", MFD_CLOEXEC), null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int look_alike = memfd_create("fakecuda-another-0-2097152-1", MFD_CLOEXEC);

	GOOD(cu.cuInit(0));
	cr_assert(pipe2(ends, O_CLOEXEC) == 0 && ftruncate(memfd, (off_t)MIB2) == 0);
	IS(CUDA_ERROR_UNKNOWN, import(&handle, memfd));
	IS(CUDA_ERROR_UNKNOWN, import(&handle, look_alike));
	IS(CUDA_ERROR_UNKNOWN, import(&handle, null));
	IS(CUDA_ERROR_UNKNOWN, import(&handle, ends[0]));
	IS(CUDA_ERROR_UNKNOWN, import(&handle, -1));
	GOOD(create(&handle, MIB2, 0));
}

Test(fakecuda, maps_into_free_reserved_addresses_only)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address, wished;

	GOOD(cu.cuInit(0));
	GOOD(create(&handle, MIB2, 0));
	GOOD(cu.cuMemAddressReserve(&address, 2 * MIB2, 0, 0, 0));
	GOOD(cu.cuMemMap(address, MIB2, 0, handle, 0));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemMap(address, MIB2, 0, handle, 0));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemMap(address + 2 * MIB2, MIB2, 0, handle, 0));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemMap(address + 4096, MIB2, 0, handle, 0));
	GOOD(cu.cuMemMap(address + MIB2, MIB2, 0, handle, 0));
	unmap(address, 2 * MIB2);
	GOOD(cu.cuMemAddressReserve(&wished, 2 * MIB2, 0, address, 0));
	cr_assert(wished == address, "free addresses are given again to who wishes them");
}

Test(fakecuda, keeps_memory_out_of_reach_until_access_is_set)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	unsigned long long flags;
	CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};

	GOOD(cu.cuInit(0));
	enter(0);
	GOOD(create(&handle, MIB2, 0));
	GOOD(cu.cuMemAddressReserve(&address, MIB2, 0, 0, 0));
	cr_assert(faults(address, false));
	GOOD(cu.cuMemMap(address, MIB2, 0, handle, 0));
	cr_assert(faults(address, false));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8_v2(address, 1, 16));
	GOOD(set_access(address, MIB2, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	cr_assert(!faults(address, true));
	GOOD(cu.cuMemGetAccess(&flags, &location, address));
	cr_assert(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	GOOD(cu.cuMemUnmap(address, MIB2));
	cr_assert(faults(address, false));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8_v2(address, 1, 16));
}

Test(fakecuda, refuses_writes_to_read_only_memory_and_lives_on)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	char bytes[16] = {1}, back[16];

	GOOD(cu.cuInit(0));
	enter(0);
	GOOD(create(&handle, MIB2, 0));
	address = map(handle, MIB2, CU_MEM_ACCESS_FLAGS_PROT_READ);
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8_v2(address, 1, 16));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD_v2(address, bytes, 16));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoDAsync_v2(address, bytes, 16, NULL));
	cr_assert(faults(address, true) && !faults(address, false));
	GOOD(cu.cuCtxSynchronize());
	GOOD(cu.cuMemcpyDtoH_v2(back, address, 16));
	cr_assert(back[0] == 0);
}

Test(fakecuda, needs_the_rights_of_the_contexts_device)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	char back[16];

	GOOD(cu.cuInit(0));
	GOOD(create(&handle, MIB2, 1));
	address = map(handle, MIB2, CU_MEM_ACCESS_FLAGS_PROT_READ);
	enter(1);
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoH_v2(back, address, 16));
	enter(0);
	GOOD(cu.cuMemcpyDtoH_v2(back, address, 16));
	IS(CUDA_ERROR_INVALID_DEVICE, set_access(address, MIB2, 2, CU_MEM_ACCESS_FLAGS_PROT_READ));
	IS(CUDA_ERROR_INVALID_DEVICE, set_access(address, MIB2, -1, CU_MEM_ACCESS_FLAGS_PROT_READ));
}

Test(fakecuda, can_keep_the_cpu_out)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	char bytes[16] = "device memory", back[16];

	setenv("FAKECUDA_STRICT", "1", 1);
	GOOD(cu.cuInit(0));
	enter(0);
	GOOD(create(&handle, MIB2, 0));
	address = map(handle, MIB2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	cr_assert(faults(address, false) && faults(address, true));
	GOOD(cu.cuMemcpyHtoD_v2(address, bytes, 16));
	GOOD(cu.cuMemcpyDtoH_v2(back, address, 16));
	cr_assert_str_eq(bytes, back);
}

Test(fakecuda, can_hand_out_memory_that_is_not_zero)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	unsigned char back[4];

	setenv("FAKECUDA_DIRTY", "1", 1);
	GOOD(cu.cuInit(0));
	enter(0);
	GOOD(create(&handle, MIB2, 0));
	address = map(handle, MIB2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	GOOD(cu.cuMemsetD8_v2(address, 0, MIB2 - 1));
	GOOD(cu.cuMemcpyDtoH_v2(back, address + MIB2 - 4, 4));
	cr_assert(back[2] == 0 && back[3] == 0xa5);
}

Test(fakecuda, shows_one_allocation_at_all_its_mappings)
{
	CUmemGenericAllocationHandle handle, other;
	CUdeviceptr first, second;
	unsigned char back[8];

	GOOD(cu.cuInit(0));
	enter(0);
	GOOD(create(&handle, MIB2, 0));
	GOOD(create(&other, MIB2, 0));
	GOOD(cu.cuMemAddressReserve(&first, 2 * MIB2, 0, 0, 0));
	GOOD(cu.cuMemMap(first, MIB2, 0, other, 0));
	GOOD(cu.cuMemMap(first + MIB2, MIB2, 0, handle, 0));
	GOOD(set_access(first, 2 * MIB2, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	second = map(handle, MIB2, CU_MEM_ACCESS_FLAGS_PROT_READ);
	/* Across the border of two mappings. */
	GOOD(cu.cuMemsetD8_v2(first + MIB2 - 2, 7, 4));
	GOOD(cu.cuMemcpyDtoH_v2(back, first + MIB2 - 4, 8));
	cr_assert_arr_eq(back, ((unsigned char[]){0, 0, 7, 7, 7, 7, 0, 0}), 8);
	GOOD(cu.cuMemcpyDtoH_v2(back, second, 4));
	cr_assert_arr_eq(back, ((unsigned char[]){7, 7, 0, 0}), 4);
	GOOD(cu.cuMemsetD32_v2(first + 8, 0x01020304, 1));
	GOOD(cu.cuMemcpyDtoD_v2(first + MIB2, first + 8, 4));
	GOOD(cu.cuMemcpyDtoH_v2(back, second, 4));
	cr_assert_arr_eq(back, ((unsigned char[]){4, 3, 2, 1}), 4);
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoH_v2(back, second + MIB2 - 4, 8));
}

Test(fakecuda, lets_go_of_everything_once)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;

	GOOD(cu.cuInit(0));
	GOOD(create(&handle, MIB2, 0));
	address = map(handle, MIB2, CU_MEM_ACCESS_FLAGS_PROT_READ);
	GOOD(cu.cuMemRelease(handle));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemRelease(handle));
	cr_assert(!faults(address, false), "a mapping outlives its handle");
	cr_assert(used() == MIB2);
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemAddressFree(address, MIB2));
	GOOD(cu.cuMemUnmap(address, MIB2));
	cr_assert(used() == 0);
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemUnmap(address, MIB2));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemAddressFree(address, 2 * MIB2));
	GOOD(cu.cuMemAddressFree(address, MIB2));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemAddressFree(address, MIB2));
}

Test(fakecuda, has_plain_memory_apart_from_mapped)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr plain, mapped;

	GOOD(cu.cuInit(0));
	enter(0);
	GOOD(cu.cuMemAlloc_v2(&plain, 8));
	GOOD(cu.cuMemsetD8_v2(plain, 1, 8));
	cr_assert(used() == MIB2);
	GOOD(create(&handle, MIB2, 0));
	mapped = map(handle, MIB2, CU_MEM_ACCESS_FLAGS_PROT_READ);
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(mapped));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemUnmap(plain, MIB2));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(plain + 4));
	GOOD(cu.cuMemFree_v2(plain));
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(plain));
	cr_assert(used() == MIB2);
}

#endif
