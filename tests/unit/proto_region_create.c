/* What a region may be told when it is made, for each kind. */
#include "proto/wire/messages_region.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct region_create_params pool(void)
{
	return (struct region_create_params){.device = "host",
					     .kind = REGION_KIND_POOL,
					     .writers = REGION_WRITERS_ONE,
					     .owner = REGION_OWNER_PROCESS,
					     .bytes = 4096,
					     .chunks = 4};
}

static struct region_create_params queue(void)
{
	return (struct region_create_params){.device = "host",
					     .kind = REGION_KIND_QUEUE,
					     .writers = REGION_WRITERS_MANY,
					     .owner = REGION_OWNER_PROCESS,
					     .bytes = 4096,
					     .item_bytes = 64};
}

static struct region_create_params blocks(void)
{
	return (struct region_create_params){.device = "GPU-1",
					     .kind = REGION_KIND_BLOCKS,
					     .writers = REGION_WRITERS_MANY,
					     .owner = REGION_OWNER_UID,
					     .bytes = 4096,
					     .blocks = 8,
					     .block_bytes = 512};
}

static struct region_create_params scratch(void)
{
	return (struct region_create_params){.device = "GPU-1",
					     .kind = REGION_KIND_SCRATCH,
					     .writers = REGION_WRITERS_MANY,
					     .owner = REGION_OWNER_UID,
					     .bytes = 4097,
					     .clear = true};
}

static int check(const struct region_create_params *params, struct error *error)
{
	*error = (struct error){0};
	return form_region_create.params->check(params, error);
}

static void refused(const struct region_create_params *params, const char *words)
{
	struct error error;

	cr_expect_eq(check(params, &error), -EINVAL, "%s", words);
	cr_expect(strstr(error.message, words), "\"%s\" is not in: %s", words, error.message);
}

#define REFUSED(base, words, ...)                                                                              \
	do {                                                                                                   \
		struct region_create_params p_ = base();                                                       \
		__VA_ARGS__;                                                                                   \
		refused(&p_, words);                                                                           \
	} while (0)

Test(region_create, of_each_kind)
{
	const struct region_create_params all[] = {pool(), queue(), blocks(), scratch()};
	struct error error;

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		cr_expect_eq(check(&all[i], &error), 0, "%s: %s", all[i].kind, error.message);
}

Test(region_create, of_no_kind)
{
	REFUSED(pool, "\"kind\" is \"pool\", \"queue\", \"blocks\" or \"scratch\", not \"ring\"",
		p_.kind = "ring");
	REFUSED(scratch, "a region of 0 bytes", p_.bytes = 0);
}

/* What belongs to one kind is refused to the others. */
Test(region_create, with_what_is_another_kinds)
{
	REFUSED(pool, "a region of kind pool has no \"item_bytes\"", p_.item_bytes = 1);
	REFUSED(pool, "a region of kind pool has no \"blocks\"", p_.blocks = 1);
	REFUSED(pool, "a region of kind pool has no \"block_bytes\"", p_.block_bytes = 256);
	REFUSED(pool, "a region of kind pool has no \"clear\"", p_.clear = true);
	REFUSED(queue, "a region of kind queue has no \"chunks\"", p_.chunks = 1);
	REFUSED(queue, "a region of kind queue has no \"ttl_ms\"", p_.ttl_ms = 1);
	REFUSED(queue, "a region of kind queue has no \"blocks\"", p_.blocks = 1);
	REFUSED(queue, "a region of kind queue has no \"block_bytes\"", p_.block_bytes = 256);
	REFUSED(queue, "a region of kind queue has no \"clear\"", p_.clear = true);
	REFUSED(blocks, "a region of kind blocks has no \"chunks\"", p_.chunks = 1);
	REFUSED(blocks, "a region of kind blocks has no \"item_bytes\"", p_.item_bytes = 1);
	REFUSED(blocks, "a region of kind blocks has no \"ttl_ms\"", p_.ttl_ms = 1);
	REFUSED(blocks, "a region of kind blocks has no \"clear\"", p_.clear = true);
	REFUSED(scratch, "a region of kind scratch has no \"chunks\"", p_.chunks = 1);
	REFUSED(scratch, "a region of kind scratch has no \"item_bytes\"", p_.item_bytes = 1);
	REFUSED(scratch, "a region of kind scratch has no \"ttl_ms\"", p_.ttl_ms = 1);
	REFUSED(scratch, "a region of kind scratch has no \"blocks\"", p_.blocks = 1);
	REFUSED(scratch, "a region of kind scratch has no \"block_bytes\"", p_.block_bytes = 256);
}

Test(region_create, of_sizes_that_can_not_be)
{
	REFUSED(pool, "a pool has 1 to 4096 chunks, not 0", p_.chunks = 0);
	REFUSED(pool, "a pool has 1 to 4096 chunks, not 4097", p_.chunks = 4097);
	REFUSED(queue, "1 to 65536 times \"item_bytes\"", p_.item_bytes = 0);
	REFUSED(queue, "1 to 65536 times \"item_bytes\"", p_.bytes = 4097);
	REFUSED(queue, "1 to 65536 times \"item_bytes\"", p_.bytes = 64 * 65537);
	REFUSED(queue, "a queue lies on host, not on GPU-1", p_.device = "GPU-1");
	REFUSED(blocks, "not 0 blocks of 512 bytes", p_.blocks = 0);
	REFUSED(blocks, "not 262145 blocks of 512 bytes", p_.blocks = 262145);
	REFUSED(blocks, "not 8 blocks of 0 bytes", p_.block_bytes = 0);
	REFUSED(blocks, "a multiple of 256 bytes, not 8 blocks of 513 bytes", p_.block_bytes = 513);
	REFUSED(blocks, "8 blocks of 512 bytes do not have 4352 bytes", p_.bytes = 4352);
	REFUSED(blocks, "no device has 8 blocks of 2305843009213693952 bytes",
		p_.block_bytes = UINT64_C(1) << 61);
}

Test(region_create, of_writers_and_owners_that_can_not_be)
{
	REFUSED(pool, "\"writers\" is", p_.writers = "two");
	REFUSED(pool, "\"owner\" is", p_.owner = "group");
	REFUSED(pool, "a region with one writer can't outlive that process", p_.owner = REGION_OWNER_UID);
	REFUSED(queue, "a queue has more than one writer", p_.writers = REGION_WRITERS_ONE);
	REFUSED(blocks, "a region with one writer can't outlive that process", p_.writers = REGION_WRITERS_ONE);
	REFUSED(blocks, "a region of kind blocks belongs to no process", p_.owner = REGION_OWNER_PROCESS);
	REFUSED(scratch, "a region of kind scratch belongs to no process", p_.owner = REGION_OWNER_PROCESS);
	REFUSED(scratch, "belongs to no process", p_.owner = REGION_OWNER_PROCESS;
		p_.writers = REGION_WRITERS_ONE);
}
