/* The storm over a pool: processes own it in turn, hand its chunks to each other, and are killed, as gpuwmd is. A board, which all of them
 * map, has what the test knows: who holds what, which tokens were sent, and how many operations there were. */
#ifndef GPUWM_TESTS_POOL_STORM_H
#define GPUWM_TESTS_POOL_STORM_H

#include "storm.h"

#define POOL_WORKERS STORM_ACTORS
#define POOL_BYTES MB(2) /* a device's granularity */
#define POOL_CHUNKS 24
#define POOL_LARGEST KB(192) /* of one chunk: a few fill the pool */
#define POOL_TTL_MS 100 /* a seat for a reader that died is given up after so long */
#define POOL_HELD 6 /* chunks that one process fills, or reads, at once */
#define POOL_POSTS 16 /* tokens that wait for one process */
#define POOL_QUEUE_ITEMS 8

/* A token, and what the bytes of its chunk are made of. */
struct pool_note {
	struct gpuwm_token token;
	uint64_t key;
};

/* A chunk that a worker has. */
struct pool_held {
	struct gpuwm_chunk *chunk;
	struct pool_note note; /* without the token, of one that is being filled */
};

/* Written by the worker. What it holds is true while it is parked. */
struct pool_told {
	_Atomic bool owns, probed;
	uint32_t filling, reading;
	struct gpuwm_token tokens[POOL_HELD]; /* of what it reads */
	uint64_t filled_at[POOL_HELD]; /* the offsets of what it fills */
};

/* Tokens for one worker. The owner posts them; an owner that dies amid leaves the ring as it was. */
struct pool_posts {
	_Atomic uint64_t end, first;
	struct pool_note notes[POOL_POSTS];
};

struct pool_board {
	struct storm_board storm;
	_Atomic bool probe; /* while all are parked, the owner shows that all free bytes are there */
	struct pool_told told[POOL_WORKERS];
	struct pool_posts posts[POOL_WORKERS];
};

/* A worker's moods. */
enum { POOL_OWNER, POOL_OTHER };

/* ---- a worker ------------------------------------------------------------ */

struct pool_worker {
	struct storm_actor actor;
	struct pool_board *board;
	struct pool_told *told;
	struct gpuwm_region *pool, *queue;
	bool owns;
	struct pool_held filling[POOL_HELD], reading[POOL_HELD];
	unsigned filling_count, reading_count;
	struct pool_note sent[POOL_POSTS], seen[POOL_POSTS]; /* the last ones */
	uint64_t sent_count, seen_count;
};

int pool_worker_main(int argc, char **argv);

/* Whether all bytes of the chunk are made of this key. */
void pool_fill(const struct gpuwm_chunk *chunk, uint64_t key);
bool pool_holds(const struct gpuwm_chunk *chunk, uint64_t key);

void pool_open(struct pool_worker *w);
void pool_drop_all(struct pool_worker *w);
extern const struct storm_operation pool_operations[];

/* ---- the test ------------------------------------------------------------ */

struct pool_storm {
	struct storm storm;
	struct gpuwm_region *pool; /* the test is a user too */
	unsigned owner_kills;
};

static inline struct pool_board *pool_board_of(const struct storm *s)
{
	return (struct pool_board *)s->board;
}

/* Everything, while all workers are parked. */
void pool_check(const struct pool_storm *s);

#endif
