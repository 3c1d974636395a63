/* Legacy IPC: a handle names the maker and its descriptor, so it is worth nothing when the maker is gone. */
#include "driver.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct ipc_handle {
	char magic[8];
	pid_t maker;
	int fd;
};
_Static_assert(sizeof(struct ipc_handle) <= sizeof(CUipcMemHandle), "a handle has room for it");

static const char magic[8] = "fakeipc";

DRIVER_CALL(cuIpcGetMemHandle, NEEDS_CONTEXT, (CUipcMemHandle * ret, CUdeviceptr address), (ret, address))
{
	const struct mapping *mapping = mapping_find(address);
	struct ipc_handle handle = {.maker = getpid()};

	if (!ret || !mapping || !mapping->plain)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(handle.magic, magic, sizeof(magic));
	handle.fd = mapping->allocation->fd;
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, &handle, sizeof(handle));
	return CUDA_SUCCESS;
}

/* The maker's descriptor, opened here. -1: the maker is gone, or has given the memory back. */
static int open_of(const struct ipc_handle *handle)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->maker, handle->fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

static CUresult map_it(int fd, CUdeviceptr *ret)
{
	int physical, ordinal;
	uint64_t bytes;

	if (!memory_file_of(fd, &physical, &bytes))
		return CUDA_ERROR_INVALID_VALUE;
	ordinal = device_ordinal(physical);
	if (ordinal < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*ret = addresses_take(bytes, GRANULARITY, 0);
	return mapping_plain(*ret, allocation_of(fd, ordinal, bytes));
}

/* The header gives this name to what programs call cuIpcOpenMemHandle. */
DRIVER_CALL(cuIpcOpenMemHandle, NEEDS_CONTEXT, (CUdeviceptr * ret, CUipcMemHandle opaque, unsigned flags),
	    (ret, opaque, flags))
{
	struct ipc_handle handle;
	CUresult result;
	int fd;

	memcpy(&handle, &opaque, sizeof(handle));
	if (!ret || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ||
	    memcmp(handle.magic, magic, sizeof(magic)) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (handle.maker == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	fd = open_of(&handle);
	if (fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	result = map_it(fd, ret);
	if (result != CUDA_SUCCESS)
		close(fd);
	return result;
}

DRIVER_CALL(cuIpcCloseMemHandle, NEEDS_CONTEXT, (CUdeviceptr address), (address))
{
	return mapping_plain_end(address);
}
