/* Memory of a GPU, by CUDA's virtual memory API. create, export and import need no context, only cuInit. */
#include "memory.h"

#include "cuda.h"
#include "memory_internal.h"
#include "memory_ipc.h"
#include "../include/gpuwm/dlpack.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int cuda_open_device(struct memory_device *device, struct error *error)
{
	return cuda_find(device->id, &device->ordinal, error);
}

static int cuda_reaches_device(const struct memory_device *peer, const struct memory_device *device,
			       struct error *error)
{
	return cuda_reaches(peer->ordinal, device->ordinal, error);
}

static CUmemAllocationProp cuda_properties(const struct memory_device *device)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
	};
}

static int cuda_granularity(const struct memory_device *device, uint64_t *ret_bytes, struct error *error)
{
	const struct cuda_driver *cuda;
	CUmemAllocationProp prop = cuda_properties(device);
	size_t bytes;
	CUresult result;
	int r = cuda_open(&cuda, error);

	if (r < 0)
		return r;
	result = cuda->cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -EIO, error, "cuMemGetAllocationGranularity");
	*ret_bytes = bytes;
	return 0;
}

static int cuda_create(const struct memory_device *device, uint64_t bytes, struct memory_segment *ret,
		       struct error *error)
{
	const struct cuda_driver *cuda;
	CUmemAllocationProp prop = cuda_properties(device);
	CUmemGenericAllocationHandle handle;
	CUresult result;
	int r = cuda_open(&cuda, error);

	if (r < 0)
		return r;
	result = cuda->cuMemCreate(&handle, bytes, &prop, 0);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		return error_set(error, -ENOSPC, "see nvidia-smi for who holds its memory",
				 "no room for %llu bytes on %s", (unsigned long long)bytes, device->id);
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -EIO, error, "cuMemCreate");
	*ret = (struct memory_segment){.fd = -1, .bytes = bytes, .handle = handle};
	return 0;
}

static int cuda_zero(const struct memory_device *device, struct memory_segment *segment, struct error *error)
{
	const struct cuda_driver *cuda;
	CUresult result;
	int r = cuda_open(&cuda, error);

	(void)device;
	if (r < 0)
		return r;
	result = cuda->cuMemsetD8_v2((CUdeviceptr)segment->address, 0, segment->bytes);
	/* cuMemset returns early; streams that do not wait for the default one may write next. */
	if (result == CUDA_SUCCESS)
		result = cuda->cuStreamSynchronize(NULL);
	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, -EIO, error, "filling memory with zeros");
}

