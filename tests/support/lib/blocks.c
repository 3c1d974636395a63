#include "blocks.h"

#include "client/region/blocks.h"

#include <stdlib.h>

#define SPREAD UINT64_C(0x9e3779b97f4a7c15) /* odd: different numbers have different products */

struct gpuwm_block_key key_of(uint64_t number)
{
	const uint64_t spread = (number + 1) * SPREAD;

	return (struct gpuwm_block_key){.key = {spread ^ spread >> 32, number}, .check = ~number};
}

struct gpuwm_block_key key_of_bucket(uint64_t number)
{
	return (struct gpuwm_block_key){.key = {0, number}, .check = ~number};
}

void keys_from(uint64_t first, size_t count, struct gpuwm_block_key *ret_keys)
{
	for (size_t i = 0; i < count; i++)
		ret_keys[i] = key_of(first + i);
}

unsigned char put_byte(uint64_t number)
{
	return (unsigned char)(number * 7 + 1);
}

void put(struct gpuwm_region *region, uint64_t first, size_t count)
{
	struct gpuwm_block_key *keys = calloc(count, sizeof(*keys));
	struct gpuwm_block *blocks = calloc(count, sizeof(*blocks));
	size_t done;

	keys_from(first, count, keys);
	OK(gpuwm_blocks_reserve(region, keys, count, 0, blocks, &done));
	cr_assert(eq(sz, done, count));
	for (size_t i = 0; i < count; i++) {
		cr_assert(ne(u32, blocks[i].number, GPUWM_BLOCK_NONE));
		write_block(region, blocks[i].number, put_byte(first + i));
	}
	OK(gpuwm_blocks_publish(region, blocks, count));
	free(keys);
	free(blocks);
}

size_t find(struct gpuwm_region *region, uint64_t first, size_t count)
{
	struct gpuwm_block_key *keys = calloc(count, sizeof(*keys));
	size_t found;

	keys_from(first, count, keys);
	OK(gpuwm_blocks_find(region, keys, count, &found));
	free(keys);
	return found;
}

bool is_ready(const struct gpuwm_region *region, uint64_t number)
{
	const struct gpuwm_block_key key = key_of(number);
	struct block_at at;

	return blocks_index_find(&region->control.blocks, &key, &at) == BLOCK_READY;
}

struct gpuwm_block reserve_one(struct gpuwm_region *region, uint64_t number)
{
	const struct gpuwm_block_key key = key_of(number);
	struct gpuwm_block block;
	size_t done;

	OK(gpuwm_blocks_reserve(region, &key, 1, 0, &block, &done));
	cr_assert(done == 1 && block.number != GPUWM_BLOCK_NONE);
	return block;
}

struct gpuwm_block hold_one(struct gpuwm_region *region, uint64_t number)
{
	const struct gpuwm_block_key key = key_of(number);
	struct gpuwm_block block;
	size_t held;

	OK(gpuwm_blocks_hold(region, &key, 1, 0, &block, &held));
	cr_assert(eq(sz, held, 1));
	return block;
}

static const struct memory_device *inside(const struct gpuwm_region *region)
{
	struct error error;

	cr_assert(eq(int, region->device.ops->enter(&region->device, &error), 0), "%s", error.message);
	return &region->device;
}

void write_block(struct gpuwm_region *region, uint32_t number, unsigned char byte)
{
	const struct memory_device *device = inside(region);
	struct error error;

	cr_assert(
		eq(int, device->ops->write(device, gpuwm_block_address(region, number), &byte, 1, &error), 0));
	device->ops->leave(device);
}

unsigned char read_block(const struct gpuwm_region *region, uint32_t number)
{
	const struct memory_device *device = inside(region);
	unsigned char byte;
	struct error error;

	cr_assert(eq(int, device->ops->read(device, &byte, gpuwm_block_address(region, number), 1, &error), 0));
	device->ops->leave(device);
	return byte;
}

void figures_are(const struct gpuwm_region *region, uint32_t free, uint32_t owned, uint32_t ready,
		 uint32_t held)
{
	struct gpuwm_blocks_figures figures;

	OK(gpuwm_blocks_figures(region, &figures));
	cr_assert(eq(u32, figures.blocks, free + owned + ready + held));
	cr_assert(figures.free == free && figures.owned == owned && figures.ready == ready &&
			  figures.held == held,
		  "%u free, %u owned, %u ready, %u held", figures.free, figures.owned, figures.ready,
		  figures.held);
}
