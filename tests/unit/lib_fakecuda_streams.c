/* What is queued on streams, as tests/fakecuda does it. */
#ifdef GPUWM_CUDA

#include "tests/support/lib/fakecuda.h"

TestSuite(fakecuda_streams, .init = fakecuda_open);

static unsigned char pinned[4096] __attribute__((aligned(4096)));

/* Memory of a device that it may write, in its context, with pinned bytes of 1. */
static CUdeviceptr start(int device)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;

	enter(device);
	GOOD(create(&handle, MIB2, device));
	GOOD(cu.cuMemAddressReserve(&address, MIB2, 0, 0, 0));
	GOOD(cu.cuMemMap(address, MIB2, 0, handle, 0));
	GOOD(set_access(address, MIB2, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	memset(pinned, 1, sizeof pinned);
	return address;
}

static void pin(void)
{
	GOOD(cu.cuMemHostRegister_v2(pinned, sizeof pinned, CU_MEMHOSTREGISTER_PORTABLE));
}

static CUstream stream(unsigned flags)
{
	CUstream made;

	GOOD(cu.cuStreamCreate(&made, flags));
	return made;
}

static unsigned char byte_at(CUdeviceptr address)
{
	unsigned char byte = 0;

	GOOD(cu.cuMemcpyDtoH_v2(&byte, address, 1));
	return byte;
}

Test(fakecuda_streams, copy_from_pinned_memory_when_something_waits)
{
	CUdeviceptr address;
	CUstream s;

	GOOD(cu.cuInit(0));
	address = start(0);
	pin();
	s = stream(CU_STREAM_NON_BLOCKING);
	GOOD(cu.cuMemcpyHtoDAsync_v2(address, pinned, 16, s));
	cr_assert_eq(byte_at(address), 0);
	pinned[0] = 2;
	IS(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(s));
	GOOD(cu.cuStreamQuery(s));
	cr_assert_eq(byte_at(address), 2);
}

Test(fakecuda_streams, copy_from_other_memory_within_the_call)
{
	CUdeviceptr address;
	CUstream s;

	GOOD(cu.cuInit(0));
	address = start(0);
	s = stream(CU_STREAM_NON_BLOCKING);
	GOOD(cu.cuMemcpyHtoDAsync_v2(address, pinned, 16, s));
	cr_assert_eq(byte_at(address), 1);
}

Test(fakecuda_streams, come_before_the_default_one_unless_they_stand_apart)
{
	CUdeviceptr address;

	GOOD(cu.cuInit(0));
	address = start(0);
	pin();
	GOOD(cu.cuMemcpyHtoDAsync_v2(address, pinned, 16, stream(CU_STREAM_DEFAULT)));
	GOOD(cu.cuMemcpyHtoDAsync_v2(address + 16, pinned, 16, stream(CU_STREAM_NON_BLOCKING)));
	cr_assert_eq(byte_at(address), 1);
	cr_assert_eq(byte_at(address + 16), 0);
	GOOD(cu.cuCtxSynchronize());
	cr_assert_eq(byte_at(address + 16), 1);
}

Test(fakecuda_streams, are_done_up_to_an_event)
{
	CUdeviceptr address;
	CUevent event;
	CUstream s;

	GOOD(cu.cuInit(0));
	address = start(0);
	pin();
	s = stream(CU_STREAM_NON_BLOCKING);
	GOOD(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	GOOD(cu.cuEventSynchronize(event));
	GOOD(cu.cuMemcpyHtoDAsync_v2(address, pinned, 16, s));
	GOOD(cu.cuEventRecord(event, s));
	GOOD(cu.cuMemcpyHtoDAsync_v2(address + 16, pinned, 16, s));
	GOOD(cu.cuEventSynchronize(event));
	cr_assert_eq(byte_at(address), 1);
	cr_assert_eq(byte_at(address + 16), 0);
}

/* The first GPU's bytes, passed on to the second behind their arrival. */
Test(fakecuda_streams, wait_for_events_of_another_context)
{
	CUdeviceptr first, second;
	CUstream to, on;
	CUevent event;

	GOOD(cu.cuInit(0));
	second = start(1);
	on = stream(CU_STREAM_NON_BLOCKING);
	first = start(0);
	pin();
	to = stream(CU_STREAM_NON_BLOCKING);
	GOOD(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	GOOD(cu.cuMemcpyHtoDAsync_v2(first, pinned, 16, to));
	GOOD(cu.cuEventRecord(event, to));
	enter(1);
	IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoDAsync_v2(second, first, 16, on));
	GOOD(set_access(first, MIB2, 1, CU_MEM_ACCESS_FLAGS_PROT_READ));
	GOOD(cu.cuStreamWaitEvent(on, event, 0));
	GOOD(cu.cuMemcpyDtoDAsync_v2(second, first, 16, on));
	GOOD(cu.cuStreamSynchronize(on));
	cr_assert_eq(byte_at(second), 1);
}

Test(fakecuda_streams, belong_to_their_context)
{
	CUdeviceptr address;
	CUevent event;
	CUstream s;

	GOOD(cu.cuInit(0));
	enter(1);
	s = stream(CU_STREAM_NON_BLOCKING);
	GOOD(cu.cuEventCreate(&event, 0));
	address = start(0);
	IS(CUDA_ERROR_INVALID_HANDLE, cu.cuMemcpyHtoDAsync_v2(address, pinned, 16, s));
	IS(CUDA_ERROR_INVALID_HANDLE, cu.cuEventRecord(event, NULL));
	GOOD(cu.cuStreamSynchronize(s));
	GOOD(cu.cuDevicePrimaryCtxRelease_v2(1));
	IS(CUDA_ERROR_INVALID_HANDLE, cu.cuStreamSynchronize(s));
	IS(CUDA_ERROR_INVALID_HANDLE, cu.cuEventSynchronize(event));
}

Test(fakecuda_streams, tell_who_waits_of_memory_that_is_gone)
{
	CUdeviceptr address;
	CUstream s;

	GOOD(cu.cuInit(0));
	address = start(0);
	pin();
	s = stream(CU_STREAM_NON_BLOCKING);
	GOOD(cu.cuMemcpyHtoDAsync_v2(address, pinned, 16, s));
	unmap(address, MIB2);
	IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuStreamSynchronize(s));
	IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuCtxSynchronize());
}

static void peers(const char *setting, int expected)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
	int can = -1;

	setenv("FAKECUDA_PEERS", setting, 1);
	GOOD(cu.cuInit(0));
	GOOD(cu.cuDeviceCanAccessPeer(&can, 0, 1));
	cr_assert_eq(can, expected);
	GOOD(cu.cuDeviceCanAccessPeer(&can, 1, 1));
	cr_assert_eq(can, 0, "a device is no peer of itself");
	IS(CUDA_ERROR_INVALID_DEVICE, cu.cuDeviceCanAccessPeer(&can, 0, 2));
	GOOD(create(&handle, MIB2, 0));
	address = map(handle, MIB2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	IS(expected ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE,
	   set_access(address, MIB2, 1, CU_MEM_ACCESS_FLAGS_PROT_READ));
}

Test(fakecuda_streams, reach_memory_of_a_peer)
{
	peers("1", 1);
}

Test(fakecuda_streams, reach_no_memory_where_there_are_no_peers)
{
	peers("0", 0);
}

#endif
