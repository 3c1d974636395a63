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
static CUresult range_check(CUdeviceptr address, uint64_t bytes, CUmemAccess_flags right)
{
	CUdeviceptr end = address + bytes;
	struct mapping *mapping;
	int ordinal;

	context_check(&ordinal);
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

static CUresult copy_in(CUdeviceptr to, const void *from, size_t bytes)
{
	CUresult result = range_check(to, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

	return result == CUDA_SUCCESS ? range_copy(to, bytes, (void *)from, write_piece) : result;
}

static CUresult copy_out(void *to, CUdeviceptr from, size_t bytes)
{
	CUresult result = range_check(from, bytes, CU_MEM_ACCESS_FLAGS_PROT_READ);

	return result == CUDA_SUCCESS ? range_copy(from, bytes, to, read_piece) : result;
}

static CUresult copy_across(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	CUresult result = range_check(to, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	uint8_t *block = malloc(BLOCK_BYTES);
	size_t piece;

	if (!block)
		abort();
	for (size_t done = 0; result == CUDA_SUCCESS && done < bytes; done += piece) {
		piece = bytes - done < BLOCK_BYTES ? bytes - done : BLOCK_BYTES;
		result = copy_out(block, from + done, piece);
		if (result == CUDA_SUCCESS)
			result = copy_in(to + done, block, piece);
	}
	free(block);
	return result;
}

static bool zero_piece(int fd, uint64_t offset, void *host, uint64_t bytes)
{
	(void)host;
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes) == 0;
}

/* Words of 4 bytes, a whole number of them in BLOCK_BYTES. */
static CUresult fill(CUdeviceptr to, uint32_t word, uint64_t bytes)
{
	CUresult result = range_check(to, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	uint32_t *block;
	uint64_t piece;

	if (result != CUDA_SUCCESS)
		return result;
	if (!word)
		return range_copy(to, bytes, NULL, zero_piece);
	block = malloc(BLOCK_BYTES);
	if (!block)
		abort();
	for (size_t i = 0; i < BLOCK_BYTES / 4; i++)
		block[i] = word;
	for (uint64_t done = 0; result == CUDA_SUCCESS && done < bytes; done += piece) {
		piece = bytes - done < BLOCK_BYTES ? bytes - done : BLOCK_BYTES;
		result = range_copy(to + done, piece, block, write_piece);
	}
	free(block);
	return result;
}

DRIVER_CALL(cuMemcpyHtoD_v2, NEEDS_CONTEXT, (CUdeviceptr to, const void *from, size_t bytes), (to, from, bytes))
{
	return copy_in(to, from, bytes);
}

DRIVER_CALL(cuMemcpyDtoH_v2, NEEDS_CONTEXT, (void *to, CUdeviceptr from, size_t bytes), (to, from, bytes))
{
	return copy_out(to, from, bytes);
}

DRIVER_CALL(cuMemcpyDtoD_v2, NEEDS_CONTEXT, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))
{
	return copy_across(to, from, bytes);
}

DRIVER_CALL(cuMemcpyHtoDAsync_v2, NEEDS_CONTEXT,
	    (CUdeviceptr to, const void *from, size_t bytes, CUstream stream), (to, from, bytes, stream))
{
	(void)stream;
	return copy_in(to, from, bytes);
}

DRIVER_CALL(cuMemcpyDtoHAsync_v2, NEEDS_CONTEXT, (void *to, CUdeviceptr from, size_t bytes, CUstream stream),
	    (to, from, bytes, stream))
{
	(void)stream;
	return copy_out(to, from, bytes);
}

DRIVER_CALL(cuMemcpyDtoDAsync_v2, NEEDS_CONTEXT,
	    (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream))
{
	(void)stream;
	return copy_across(to, from, bytes);
}

DRIVER_CALL(cuMemsetD8_v2, NEEDS_CONTEXT, (CUdeviceptr to, unsigned char byte, size_t bytes), (to, byte, bytes))
{
	return fill(to, byte * 0x01010101u, bytes);
}

DRIVER_CALL(cuMemsetD8Async, NEEDS_CONTEXT, (CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream),
	    (to, byte, bytes, stream))
{
	(void)stream;
	return fill(to, byte * 0x01010101u, bytes);
}

DRIVER_CALL(cuMemsetD32_v2, NEEDS_CONTEXT, (CUdeviceptr to, unsigned word, size_t count), (to, word, count))
{
	return to % 4 ? CUDA_ERROR_INVALID_VALUE : fill(to, word, 4 * (uint64_t)count);
}
