/* gpuwm: blocks of one size that processes share, found by a key. A KV cache that several engines fill and read, for example.
 *
 * A region of the kind GPUWM_REGION_BLOCKS has blocks of one size. Every process that opens it for writing may fill blocks, and every
 * process may read them. The region is a cache: when it is full, the block that was wanted longest ago makes room. It belongs to a user,
 * so it outlives the engines that fill it.
 *
 *     who computes                                              who needs the same
 *     gpuwm_blocks_reserve(region, keys, n, 0, blocks, &done)
 *     ... copy into gpuwm_block_address(region, number) ...
 *     gpuwm_blocks_publish_in_stream(region, blocks, n, stream) ─▶ gpuwm_blocks_hold(region, keys, n, wait, blocks, &held)
 *                                                                  ... copy from gpuwm_block_address(region, number) ...
 *     the blocks stay, until they make room                        gpuwm_blocks_release_in_stream(region, blocks, held, stream)
 *
 *            reserve             publish             hold
 *     FREE ───────────▶ OWNED ────────────▶ READY ─────────▶ HELD by n processes
 *      ▲  ▲  abandon      │                 │   ▲  release      │
 *      │  └───────────────┘            drop │   └───────────────┘
 *      └────────────────────────────────────┘     reserve takes from READY too: the one wanted longest ago. It never takes from HELD
 *
 * Rules, besides those of gpuwm/region.h:
 *
 * - Keys. A key is 128 bits that stand for the bytes, a digest of all that they depend on. `check` is 64 bits more of the same, computed
 *   otherwise: a block is found only if both are equal. A key of which nobody knows is a miss, and no error.
 * - Order. publish_in_stream and release_in_stream take effect when the GPU has got there; a thread of the driver does it. So what is
 *   READY has its bytes, and nobody waits for it in a stream. If the CUDA context breaks, they never take effect, and the blocks stay
 *   OWNED or HELD until the process exits. Both fail with -EBUSY if the stream is being captured.
 * - Death. When a process has exited, what it owned is FREE, since its bytes may lack, and what it held is let go. What it had published
 *   stays.
 * - Nothing here asks gpuwmd, and nothing waits for more than wait_ms.
 * - Trust. Whoever may write the region may write every block of it, under any key. Give it to engines of one user.
 * - Threads. All functions may be called by several threads at once. A process holds a block until each hold was released once.
 */
#ifndef GPUWM_BLOCKS_H
#define GPUWM_BLOCKS_H

#include "region.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

struct gpuwm_block_key {
	uint64_t key[2];
	uint64_t check;
};

/* One use of a block. It is plain data: another process may hold it by gpuwm_blocks_hold_these. */
struct gpuwm_block {
	uint32_t number; /* from 0; GPUWM_BLOCK_NONE: none */
	uint32_t generation; /* of this use; it wraps at 2^31 */
};
#define GPUWM_BLOCK_NONE UINT32_MAX

/* ---- filling -------------------------------------------------------------- */

/* Reserves a block for each key, in their order, for this process to fill. A key that is there already, or that somebody is filling,
 * gets GPUWM_BLOCK_NONE. Free blocks are taken first, then those that are READY and were wanted longest ago. Stops where there is no
 * room; if there is none for the first key that needs a block, it waits for wait_ms (0: not at all; -1: for ever) until a block is
 * released, dropped or abandoned. Two processes that reserve one key at the same moment may both get a block.
 *
 * Returns 0 and sets ret_blocks[0] to ret_blocks[*ret_done - 1].
 *
 * Fails with
 *   -EAGAIN    There is no room for the first key: everything is OWNED or HELD. The message names the process that has most of it.
 *   -EACCES    This process may not write the region, or has opened it by GPUWM_REGION_LOOK.
 *   -EINVAL    The region is of another kind.
 *   -EUCLEAN   The control memory has entries that no user writes.
 *   -ECHILD, and those of gpuwm_region_check */
int gpuwm_blocks_reserve(struct gpuwm_region *region, const struct gpuwm_block_key *keys, size_t count,
			 int64_t wait_ms, struct gpuwm_block *ret_blocks, size_t *ret_done);
