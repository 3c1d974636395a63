/* Copies go through the memory's descriptor, not through the mapping: so they
 * work where the CPU may not touch it, and a bad host pointer is an error, no signal. */
#include "driver.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES (1u << 20)

/* One piece: host memory, the descriptor, where in it. False: the host's memory is not there. */
typedef bool piece_fn(int fd, uint64_t offset, void *host, uint64_t bytes);

static bool read_piece(int fd, uint64_t offset, void *host, uint64_t bytes)
{
	uint8_t *to = host;

	while (bytes > 0) {
		ssize_t n = pread(fd, to, bytes, (off_t)offset);

		if (n <= 0)
			return false;
		to += n;
		offset += (uint64_t)n;
		bytes -= (uint64_t)n;
	}
	return true;
}

static bool write_piece(int fd, uint64_t offset, void *host, uint64_t bytes)
{
	const uint8_t *from = host;

	while (bytes > 0) {
		ssize_t n = pwrite(fd, from, bytes, (off_t)offset);

		if (n <= 0)
			return false;
		from += n;
		offset += (uint64_t)n;
		bytes -= (uint64_t)n;
	}
	return true;
}

/* The context's device must have the right to all of the range. */
static CUresult range_check(int ordinal, CUdeviceptr address, uint64_t bytes, CUmemAccess_flags right)
{
	CUdeviceptr end = address + bytes;
	struct mapping *mapping;

	if (end < address)
		return CUDA_ERROR_INVALID_VALUE;
	while (address < end) {
		mapping = mapping_find(address);
		if (!mapping || (mapping->access[ordinal] & right) != right)
			return CUDA_ERROR_INVALID_VALUE;
		address = mapping->address + mapping->allocation->bytes;
	}
	return CUDA_SUCCESS;
}

/* Calls fn for each mapping's piece of a checked range. */
static CUresult range_copy(CUdeviceptr address, uint64_t bytes, void *host, piece_fn *fn)
{
	uint8_t *at = host;

	while (bytes > 0) {
		struct mapping *mapping = mapping_find(address);
		uint64_t offset = address - mapping->address;
		uint64_t left = mapping->allocation->bytes - offset;
		uint64_t piece = bytes < left ? bytes : left;

		if (!fn(mapping->allocation->fd, offset, at, piece))
			return CUDA_ERROR_INVALID_VALUE;
		at += piece;
		address += piece;
		bytes -= piece;
	}
	return CUDA_SUCCESS;
}

