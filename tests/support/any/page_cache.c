#include "page_cache.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CACHE_TRIES 2000 /* a millisecond each */

static void *cache_map(int fd, uint64_t from, uint64_t to)
{
	void *map = mmap(NULL, to - from, PROT_READ, MAP_SHARED, fd, (off_t)from);

	cr_assert_neq(map, MAP_FAILED, "%s", strerror(errno));
	return map;
}

size_t cache_pages(int fd, uint64_t from, uint64_t to)
{
	size_t pages = (to - from + CACHE_PAGE - 1) / CACHE_PAGE, count = 0;
	void *map = cache_map(fd, from, to);
	unsigned char *there = malloc(pages);

	cr_assert_eq(mincore(map, to - from, there), 0);
	for (size_t i = 0; i < pages; i++)
		count += there[i] & 1;
	free(there);
	munmap(map, to - from);
	return count;
}

void cache_read(int fd, uint64_t from, uint64_t to)
{
	size_t bytes = to - from;
	char *into = malloc(bytes);

	cr_assert_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0);
	for (size_t done = 0; done < bytes;) {
		ssize_t n = pread(fd, into + done, bytes - done, (off_t)(from + done));

		cr_assert_gt(n, 0, "%s", strerror(errno));
		done += (size_t)n;
	}
	free(into);
}

void cache_hold(int fd, uint64_t from, uint64_t to)
{
	void *map = cache_map(fd, from, to);

	cache_read(fd, from, to);
	cr_assert_eq(madvise(map, to - from, MADV_RANDOM), 0);
	/* AddressSanitizer's mlock does nothing. */
	if (syscall(SYS_mlock, map, to - from) < 0) {
		/* Containers run without CAP_IPC_LOCK, and some with a RLIMIT_MEMLOCK of 0. */
		if (errno == EPERM || errno == ENOMEM)
			cr_skip_test("mlock is refused (%s): raise RLIMIT_MEMLOCK (ulimit -l) to 8 MiB",
				     strerror(errno));
		cr_assert_fail("mlock: %s", strerror(errno));
	}
}

void cache_wait(int fd, uint64_t offset)
{
	uint64_t page = offset / CACHE_PAGE * CACHE_PAGE;

	for (int i = 0; i < CACHE_TRIES && cache_pages(fd, page, page + CACHE_PAGE) == 0; i++)
		usleep(1000);
}

bool cache_drop(int fd, uint64_t from, uint64_t to)
{
	cr_assert_eq(fsync(fd), 0);
	for (int i = 0; i < CACHE_TRIES; i++) {
		posix_fadvise(fd, (off_t)from, (off_t)((to - from + CACHE_PAGE - 1) / CACHE_PAGE * CACHE_PAGE),
			      POSIX_FADV_DONTNEED);
		if (cache_pages(fd, from, to) == 0)
			return true;
		usleep(1000);
	}
	return false;
}
