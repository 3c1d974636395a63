/* The options of gpuwm_region_create, for each kind of region. */
#include "client/region/queue.h"
#include "client/region/region.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct gpuwm_region_options pool(void)
{
	return (struct gpuwm_region_options){.kind = GPUWM_REGION_POOL, .bytes = 4096};
}

static struct gpuwm_region_options queue(void)
{
	return (struct gpuwm_region_options){
		.kind = GPUWM_REGION_QUEUE, .writers = GPUWM_WRITERS_MANY, .items = 16, .item_bytes = 56};
}

static struct gpuwm_region_options blocks(void)
{
	return (struct gpuwm_region_options){.kind = GPUWM_REGION_BLOCKS,
					     .writers = GPUWM_WRITERS_MANY,
					     .owner = GPUWM_OWNER_UID,
					     .blocks = 8,
					     .block_bytes = 512};
}

static struct gpuwm_region_options scratch(void)
{
	return (struct gpuwm_region_options){.kind = GPUWM_REGION_SCRATCH,
					     .writers = GPUWM_WRITERS_MANY,
					     .owner = GPUWM_OWNER_UID,
					     .bytes = 4097,
					     .clear = true};
}

static void refused(const struct gpuwm_region_options *options, const char *words)
{
	struct error error = {0};

	cr_expect_eq(region_options_check(options, &error), -EINVAL, "%s", words);
	cr_expect(strstr(error.message, words), "\"%s\" is not in: %s", words, error.message);
}

#define REFUSED(base, words, ...)                                                                              \
	do {                                                                                                   \
		struct gpuwm_region_options o_ = base();                                                       \
		__VA_ARGS__;                                                                                   \
		refused(&o_, words);                                                                           \
	} while (0)

/* gpuwmd takes what the library makes of them. */
Test(region_options, make_a_request_of_each_kind)
{
	const struct gpuwm_region_options all[] = {pool(), queue(), blocks(), scratch()};
	const uint64_t bytes[] = {4096, 16 * queue_cell_bytes(56), 4096, 4097};
	enum gpuwm_region_kind kind;
	struct error error = {0};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		const struct region_create_params params = region_options_params(&all[i]);

		cr_expect_eq(region_options_check(&all[i], &error), 0, "%s", error.message);
		cr_expect_str_eq(params.kind, region_kind_name(all[i].kind));
		cr_expect(region_kind_of(params.kind, &kind, &error) == 0 && kind == all[i].kind);
		cr_expect_eq(params.bytes, bytes[i], "%s", params.kind);
		cr_expect_eq(params.chunks, i == 0 ? 1024 : 0);
		cr_expect_eq(form_region_create.params->check(&params, &error), 0, "%s", error.message);
	}
	cr_expect(region_options_params(&all[2]).blocks == 8 &&
		  region_options_params(&all[2]).block_bytes == 512);
	cr_expect(region_options_params(&all[3]).clear);
}

static bool is_kind(int kind)
{
	const struct gpuwm_region_options options = {.kind = (enum gpuwm_region_kind)kind};
	struct error error = {0};

	return region_options_check(&options, &error) == 0 ||
	       !strstr(error.message, "there is no region of kind");
}

/* The library knows each kind's name, and a request may have it. */
Test(region_options, of_each_kind_have_a_name)
{
	const struct region_create_params none = {.device = "host", .kind = "ring", .bytes = 4096};
	enum gpuwm_region_kind found;
	struct error refusal = {0};
	int kind = 0;

	cr_assert_eq(form_region_create.params->check(&none, &refusal), -EINVAL);
	for (; is_kind(kind); kind++) {
		const char *name = region_kind_name((enum gpuwm_region_kind)kind);

		cr_assert(name, "kind %d has no name", kind);
		cr_expect(region_kind_of(name, &found, &refusal) == 0 && (int)found == kind, "%s", name);
		cr_expect(strstr(refusal.message, name), "%s is not in: %s", name, refusal.message);
	}
	cr_expect_eq(kind, 4, "make_a_request_of_each_kind has four");
}

