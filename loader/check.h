/* Checks a part: everything that its index says, against the memory behind its descriptors. */
#ifndef GPUWM_LOADER_CHECK_H
#define GPUWM_LOADER_CHECK_H

#include "../memory/memory.h"
#include "../proto/index/digest.h"
#include "../proto/wire/messages_loader.h"
#include "../proto/wire/part.h"

/* A part as a publisher handed it in, and what it must be. */
struct check_part {
	const char *device;
	uint32_t rank, world;
	uint64_t bytes_max; /* the bytes that gpuwmd granted */
	const struct part *part; /* the caller's; with the bytes that the publisher declared */
	const struct memory_pace *pace; /* NULL: as fast as possible */
	const bool *left_out; /* for each segment, whether its memory is not read; NULL: all are */
};

/* A part of a version, as gpuwmd has it. */
static inline struct check_part check_part_at(const struct job_place *place, const struct part *part)
{
	return (struct check_part){
		place->device, (uint32_t)place->rank, (uint32_t)place->world, UINT64_MAX, part, NULL, NULL};
}

struct check_result {
	struct digest layout, content;
	uint64_t tensors;
	uint64_t bytes; /* of all segments */
	struct memory_report report; /* how the reading went */
};

/* Checks a part completely:
 * - the index: a sealed memfd of that size, valid, of that rank and world, with these segments;
 * - the sum of the segments;
 * - each segment: memory of the device of exactly that size, on host a sealed memfd;
 * - every tensor's digest, and that every byte between tensors is zero.
 * It first asks each descriptor for its seals: a descriptor may be of any file, and no other call
 * is sure to return. It calls progress, which may be NULL, with the bytes that were checked since
 * its last call, as memory_digests does.
 *
 * Returns 0 and sets *ret. If progress stops the check, returns what progress returned. Fails with
 * -EBADMSG; the message names the tensor or segment and both values. */
int check_part(const struct check_part *part, memory_progress_fn *progress, void *user_data,
	       struct check_result *ret, struct error *error);

/* The same in two steps. check_open does all that needs no CUDA context, up to mapped segments.
 * check_bytes checks the bytes. The part stays the caller's until check_close, which accepts NULL
 * and returns NULL. */
struct check;
/* Returns where a segment is mapped, for reading. */
const void *check_segment(const struct check *check, uint32_t segment);
/* From now on check_bytes reads the bytes of each segment at these addresses, where a copy lies. The array must outlive the
 * check. */
void check_elsewhere(struct check *check, const void *const *addresses);
/* Returns the segment that check_bytes found to differ, or -1. */
int check_damaged(const struct check *check);
int check_open(const struct check_part *part, struct check **ret, struct error *error);
/* For a copy, which has each byte in the CPU's cache once: check_add digests bytes of a segment, at least 8 and from a multiple of 8 on
 * unless they are its last, and may run in many threads. When it had all bytes of a segment, each once, check_added compares them as check_bytes does. Returns 0.
 * Fails with -EBADMSG. Of a segment for which check_adds is false nothing is added and compared: it has a tensor that begins at no multiple of 8, whose words
 * lie in two pieces of a copy. */
bool check_adds(const struct check *check, uint32_t segment);
void check_add(struct check *check, uint32_t segment, uint64_t offset, const void *data, uint64_t bytes);
int check_added(struct check *check, struct error *error);
int check_bytes(struct check *check, memory_progress_fn *progress, void *user_data, struct check_result *ret,
		struct error *error);
struct check *check_close(struct check *check);

#endif
