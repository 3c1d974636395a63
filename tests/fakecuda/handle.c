/* Physical memory: made, held, exported, imported. */
#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static struct allocation *allocations;
static CUmemGenericAllocationHandle last_handle;

struct allocation *allocation_of(int fd, int ordinal, uint64_t bytes)
{
	struct allocation *allocation = calloc(1, sizeof(*allocation));

	if (!allocation)
		abort();
	*allocation = (struct allocation){.next = allocations,
					  .fd = fd,
					  .ordinal = ordinal,
					  .bytes = bytes,
					  .holds = 1,
					  .handle = ++last_handle};
	allocations = allocation;
	return allocation;
}

CUresult allocation_create(int ordinal, uint64_t bytes, struct allocation **ret)
{
	CUresult lost = device_loss(ordinal);
	int fd;

	if (lost != CUDA_SUCCESS && lost != CUDA_ERROR_ECC_UNCORRECTABLE)
		return lost;
	fd = memory_file_create(device_physical(ordinal), bytes);
	if (fd < 0)
		return fd == -ENOSPC ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_OPERATING_SYSTEM;
	*ret = allocation_of(fd, ordinal, bytes);
	return CUDA_SUCCESS;
}

struct allocation *allocation_find(CUmemGenericAllocationHandle handle)
{
	struct allocation *allocation = handle ? allocations : NULL;

	while (allocation && allocation->handle != handle)
		allocation = allocation->next;
	return allocation;
}

void allocation_hold(struct allocation *allocation)
{
	allocation->holds++;
}

void allocation_drop(struct allocation *allocation)
{
	struct allocation **link = &allocations;

	if (--allocation->holds)
		return;
	while (*link != allocation)
		link = &(*link)->next;
	*link = allocation->next;
	close(allocation->fd);
	free(allocation);
}

DRIVER_CALL(cuMemGetAllocationGranularity, NEEDS_INIT,
	    (size_t * ret, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags option),
	    (ret, properties, option))
{
	if (!ret || !properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_physical(properties->location.id) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*ret = GRANULARITY;
	return CUDA_SUCCESS;
}

static CUresult properties_check(const CUmemAllocationProp *properties)
{
	if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_physical(properties->location.id) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	switch (properties->requestedHandleTypes) {
	case CU_MEM_HANDLE_TYPE_NONE:
	case CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR:
		return CUDA_SUCCESS;
	case CU_MEM_HANDLE_TYPE_FABRIC: /* without an IMEX channel */
		return machine()->fabric ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

DRIVER_CALL(cuMemCreate, NEEDS_INIT,
	    (CUmemGenericAllocationHandle * ret, size_t bytes, const CUmemAllocationProp *properties,
	     unsigned long long flags),
	    (ret, bytes, properties, flags))
{
	struct allocation *allocation;
	CUresult result = properties_check(properties);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret || !bytes || bytes % GRANULARITY || flags)
		return CUDA_ERROR_INVALID_VALUE;
	result = allocation_create(properties->location.id, bytes, &allocation);
	if (result != CUDA_SUCCESS)
		return result;
	allocation->exportable = properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	*ret = allocation->handle;
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuMemRelease, NEEDS_INIT, (CUmemGenericAllocationHandle handle), (handle))
{
	struct allocation *allocation = allocation_find(handle);

	if (!allocation)
		return CUDA_ERROR_INVALID_VALUE;
	allocation->handle = 0;
	allocation_drop(allocation);
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuMemExportToShareableHandle, NEEDS_INIT,
	    (void *ret, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
	     unsigned long long flags),
	    (ret, handle, type, flags))
{
	struct allocation *allocation = allocation_find(handle);
	int fd;

	if (!ret || !allocation || !allocation->exportable || flags ||
	    type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	fd = fcntl(allocation->fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*(int *)ret = fd;
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuMemImportFromShareableHandle, NEEDS_INIT,
	    (CUmemGenericAllocationHandle * ret, void *shareable, CUmemAllocationHandleType type),
	    (ret, shareable, type))
{
	int physical, ordinal, fd = (int)(intptr_t)shareable;
	uint64_t bytes;

	if (!ret || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	if (!memory_file_of(fd, &physical, &bytes))
		return CUDA_ERROR_UNKNOWN;
	ordinal = device_ordinal(physical);
	if (ordinal < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	if (device_loss(ordinal) != CUDA_SUCCESS)
		return device_loss(ordinal);
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*ret = allocation_of(fd, ordinal, bytes)->handle;
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuMemGetAllocationPropertiesFromHandle, NEEDS_INIT,
	    (CUmemAllocationProp * ret, CUmemGenericAllocationHandle handle), (ret, handle))
{
	struct allocation *allocation = allocation_find(handle);

	if (!ret || !allocation)
		return CUDA_ERROR_INVALID_VALUE;
	/* An imported handle can't be exported: no handle types (as a real driver says it). */
	*ret = (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = allocation->ordinal},
		.requestedHandleTypes = allocation->exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
							       : CU_MEM_HANDLE_TYPE_NONE,
	};
	return CUDA_SUCCESS;
}
