/* What programs that measure blocks (gpuwm/blocks.h) share. All end the program when something fails. */
#ifndef GPUWM_BENCH_BLOCKS_H
#define GPUWM_BENCH_BLOCKS_H

#include <gpuwm/blocks.h>

#define GPUWM(call)                                                                                            \
	do {                                                                                                   \
		if ((call) < 0)                                                                                \
			DIE("%s: %s (%s)", #call, gpuwm_error()->message, gpuwm_error()->detail);              \
	} while (0)

#define BLOCKS_WAIT_MS 20000 /* of what must come, on a loaded machine too */

/* A number that looks random, always the same for the same x. */
uint64_t mixed(uint64_t x);
/* The keys of the numbers first, first + 1, ... */
void make_keys(struct gpuwm_block_key *keys, size_t count, uint64_t first);
/* Keys that this process has not made yet. The first of them has the number that it returns. */
uint64_t make_new_keys(struct gpuwm_block_key *keys, size_t count);

/* socket: NULL: $GPUWM_SOCKET. */
struct gpuwm_client *blocks_connect(const char *socket);
/* ret_id: its id. */
struct gpuwm_region *blocks_create(struct gpuwm_client *client, const char *device, uint32_t blocks,
				   uint64_t block_bytes, char ret_id[33]);
/* Closes the region and removes it, as it belongs to a user and would stay; closes the client. */
void blocks_remove(struct gpuwm_client *client, struct gpuwm_region *region);

/* All of them, within BLOCKS_WAIT_MS. */
void blocks_reserve(struct gpuwm_region *region, const struct gpuwm_block_key *keys, size_t count,
		    struct gpuwm_block *blocks);
void blocks_hold(struct gpuwm_region *region, const struct gpuwm_block_key *keys, size_t count,
		 struct gpuwm_block *blocks);

#endif
