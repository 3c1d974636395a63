/* What this process does with the blocks of a region. The words of blocks are shared with other processes, and change by
 * compare-and-swap: proto/block_word.h. A word has one bit for each process that holds the block. How often this process holds it, and
 * what its streams have still to do, stands here.
 *
 * Every user of the region may write its control memory. So a number that was read there is compared with the number of blocks before
 * it is used, and every loop that another process could keep going has an end. */
#ifndef GPUWM_LIB_BLOCKS_H
#define GPUWM_LIB_BLOCKS_H

#include "region.h"
#include "../../include/gpuwm/blocks.h"
#include "../../proto/control_blocks.h"

/* Another process may change a word between a look and the compare-and-swap. Each time, another step of the block has succeeded, and a
 * block has one step for each user at most before its state changes. So a process that is refused so often meets one that writes
 * without a rule. */
#define BLOCK_TRIES 1000

/* How long a process sleeps at most before it looks again. Who lets go a block rings a bell, but may be stopped before it does. */
#define BLOCK_LOOK_AGAIN_MS 1000

enum block_owning { BLOCK_NOT_OWNED, BLOCK_TO_FILL, BLOCK_PUBLISHING /* by a stream */ };

/* What this process does with one block. */
struct block_use {
	uint32_t generation; /* of the use that it owns or holds */
	uint32_t holds; /* how often it holds the block */
	uint32_t leaving; /* so many holds more end in streams */
	enum block_owning owning;
};

/* A READY block that may make room, and when it was wanted. */
struct block_pick {
	uint64_t used;
	uint32_t number;
};

/* Blocks that nobody needs, in the order in which they are to be taken. Both arrays have room for all blocks. */
struct block_picks {
	uint32_t *frees;
	struct block_pick *readies;
	uint32_t free_count, ready_count, next_free, next_ready;
	uint32_t cursor; /* where the next look for free blocks begins */
};

struct blocks {
	struct gpuwm_region
		*region; /* NULL: it was closed, and a broken context has functions that may still be called */
	struct control_blocks shared; /* in the control memory */
	_Atomic uint64_t *clock;
	struct control_bell *freed;
	unsigned slot;

	/* Of `uses` to `functions`. It is never held over a call of the driver, which may wait for a host function, which wants it. */
	pthread_mutex_t lock;
	struct block_use *uses; /* as many as there are blocks */
	uint32_t owned, held; /* blocks; those that streams publish or release do not count */
	uint32_t functions; /* that streams have still to call, and what they are to do */
	struct order *orders;
	struct blocks *prev, *next; /* in the list of those that were closed before a broken context called */

	pthread_mutex_t pick_lock; /* of what follows; it is taken before `lock` */
	struct block_picks picks;
};

/* Makes it for a region whose control memory is mapped. Fails with -ENOMEM. */
int blocks_new(struct gpuwm_region *region, struct blocks **ret, struct error *error);
/* Ends it. Functions that a broken context never called do nothing if they are called later. blocks may be NULL. */
void blocks_free(struct blocks *blocks);
/* The last one of those functions was called. */
void blocks_free_uncalled(struct blocks *blocks);
/* Checks that this process owns and holds no block. Fails with -EBUSY. */
int blocks_are_let_go(struct blocks *blocks, struct error *error);
/* Waits until streams have called what this process has put into them, or until the context is broken. Fails with -EBUSY. */
int blocks_wait_for_streams(struct blocks *blocks, int wait_ms, struct error *error);

/* Checks that the region has blocks, and that this process may use them. `list`: an array of the caller's, which may be NULL only if
 * `count` is 0. Fails with -EINVAL and -ECHILD. */
int blocks_of(const struct gpuwm_region *region, const void *list, size_t count, struct blocks **ret,
	      struct error *error);
/* The same, for what takes new work: it fails as gpuwm_region_check too. */
int blocks_running(const struct gpuwm_region *region, const void *list, size_t count, struct blocks **ret,
		   struct error *error);

/* ---- words -------------------------------------------------------------- */

enum block_step { BLOCK_PUBLISH, BLOCK_ABANDON, BLOCK_HOLD, BLOCK_RELEASE, BLOCK_DROP };
/* Takes the step as this process. `block` has a number that there is. Fails as the function of proto/block_word.h, and with -EUCLEAN if
 * another process changes the word all the time. */
int blocks_step(const struct blocks *blocks, enum block_step step, struct gpuwm_block block);

/* The block was wanted at this time of the clock. */
void blocks_touch(const struct blocks *blocks, uint32_t number, uint64_t now);
/* Takes times for a wish of `count` keys, and returns the largest one, for the first key. So of blocks that were wanted together, the
 * last ones are evicted first: in a chain of keys, they are of use only behind the others. */
uint64_t blocks_wish(const struct blocks *blocks, size_t count);