CUresult copy_in(const struct stream_work *work)
{
	CUresult result = range_check(work->ordinal, work->to, work->bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

	return result == CUDA_SUCCESS ? range_copy(work->to, work->bytes, work->host, write_piece) : result;
}

/* One bit of what arrived is another one where FAKECUDA_FLIP says so. */
static CUresult copy_from_host(const struct stream_work *work)
{
	CUresult result = copy_in(work);
	uint8_t byte;

	if (result != CUDA_SUCCESS || !call_flips(false))
		return result;
	result = range_copy(work->to, 1, &byte, read_piece);
	byte ^= 1;
	return result == CUDA_SUCCESS ? range_copy(work->to, 1, &byte, write_piece) : result;
}

CUresult copy_out(const struct stream_work *work)
{
	CUresult result = range_check(work->ordinal, work->from, work->bytes, CU_MEM_ACCESS_FLAGS_PROT_READ);

	if (result == CUDA_SUCCESS)
		result = range_copy(work->from, work->bytes, work->host, read_piece);
	if (result == CUDA_SUCCESS && call_flips(true))
		*(uint8_t *)work->host ^= 1;
	return result;
}

static CUresult copy_across(const struct stream_work *work)
{
	CUresult result = range_check(work->ordinal, work->to, work->bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	struct stream_work part = *work;

	if (result == CUDA_SUCCESS && machine()->peers == 2 &&
	    mapping_find(work->from)->allocation->ordinal != work->ordinal)
		return CUDA_SUCCESS;
	part.host = malloc(BLOCK_BYTES);
	if (!part.host)
		abort();
	for (uint64_t done = 0; result == CUDA_SUCCESS && done < work->bytes; done += part.bytes) {
		part.bytes = work->bytes - done < BLOCK_BYTES ? work->bytes - done : BLOCK_BYTES;
		part.from = work->from + done;
		part.to = work->to + done;
		result = copy_out(&part);
		if (result == CUDA_SUCCESS)
			result = copy_in(&part);
	}
	free(part.host);
	return result;
}

static bool zero_piece(int fd, uint64_t offset, void *host, uint64_t bytes)
{
	(void)host;
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes) == 0;
}

/* Words of 4 bytes, a whole number of them in BLOCK_BYTES. */
static CUresult fill(const struct stream_work *work)
{
	CUresult result = range_check(work->ordinal, work->to, work->bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	uint32_t *block;
	uint64_t piece;

	if (result != CUDA_SUCCESS)
		return result;
	if (!work->value)
		return range_copy(work->to, work->bytes, NULL, zero_piece);
	block = malloc(BLOCK_BYTES);
	if (!block)
		abort();
	for (size_t i = 0; i < BLOCK_BYTES / 4; i++)
		block[i] = work->value;
	for (uint64_t done = 0; result == CUDA_SUCCESS && done < work->bytes; done += piece) {
		piece = work->bytes - done < BLOCK_BYTES ? work->bytes - done : BLOCK_BYTES;
		result = range_copy(work->to + done, piece, block, write_piece);
	}
	free(block);
	return result;
}

/* On the default stream, so within the call. */
static CUresult do_now(stream_work_fn *work, struct stream_work data)
{
	context_check(&data.ordinal);
	return stream_later(NULL, work, &data);
}

/* Bad addresses are told by the call that queues the work. */
static CUresult do_later(CUstream stream, stream_work_fn *work, struct stream_work data)
{
	CUresult result = CUDA_SUCCESS;

	context_check(&data.ordinal);
	if (data.to)
		result = range_check(data.ordinal, data.to, data.bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	if (result == CUDA_SUCCESS && data.from)
		result = range_check(data.ordinal, data.from, data.bytes, CU_MEM_ACCESS_FLAGS_PROT_READ);
	/* Memory that is not pinned goes through a buffer of the driver's own: the caller may use it again. */
	if (result == CUDA_SUCCESS && data.host && !host_pinned(data.host, data.bytes)) {
		result = stream_now(stream);
		return result == CUDA_SUCCESS ? work(&data) : result;
	}
	return result == CUDA_SUCCESS ? stream_later(stream, work, &data) : result;
}

DRIVER_CALL(cuMemcpyHtoD_v2, NEEDS_CONTEXT, (CUdeviceptr to, const void *from, size_t bytes), (to, from, bytes))
{
	return do_now(copy_from_host, (struct stream_work){.to = to, .host = (void *)from, .bytes = bytes});
}

DRIVER_CALL(cuMemcpyDtoH_v2, NEEDS_CONTEXT, (void *to, CUdeviceptr from, size_t bytes), (to, from, bytes))
{
	return do_now(copy_out, (struct stream_work){.host = to, .from = from, .bytes = bytes});
}

DRIVER_CALL(cuMemcpyDtoD_v2, NEEDS_CONTEXT, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))
{
	return do_now(copy_across, (struct stream_work){.to = to, .from = from, .bytes = bytes});
}

DRIVER_CALL(cuMemcpyHtoDAsync_v2, NEEDS_CONTEXT,
	    (CUdeviceptr to, const void *from, size_t bytes, CUstream stream), (to, from, bytes, stream))
{
	return do_later(stream, copy_from_host,
			(struct stream_work){.to = to, .host = (void *)from, .bytes = bytes});
}

DRIVER_CALL(cuMemcpyDtoHAsync_v2, NEEDS_CONTEXT, (void *to, CUdeviceptr from, size_t bytes, CUstream stream),
	    (to, from, bytes, stream))
{
	return do_later(stream, copy_out, (struct stream_work){.host = to, .from = from, .bytes = bytes});
}

DRIVER_CALL(cuMemcpyDtoDAsync_v2, NEEDS_CONTEXT,
	    (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream))
{
	return do_later(stream, copy_across, (struct stream_work){.to = to, .from = from, .bytes = bytes});
}

DRIVER_CALL(cuMemsetD8_v2, NEEDS_CONTEXT, (CUdeviceptr to, unsigned char byte, size_t bytes), (to, byte, bytes))
{
	return do_now(fill, (struct stream_work){.to = to, .value = byte * 0x01010101u, .bytes = bytes});
}

DRIVER_CALL(cuMemsetD8Async, NEEDS_CONTEXT, (CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream),
	    (to, byte, bytes, stream))
{
	return do_later(stream, fill,
			(struct stream_work){.to = to, .value = byte * 0x01010101u, .bytes = bytes});
}

DRIVER_CALL(cuMemsetD32_v2, NEEDS_CONTEXT, (CUdeviceptr to, unsigned word, size_t count), (to, word, count))
{
	if (to % 4)
		return CUDA_ERROR_INVALID_VALUE;
	return do_now(fill, (struct stream_work){.to = to, .value = word, .bytes = 4 * (uint64_t)count});
}
