/* Legacy IPC: a handle names the maker and its descriptor, so it is worth nothing to newcomers when the maker is gone. What a process
 * has open it keeps. */
#include "ipc_pass.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct ipc_handle {
	char magic[8];
	pid_t maker;
	int fd;
};
_Static_assert(sizeof(struct ipc_handle) <= sizeof(CUipcMemHandle), "a handle has room for it");

static const char magic[8] = "fakeipc", event_magic[8] = "fakeevt";

DRIVER_CALL(cuIpcGetMemHandle, NEEDS_CONTEXT, (CUipcMemHandle * ret, CUdeviceptr address), (ret, address))
{
	const struct mapping *mapping = mapping_find(address);
	struct ipc_handle handle = {.maker = getpid()};

	if (!ret || !mapping || !mapping->plain)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(handle.magic, magic, sizeof(magic));
	if (!pass_begin())
		return CUDA_ERROR_OPERATING_SYSTEM;
	handle.fd = mapping->allocation->fd;
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, &handle, sizeof(handle));
	return CUDA_SUCCESS;
}

/* ---- memory that is open ---- */

/* A process that opens a handle again gets the same addresses. */
struct opened {
	struct opened *next;
	struct ipc_handle handle;
	CUdeviceptr address;
	unsigned count;
};
static struct opened *all_opened;

static struct opened *find_opened(const struct ipc_handle *handle)
{
	struct opened *opened = all_opened;

	while (opened && memcmp(&opened->handle, handle, sizeof(*handle)) != 0)
		opened = opened->next;
	return opened;
}

static void note_opened(const struct ipc_handle *handle, CUdeviceptr address)
{
	struct opened *opened = calloc(1, sizeof(*opened));

	if (!opened)
		abort();
	*opened = (struct opened){.next = all_opened, .handle = *handle, .address = address, .count = 1};
	all_opened = opened;
}

/* Whether it was the last use. */
static bool is_closed(CUdeviceptr address)
{
	struct opened **link = &all_opened, *opened;

	while (*link && (*link)->address != address)
		link = &(*link)->next;
	opened = *link;
	if (!opened)
		return true;
	if (--opened->count > 0)
		return false;
	*link = opened->next;
	free(opened);
	return true;
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
	struct opened *opened;
	CUresult result;
	int fd;

	memcpy(&handle, &opaque, sizeof(handle));
	if (!ret || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ||
	    memcmp(handle.magic, magic, sizeof(magic)) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (handle.maker == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	opened = find_opened(&handle);
	if (opened) {
		opened->count++;
		*ret = opened->address;
		return CUDA_SUCCESS;
	}
	fd = pass_ask(handle.maker, handle.fd);
	if (fd < 0)
		return CUDA_ERROR_INVALID_HANDLE;
	result = map_it(fd, ret);
	if (result == CUDA_SUCCESS)
		note_opened(&handle, *ret);
	else
		close(fd);
	return result;
}

DRIVER_CALL(cuIpcCloseMemHandle, NEEDS_CONTEXT, (CUdeviceptr address), (address))
{
	return is_closed(address) ? mapping_plain_end(address) : CUDA_SUCCESS;
}

/* ---- events ---- */

static bool *map_word(int fd)
{
	void *word = mmap(NULL, sizeof(bool), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return word == MAP_FAILED ? NULL : word;
}

CUresult event_word_new(struct event_word *ret)
{
	int fd = memfd_create("fakeevent", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, sizeof(bool)) < 0 || !(ret->happened = map_word(fd))) {
		if (fd >= 0)
			close(fd);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	ret->fd = fd;
	return CUDA_SUCCESS;
}

void event_word_end(struct event_word *word)
{
	if (word->happened)
		munmap(word->happened, sizeof(bool));
	if (word->fd >= 0)
		close(word->fd);
	*word = (struct event_word){.fd = -1};
}

DRIVER_CALL(cuIpcGetEventHandle, NEEDS_CONTEXT, (CUipcEventHandle * ret, CUevent event), (ret, event))
{
	const struct event_word *word = event_word(event);
	struct ipc_handle handle = {.maker = getpid()};

	if (!ret || !word || word->opened)
		return CUDA_ERROR_INVALID_HANDLE;
	memcpy(handle.magic, event_magic, sizeof(event_magic));
	handle.fd = word->fd;
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, &handle, sizeof(handle));
	return CUDA_SUCCESS;
}

/* The maker's descriptor, opened here. -1: the maker is gone, or has no such event any more. */
static int open_of(const struct ipc_handle *handle)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->maker, handle->fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

static bool is_of_another_user(pid_t maker)
{
	struct stat status;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d", maker);
	return stat(path, &status) == 0 && status.st_uid != geteuid();
}

DRIVER_CALL(cuIpcOpenEventHandle, NEEDS_CONTEXT, (CUevent * ret, CUipcEventHandle opaque), (ret, opaque))
{
	struct event_word word = {.fd = -1, .opened = true};
	struct ipc_handle handle;
	int fd;

	memcpy(&handle, &opaque, sizeof(handle));
	if (!ret || memcmp(handle.magic, event_magic, sizeof(event_magic)) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (handle.maker == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (is_of_another_user(handle.maker))
		return CUDA_ERROR_MAP_FAILED;
	fd = open_of(&handle);
	if (fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	word.happened = map_word(fd);
	close(fd);
	return word.happened ? event_new(&word, ret) : CUDA_ERROR_OPERATING_SYSTEM;
}
