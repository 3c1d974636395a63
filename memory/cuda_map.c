/* How memory of a GPU comes to addresses, and leaves them. Needs no context, only cuInit. */
#include "memory_internal.h"

#include "cuda.h"

#include <errno.h>

static int cuda_map_failed(CUresult result, uint64_t bytes, struct error *error)
{
	/* A handle is mapped whole or not at all: another size is what this says. */
	if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE)
		return error_set(error, -EBADMSG, NULL, "a segment does not hold exactly %llu bytes",
				 (unsigned long long)bytes);
	return cuda_fail(result, -EIO, error, "cuMemMap");
}

/* The device's own, and those of its peers: how many. */
static size_t access_rights(const struct memory_device *device, enum memory_access access,
			    CUmemAccessDesc rights[1 + MEMORY_PEERS_MAX])
{
	const CUmemAccess_flags flags =
		access == MEMORY_WRITE ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;

	for (unsigned i = 0; i <= device->peer_count; i++)
		rights[i] = (CUmemAccessDesc){
			.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
				     .id = i == 0 ? device->ordinal : device->peers[i - 1]},
			.flags = flags,
		};
	return 1 + device->peer_count;
}

/* Side by side from `base` on, and one call that makes all of it accessible. When it fails nothing is mapped. */
static int map_from(const struct memory_device *device, CUdeviceptr base, struct memory_segment *segments,
		    uint32_t count, enum memory_access access, struct error *error)
{
	CUmemAccessDesc rights[1 + MEMORY_PEERS_MAX];
	const struct cuda_driver *cuda;
	CUresult result = CUDA_SUCCESS;
	uint64_t done = 0;
	int r = cuda_open(&cuda, error);

	for (uint32_t i = 0; i < count && r == 0; i++) {
		result = cuda->cuMemMap(base + done, segments[i].bytes, 0, segments[i].handle, 0);
		if (result != CUDA_SUCCESS)
			r = cuda_map_failed(result, segments[i].bytes, error);
		else
			done += segments[i].bytes;
	}
	if (r == 0)
		result = cuda->cuMemSetAccess(base, done, rights, access_rights(device, access, rights));
	if (r == 0 && result != CUDA_SUCCESS)
		r = cuda_fail(result, -EIO, error, "cuMemSetAccess");
	if (r < 0 && done > 0)
		cuda->cuMemUnmap(base, done);
	for (uint32_t i = 0; i < count && r == 0; i++) {
		segments[i].address = (void *)base;
		base += segments[i].bytes;
	}
	return r;
}

int cuda_reserve(const struct memory_device *device, uint64_t bytes, void *wish, struct memory_range *ret,
		 struct error *error)
{
	const struct cuda_driver *cuda;
	CUdeviceptr address;
	CUresult result;
	int r = cuda_open(&cuda, error);

	if (r < 0)
		return r;
	result = cuda->cuMemAddressReserve(&address, bytes, 0, (CUdeviceptr)wish, 0);
	if (result != CUDA_SUCCESS && wish)
		result = cuda->cuMemAddressReserve(&address, bytes, 0, 0, 0);
	if (result == CUDA_ERROR_INVALID_VALUE)
		return error_set(error, -EBADMSG, NULL, "%llu bytes is no size of segments on %s",
				 (unsigned long long)bytes, device->id);
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -ENOMEM, error, "cuMemAddressReserve");
	*ret = (struct memory_range){(void *)address, bytes};
	return 0;
}

int cuda_map_all(const struct memory_device *device, const struct memory_range *range,
		 struct memory_segment *segments, uint32_t count, struct error *error)
{
	if (count == 0)
		return 0;
	return map_from(device, (CUdeviceptr)range->base, segments, count, MEMORY_READ, error);
}

int cuda_vacate(const struct memory_device *device, const struct memory_range *range,
		struct memory_segment *segments, uint32_t count, struct error *error)
{
	const struct cuda_driver *cuda;
	CUresult result;
	int r = cuda_open(&cuda, error);

	(void)device;
	if (r < 0 || count == 0)
		return r;
	result = cuda->cuMemUnmap((CUdeviceptr)range->base, range->bytes);
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -EIO, error, "cuMemUnmap");
	for (uint32_t i = 0; i < count; i++)
		segments[i].address = NULL;
	return 0;
}

