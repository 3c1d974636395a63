#include "blocks.h"

#include "../bench.h"

uint64_t mixed(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

void make_keys(struct gpuwm_block_key *keys, size_t count, uint64_t first)
{
	for (size_t i = 0; i < count; i++) {
		const uint64_t number = 3 * (first + i);

		keys[i] = (struct gpuwm_block_key){{mixed(number), mixed(number + 1)}, mixed(number + 2)};
	}
}

uint64_t make_new_keys(struct gpuwm_block_key *keys, size_t count)
{
	static uint64_t next;
	const uint64_t first = next;

	make_keys(keys, count, first);
	next += count;
	return first;
}

struct gpuwm_client *blocks_connect(const char *socket)
{
	struct gpuwm_client *client;

	if (socket)
		setenv("GPUWM_SOCKET", socket, 1);
	GPUWM(gpuwm_connect(NULL, &client));
	return client;
}

struct gpuwm_region *blocks_create(struct gpuwm_client *client, const char *device, uint32_t blocks,
				   uint64_t block_bytes, char ret_id[33])
{
	struct gpuwm_region_options options = GPUWM_OPTIONS(struct gpuwm_region_options);
	struct gpuwm_region *region;
	struct gpuwm_region_info info;

	options.device = device;
	options.kind = GPUWM_REGION_BLOCKS;
	options.writers = GPUWM_WRITERS_MANY;
	options.owner = GPUWM_OWNER_UID;
	options.blocks = blocks;
	options.block_bytes = block_bytes;
	GPUWM(gpuwm_region_create(client, &options, &region));
	gpuwm_region_info(region, &info);
	snprintf(ret_id, 33, "%s", info.id);
	return region;
}

void blocks_remove(struct gpuwm_client *client, struct gpuwm_region *region)
{
	struct gpuwm_region_info info;
	char id[33];

	gpuwm_region_info(region, &info);
	snprintf(id, sizeof(id), "%s", info.id);
	GPUWM(gpuwm_region_close(region));
	GPUWM(gpuwm_region_remove(client, id));
	gpuwm_close(client);
}

void blocks_reserve(struct gpuwm_region *region, const struct gpuwm_block_key *keys, size_t count,
		    struct gpuwm_block *blocks)
{
	size_t done;

	GPUWM(gpuwm_blocks_reserve(region, keys, count, BLOCKS_WAIT_MS, blocks, &done));
	if (done != count)
		DIE("%zu of %zu blocks were reserved", done, count);
}

void blocks_hold(struct gpuwm_region *region, const struct gpuwm_block_key *keys, size_t count,
		 struct gpuwm_block *blocks)
{
	size_t held;

	GPUWM(gpuwm_blocks_hold(region, keys, count, BLOCKS_WAIT_MS, blocks, &held));
	if (held != count)
		DIE("%zu of %zu blocks were there", held, count);
}
