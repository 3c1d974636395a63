/* Which bytes of a pool are free: plain data in the owner's memory, which knows nothing of chunks. Pieces begin at multiples of
 * CHUNK_ALIGN. Free pieces that touch each other are one piece. */
#ifndef GPUWM_LIB_POOL_SPACE_H
#define GPUWM_LIB_POOL_SPACE_H

#include <stdint.h>

struct pool_piece {
	uint64_t offset, bytes;
};

struct pool_space {
	struct pool_piece *pieces; /* free ones, by offset */
	uint32_t count;
	uint64_t bytes; /* of all of the memory, a multiple of CHUNK_ALIGN */
	uint64_t free;
};

/* All bytes are free, up to a multiple of CHUNK_ALIGN. At most `chunks` pieces can be in use at once. Fails with -ENOMEM. */
int pool_space_init(struct pool_space *space, uint64_t bytes, uint32_t chunks);
void pool_space_clear(struct pool_space *space);

/* What a chunk of so many bytes takes. 0: more than there are numbers. */
uint64_t pool_space_rounded(uint64_t bytes);
/* Takes bytes (at least 1) out of the smallest free piece that has them; of equal ones, out of the first. Returns 0 and sets
 * *ret_offset. Fails with -EAGAIN if no piece has them. */
int pool_space_take(struct pool_space *space, uint64_t bytes, uint64_t *ret_offset);
/* Takes these bytes. Fails with -EINVAL if they are not all free, or begin at no multiple of CHUNK_ALIGN. */
int pool_space_claim(struct pool_space *space, uint64_t offset, uint64_t bytes);
/* Gives back what was taken or claimed, all of it. */
void pool_space_give(struct pool_space *space, uint64_t offset, uint64_t bytes);
/* The bytes of the largest free piece. */
uint64_t pool_space_largest(const struct pool_space *space);

#endif