/* Sleeps until it is worth looking again. seen: what the bell had rung before the last look. Returns false if the deadline (base/clock.h)
 * has passed. */
bool blocks_sleep(const struct blocks *blocks, uint32_t seen, int64_t deadline);

/* ---- what this process owns and holds ---------------------------------------- */

/* What happens to a list of blocks: the process has them no more, or has them until a stream gets there. */
enum blocks_end { BLOCKS_NOW, BLOCKS_BY_STREAM };

/* Under the lock. What this process does with this use of the block. NULL: nothing; the block may be GPUWM_BLOCK_NONE. */
struct block_use *blocks_use_of(const struct blocks *blocks, struct gpuwm_block block);
/* Under the lock. The process owns the block now. */
void blocks_enlist(struct blocks *blocks, struct gpuwm_block block);
/* Under the lock. Takes blocks out of what this process owns, or holds, once for each time that the list names them: all, or none.
 * blocks_disown fails with -ESTALE, blocks_unhold with -EALREADY. */
int blocks_disown(struct blocks *blocks, const struct gpuwm_block *list, size_t count, enum blocks_end end,
		  struct error *error);
int blocks_unhold(struct blocks *blocks, const struct gpuwm_block *list, size_t count, enum blocks_end end,
		  struct error *error);
/* Under the lock. Undoes it for the first `count` blocks. */
void blocks_disown_undo(struct blocks *blocks, const struct gpuwm_block *list, size_t count);
void blocks_unhold_undo(struct blocks *blocks, const struct gpuwm_block *list, size_t count,
			enum blocks_end end);

/* Under the lock. Holds the block once more. Fails as block_word_hold, but not with -EALREADY, and with -EUCLEAN. */
int blocks_hold_one(struct blocks *blocks, struct gpuwm_block block);
/* Lets go of blocks that this process holds, once each. Fails as gpuwm_blocks_release; error may be NULL. */
int blocks_let_go(struct blocks *blocks, const struct gpuwm_block *list, size_t count, struct error *error);
/* Under the lock, after blocks_unhold. Ends this process's hold of the blocks that none of its threads and streams hold any more. */
void blocks_release_words(struct blocks *blocks, const struct gpuwm_block *list, size_t count);

/* ---- choosing blocks ------------------------------------------------------------ */

/* Under the pick lock. Finds up to `wanted` blocks that nobody needs: FREE ones first, then those that were wanted longest ago. Returns
 * false if there are none. */
bool blocks_pick(struct blocks *blocks, uint32_t wanted);
/* Under the pick lock. Owns the next one of them that still can be taken, and sets *ret. Returns false if there is none. */
bool blocks_own_next(struct blocks *blocks, struct gpuwm_block *ret);

/* Says that there is no room (in_bucket: for keys of one bucket), and which process has most of the blocks. Returns -EAGAIN, or -EUCLEAN
 * if the control memory says what no user writes. */
int blocks_are_full(const struct blocks *blocks, bool in_bucket, struct error *error);

/* ---- the index of blocks by their keys ----
 * Nobody clears a slot: it is void as soon as its block is FREE or of another generation. */

/* A block, and the word that it had when it was looked at. */
struct block_at {
	uint32_t number;
	uint64_t word;
};

/* Finds the block of the key. Returns BLOCK_READY or BLOCK_OWNED and sets *ret; or BLOCK_FREE: there is none. If the key has several
 * blocks, a READY one is found. */
enum block_state blocks_index_find(const struct control_blocks *shared, const struct gpuwm_block_key *key,
				   struct block_at *ret);
/* The same from slot *at of the bucket on, which it moves behind the one that was found. */
enum block_state blocks_index_find_next(const struct control_blocks *shared, const struct gpuwm_block_key *key,
					unsigned *at, struct block_at *ret);
/* The key at `position` is looked up now: asks the CPU to load what lookups of the next ones need. */
void blocks_index_expect(const struct control_blocks *shared, const struct gpuwm_block_key *keys, size_t count,
			 size_t position);

/* Whether blocks_index_put would find the key, or a place for it. */
bool blocks_index_can_put(const struct control_blocks *shared, const struct gpuwm_block_key *key);
/* Puts a block, whose name is written, into the key's bucket. If all slots are alive, the READY block of the bucket that was wanted
 * longest ago is dropped, and this one takes its slot. Returns 0. Fails with -EEXIST if the key has a block already, and with -ENOSPC if
 * all blocks of the bucket are OWNED or held. */
int blocks_index_put(const struct control_blocks *shared, const struct gpuwm_block_key *key,
		     struct gpuwm_block block);

/* Writes and reads the name of a block. */
void blocks_index_name(const struct control_blocks *shared, uint32_t number, const struct gpuwm_block_key *key);
struct gpuwm_block_key blocks_index_name_of(const struct control_blocks *shared, uint32_t number);

#endif
