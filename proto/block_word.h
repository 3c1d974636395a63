/* The word of a block: what it is now, who writes it, and who reads it. Blocks of a region pass between processes without a lock
 * and without gpuwmd, by compare-and-swap on this word. The functions here compute the next word from the last one, and touch no
 * memory, so that a test can go through all words of a small region. control_blocks.h has the memory.
 *
 *   bits 0 to 25    holders: a bit for each of the region's users
 *   bits 26 to 27   the state
 *   bits 28 to 32   the slot of the user that owns it, or that filled it
 *   bits 33 to 63   the generation: it counts the uses of the block, and wraps
 *
 *            own                 publish             hold
 *   FREE ───────────▶ OWNED ───────────────▶ READY ─────────▶ READY, held by n
 *    ▲  ▲               │                    │   ▲                │
 *    │  └───────────────┘ abandon       drop │   └────────────────┘ release
 *    └───────────────────────────────────────┘
 *
 * `own` also takes a block that is READY and held by nobody: that is eviction. Whoever owns a block is the only one to write its bytes
 * and its key, so both stand still while a block is READY and held. When a process has exited, gpuwmd frees what it owned, whose bytes
 * may lack, and lets go what it held. */
#ifndef GPUWM_PROTO_BLOCK_WORD_H
#define GPUWM_PROTO_BLOCK_WORD_H

#include "../base/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum block_state { BLOCK_FREE, BLOCK_OWNED, BLOCK_READY };

#define BLOCK_GENERATION_MAX ((UINT32_C(1) << 31) - 1)

/* Where its parts begin. */
#define BLOCK_STATE_SHIFT REGION_USERS_MAX
#define BLOCK_WRITER_SHIFT (BLOCK_STATE_SHIFT + 2)
#define BLOCK_GENERATION_SHIFT (BLOCK_WRITER_SHIFT + 5)

/* gpuwmd reads all words of a region at once: these are inline for that. */
static inline enum block_state block_word_state(uint64_t word)
{
	return (enum block_state)(word >> BLOCK_STATE_SHIFT & 3);
}

/* The users that hold the block, a bit for each slot. */
static inline uint32_t block_word_holders(uint64_t word)
{
	return (uint32_t)word & ((UINT32_C(1) << REGION_USERS_MAX) - 1);
}

/* The slot of who owns it or filled it. A hostile user may have written any number up to 31. */
static inline unsigned block_word_writer(uint64_t word)
{
	return (unsigned)(word >> BLOCK_WRITER_SHIFT & 31);
}

static inline uint32_t block_word_generation(uint64_t word)
{
	return (uint32_t)(word >> BLOCK_GENERATION_SHIFT);
}

/* Whether somebody may own the block now: it is FREE, or READY and held by nobody. */
static inline bool block_word_is_unused(uint64_t word)
{
	return block_word_state(word) != BLOCK_OWNED && block_word_holders(word) == 0;
}

/* Each sets *ret to the next word. `slot` is the caller's, below REGION_USERS_MAX; `generation` is the one that the caller knows. */

/* The user owns the block, in the next generation. Fails with -EBUSY if it is OWNED or held. */
int block_word_own(uint64_t word, unsigned slot, uint64_t *ret);
/* Its bytes are there: anybody may hold it. Fails with -ESTALE if the user does not own this generation. */
int block_word_publish(uint64_t word, unsigned slot, uint32_t generation, uint64_t *ret);
/* Its bytes will not come: it is FREE. Fails with -ESTALE if the user does not own this generation. */
int block_word_abandon(uint64_t word, unsigned slot, uint32_t generation, uint64_t *ret);
/* The user holds the block. A process holds it once, however many of its threads read it. Fails with
 *   -EAGAIN    The generation is OWNED: its bytes are still to come.
 *   -ESTALE    The block is FREE, or of another generation.
 *   -EALREADY  The user holds it. */
int block_word_hold(uint64_t word, unsigned slot, uint32_t generation, uint64_t *ret);
/* The user holds it no more. Fails with -EALREADY if it does not hold this generation. */
int block_word_release(uint64_t word, unsigned slot, uint32_t generation, uint64_t *ret);
/* Nobody wants its bytes any more: it is FREE. Fails with -EBUSY if it is held, and with -ESTALE if it is not READY, or of another
 * generation. */
int block_word_drop(uint64_t word, uint32_t generation, uint64_t *ret);
/* The process in this slot has exited: the word without it. */
uint64_t block_word_forget(uint64_t word, unsigned slot);

#endif