static int cuda_export(const struct memory_device *device, struct memory_segment *segment, struct error *error)
{
	const struct cuda_driver *cuda;
	CUresult result;
	int fd = -1, r = cuda_open(&cuda, error);

	(void)device;
	if (r < 0)
		return r;
	result = cuda->cuMemExportToShareableHandle(&fd, segment->handle,
						    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (result != CUDA_SUCCESS)
		return cuda_fail(result, -EIO, error, "exporting a segment (open files? RLIMIT_NOFILE)");
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	segment->fd = fd;
	return 0;
}

/* Only what the driver says of a descriptor that is no memory of a GPU is damage (measured: UNKNOWN). */
static int cuda_import_failed(CUresult result, int fd, uint64_t bytes, struct error *error)
{
	int copy;

	/* An import needs one more descriptor, which this process may not have. */
	if (result != CUDA_ERROR_OUT_OF_MEMORY) {
		copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (copy >= 0)
			close(copy);
		else if (errno == EMFILE || errno == ENFILE)
			return error_set(error, -errno, "raise RLIMIT_NOFILE",
					 "no descriptor is left to import a segment: %s", strerror(errno));
	}
	switch (result) {
	case CUDA_ERROR_OUT_OF_MEMORY:
		return error_set(error, -ENOMEM,
				 "see RLIMIT_AS and MemoryMax= for the process, nvidia-smi for the GPU",
				 "the driver had no memory to import a segment of %llu bytes: "
				 "CUDA_ERROR_OUT_OF_MEMORY",
				 (unsigned long long)bytes);
	case CUDA_ERROR_UNKNOWN:
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_HANDLE:
	case CUDA_ERROR_INVALID_DEVICE: /* of one that this process does not see */
		return cuda_fail(result, -EBADMSG, error, "the descriptor is not memory of a GPU");
	default:
		return cuda_fail(result, -EIO, error, "importing a segment");
	}
}

static int cuda_import(const struct memory_device *device, int fd, uint64_t bytes, bool check,
		       struct memory_segment *ret, struct error *error)
{
	const struct cuda_driver *cuda;
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp prop;
	CUresult result;
	int r = cuda_open(&cuda, error);

	if (r < 0)
		return r;
	result = cuda->cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd,
						      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (result != CUDA_SUCCESS)
		return cuda_import_failed(result, fd, bytes, error);
	/* A publisher could hand in memory of another GPU than the one it was granted. */
	if (check) {
		result = cuda->cuMemGetAllocationPropertiesFromHandle(&prop, handle);
		if (result != CUDA_SUCCESS)
			r = cuda_fail(result, -EIO, error, "asking where a segment lies");
		else if (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
			 prop.location.id != device->ordinal)
			r = error_set(error, -EBADMSG, NULL, "a segment does not lie on %s", device->id);
	}
	if (r < 0)
		cuda->cuMemRelease(handle);
	else
		*ret = (struct memory_segment){.fd = -1, .bytes = bytes, .handle = handle};
	return r;
}

/* To map it again its handle is enough. */
static void cuda_settle(struct memory_segment *segment)
{
	close(segment->fd);
	segment->fd = -1;
}

/* Mapped memory of a GPU is there. */
static int cuda_populate(const struct memory_device *device, const struct memory_segment *segments,
			 uint32_t count, struct error *error)
{
	(void)device;
	(void)segments;
	(void)count;
	(void)error;
	return 0;
}

/* What the driver keeps it closes itself, in a child too. */
static void cuda_close_fds(struct memory_segment *segments, uint32_t count)
{
	(void)segments;
	(void)count;
}

static void cuda_release(const struct memory_device *device, struct memory_segment *segment)
{
	const struct cuda_driver *cuda = cuda_opened();

	cuda_unmap(device, segment);
	if (cuda && segment->handle)
		cuda->cuMemRelease(segment->handle);
	if (segment->fd >= 0)
		close(segment->fd);
	*segment = (struct memory_segment){.fd = -1};
}

static int cuda_map_shared(const struct memory_device *device, int fd, uint64_t bytes,
			   enum memory_access access, struct memory_segment *ret, struct error *error)
{
	struct memory_segment segment = {.fd = -1};
	int r = cuda_import(device, fd, bytes, true, &segment, error);

	if (r == 0)
		r = cuda_map(device, &segment, access, error);
	if (r == 0)
		*ret = segment;
	else
		cuda_release(device, &segment);
	return r;
}

static int cuda_write(const struct memory_device *device, void *to, const void *from, uint64_t bytes,
		      struct error *error)
{
	const struct cuda_driver *cuda;
	CUresult result = CUDA_SUCCESS;
	int r = cuda_open(&cuda, error);

	(void)device;
	if (r < 0)
		return r;
	if (bytes > 0)
		result = cuda->cuMemcpyHtoD_v2((CUdeviceptr)to, from, bytes);
	/* From pageable memory the last piece may still be on its way. */
	if (bytes > 0 && result == CUDA_SUCCESS)
		result = cuda->cuStreamSynchronize(NULL);
	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, -EIO, error, "copying to the GPU");
}

static int cuda_read(const struct memory_device *device, void *to, const void *from, uint64_t bytes,
		     struct error *error)
{
	const struct cuda_driver *cuda;
	CUresult result = CUDA_SUCCESS;
	int r = cuda_open(&cuda, error);

	(void)device;
	if (r < 0)
		return r;
	if (bytes > 0)
		result = cuda->cuMemcpyDtoH_v2(to, (CUdeviceptr)from, bytes);
	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, -EIO, error, "copying from the GPU");
}

const struct memory_ops memory_cuda = {
	.kind = &kind_cuda,
	.spacing = 1, /* sizes are multiples of what it must be already */
	.dlpack_device = kDLCUDA,
	.open = cuda_open_device,
	.reaches = cuda_reaches_device,
	.current = cuda_current,
	.granularity = cuda_granularity,
	.create = cuda_create,
	.zero = cuda_zero,
	.export = cuda_export,
	.import = cuda_import,
	.map = cuda_map,
	.unmap = cuda_unmap,
	.reserve = cuda_reserve,
	.map_at = cuda_map_at,
	.map_all = cuda_map_all,
	.remap_all = cuda_remap_all,
	.vacate = cuda_vacate,
	.reaccess = cuda_reaccess,
	.settle = cuda_settle,
	.populate = cuda_populate,
	.close_fds = cuda_close_fds,
	.unreserve = cuda_unreserve,
	.release = cuda_release,
	.write = cuda_write,
	.read = cuda_read,
	.idle = cuda_context_idle,
	.background = cuda_context_background,
	.enter = cuda_context_enter,
	.leave = cuda_context_leave,
	.hold = cuda_context_hold,
	.unhold = cuda_context_unhold,
	.pin = cuda_pin,
	.unpin = cuda_unpin,
	.digests = kernel_digests,
	.digests_prepare = kernel_load,
	.share = cuda_export,
	.map_shared = cuda_map_shared,
	.share_with = cuda_share_with,
	.unmap_shared = cuda_release,
	.register_words = cuda_register_words,
	.unregister_words = cuda_unregister_words,
	.write_word = cuda_write_word,
	.wait_word = cuda_wait_word,
	.call_in_stream = cuda_call_in_stream,
	.is_broken = cuda_is_broken,
	.compare = kernel_compare,
	.hasher_open = kernel_hasher_open,
	.hasher_run = kernel_hasher_run,
	.hasher_close = kernel_hasher_close,
	.ipc = &ipc_cuda,
};
