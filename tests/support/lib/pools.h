/* Regions without a gpuwmd: the test makes their memory and control memory, and does what gpuwmd does when a user comes and goes. One
 * process can be several users of a region, each with a struct gpuwm_region of its own. GPUWM_TEST_BACKEND says where the memory is. */
#ifndef GPUWM_TESTS_LIB_POOLS_H
#define GPUWM_TESTS_LIB_POOLS_H

#include "client/region/blocks.h"
#include "client/region/pool.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <string.h>

struct shared_region {
	struct region_use facts; /* of each user, but for slot, write and owns */
	struct version_id id;
	struct memory_device device;
	int control_fd, memory_fd;
	struct control control; /* as gpuwmd has it mapped */
};

/* What a pool, a queue and blocks are to be. */
struct shared_wish {
	uint64_t bytes; /* of a pool; at least, on a GPU */
	uint32_t chunks;
	uint32_t items, item_bytes; /* of a queue: not 0 */
	uint64_t ttl_ms;
	bool by_uid; /* its owner is a uid */
	uint32_t blocks; /* of blocks: not 0 */
	uint64_t block_bytes;
};

bool pools_on_host(void);
/* Skips the test where there is no GPU or stand-in. */
void need_streams(void);
/* Skips the test on a GPU: its child processes can't use the parent's driver. */
void need_host(void);

void share(struct shared_region *shared, const struct shared_wish *wish);
void share_end(struct shared_region *shared);

/* A user comes; the owner writes, and allocates. Blocks have no owner: `owns` says that the user writes. */
struct gpuwm_region *open_as(struct shared_region *shared, unsigned slot, bool owns);
/* The same, and returns the code of what fails. */
int try_open_as(struct shared_region *shared, unsigned slot, bool owns, struct gpuwm_region **ret);
/* A user of blocks comes, who only looks. */
struct gpuwm_region *open_to_look(struct shared_region *shared, unsigned slot);
/* The user closes its region, as gpuwmd sees it. */
void close_as(struct shared_region *shared, struct gpuwm_region *region);
/* The process of this slot has exited, as gpuwmd sees it. */
void has_exited(struct shared_region *shared, unsigned slot);

/* The first byte of a chunk. */
void write_byte(struct gpuwm_chunk *chunk, unsigned char byte);
unsigned char read_byte(const struct gpuwm_chunk *chunk);

struct gpuwm_chunk *alloc(struct gpuwm_region *pool, uint64_t bytes);
/* Allocates a chunk and offers it to the slots of these bits, and to others. */
struct gpuwm_token offer(struct gpuwm_region *pool, uint64_t bytes, uint32_t named, uint32_t others);
struct gpuwm_chunk *take(struct gpuwm_region *pool, const struct gpuwm_token *token);

/* Checks that nothing of the pool is in use. */
void all_is_free(struct gpuwm_region *pool);

/* A call of the library that succeeds, or fails with this code. */
#define OK(call) cr_assert(eq(int, (call), 0), "%s: %s", #call, gpuwm_error()->message)
#define FAILS(call, code) cr_assert(eq(int, (call), (code)), "%s", #call)
/* The last message has this text in it. */
#define SAYS(text) cr_assert(strstr(gpuwm_error()->message, (text)) != NULL, "%s", gpuwm_error()->message)

#endif
