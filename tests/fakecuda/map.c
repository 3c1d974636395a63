/* Addresses, and what is mapped at them. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct reservation {
	struct reservation *next;
	CUdeviceptr address;
	uint64_t bytes;
};

static struct reservation *reservations;
static struct mapping *mappings;

CUdeviceptr addresses_take(uint64_t bytes, uint64_t alignment, CUdeviceptr wish)
{
	uint64_t room = bytes + alignment;
	uintptr_t start, address;
	void *area;

	if (wish) {
		area = mmap((void *)wish, bytes, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
		if (area == (void *)wish)
			return wish;
		if (area != MAP_FAILED)
			munmap(area, bytes);
	}
	area = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (area == MAP_FAILED)
		return 0;
	start = (uintptr_t)area;
	address = (start + alignment - 1) / alignment * alignment;
	if (address > start)
		munmap(area, address - start);
	munmap((void *)(address + bytes), start + room - address - bytes);
	return address;
}

void addresses_give(CUdeviceptr address, uint64_t bytes)
{
	munmap((void *)address, bytes);
}

struct mapping *mapping_find(CUdeviceptr address)
{
	struct mapping *mapping = mappings;

	while (mapping &&
	       (address < mapping->address || address >= mapping->address + mapping->allocation->bytes))
		mapping = mapping->next;
	return mapping;
}

CUresult mapping_protect(struct mapping *mapping)
{
	uint64_t bytes = mapping->allocation->bytes;
	int protection = PROT_NONE;
	void *area;

	for (int i = 0; i < DEVICES_MAX && !machine()->strict; i++) {
		if (mapping->access[i] & CU_MEM_ACCESS_FLAGS_PROT_READ)
			protection |= PROT_READ;
		if (mapping->access[i] == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			protection |= PROT_WRITE;
	}
	area = mmap((void *)mapping->address, bytes, protection, MAP_SHARED | MAP_FIXED,
		    mapping->allocation->fd, 0);
	if (area == MAP_FAILED)
		return CUDA_ERROR_OPERATING_SYSTEM;
	/* A forked child has no device memory. */
	madvise(area, bytes, MADV_DONTFORK);
	return CUDA_SUCCESS;
}

struct mapping *mapping_add(CUdeviceptr address, struct allocation *allocation)
{
	struct mapping *mapping = calloc(1, sizeof(*mapping));

	if (!mapping)
		abort();
	*mapping = (struct mapping){.next = mappings, .address = address, .allocation = allocation};
	mappings = mapping;
	allocation_hold(allocation);
	return mapping;
}