/* Segments, and how they are mapped. */
struct mapped {
	struct memory_segment *segments;
	enum memory_access access;
};

/* Unmaps `now` and maps `next`, which may be the same, in its place; `now` again where that fails. */
static int map_instead(const struct memory_device *device, const struct memory_range *range, struct mapped now,
		       struct mapped next, uint32_t count, struct error *error)
{
	CUdeviceptr base = (CUdeviceptr)range->base;
	struct error unused;
	int r = cuda_vacate(device, range, now.segments, count, error);

	if (r < 0 || count == 0)
		return r;
	r = map_from(device, base, next.segments, count, next.access, error);
	if (r < 0)
		map_from(device, base, now.segments, count, now.access, &unused);
	return r;
}

int cuda_remap_all(const struct memory_device *device, const struct memory_range *range,
		   struct memory_segment *now, struct memory_segment *next, uint32_t count, struct error *error)
{
	return map_instead(device, range, (struct mapped){now, MEMORY_READ}, (struct mapped){next, MEMORY_READ},
			   count, error);
}

int cuda_reaccess(const struct memory_device *device, const struct memory_range *range,
		  struct memory_segment *segments, uint32_t count, enum memory_access access,
		  struct error *error)
{
	const enum memory_access before = access == MEMORY_WRITE ? MEMORY_READ : MEMORY_WRITE;

	return map_instead(device, range, (struct mapped){segments, before}, (struct mapped){segments, access},
			   count, error);
}

/* What of a range is mapped, each run of it in one call. */
static void unmap_runs(const struct cuda_driver *cuda, struct memory_segment *segments, uint32_t count)
{
	CUdeviceptr from = 0, to = 0;

	for (uint32_t i = 0; i < count; i++) {
		CUdeviceptr address = (CUdeviceptr)segments[i].address;

		segments[i].address = NULL;
		if (!address)
			continue;
		if (address != to && to > from)
			cuda->cuMemUnmap(from, to - from);
		if (address != to)
			from = address;
		to = address + segments[i].bytes;
	}
	if (to > from)
		cuda->cuMemUnmap(from, to - from);
}

void cuda_unreserve(const struct memory_device *device, struct memory_range *range,
		    struct memory_segment *segments, uint32_t count)
{
	const struct cuda_driver *cuda = cuda_opened();

	(void)device;
	if (cuda && range->base) {
		unmap_runs(cuda, segments, count);
		cuda->cuMemAddressFree((CUdeviceptr)range->base, range->bytes);
	}
	for (uint32_t i = 0; i < count; i++)
		segments[i].address = NULL;
	*range = (struct memory_range){0};
}

int cuda_map_at(const struct memory_device *device, void *address, struct memory_segment *segment,
		enum memory_access access, struct error *error)
{
	return map_from(device, (CUdeviceptr)address, segment, 1, access, error);
}

int cuda_map(const struct memory_device *device, struct memory_segment *segment, enum memory_access access,
	     struct error *error)
{
	struct memory_range range;
	int r = cuda_reserve(device, segment->bytes, NULL, &range, error);

	if (r < 0)
		return r;
	r = map_from(device, (CUdeviceptr)range.base, segment, 1, access, error);
	if (r < 0)
		cuda_unreserve(device, &range, NULL, 0);
	return r;
}

int cuda_share_with(const struct memory_device *device, const struct memory_device *peer,
		    const struct memory_segment *segment, enum memory_access access, struct error *error)
{
	const struct memory_device both = {
		.ordinal = device->ordinal, .peers = {peer->ordinal}, .peer_count = 1};
	CUmemAccessDesc rights[1 + MEMORY_PEERS_MAX];
	const struct cuda_driver *cuda;
	CUresult result;
	int r = cuda_open(&cuda, error);

	if (r < 0)
		return r;
	result = cuda->cuMemSetAccess((CUdeviceptr)segment->address, segment->bytes, rights,
				      access_rights(&both, access, rights));
	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, -EIO, error, "cuMemSetAccess for another GPU");
}

void cuda_unmap(const struct memory_device *device, struct memory_segment *segment)
{
	struct memory_range range = {segment->address, segment->bytes};

	cuda_unreserve(device, &range, segment, 1);
}
