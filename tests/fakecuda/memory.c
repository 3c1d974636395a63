/* cuMemAlloc and pinned host memory: for those beside gpuwm who use them. */
#include "driver.h"

#include <stdlib.h>
#include <sys/mman.h>

struct host_range {
	struct host_range *next;
	uintptr_t address;
	size_t bytes;
	bool ours; /* cuMemHostAlloc's */
};

static struct host_range *host_ranges;

DRIVER_CALL(cuMemGetInfo_v2, NEEDS_CONTEXT, (size_t * free_bytes, size_t *total), (free_bytes, total))
{
	int ordinal;

	if (!free_bytes || !total)
		return CUDA_ERROR_INVALID_VALUE;
	context_check(&ordinal);
	*free_bytes = machine()->memory - memory_used(device_physical(ordinal));
	*total = machine()->memory;
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuMemAlloc_v2, NEEDS_CONTEXT, (CUdeviceptr * ret, size_t bytes), (ret, bytes))
{
	uint64_t rounded = (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
	struct allocation *allocation;
	CUdeviceptr address;
	CUresult result;
	int ordinal;

	if (!ret || !bytes || rounded < bytes)
		return CUDA_ERROR_INVALID_VALUE;
	context_check(&ordinal);
	result = allocation_create(ordinal, rounded, &allocation);
	if (result != CUDA_SUCCESS)
		return result;
	address = addresses_take(rounded, GRANULARITY, 0);
	if (!address)
		abort();
	*ret = address;
	return mapping_plain(address, allocation);
}

DRIVER_CALL(cuMemFree_v2, NEEDS_CONTEXT, (CUdeviceptr address), (address))
{
	return address ? mapping_plain_end(address) : CUDA_SUCCESS;
}

/* The range that overlaps, or NULL. */
static struct host_range *host_overlap(const void *address, size_t bytes)
{
	struct host_range *range = host_ranges;

	while (range && (range->address >= (uintptr_t)address + bytes ||
			 range->address + range->bytes <= (uintptr_t)address))
		range = range->next;
	return range;
}

bool host_pinned(const void *address, size_t bytes)
{
	const struct host_range *range = host_overlap(address, bytes);

	return range && (uintptr_t)address >= range->address &&
	       (uintptr_t)address + bytes <= range->address + range->bytes;
}

static void host_add(const void *address, size_t bytes, bool ours)
{
	struct host_range *range = malloc(sizeof(*range));

	if (!range)
		abort();
	*range = (struct host_range){
		.next = host_ranges, .address = (uintptr_t)address, .bytes = bytes, .ours = ours};
	host_ranges = range;
}

/* The range that begins there is forgotten. Its size, or 0: there is none. */
static size_t host_remove(const void *address, bool ours)
{
	struct host_range **link = &host_ranges, *range;
	size_t bytes;

	while (*link && ((*link)->address != (uintptr_t)address || (*link)->ours != ours))
		link = &(*link)->next;
	range = *link;
	if (!range)
		return 0;
	*link = range->next;
	bytes = range->bytes;
	free(range);
	return bytes;
}

DRIVER_CALL(cuMemHostAlloc, NEEDS_CONTEXT, (void **ret, size_t bytes, unsigned flags), (ret, bytes, flags))
{
	void *area;

	if (!ret || !bytes || flags > 7)
		return CUDA_ERROR_INVALID_VALUE;
	area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	host_add(area, bytes, true);
	*ret = area;
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuMemFreeHost, NEEDS_CONTEXT, (void *address), (address))
{
	size_t bytes = host_remove(address, true);

	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	munmap(address, bytes);
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuMemHostRegister_v2, NEEDS_CONTEXT, (void *address, size_t bytes, unsigned flags),
	    (address, bytes, flags))
{
	if (!address || !bytes || flags > 15)
		return CUDA_ERROR_INVALID_VALUE;
	if (host_overlap(address, bytes))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	host_add(address, bytes, false);
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuMemHostUnregister, NEEDS_CONTEXT, (void *address), (address))
{
	return host_remove(address, false) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

/* One address for the CPU and all devices. */
DRIVER_CALL(cuMemHostGetDevicePointer_v2, NEEDS_CONTEXT, (CUdeviceptr * ret, void *address, unsigned flags),
	    (ret, address, flags))
{
	if (!ret || flags || !host_pinned(address, 1))
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (CUdeviceptr)address;
	return CUDA_SUCCESS;
}
