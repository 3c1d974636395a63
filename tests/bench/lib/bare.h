/* What attaching is measured against: mapping and unmapping the same descriptors with the fewest calls
 * that do it: one reservation, an import and a map a segment, one call for the access. */
#ifndef GPUWM_BENCH_BARE_H
#define GPUWM_BENCH_BARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BARE_SEGMENTS_MAX 252

struct bare_segment {
	int fd;
	uint64_t bytes;
	uint64_t handle; /* bare_map's own */
};

struct bare_part {
	struct bare_segment segments[BARE_SEGMENTS_MAX];
	size_t count;
	uintptr_t addresses[BARE_SEGMENTS_MAX]; /* where bare_map put them; on a GPU side by side */
};

struct gpuwm_handles;

/* The descriptors stay the handles' own. */
struct bare_part bare_part_of(const struct gpuwm_handles *handles);

/* For a GPU makes the context that a worker has. `device` is "host" or a UUID. */
void bare_open(const char *device);
bool bare_is_cuda(void);
void bare_map(struct bare_part *part);
void bare_unmap(struct bare_part *part);
uint64_t bare_bytes(const struct bare_part *part);

#endif