void mapping_remove(struct mapping *mapping)
{
	struct mapping **link = &mappings;

	while (*link != mapping)
		link = &(*link)->next;
	*link = mapping->next;
	if (mmap((void *)mapping->address, mapping->allocation->bytes, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		abort();
	allocation_drop(mapping->allocation);
	free(mapping);
}

CUresult mapping_plain(CUdeviceptr address, struct allocation *allocation)
{
	struct mapping *mapping = mapping_add(address, allocation);

	mapping->plain = true;
	for (int i = 0; i < DEVICES_MAX; i++)
		mapping->access[i] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	allocation->handle = 0;
	allocation_drop(allocation);
	return mapping_protect(mapping);
}

CUresult mapping_plain_end(CUdeviceptr address)
{
	struct mapping *mapping = mapping_find(address);
	uint64_t bytes;

	if (!mapping || !mapping->plain || mapping->address != address)
		return CUDA_ERROR_INVALID_VALUE;
	bytes = mapping->allocation->bytes;
	mapping_remove(mapping);
	addresses_give(address, bytes);
	return CUDA_SUCCESS;
}

static bool multiple(uint64_t value)
{
	return value % GRANULARITY == 0;
}

static struct reservation **reservation_of(CUdeviceptr address, uint64_t bytes)
{
	struct reservation **link = &reservations;

	while (*link && (address < (*link)->address || address + bytes > (*link)->address + (*link)->bytes))
		link = &(*link)->next;
	return link;
}

static bool anything_mapped(CUdeviceptr address, uint64_t bytes)
{
	for (struct mapping *m = mappings; m; m = m->next)
		if (m->address < address + bytes && m->address + m->allocation->bytes > address)
			return true;
	return false;
}

/* True when the range is one or more whole mappings of cuMemMap without a gap. */
static bool whole_mappings(CUdeviceptr address, uint64_t bytes)
{
	CUdeviceptr end = address + bytes;
	struct mapping *m;

	while (address < end) {
		m = mapping_find(address);
		if (!m || m->plain || m->address != address || address + m->allocation->bytes > end)
			return false;
		address += m->allocation->bytes;
	}
	return bytes > 0;
}

DRIVER_CALL(cuMemAddressReserve, NEEDS_INIT,
	    (CUdeviceptr * ret, size_t bytes, size_t alignment, CUdeviceptr wish, unsigned long long flags),
	    (ret, bytes, alignment, wish, flags))
{
	struct reservation *reservation;
	CUdeviceptr address;

	if (!ret || !bytes || !multiple(bytes) || flags || !multiple(wish) || (alignment & (alignment - 1)))
		return CUDA_ERROR_INVALID_VALUE;
	address = addresses_take(bytes, alignment > GRANULARITY ? alignment : GRANULARITY, wish);
	reservation = address ? calloc(1, sizeof(*reservation)) : NULL;
	if (!reservation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*reservation = (struct reservation){.next = reservations, .address = address, .bytes = bytes};
	reservations = reservation;
	*ret = address;
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuMemAddressFree, NEEDS_INIT, (CUdeviceptr address, size_t bytes), (address, bytes))
{
	struct reservation **link = reservation_of(address, bytes), *reservation = *link;

	if (!reservation || reservation->address != address || reservation->bytes != bytes ||
	    anything_mapped(address, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	*link = reservation->next;
	addresses_give(address, bytes);
	free(reservation);
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuMemMap, NEEDS_INIT,
	    (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
	     unsigned long long flags),
	    (address, bytes, offset, handle, flags))
{
	struct allocation *allocation = allocation_find(handle);

	if (!allocation || !bytes || !multiple(bytes) || !multiple(offset) || !multiple(address) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes != allocation->bytes || offset)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!*reservation_of(address, bytes) || anything_mapped(address, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	mapping_add(address, allocation);
	return CUDA_SUCCESS;
}

DRIVER_CALL(cuMemUnmap, NEEDS_INIT, (CUdeviceptr address, size_t bytes), (address, bytes))
{
	CUdeviceptr end = address + bytes;

	if (!whole_mappings(address, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	while (address < end) {
		struct mapping *mapping = mapping_find(address);

		address += mapping->allocation->bytes;
		mapping_remove(mapping);
	}
	return CUDA_SUCCESS;
}

/* A device reaches its own memory, and that of its peers. */
static bool within_reach(const struct mapping *mapping, const CUmemAccessDesc *rights, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (rights[i].location.id != mapping->allocation->ordinal && !machine()->peers)
			return false;
	return true;
}

static CUresult rights_check(const CUmemAccessDesc *rights, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (rights[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			return CUDA_ERROR_INVALID_VALUE;
		if (device_physical(rights[i].location.id) < 0)
			return CUDA_ERROR_INVALID_DEVICE;
		if (rights[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
		    rights[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
		    rights[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_VALUE;
	}
	return count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

DRIVER_CALL(cuMemSetAccess, NEEDS_INIT,
	    (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *rights, size_t count),
	    (address, bytes, rights, count))
{
	CUdeviceptr end = address + bytes;
	CUresult result = rights ? rights_check(rights, count) : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS && !whole_mappings(address, bytes))
		result = CUDA_ERROR_INVALID_VALUE;
	while (result == CUDA_SUCCESS && address < end) {
		struct mapping *mapping = mapping_find(address);

		if (!within_reach(mapping, rights, count))
			return CUDA_ERROR_INVALID_DEVICE;
		for (size_t i = 0; i < count; i++)
			mapping->access[rights[i].location.id] = rights[i].flags;
		result = mapping_protect(mapping);
		address += mapping->allocation->bytes;
	}
	return result;
}

DRIVER_CALL(cuMemGetAccess, NEEDS_INIT,
	    (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address),
	    (flags, location, address))
{
	struct mapping *mapping = mapping_find(address);

	if (!flags || !location || !mapping || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_physical(location->id) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = mapping->access[location->id];
	return CUDA_SUCCESS;
}
