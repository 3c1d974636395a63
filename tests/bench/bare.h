/* What attaching is measured against: mapping and unmapping the same
 * descriptors with the fewest calls that do it. */
#ifndef GPUWM_BENCH_BARE_H
#define GPUWM_BENCH_BARE_H

#include <stddef.h>
#include <stdint.h>

struct bare_segment {
	int fd;
	uint64_t bytes;
	/* bare_map's own. */
	uintptr_t address;
	uint64_t handle;
};

/* For cuda, makes the context that a worker has. `device` is "host" or a UUID. */
static void bare_open(const char *device);
static void bare_map(struct bare_segment *segments, size_t count);
static void bare_unmap(struct bare_segment *segments, size_t count);

#ifdef GPUWM_CUDA

#include <cuda.h>
#include <dlfcn.h>

#define BARE_FUNCTIONS(F)                                                                                      \
	F(cuInit)                                                                                              \
	F(cuDeviceGetCount)                                                                                    \
	F(cuDeviceGetUuid_v2)                                                                                  \
	F(cuDevicePrimaryCtxRetain)                                                                            \
	F(cuCtxSetCurrent)                                                                                     \
	F(cuMemImportFromShareableHandle)                                                                      \
	F(cuMemAddressReserve)                                                                                 \
	F(cuMemMap)                                                                                            \
	F(cuMemSetAccess)                                                                                      \
	F(cuMemUnmap)                                                                                          \
	F(cuMemAddressFree)                                                                                    \
	F(cuMemRelease)

static struct {
#define BARE_MEMBER(name) __typeof__(name) *name;
	BARE_FUNCTIONS(BARE_MEMBER)
#undef BARE_MEMBER
	int ordinal;
} bare;

#define CU(call)                                                                                               \
	do {                                                                                                   \
		int cu_ = (int)(call);                                                                         \
		if (cu_)                                                                                       \
			DIE("%s: CUDA error %d", #call, cu_);                                                  \
	} while (0)

static int bare_ordinal(const char *device)
{
	char hex[33] = "";
	size_t n = 0;
	int count;

	for (const char *c = device + 4; *c && n < 32; c++)
		if (*c != '-')
			hex[n++] = *c;
	CU(bare.cuDeviceGetCount(&count));
	for (int i = 0; i < count; i++) {
		char text[33];
		CUuuid uuid;

		CU(bare.cuDeviceGetUuid_v2(&uuid, i));
		for (int b = 0; b < 16; b++)
			snprintf(text + 2 * b, 3, "%02x", (unsigned char)uuid.bytes[b]);
		if (strcmp(text, hex) == 0)
			return i;
	}
	DIE("this process can't see %s", device);
}

static void cuda_open(const char *device)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	CUcontext context;

	if (!library)
		DIE("%s", dlerror());
#define BARE_LOOK_UP(name)                                                                                     \
	*(void **)&bare.name = dlsym(library, #name);                                                          \
	if (!bare.name)                                                                                        \
		DIE("the driver has no " #name);
	BARE_FUNCTIONS(BARE_LOOK_UP)
#undef BARE_LOOK_UP
	CU(bare.cuInit(0));
	bare.ordinal = bare_ordinal(device);
	CU(bare.cuDevicePrimaryCtxRetain(&context, bare.ordinal));
	CU(bare.cuCtxSetCurrent(context));
}

static void cuda_map(struct bare_segment *segment)
{
	CUmemAccessDesc rights = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = bare.ordinal},
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;

	CU(bare.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)segment->fd,
					       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CU(bare.cuMemAddressReserve(&address, segment->bytes, 0, 0, 0));
	CU(bare.cuMemMap(address, segment->bytes, 0, handle, 0));
	CU(bare.cuMemSetAccess(address, segment->bytes, &rights, 1));
	segment->address = address;
	segment->handle = handle;
}

static void cuda_unmap(struct bare_segment *segment)
{
	CU(bare.cuMemUnmap(segment->address, segment->bytes));
	CU(bare.cuMemAddressFree(segment->address, segment->bytes));
	CU(bare.cuMemRelease(segment->handle));
}

static bool bare_is_cuda(void)
{
	return bare.cuInit != NULL;
}

#else

static void cuda_open(const char *device)
{
	DIE("built without CUDA: %s", device);
}
static void cuda_map(struct bare_segment *segment)
{
	(void)segment;
}
static void cuda_unmap(struct bare_segment *segment)
{
	(void)segment;
}
static bool bare_is_cuda(void)
{
	return false;
}

#endif

static void bare_open(const char *device)
{
	if (strcmp(device, "host") != 0)
		cuda_open(device);
}

static void host_map(struct bare_segment *segment)
{
	void *area = mmap(NULL, segment->bytes, PROT_READ, MAP_PRIVATE, segment->fd, 0);

	if (area == MAP_FAILED)
		DIE("mmap: %s", strerror(errno));
	segment->address = (uintptr_t)area;
}

static void bare_map(struct bare_segment *segments, size_t count)
{
	for (size_t i = 0; i < count; i++)
		bare_is_cuda() ? cuda_map(&segments[i]) : host_map(&segments[i]);
}

static void bare_unmap(struct bare_segment *segments, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (bare_is_cuda())
			cuda_unmap(&segments[i]);
		else
			munmap((void *)segments[i].address, segments[i].bytes);
}

#endif
