/* Checking a part: everything that its index says, against what lies in the
 * memory behind its descriptors. */
#ifndef GPUWM_LOADER_CHECK_H
#define GPUWM_LOADER_CHECK_H

#include "../client/lib/memory.h"
#include "../proto/digest.h"

struct check_segment {
	int fd; /* the caller's */
	uint64_t bytes; /* as the publisher declared it */
};

/* A part as it was handed in, and what it must be. */
struct check_part {
	const char *device;
	uint32_t rank, world;
	uint64_t bytes_max; /* what the daemon granted */
	int index_fd; /* the caller's */
	uint64_t index_bytes;
	const struct check_segment *segments;
	uint32_t segment_count;
	const struct memory_pace *pace; /* NULL: as fast as it goes */
};

struct check_result {
	struct digest layout, content;
	uint64_t tensors;
	uint64_t bytes; /* of all segments */
	struct memory_report report; /* of reading them */
};

/* Checks a part: the index (a sealed memfd of that size, valid, of that rank
 * and world, naming these segments); the sum of the segments; each segment, which
 * is memory of the device of exactly that size (host: a sealed memfd); every tensor's digest; and that
 * every byte between tensors is zero. Descriptors that may be anything are first asked for
 * their seals: nothing else is sure to return. progress (may be NULL) is called with the bytes that were checked
 * since, as memory_digests tells them. What progress returned when it stopped the
 * check; -EBADMSG naming the tensor or segment and both values. */
int check_part(const struct check_part *part, memory_progress_fn *progress, void *user_data,
	       struct check_result *ret, struct error *error);

/* The same in two steps: check_open all that needs no CUDA context, up to mapped segments; check_bytes
 * the bytes. The part stays the caller's until check_close, which takes NULL and returns it. */
struct check;
int check_open(const struct check_part *part, struct check **ret, struct error *error);
int check_bytes(struct check *check, memory_progress_fn *progress, void *user_data, struct check_result *ret,
		struct error *error);
struct check *check_close(struct check *check);

#endif
