#include "copy.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE_BYTES MIB(2) /* the size on x86-64, and on arm64 with pages of 4 KiB */

__attribute__((format(printf, 2, 3))) static void ring_note_add(struct ring *ring, const char *format, ...)
{
	size_t used = strlen(ring->note);
	va_list arguments;

	used += (size_t)snprintf(ring->note + used, sizeof(ring->note) - used, "%s", used ? "; " : "");
	va_start(arguments, format);
	vsnprintf(ring->note + used, sizeof(ring->note) - used, format, arguments);
	va_end(arguments);
}

/* The kernel uses huge pages only for memory that begins at one. */
static void *map_aligned(size_t bytes)
{
	size_t room = bytes + HUGE_PAGE_BYTES, before;
	char *area, *begin;

	/* cppcheck-suppress invalidFunctionArg ; -1 is what anonymous memory takes */
	area = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED)
		return NULL;
	before = -(uintptr_t)area % HUGE_PAGE_BYTES;
	begin = area + before;
	if (before)
		munmap(area, before);
	munmap(begin + bytes, HUGE_PAGE_BYTES - before);
	return begin;
}

void *ring_map(size_t bytes)
{
	void *area = map_aligned(bytes);

	if (area)
		madvise(area, bytes, MADV_HUGEPAGE);
	return area;
}

/* Kernels before 5.14 have no call that does it in one go. */
static int touch(char *base, size_t bytes)
{
	int r;

	do
		r = madvise(base, bytes, MADV_POPULATE_WRITE);
	while (r < 0 && errno == EINTR);
	if (r == 0)
		return 0;
	if (errno != EINVAL)
		return -ENOMEM;
	for (size_t at = 0; at < bytes; at += 4096)
		((volatile char *)base)[at] = 0;
	return 0;
}

/* Whether smaps shows no huge pages in the mapping that holds `base`. */
static bool huge_pages_missing(const void *base)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	unsigned long from, to, kib;
	bool inside = false, missing = false;
	char line[512];

	while (file && !missing && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = (uintptr_t)base >= from && (uintptr_t)base < to;
		else if (inside && sscanf(line, "AnonHugePages: %lu kB", &kib) == 1)
			missing = kib == 0;
	}
	if (file)
		fclose(file);
	return missing;
}

int ring_make(size_t chunk, size_t count, struct ring *ret, struct error *error)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct ring ring = {.chunk = chunk, .count = count};

	ring.bytes = (chunk * count + page - 1) / page * page;
	ring.base = ring_map(ring.bytes);
	if (!ring.base || touch(ring.base, ring.bytes) < 0) {
		ring_free(&ring);
		return error_set(error, -ENOMEM, NULL, "no room for %zu buffers of %zu bytes", count, chunk);
	}
	if (ring.bytes >= HUGE_PAGE_BYTES && huge_pages_missing(ring.base))
		ring_note_add(&ring, "the buffers got no huge pages, so pinning them takes longer"
				     " (see /sys/kernel/mm/transparent_hugepage)");
	*ret = ring;
	return 0;
}

void *ring_buffer(const struct ring *ring, size_t slot)
{
	return (char *)ring->base + slot * ring->chunk;
}

size_t ring_usable(const struct ring *ring)
{
	return ring->pinned ? ring->pinned : ring->count;
}

void ring_lock(struct ring *ring, const struct memory_device *device)
{
	struct error refused = {0};
	size_t count = ring->count;

	if (!device->ops->pin)
		return;
	ring->ops = device->ops;
	while (count > 0 && ring->ops->pin(ring->base, ring->chunk * count, &refused) < 0)
		count /= 2;
	ring->pinned = count;
	if (ring->pinned == 0)
		ring_note_add(ring, "the driver pinned none of the buffers, so copies take longer: %s",
			      refused.message);
	else if (ring->pinned < ring->count)
		ring_note_add(ring, "the driver pinned %zu of %zu buffers: %s", ring->pinned, ring->count,
			      refused.message);
}

void ring_free(struct ring *ring)
{
	if (ring->pinned)
		ring->ops->unpin(ring->base);
	if (ring->base)
		munmap(ring->base, ring->bytes);
	*ring = (struct ring){0};
}
