/* The index of blocks by their keys. Nobody clears a slot: it is void as soon as its block is FREE or of another generation. */
#ifndef GPUWM_LIB_BLOCKS_INDEX_H
#define GPUWM_LIB_BLOCKS_INDEX_H

#include "../../include/gpuwm/blocks.h"
#include "../../proto/control_blocks.h"

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
