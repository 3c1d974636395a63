/* What of a file is in the page cache, as a test wants it. The kernel takes back what it likes, and keeps for a
 * moment what it is just busy with: so what is to stay is locked, and what is to go is dropped until it is gone. */
#ifndef GPUWM_TESTS_ANY_PAGE_CACHE_H
#define GPUWM_TESTS_ANY_PAGE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CACHE_PAGE UINT64_C(4096)

/* How many pages of [from, to) are cached; from begins one. For the file's owner only. */
size_t cache_pages(int fd, uint64_t from, uint64_t to);

/* Reads whole pages into the cache, and no other ones. */
void cache_read(int fd, uint64_t from, uint64_t to);

/* The same, and they stay as long as this process. For a few MiB: RLIMIT_MEMLOCK. */
void cache_hold(int fd, uint64_t from, uint64_t to);

/* Waits for a page that the kernel was made to read: before it is there it can't be dropped. */
void cache_wait(int fd, uint64_t offset);

/* Drops whole pages, on disk by now or not. False: they stay, as those of a tmpfs do. */
bool cache_drop(int fd, uint64_t from, uint64_t to);

#endif