/* The bytes of these blocks are there: everybody may hold them. Blocks with GPUWM_BLOCK_NONE are passed over, here and below.
 *
 * Fails with -ESTALE if this process does not own one of them; then none was published. */
int gpuwm_blocks_publish(struct gpuwm_region *region, const struct gpuwm_block *blocks, size_t count);
/* The same when the GPU gets to this place in the stream: a CUstream of any GPU of this process; NULL is the default stream of this
 * thread's current context. The array may be freed at once. After an error the blocks are still owned. Fails with -ENOTSUP (the region
 * is on host), -EBUSY (the stream is being captured), -EIO and -ENOMEM too. */
int gpuwm_blocks_publish_in_stream(struct gpuwm_region *region, const struct gpuwm_block *blocks, size_t count,
				   void *stream);
/* The bytes of these blocks will not come: the blocks are FREE. The device must not write into them any more. Fails with -ESTALE as
 * gpuwm_blocks_publish. */
int gpuwm_blocks_abandon(struct gpuwm_region *region, const struct gpuwm_block *blocks, size_t count);

/* ---- reading -------------------------------------------------------------- */

/* How many of the first keys have blocks that are READY. They count as wanted now, so that they are not evicted next. Holds nothing. */
int gpuwm_blocks_find(struct gpuwm_region *region, const struct gpuwm_block_key *keys, size_t count,
		      size_t *ret_found);
/* Holds the blocks of the first keys, up to one that is not there; they can't be evicted. Waits for wait_ms (0: not at all; -1: for ever)
 * for blocks that somebody is filling: if that process dies, the block counts as not there. While the call waits, it holds what it has
 * found, and so does gpuwm_blocks_hold_these: a process that owns blocks should not wait for ever, since two such processes could wait
 * for each other.
 *
 * Returns 0 and sets ret_blocks[0] to ret_blocks[*ret_held - 1]; *ret_held may be 0. The caller releases each of them once. Fails with
 * -EINVAL, -EUCLEAN, -ECHILD, and those of gpuwm_region_check. */
int gpuwm_blocks_hold(struct gpuwm_region *region, const struct gpuwm_block_key *keys, size_t count,
		      int64_t wait_ms, struct gpuwm_block *ret_blocks, size_t *ret_held);
/* Holds blocks by their numbers, as another process has named them: all, or none. Fails with -ESTALE if one is not there any more, with
 * -EAGAIN if one is still being filled after wait_ms, and as gpuwm_blocks_hold. */
int gpuwm_blocks_hold_these(struct gpuwm_region *region, const struct gpuwm_block *blocks, size_t count,
			    int64_t wait_ms);
/* This process has read the blocks. Fails with -EALREADY if it does not hold one of them as often as it is named; then none was
 * released. */
int gpuwm_blocks_release(struct gpuwm_region *region, const struct gpuwm_block *blocks, size_t count);
/* The same when the GPU gets to this place in the stream; errors as of gpuwm_blocks_publish_in_stream. The caller must not release them
 * again. */
int gpuwm_blocks_release_in_stream(struct gpuwm_region *region, const struct gpuwm_block *blocks, size_t count,
				   void *stream);

/* ---- the rest -------------------------------------------------------------- */

/* Frees the READY blocks of these keys. Those that are held stay, and so do those that are being filled. Sets *ret_dropped, which may be
 * NULL. For processes that may write the region. Fails with -EACCES and those of gpuwm_blocks_find. */
int gpuwm_blocks_drop(struct gpuwm_region *region, const struct gpuwm_block_key *keys, size_t count,
		      size_t *ret_dropped);
/* Where a block is in this process: gpuwm_region_address + number * block_bytes. NULL: there is no such block, or the memory is not
 * mapped. */
void *gpuwm_block_address(const struct gpuwm_region *region, uint32_t number);
/* The key of a block that this process holds or owns. Fails with -EALREADY if it does neither. */
int gpuwm_block_key_of(const struct gpuwm_region *region, const struct gpuwm_block *block,
		       struct gpuwm_block_key *ret_key);

struct gpuwm_blocks_figures {
	uint32_t blocks, free, owned, ready, held; /* the held ones are not counted as ready */
};
/* Counts from the control memory. */
int gpuwm_blocks_figures(const struct gpuwm_region *region, struct gpuwm_blocks_figures *ret_figures);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
