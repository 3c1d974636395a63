/* The owner's side of a pool: which chunks are in use, and who waits for one. The owner keeps its own account. What the control memory
 * says about a chunk in use is compared with it, and never decides which bytes are free. */
#ifndef GPUWM_LIB_POOL_H
#define GPUWM_LIB_POOL_H

#include "chunk.h"

#include <stdint.h>

/* ---- which bytes of a pool are free ----
 * Plain data in the owner's memory, which knows nothing of chunks. Pieces begin at multiples of
 * CHUNK_ALIGN. Free pieces that touch each other are one piece. */

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

/* ---- the pool ---- */

/* One entry of the control memory. */
struct pool_entry {
	struct chunk_use use; /* of the last use; its generation is 0 before the first one */
	uint64_t since_ms; /* clock_boot_ms: when it was allocated, or offered */
	bool offered; /* else its handle has it */
	bool withdrawn; /* nobody is to come any more */
	struct pool_entry *prev, *next; /* among those in use, or those that are free; the oldest first */
};

/* Chunks that a caller wants, all or none: handles whose `use` has the bytes that each is to have. */
struct pool_request {
	struct gpuwm_chunk **chunks;
	size_t count;
	uint64_t bytes; /* what the chunks take in all */
};

/* A caller that waits for chunks. */
struct pool_waiter {
	struct pool_request request;
	int64_t deadline;
	uint64_t number; /* of those with a function: gpuwm_chunks_alloc_cancel names it */
	gpuwm_chunks_fn *fn; /* NULL: a thread of the program waits itself */
	void *user_data;
	struct pool_waiter *prev, *next;
};

struct pool {
	struct gpuwm_region *region;
	pthread_mutex_t lock; /* of all that follows */
	pthread_cond_t turn; /* the first waiter is another one, or there is a new one */
	struct pool_space space;
	struct pool_entry *entries; /* as many as there are chunks */
	struct pool_entry *used, *idle; /* lists */
	uint32_t used_count;
	uint32_t heard; /* how often the bell `freed` had rung when `used` was looked through */
	struct pool_waiter *waiters;
	struct pool_waiter *cancelled; /* they left the line, and their functions were not called yet */
	uint32_t waiting;
	uint64_t numbered; /* how many of them got a number */
	pthread_t thread; /* serves those that wait with a function */
	bool has_thread, stopping;
	uint32_t later; /* waiters with a function that has not returned */
};

/* Makes the pool of the process that owns the region: it has the chunks that are in use by the control memory. Fails with -EUCLEAN if
 * that has chunks which overlap or are not inside the region, and with -ENOMEM. */
int pool_new(struct gpuwm_region *region, struct pool **ret, struct error *error);
/* Frees it. Ends its thread, which has nothing to do. pool may be NULL. */
void pool_free(struct pool *pool);

/* Under the lock. Looks which chunks are free again. expired: also takes from readers that are later than the region's time to live.
 * Fails with -EUCLEAN if an entry says what no user writes. */
int pool_recycle(struct pool *pool, bool expired, struct error *error);
/* Under the lock. The chunk is free: its bytes and its entry can be used again. */
void pool_release(struct pool *pool, struct pool_entry *entry);
/* Under the lock. When the first reader's time to live is over, as a deadline of base/clock.h; -1: never. */
int64_t pool_next_expiry(const struct pool *pool);

/* Makes the handles of `count` chunks, in `chunks`, which has room for them and stays the caller's. Fails, without handles, if there
 * can't be such chunks even when nothing else is in use, as gpuwm_chunks_alloc. */
int pool_request_begin(struct pool *pool, const uint64_t *bytes, size_t count, struct gpuwm_chunk **chunks,
		       struct pool_request *ret, struct error *error);
/* Frees the handles of a request that got no chunks. */
void pool_request_drop(const struct pool_request *request);
/* Under the lock. Allocates the chunks of a request out of turn: all of them, or none. Fails with -EAGAIN if there is no room now,
 * without an error text, with -EUCLEAN, and if the region has ended. */
int pool_try(struct pool *pool, const struct pool_request *request, struct error *error);
/* Under the lock. Says that there is no room: who comes before this waiter (NULL: before a caller that does not wait), who holds the
 * oldest chunk, and what helps. Returns -EAGAIN. */
int pool_is_full(const struct pool *pool, const struct pool_request *request, const struct pool_waiter *waiter,
		 struct error *error);
/* Under the lock. Writes who holds the oldest chunk, for how long, and how large it is. Returns false if no chunk is in use. */
#define POOL_OLDEST_TEXT (REGION_USER_TEXT + 160)
bool pool_oldest_text(const struct pool *pool, char ret[POOL_OLDEST_TEXT]);

/* Under the lock. Adds or removes a waiter. */
void pool_wait_begin(struct pool *pool, struct pool_waiter *waiter);
void pool_wait_end(struct pool *pool, struct pool_waiter *waiter);

/* Checks that this process allocates from the region. Fails with -EINVAL, -EPERM and -ECHILD. */
int pool_of(const struct gpuwm_region *region, struct pool **ret, struct error *error);

#endif
