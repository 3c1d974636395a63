/* gpuwmctl regions: what it shows of each kind, and how it ends them. */
#include "region_raw.h"

#include <gpuwm/scratch.h>

#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(ctl_regions);

static struct gpuwm_region *pool_make(const struct gpuwmd *d, struct gpuwm_client *client)
{
	struct gpuwm_region_options options = GPUWM_OPTIONS(struct gpuwm_region_options);
	struct gpuwm_region *pool;

	options.name = "features";
	options.device = d->device;
	options.bytes = MB(4);
	OK(gpuwm_region_create(client, &options, &pool));
	return pool;
}

static struct gpuwm_region *queue_make(struct gpuwm_client *client)
{
	struct gpuwm_region_options options = GPUWM_OPTIONS(struct gpuwm_region_options);
	struct gpuwm_region *queue;

	options.kind = GPUWM_REGION_QUEUE;
	options.writers = GPUWM_WRITERS_MANY;
	options.owner = GPUWM_OWNER_UID;
	options.items = 8;
	options.item_bytes = 64;
	OK(gpuwm_region_create(client, &options, &queue));
	OK(gpuwm_queue_put(queue, "hello", 5, NULL, 0, 0));
	return queue;
}

GPUWMD_TEST(ctl_regions, shows_who_uses_what_and_ends_it)
{
	const struct gpuwm_readers readers = {.others = 2};
	struct gpuwm_region_info info;
	struct gpuwm_region *pool, *queue;
	struct gpuwm_client *client;
	struct gpuwm_chunk *chunk;
	struct gpuwm_token token;

	CTL_IS(0, "regions");
	OK(gpuwm_connect(NULL, &client));
	pool = pool_make(d, client);
	queue = queue_make(client);
	gpuwm_region_info(queue, &info);
	OK(gpuwm_chunk_alloc(pool, MB(1), 0, &chunk));
	OK(gpuwm_chunk_offer(chunk, &readers, &token));

	CTL_IS(0, "regions");
	SAYS("features");
	SAYS("1.0 MiB");
	SAYS(info.id);
	SAYS("uid ");
	CTL_IS(0, "regions", "features");
	SAYS("owns");
	SAYS("3.0 MiB");
	SAYS("chunks in use, the oldest first:");
	CTL_IS(0, "-o", "json", "regions", info.id);
	SAYS("\"messages\":1");
	CTL_IS(4, "regions", "nothing");
	CTL_IS(2, "regions", "--remove");
	CTL_IS(4, "regions", "nothing", "--remove");

	CTL_IS(0, "regions", "features", "--remove");
	SAYS("has ended");
	CTL_IS(0, "regions");
	SAYS("features has ended: the region was removed by gpuwmctl");
	OK(gpuwm_region_close(pool));
	OK(gpuwm_region_close(queue));
	CTL_IS(0, "regions", info.id, "--remove");
	/* It is listed as ended until gpuwmd has closed its memory. */
	cr_assert(EVENTUALLY(SOON_MS, CTL("regions", info.id) == 4), "%s", output);
	gpuwm_close(client);
}

/* ---- blocks and scratch --------------------------------------------------- */

static struct gpuwm_region *shared_make(const struct gpuwmd *d, struct gpuwm_client *client, const char *name,
					enum gpuwm_region_kind kind)
{
	struct gpuwm_region_options options = GPUWM_OPTIONS(struct gpuwm_region_options);
	struct gpuwm_region *region;

	options.name = name;
	options.device = d->device;
	options.kind = kind;
	options.writers = GPUWM_WRITERS_MANY;
	options.owner = GPUWM_OWNER_UID;
	if (kind == GPUWM_REGION_BLOCKS) {
		options.blocks = 64;
		options.block_bytes = MB(1) / 64;
	} else {
		options.bytes = MB(1);
	}
	OK(gpuwm_region_create(client, &options, &region));
	return region;
}

/* By hand, on a connection of its own. */
static void take_blocks(struct raw_region *region, int sock)
{
	uint64_t word;

	cr_assert_eq(REGION_OPEN(region, sock, TEXT("region", "kv"), FLAG("write", true)), 0, "%s",
		     raw_refusal());
	for (uint32_t i = 0; i < 3; i++) {
		cr_assert_eq(block_word_own(0, (unsigned)region->slot, &word), 0);
		if (i > 0)
			cr_assert_eq(block_word_publish(word, (unsigned)region->slot, 1, &word), 0);
		if (i > 1)
			cr_assert_eq(block_word_hold(word, (unsigned)region->slot, 1, &word), 0);
		atomic_store(&region->control.blocks.words[i], word);
	}
}

GPUWMD_TEST(ctl_regions, shows_blocks_by_state_and_who_holds_scratch_memory)
{
	struct gpuwm_region *blocks, *scratch;
	int sock = raw_client(d->socket);
	struct gpuwm_client *client;
	struct raw_region raw;

	OK(gpuwm_connect(NULL, &client));
	blocks = shared_make(d, client, "kv", GPUWM_REGION_BLOCKS);
	scratch = shared_make(d, client, "activations", GPUWM_REGION_SCRATCH);
	take_blocks(&raw, sock);
	CTL_IS(0, "regions");
	SAYS("blocks");
	SAYS("scratch");
	SAYS("48.0 KiB");
	CTL_IS(0, "regions", "kv");
	SAYS("64 blocks of 16.0 KiB: 1 owned, 1 ready, 1 held, 61 free");
	CTL_IS(0, "regions", "activations");
	SAYS("held by nobody");
	OK(gpuwm_scratch_acquire(scratch, 0));
	CTL_IS(0, "regions", "activations");
	SAYS("held by slot 0, and awaited by 0");
	CTL_IS(0, "-o", "json", "regions", "activations");
	SAYS("\"holder\":0");
	OK(gpuwm_scratch_release(scratch));
	cr_assert_eq(region_close(sock, &raw), 0);
	close(sock);
	OK(gpuwm_region_close(blocks));
	OK(gpuwm_region_close(scratch));
	CTL_IS(0, "regions", "kv", "--remove");
	CTL_IS(0, "regions", "activations", "--remove");
	gpuwm_close(client);
}
