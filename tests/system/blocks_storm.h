/* The storm over blocks: processes fill blocks, find and hold what others have filled, and are killed, stopped and replaced, as gpuwmd is.
 * A board, which all of them map, is the ledger: who owns which block, who holds it, what was published and what was dropped. A worker
 * writes there before an operation that gives something away, and after one that gets something. So whatever the ledger says that a
 * worker has, the worker has. */
#ifndef GPUWM_TESTS_BLOCKS_STORM_H
#define GPUWM_TESTS_BLOCKS_STORM_H

#include "storm.h"

#include <gpuwm/blocks.h>

#define BLOCKS_WORKERS STORM_ACTORS
#define BLOCKS_COUNT 48 /* fewer than keys, so that blocks are evicted */
#define BLOCKS_BYTES KB(4)
#define BLOCKS_WORDS (BLOCKS_BYTES / 8)
#define BLOCKS_KEYS 100
#define BLOCKS_KEY_BUCKETS 10 /* that the keys share: 10 keys have one bucket of 16 slots */
#define BLOCKS_TWINS 20 /* the first keys: two and two of them have the same 128 bits, and another check */
#define BLOCKS_OWNED 6 /* by one process at once; with those held they are more than all blocks */
#define BLOCKS_HELD 6
#define BLOCKS_RUN 4 /* keys of one call */
#define BLOCKS_POSTS 16
#define BLOCKS_LET_GO_MS (SANITIZED ? 5000 : 1000) /* what a dead process owned and held */

/* What a worker does; each counts as one operation. */
/* Moods of workers. */
enum { BLOCKS_SHARING, BLOCKS_HOARDING };

/* Where a worker is: it stays a moment there at times, so that it is killed or stopped in each of these places. */
enum blocks_at {
	AT_REST, /* with whatever it owns and holds */
	AT_RESERVE, /* inside the call, here and below */
	AT_RESERVED, /* it has blocks, without bytes */
	AT_FILLING, /* some of the bytes are there */
	AT_FILLED, /* the bytes are there, the blocks are not published */
	AT_PUBLISH,
	AT_QUEUED, /* published in the stream, which may not have got there */
	AT_HOLD,
	AT_HELD,
	AT_RELEASE,
	AT_DROP,
	AT_REOPEN,
	AT_PLACES,
};

/* A use of a block, and what its bytes are made of. */
struct blocks_use {
	struct gpuwm_block block;
	uint32_t key;
	uint64_t salt;
};

/* Written by the worker, but for pid and start. */
struct blocks_told {
	_Atomic uint32_t at;
	_Atomic bool stays; /* at that place, for a moment */
	_Atomic int32_t pid;
	_Atomic uint64_t start; /* the number of this process among all; 0: it is dead */
	_Atomic uint32_t holds[BLOCKS_COUNT]; /* how often it holds each */
	_Atomic uint32_t dropping, dropping_count; /* the first key, and how many */
	_Atomic uint64_t filling; /* 1 + the key that it reserved last */
	uint64_t evicted; /* blocks that it got though others had published them */
};

/* What is known of a block. */
struct blocks_known {
	_Atomic uint64_t
		owner; /* the start of the process, BLOCKS_WORKERS to the left, and its number; 0: nobody */
	/* Of the last publish that began: written by the owner. */
	_Atomic uint32_t generation, key;
	_Atomic uint64_t salt;
	_Atomic uint64_t dropped; /* what blocks_board.dropped said of the key before */
	_Atomic uint64_t published; /* the last generation that was published for sure */
};

struct blocks_posts {
	_Atomic uint64_t end; /* workers take any of the last ones */
	struct blocks_use uses[BLOCKS_POSTS];
	_Atomic uint64_t
		whole[BLOCKS_POSTS]; /* 1 + the number of the post that is there; 0: it is being written */
};

struct blocks_board {
	struct storm_board storm;
	_Atomic bool hoard; /* nobody gives anything back, so that the region gets full */
	_Atomic uint64_t dropped[BLOCKS_KEYS]; /* counted before a drop and after it */
	struct blocks_known known[BLOCKS_COUNT];
	struct blocks_told told[BLOCKS_WORKERS];
	struct blocks_posts posts[BLOCKS_WORKERS]; /* by each worker */
};

/* ---- a worker ------------------------------------------------------------ */

/* A copy that is queued: what will be in `bytes`. */
struct blocks_copy {
	struct blocks_use use;
	uint64_t *bytes;
};

struct blocks_worker {
	struct storm_actor actor;
	struct blocks_board *board;
	struct blocks_told *told;
	struct gpuwm_region *region;
	struct blocks_use owned[BLOCKS_OWNED], held[BLOCKS_HELD];
	unsigned owned_count, held_count;
	/* In the stream, until blocks_settle: pinned memory, what was published, and what was read. */
	uint64_t *staging;
	struct blocks_use queued[BLOCKS_OWNED];
	unsigned queued_count;
	struct blocks_copy reads[BLOCKS_HELD];
	unsigned read_count;
};

int blocks_worker_main(int argc, char **argv);
/* The worker is there now, and stays for a moment at times. */
void blocks_at(struct blocks_worker *w, enum blocks_at at);
/* Waits for the stream. What was published there is published, and what was read there had the right bytes. */
void blocks_settle(struct blocks_worker *w);

void blocks_open(struct blocks_worker *w);
extern const struct storm_operation blocks_operations[];
/* Gives back all that the worker owns and holds. */
void blocks_drop_all(struct blocks_worker *w);

/* ---- keys, bytes and the ledger: blocks_storm_ledger.c --------------------- */

struct gpuwm_block_key blocks_key(uint32_t key);
bool blocks_key_is(const struct gpuwm_block_key *a, const struct gpuwm_block_key *b);
void blocks_fill(uint64_t *words, const struct blocks_use *use);
/* Whether all bytes are of this use; of its salt, unless that is 0. Sets *ret_salt, which may be NULL. */
bool blocks_bytes_are(const uint64_t *words, const struct blocks_use *use, uint64_t *ret_salt);

/* The worker has got this block: nobody else that lives owns or holds it. */
void blocks_owns(struct blocks_worker *w, const struct gpuwm_block *block);
/* The worker is about to give it away. */
void blocks_disowns(struct blocks_worker *w, const struct gpuwm_block *block);
void blocks_publishes(struct blocks_worker *w, const struct blocks_use *use);
void blocks_published(struct blocks_worker *w, const struct blocks_use *use);
void blocks_holds(struct blocks_worker *w, const struct gpuwm_block *block);
void blocks_lets_go(struct blocks_worker *w, const struct gpuwm_block *block);
void blocks_drops(struct blocks_worker *w, uint32_t first, uint32_t count);
void blocks_dropped(struct blocks_worker *w);
/* The same of a worker that may have died. */
void blocks_drop_ended(struct blocks_board *board, struct blocks_told *told);

/* ---- the test ------------------------------------------------------------ */

struct blocks_storm {
	struct storm storm;
	struct gpuwm_region *region; /* the test is a user too */
	struct control control; /* its control memory */
	unsigned killed_at[AT_PLACES];
	int64_t let_go_ms; /* at most: what a dead process owned and held */
};

static inline struct blocks_board *blocks_board_of(const struct storm *s)
{
	return (struct blocks_board *)s->board;
}

/* Everything, while all workers are parked. */
void blocks_check(const struct blocks_storm *s);
/* All blocks can be had: nothing is owned or held. */
void blocks_check_end(const struct blocks_storm *s);
/* Whether the user in this slot owns or holds a block. */
bool blocks_has_any(const struct blocks_storm *s, unsigned slot);

#endif
