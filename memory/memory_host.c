#include "memory.h"

#include "../base/fork.h"
#include "memory_internal.h"
#include "../include/gpuwm/dlpack.h"
#include "../base/grow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The kernel maps a huge page where file and address agree in its size. */
#define HUGE_BYTES MIB(2)

/* An imported segment keeps a duplicate of its descriptor, so that it can be mapped, and mapped
 * again where a switch failed; `fd` stays -1, so it sits in `handle`, plus one since 0 is none. */
static int imported_fd(const struct memory_segment *segment)
{
	return (int)segment->handle - 1;
}

static void imported_forget(struct memory_segment *segment)
{
	if (segment->handle)
		close(imported_fd(segment));
	segment->handle = 0;
}

static int host_granularity(const struct memory_device *device, uint64_t *ret_bytes, struct error *error)
{
	(void)device;
	(void)error;
	*ret_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	return 0;
}

static int host_create(const struct memory_device *device, uint64_t bytes, struct memory_segment *ret,
		       struct error *error)
{
	int fd = memfd_create("gpuwm-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING), r;
	char what[64];

	(void)device;
	if (fd < 0)
		return error_set(error, -errno, errno == EMFILE ? "raise RLIMIT_NOFILE" : NULL,
				 "memfd_create failed: %s", strerror(errno));
	snprintf(what, sizeof(what), "no room for %llu bytes of host memory", (unsigned long long)bytes);
	r = file_grow(fd, bytes, what, "see free -m and vm.overcommit_memory; retire what nobody needs", error);
	if (r < 0) {
		close(fd);
		return r;
	}
	*ret = (struct memory_segment){.fd = fd, .bytes = bytes};
	return 0;
}

static int host_zero(const struct memory_device *device, struct memory_segment *segment, struct error *error)
{
	(void)device;
	(void)error;
	memset(segment->address, 0, segment->bytes);
	return 0;
}

static int host_export(const struct memory_device *device, struct memory_segment *segment, struct error *error)
{
	(void)device;
	if (fcntl(segment->fd, F_ADD_SEALS, SEALS_ALL) < 0)
		return error_set(error, -errno,
				 errno == EBUSY ? "end every mapping and every pinning of the memory" : NULL,
				 "sealing a memfd of %llu bytes failed: %s", (unsigned long long)segment->bytes,
				 strerror(errno));
	return 0;
}

static const struct host_seals all_seals = {
	.seals = SEALS_ALL,
	.remedy = "set F_SEAL_WRITE, F_SEAL_GROW, F_SEAL_SHRINK and F_SEAL_SEAL first",
	.without = "it can still be changed",
};

static int host_import(const struct memory_device *device, int fd, uint64_t bytes, bool check,
		       struct memory_segment *ret, struct error *error)
{
	int r = check ? host_memfd_check(fd, bytes, &all_seals, error) : 0, copy;

