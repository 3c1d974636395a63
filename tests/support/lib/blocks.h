/* Blocks of a region without a gpuwmd: pools.h. Keys are numbers, which are spread over the buckets as digests are. */
#ifndef GPUWM_TESTS_LIB_BLOCKS_H
#define GPUWM_TESTS_LIB_BLOCKS_H

#include "pools.h"

#define BLOCK_BYTES 512

/* The key of a number, and a key of the bucket 0. */
struct gpuwm_block_key key_of(uint64_t number);
struct gpuwm_block_key key_of_bucket(uint64_t number);
/* Sets keys[i] to the key of first + i. */
void keys_from(uint64_t first, size_t count, struct gpuwm_block_key *ret_keys);

/* Reserves blocks for the keys from this one on, writes the first byte of each, as put_byte has it, and publishes them. Each key must
 * get a block. */
void put(struct gpuwm_region *region, uint64_t first, size_t count);
/* The byte that put writes. */
unsigned char put_byte(uint64_t number);

/* Returns how many of the keys from this one on are READY: gpuwm_blocks_find. */
size_t find(struct gpuwm_region *region, uint64_t first, size_t count);
/* Returns whether the key has a READY block, without wanting it. */
bool is_ready(const struct gpuwm_region *region, uint64_t number);
/* Reserves and holds one key without waiting. The call must do it. */
struct gpuwm_block reserve_one(struct gpuwm_region *region, uint64_t number);
struct gpuwm_block hold_one(struct gpuwm_region *region, uint64_t number);

void write_block(struct gpuwm_region *region, uint32_t number, unsigned char byte);
unsigned char read_block(const struct gpuwm_region *region, uint32_t number);

/* Checks what gpuwm_blocks_figures says. */
void figures_are(const struct gpuwm_region *region, uint32_t free, uint32_t owned, uint32_t ready,
		 uint32_t held);

#endif
