/* gpuwmctl regions: what it shows of pools and queues, and how it ends them. */
#include "harness.h"

#include <gpuwm/region.h>

#include <string.h>

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
	CTL_IS(4, "regions", info.id);
	gpuwm_close(client);
}