	(void)device;
	if (r < 0)
		return r;
	/* No child is made before it would close it. */
	fork_lock();
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (copy >= 0)
		*ret = (struct memory_segment){.fd = -1, .bytes = bytes, .handle = (uint64_t)copy + 1};
	fork_unlock();
	if (copy < 0)
		return error_set(error, -errno, errno == EMFILE ? "raise RLIMIT_NOFILE" : NULL,
				 "duplicating a descriptor failed: %s", strerror(errno));
	return 0;
}

static int host_map_failed(uint64_t bytes, struct error *error)
{
	return error_set(error, -errno, errno == ENOMEM ? "raise RLIMIT_AS, or vm.max_map_count" : NULL,
			 "mapping %llu bytes of host memory failed: %s", (unsigned long long)bytes,
			 strerror(errno));
}

/* Addresses with nothing behind them. */
static void *reserve_at(void *address, uint64_t bytes, int flags)
{
	/* cppcheck-suppress invalidFunctionArg ; the descriptor of an anonymous map is -1 */
	return mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

static int host_reserve(const struct memory_device *device, uint64_t bytes, void *wish,
			struct memory_range *ret, struct error *error)
{
	void *area = MAP_FAILED;
	uintptr_t start, base;

	(void)device;
	if (wish && (uintptr_t)wish % HUGE_BYTES == 0)
		area = reserve_at(wish, bytes, MAP_FIXED_NOREPLACE);
	if (area != MAP_FAILED && area == wish) {
		*ret = (struct memory_range){area, bytes};
		return 0;
	}
	if (area != MAP_FAILED)
		munmap(area, bytes); /* a kernel before 4.17 takes the wish for a hint */
	area = reserve_at(NULL, bytes + HUGE_BYTES, 0);
	if (area == MAP_FAILED)
		return host_map_failed(bytes, error);
	start = (uintptr_t)area;
	base = (start + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
	if (base > start)
		munmap(area, base - start);
	munmap((void *)(base + bytes), start + HUGE_BYTES - base);
	*ret = (struct memory_range){(void *)base, bytes};
	return 0;
}

static int host_map_at(const struct memory_device *device, void *address, struct memory_segment *segment,
		       enum memory_access access, struct error *error)
{
	int fd = segment->handle ? imported_fd(segment) : segment->fd;
	bool writes = access == MEMORY_WRITE;
	void *mapped;

	(void)device;
	/* Private for reading: kernels before 6.7 refuse a shared map of a
	 * write-sealed memfd. Nobody writes, so both see the same pages. */
	mapped = mmap(address, segment->bytes, writes ? PROT_READ | PROT_WRITE : PROT_READ,
		      (writes ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED, fd, 0);
	if (mapped == MAP_FAILED)
		return host_map_failed(segment->bytes, error);
	segment->address = mapped;
	if (!writes)
		return 0;
	/* A child's writable copy of the mapping would keep the seals from being set. */
	madvise(mapped, segment->bytes, MADV_DONTFORK);
	/* What is filled through it lies in huge pages, whole ones only, where the kernel gives them to who
	 * asks (shmem_enabled: advise); whoever maps it later has them too. */
	if (segment->bytes >= HUGE_BYTES)
		madvise(mapped, segment->bytes / HUGE_BYTES * HUGE_BYTES, MADV_HUGEPAGE);
	return 0;
}

static int host_map(const struct memory_device *device, struct memory_segment *segment,
		    enum memory_access access, struct error *error)
{
	struct memory_range range;
	int r = host_reserve(device, segment->bytes, NULL, &range, error);

	if (r < 0)
		return r;
	r = host_map_at(device, range.base, segment, access, error);
	if (r < 0)
		munmap(range.base, range.bytes);
	else
		imported_forget(segment);
	return r;
}

/* Also over another segment that is mapped there: who reads meanwhile sees the one or the other. */
static int host_map_over(const struct memory_device *device, struct memory_segment *segment, char *address,
			 struct error *error)
{
	/* Pages are copied when they are written: no room is set aside for all of them. */
	void *mapped = mmap(address, segment->bytes, PROT_READ | (device->private_writes ? PROT_WRITE : 0),
			    MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, imported_fd(segment), 0);

	if (mapped == MAP_FAILED)
		return host_map_failed(segment->bytes, error);
	segment->address = mapped;
	return 0;
}

static int host_map_all(const struct memory_device *device, const struct memory_range *range,
			struct memory_segment *segments, uint32_t count, struct error *error)
{
	char *at = range->base;
	void *blank = NULL;
	int r = 0;

	for (uint32_t i = 0; i < count && r == 0; i++) {
		r = host_map_over(device, &segments[i], at, error);
		at += memory_range_bytes(device, &segments[i], 1);
	}
	/* What is refused stays mapped, unused, until the range is given up. */
	if (r < 0)
		blank = reserve_at(range->base, range->bytes, MAP_FIXED);
	(void)blank;
	for (uint32_t i = 0; i < count && r < 0; i++)
		segments[i].address = NULL;
	return r;
}

/* map_all maps over what is there. */
static int host_vacate(const struct memory_device *device, const struct memory_range *range,
		       struct memory_segment *segments, uint32_t count, struct error *error)
{
	(void)device;
	(void)range;
	(void)error;
	for (uint32_t i = 0; i < count; i++)
		segments[i].address = NULL;
	return 0;
}

static int host_blank(const struct memory_range *range, struct error *error)
{
	const void *blank = reserve_at(range->base, range->bytes, MAP_FIXED);

	return blank == MAP_FAILED ? host_map_failed(range->bytes, error) : 0;
}

static int host_remap_all(const struct memory_device *device, const struct memory_range *range,
			  struct memory_segment *now, struct memory_segment *next, uint32_t count,
			  struct error *error)
{
	struct error unused;
	int r = 0;

	for (uint32_t i = 0; i < count && r == 0; i++)
		r = host_map_over(device, &next[i], now[i].address, error);
	for (uint32_t i = 0; i < count; i++) {
		if (r == 0)
			now[i].address = NULL;
		else
			next[i].address = NULL;
	}
	if (r < 0)
		host_map_all(device, range, now, count, &unused);
	return r;
}

static int host_reaccess(const struct memory_device *device, const struct memory_range *range,
			 struct memory_segment *segments, uint32_t count, enum memory_access access,
			 struct error *error)
{
	bool writes = access == MEMORY_WRITE;

	(void)device;
	(void)range;
	for (uint32_t i = 0; i < count; i++) {
		struct memory_segment *segment = &segments[i];
		const int seals = writes ? fcntl(segment->fd, F_GET_SEALS) : 0;
		const bool shared = writes && (seals < 0 || !(seals & F_SEAL_WRITE));
		void *mapped;

		if (!segment->address)
			continue;
		mapped = mmap(segment->address, segment->bytes, writes ? PROT_READ | PROT_WRITE : PROT_READ,
			      (shared ? MAP_SHARED : MAP_PRIVATE | MAP_NORESERVE) | MAP_FIXED, segment->fd, 0);
		if (mapped == MAP_FAILED)
			return host_map_failed(segment->bytes, error);
	}
	return 0;
}

static void host_settle(struct memory_segment *segment)
{
	segment->handle = (uint64_t)segment->fd + 1;
	segment->fd = -1;
}

static int host_populate(const struct memory_device *device, const struct memory_segment *segments,
			 uint32_t count, struct error *error)
{
	int r;

	(void)device;
	for (uint32_t i = 0; i < count; i++) {
		/* What was populated before a signal came is there, so that each call gets further. */
		do
			r = madvise(segments[i].address, segments[i].bytes, MADV_POPULATE_READ);
		while (r < 0 && errno == EINTR);
		if (r == 0)
			continue;
		return error_set(error, errno == EINVAL ? -ENOTSUP : -errno,
				 errno == EINVAL ? "it takes Linux 5.14; attach without populate" : NULL,
				 "populating the mapping of segment %u of %llu bytes failed: %s", i,
				 (unsigned long long)segments[i].bytes, strerror(errno));
	}
	return 0;
}

static void host_close_fds(struct memory_segment *segments, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		imported_forget(&segments[i]);
}

static void host_unreserve(const struct memory_device *device, struct memory_range *range,
			   struct memory_segment *segments, uint32_t count)
{
	(void)device;
	if (range->base)
		munmap(range->base, range->bytes);
	for (uint32_t i = 0; i < count; i++)
		segments[i].address = NULL;
	*range = (struct memory_range){0};
}

static void host_unmap(const struct memory_device *device, struct memory_segment *segment)
{
	(void)device;
	if (segment->address)
		munmap(segment->address, segment->bytes);
	segment->address = NULL;
}

static void host_release(const struct memory_device *device, struct memory_segment *segment)
{
	host_unmap(device, segment);
	imported_forget(segment);
	if (segment->fd >= 0)
		close(segment->fd);
	*segment = (struct memory_segment){.fd = -1};
}

static int host_copy(const struct memory_device *device, void *to, const void *from, uint64_t bytes,
		     struct error *error)
{
	(void)device;
	(void)error;
	if (bytes > 0)
		memcpy(to, from, bytes);
	return 0;
}

/* Nothing is queued, and there is no context: idle, background, enter, hold. */
static int host_nothing(const struct memory_device *device, struct error *error)
{
	(void)device;
	(void)error;
	return 0;
}

static void host_leave(const struct memory_device *device)
{
	(void)device;
}

const struct memory_ops memory_host = {
	.kind = &kind_host,
	.spacing = HUGE_BYTES,
	.dlpack_device = kDLCPU,
	.cpu_addresses = true,
	.fresh_zeros = true,
	.seals = true,
	.private_writes = true,
	.fork_omits_writable = true,
	.granularity = host_granularity,
	.create = host_create,
	.zero = host_zero,
	.export = host_export,
	.import = host_import,
	.map = host_map,
	.unmap = host_unmap,
	.reserve = host_reserve,
	.map_at = host_map_at,
	.map_all = host_map_all,
	.remap_all = host_remap_all,
	.vacate = host_vacate,
	.blank = host_blank,
	.reaccess = host_reaccess,
	.settle = host_settle,
	.populate = host_populate,
	.close_fds = host_close_fds,
	.unreserve = host_unreserve,
	.release = host_release,
	.write = host_copy,
	.read = host_copy,
	.idle = host_nothing,
	.background = host_leave,
	.enter = host_nothing,
	.leave = host_leave,
	.hold = host_nothing,
	.unhold = host_leave,
	.digests_prepare = host_leave,
	.share = host_share,
	.map_shared = host_map_shared,
	.unmap_shared = host_unmap,
};
