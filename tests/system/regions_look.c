/* Regions of blocks by the library: what it says of them, and processes that only look. */
#include "kept.h"
#include "region_raw.h"

#include <gpuwm/region.h>
#include <gpuwm/scratch.h>

#include <stdlib.h>
#include <unistd.h>

SYSTEM_SUITE(regions_look);

static struct gpuwm_region *make_blocks(struct gpuwmd *d, struct gpuwm_client *client)
{
	const struct gpuwm_region_options options = {
		.size = sizeof options,
		.name = "kv",
		.device = d->device,
		.kind = GPUWM_REGION_BLOCKS,
		.writers = GPUWM_WRITERS_MANY,
		.owner = GPUWM_OWNER_UID,
		.blocks = 24,
		.block_bytes = 1280,
	};
	struct gpuwm_region *region;

	OK(gpuwm_region_create(client, &options, &region));
	return region;
}

static struct gpuwm_region_info info_of(const struct gpuwm_region *region)
{
	struct gpuwm_region_info info;

	gpuwm_region_info(region, &info);
	return info;
}

/* argv: flags. Opens the region, and says its first address' truth: 'm' mapped, 'n' not mapped; or 'e'. It closes the region on a word. */
static int opener(int argc, char **argv)
{
	struct gpuwm_region *region;
	struct gpuwm_client *client;

	CHILD_ASSERT(argc == 1 && gpuwm_connect(NULL, &client) == 0);
	if (gpuwm_region_open(client, "kv", (unsigned)(argv[0][0] - '0'), 0, &region) < 0) {
		child_say('e');
		return 0;
	}
	CHILD_ASSERT(info_of(region).kind == GPUWM_REGION_BLOCKS && info_of(region).blocks == 24);
	child_say(gpuwm_region_address(region) ? 'm' : 'n');
	child_hear();
	CHILD_ASSERT(gpuwm_region_close(region) == 0);
	gpuwm_close(client);
	return 0;
}

static void opens(const char *flags, char answer)
{
	struct process p = process_start(opener, flags, NULL);

	process_expect(&p, answer);
	if (answer != 'e')
		process_tell(&p, 'c');
	process_finish(&p);
}

static void remove_region(struct gpuwmd *d, struct gpuwm_client *client, struct gpuwm_region *region)
{
	OK(gpuwm_region_close(region));
	OK(gpuwm_region_remove(client, "kv"));
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	gpuwm_close(client);
}

GPUWMD_TEST(regions_look, says_what_a_region_of_blocks_has)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make_blocks(d, client);
	const struct gpuwm_region_info info = info_of(region);

	cr_assert(info.kind == GPUWM_REGION_BLOCKS && info.writers == GPUWM_WRITERS_MANY &&
		  info.owner == GPUWM_OWNER_UID);
	cr_assert(info.blocks == 24 && info.block_bytes == 1280 && info.bytes == UINT64_C(24) * 1280);
	cr_assert(info.chunks == 0 && info.items == 0 && info.item_bytes == 0 && !info.clear);
	cr_assert(info.writes && !info.owns && gpuwm_region_address(region));
	FAILS(EINVAL, gpuwm_scratch_acquire(region, 0));
	cr_assert(strstr(gpuwm_error()->message, "is of kind blocks, not scratch"), "%s",
		  gpuwm_error()->message);
	remove_region(d, client, region);
}

GPUWMD_TEST(regions_look, maps_the_control_memory_only)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make_blocks(d, client);

	opens("0", 'm');
	opens("1", 'm');
	opens("2", 'e'); /* nobody owns it */
	opens("4", 'n');
	opens("5", 'e');
	opens("6", 'e');
	opens("8", 'e');
	cr_assert(EVENTUALLY(SOON_MS, region_is(d, "kv", "ready", 1)));
	remove_region(d, client, region);
}

GPUWMD_TEST(regions_look, is_for_blocks_only)
{
	struct gpuwm_client *client = client_new();
	struct raw_region pool;
	struct gpuwm_region *none;
	int sock = raw_client(d->socket);

	region_make(&pool, sock, "pool", "process");
	FAILS(EINVAL, gpuwm_region_open(client, "pool", GPUWM_REGION_LOOK, 0, &none));
	cr_assert(strstr(gpuwm_error()->message, "only blocks are found without their memory"), "%s",
		  gpuwm_error()->message);
	cr_assert(region_is(d, "pool", "ready", 1), "it is no user");
	FAILS(EINVAL, gpuwm_region_open(client, "pool", GPUWM_REGION_LOOK | GPUWM_REGION_WRITE, 0, &none));
	cr_assert_eq(region_close(sock, &pool), 0);
	close(sock);
	gpuwm_close(client);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
}

/* It has no use for a context, nor for the driver. */
FAKECUDA_TEST(regions_look, needs_no_driver, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_region *region = make_blocks(d, client);
	char *path = getenv("LD_LIBRARY_PATH") ? strdup(getenv("LD_LIBRARY_PATH")) : NULL;

	unsetenv("LD_LIBRARY_PATH"); /* without it a process finds no driver */
	opens("0", 'e');
	opens("4", 'n');
	if (path)
		setenv("LD_LIBRARY_PATH", path, 1);
	free(path);
	remove_region(d, client, region);
}
