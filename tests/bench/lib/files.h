/* The safetensors files of a source, and how much of them is in the page cache. */
#ifndef GPUWM_BENCH_FILES_H
#define GPUWM_BENCH_FILES_H

#include <stddef.h>
#include <stdint.h>

#define FILES_MAX 256

struct files {
	struct {
		char path[512];
		uint64_t bytes;
	} file[FILES_MAX];
	size_t count;
	uint64_t bytes;
};

/* Of a folder, or the one file that `source` is. */
void files_of(const char *source, struct files *ret);
/* What of them is cached, 0 to 1: exact for files of this user. */
double files_cached(const struct files *files);
/* Out of the page cache, after fsync. */
void files_evict(const struct files *files);
/* Into the page cache: the first `share` of each file. */
void files_warm(const struct files *files, double share);

/* Keeps what is cached of them there, for as long as this process: the kernel takes back what it likes. Where the limit of
 * locked memory forbids it, that is printed. */
void files_hold(const struct files *files);

/* A range of one file. */
struct range {
	size_t file;
	uint64_t offset, bytes;
};
/* Chunk number `number` of them all, in order. bytes 0: there are no more. */
struct range files_chunk(const struct files *files, uint64_t number, uint64_t chunk);

#endif