/* As a later gpuwmd may have made it. */
Test(region_options, of_a_kind_that_the_library_does_not_know)
{
	enum gpuwm_region_kind kind;
	struct error error = {0};

	cr_expect_eq(region_kind_of("ring", &kind, &error), -ENOTSUP);
	cr_expect(strstr(error.message, "no regions of kind \"ring\""), "%s", error.message);
	cr_expect_str_eq(region_kind_name((enum gpuwm_region_kind)4), "unknown");
}

Test(region_options, of_no_kind)
{
	REFUSED(pool, "no region of kind 4", o_.kind = (enum gpuwm_region_kind)4);
	REFUSED(pool, "the writers 2", o_.writers = (enum gpuwm_writers)2);
	REFUSED(pool, "the owner 2", o_.owner = (enum gpuwm_owner)2);
}

Test(region_options, with_what_is_another_kinds)
{
	REFUSED(pool, "the option items is not for a region of kind pool", o_.items = 1);
	REFUSED(pool, "the option item_bytes is not", o_.item_bytes = 1);
	REFUSED(pool, "a region of kind pool has no \"blocks\"", o_.blocks = 1);
	REFUSED(pool, "a region of kind pool has no \"block_bytes\"", o_.block_bytes = 1);
	REFUSED(pool, "a region of kind pool has no \"clear\"", o_.clear = true);
	REFUSED(queue, "the option bytes is not for a region of kind queue", o_.bytes = 1);
	REFUSED(queue, "a region of kind queue has no \"chunks\"", o_.chunks = 1);
	REFUSED(queue, "a region of kind queue has no \"ttl_ms\"", o_.ttl_ms = 1);
	REFUSED(queue, "a region of kind queue has no \"clear\"", o_.clear = true);
	REFUSED(blocks, "the option bytes is not for a region of kind blocks", o_.bytes = 4096);
	REFUSED(blocks, "the option items is not", o_.items = 1);
	REFUSED(blocks, "a region of kind blocks has no \"ttl_ms\"", o_.ttl_ms = 1);
	REFUSED(blocks, "a region of kind blocks has no \"clear\"", o_.clear = true);
	REFUSED(scratch, "a region of kind scratch has no \"chunks\"", o_.chunks = 1);
	REFUSED(scratch, "a region of kind scratch has no \"blocks\"", o_.blocks = 1);
	REFUSED(scratch, "a region of kind scratch has no \"block_bytes\"", o_.block_bytes = 256);
}

Test(region_options, of_sizes_that_can_not_be)
{
	REFUSED(pool, "a region of 0 bytes", o_.bytes = 0);
	REFUSED(pool, "a pool has 1 to 4096 chunks, not 4097", o_.chunks = 4097);
	REFUSED(queue, "a queue can't have 0 items of 56 bytes", o_.items = 0);
	REFUSED(queue, "a queue can't have 16 items of 1048577 bytes", o_.item_bytes = 1048577);
	REFUSED(blocks, "not 0 blocks of 512 bytes", o_.blocks = 0);
	REFUSED(blocks, "not 262145 blocks of 512 bytes", o_.blocks = 262145);
	REFUSED(blocks, "not 8 blocks of 0 bytes", o_.block_bytes = 0);
	REFUSED(blocks, "not 8 blocks of 257 bytes", o_.block_bytes = 257);
	REFUSED(blocks, "no device has 8 blocks of 9223372036854775808 bytes",
		o_.block_bytes = UINT64_C(1) << 63);
	REFUSED(scratch, "a region of 0 bytes", o_.bytes = 0);
}

Test(region_options, of_writers_and_owners_that_can_not_be)
{
	REFUSED(blocks, "a region of kind blocks belongs to no process", o_.owner = GPUWM_OWNER_PROCESS);
	REFUSED(blocks, "a region with one writer can't outlive that process", o_.writers = GPUWM_WRITERS_ONE);
	REFUSED(scratch, "a region of kind scratch belongs to no process", o_.owner = GPUWM_OWNER_PROCESS);
	REFUSED(scratch, "a region with one writer can't outlive that process", o_.writers = GPUWM_WRITERS_ONE);
}
