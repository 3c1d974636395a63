#include "bare.h"

#include "../bench.h"
#include "driver.h"

#include <gpuwm/client.h>

#include <sys/mman.h>

static bool is_cuda;

bool bare_is_cuda(void)
{
	return is_cuda;
}

uint64_t bare_bytes(const struct bare_part *part)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < part->count; i++)
		bytes += part->segments[i].bytes;
	return bytes;
}

struct bare_part bare_part_of(const struct gpuwm_handles *handles)
{
	struct bare_part part = {.count = gpuwm_handles_version(handles)->segments};

	for (uint32_t i = 0; i < part.count; i++)
		part.segments[i].fd = gpuwm_handles_segment(handles, i, &part.segments[i].bytes);
	return part;
}

#ifdef GPUWM_CUDA

static void cuda_open(const char *device)
{
	driver_open(device);
	driver_context();
	is_cuda = true;
}

static void cuda_map(struct bare_part *part)
{
	CUmemAccessDesc rights = driver_access(CU_MEM_ACCESS_FLAGS_PROT_READ);
	uint64_t bytes = bare_bytes(part);
	CUdeviceptr base, next;

	CU(driver.cuMemAddressReserve(&base, bytes, 0, 0, 0));
	next = base;
	for (size_t i = 0; i < part->count; i++) {
		struct bare_segment *segment = &part->segments[i];
		CUmemGenericAllocationHandle handle;

		CU(driver.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)segment->fd,
							 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
		CU(driver.cuMemMap(next, segment->bytes, 0, handle, 0));
		segment->handle = handle;
		part->addresses[i] = next;
		next += segment->bytes;
	}
	CU(driver.cuMemSetAccess(base, bytes, &rights, 1));
}

static void cuda_unmap(struct bare_part *part)
{
	uint64_t bytes = bare_bytes(part);

	for (size_t i = 0; i < part->count; i++)
		CU(driver.cuMemUnmap(part->addresses[i], part->segments[i].bytes));
	CU(driver.cuMemAddressFree(part->addresses[0], bytes));
	for (size_t i = 0; i < part->count; i++)
		CU(driver.cuMemRelease(part->segments[i].handle));
}

#else

static void cuda_open(const char *device)
{
	DIE("built without CUDA: %s", device);
}
static void cuda_map(struct bare_part *part)
{
	(void)part;
}
static void cuda_unmap(struct bare_part *part)
{
	(void)part;
}

#endif

void bare_open(const char *device)
{
	if (strcmp(device, "host") != 0)
		cuda_open(device);
}

static void host_map(struct bare_part *part)
{
	for (size_t i = 0; i < part->count; i++) {
		void *area =
			mmap(NULL, part->segments[i].bytes, PROT_READ, MAP_PRIVATE, part->segments[i].fd, 0);

		if (area == MAP_FAILED)
			DIE("mmap: %s", strerror(errno));
		part->addresses[i] = (uintptr_t)area;
	}
}

void bare_map(struct bare_part *part)
{
	is_cuda ? cuda_map(part) : host_map(part);
}

void bare_unmap(struct bare_part *part)
{
	if (is_cuda)
		cuda_unmap(part);
	else
		for (size_t i = 0; i < part->count; i++)
			munmap((void *)part->addresses[i], part->segments[i].bytes);
}
