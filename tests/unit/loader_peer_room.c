/* Whether what a peer offers can fit on the devices of a load. */
#include "loader/devices/devices.h"
#include "loader/peer/peer_offer.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#define VAST (UINT64_C(64) << 40) /* more than a machine has */

static struct peer_offer_part parts[3];
static struct peer_offer offer = {.ref = "m@v1", .parts = parts};
static const char *devices[2];
static struct job_load_params job = {.wish = {.source = "peer://a/m@v1", .devices.items = devices}};
static struct error error;

static void name_devices(size_t count, const char *id)
{
	job.wish.devices.count = (uint32_t)count;
	for (size_t i = 0; i < count; i++)
		devices[i] = id;
}

static int check(void)
{
	return peer_offer_fits(&job, &offer, "a", &error);
}

static uint64_t host_bytes(void)
{
	uint64_t bytes;

	cr_assert_eq(device_total(DEVICE_HOST, &bytes, &error), 0, "%s", error.message);
	return bytes;
}

Test(peer_room, a_version_may_have_as_many_bytes_as_the_device)
{
	name_devices(1, DEVICE_HOST);
	offer.world = 1;
	parts[0].bytes = host_bytes();
	cr_expect_eq(check(), 0, "%s", error.message);
	parts[0].bytes++;
	cr_expect_eq(check(), -ENOSPC);
}

Test(peer_room, the_error_names_size_limit_and_remedy)
{
	name_devices(1, DEVICE_HOST);
	offer.world = 1;
	parts[0].bytes = VAST;
	cr_assert_eq(check(), -ENOSPC);
	cr_expect(strstr(error.message, "a offers 64.0 TiB of m@v1 for host, which has "), "%s", error.message);
	cr_expect(strstr(error.message, "in all: nothing was taken"), "%s", error.message);
	cr_expect(strstr(error.detail, "name a larger device"), "%s", error.detail);
}

Test(peer_room, ranks_on_one_device_count_together)
{
	name_devices(1, DEVICE_HOST);
	offer.world = 2;
	parts[0].bytes = parts[1].bytes = host_bytes() / 2;
	cr_expect_eq(check(), 0, "%s", error.message);
	parts[1].bytes += 2;
	cr_expect_eq(check(), -ENOSPC);
	cr_expect(strstr(error.detail, "one for each rank"), "%s", error.detail);
}

Test(peer_room, sizes_that_overflow_do_not_fit)
{
	name_devices(1, DEVICE_HOST);
	offer.world = 2;
	parts[0].bytes = parts[1].bytes = UINT64_C(1) << 63;
	cr_expect_eq(check(), -ENOSPC);
}

Test(peer_room, each_rank_has_a_device_of_its_own)
{
	name_devices(2, DEVICE_HOST);
	offer.world = 2;
	parts[0].bytes = parts[1].bytes = host_bytes();
	cr_expect_eq(check(), 0, "%s", error.message);
	parts[1].bytes = VAST;
	cr_expect_eq(check(), -ENOSPC);
}

Test(peer_room, each_replica_has_all_bytes)
{
	name_devices(2, DEVICE_HOST);
	offer.world = 1;
	parts[0].bytes = host_bytes();
	cr_expect_eq(check(), 0, "%s", error.message);
}

Test(peer_room, as_many_devices_as_ranks_are_named_or_one)
{
	name_devices(2, DEVICE_HOST);
	offer.world = 3;
	cr_expect_eq(check(), -EINVAL);
	cr_expect(strstr(error.message, "3 ranks, but 2 devices are named"), "%s", error.message);
}

Test(peer_room, a_device_is_as_large_as_the_list_says)
{
	struct devices_found found;

	cr_assert_eq(devices_find(&found, &error), 0, "%s", error.message);
	for (size_t i = 0; i < found.list.count; i++) {
		const struct device *device = &found.list.devices[i];
		uint64_t bytes;

		cr_expect_eq(device_total(device->id, &bytes, &error), 0, "%s", error.message);
		cr_expect_eq(bytes, device->total);
	}
	devices_found_clear(&found);
}

Test(peer_room, a_device_that_is_not_here_is_an_error)
{
	name_devices(1, "GPU-00000000-0000-0000-0000-00000000ffff");
	offer.world = 1;
	cr_expect_lt(check(), 0);
	cr_expect_neq(error.code, -ENOSPC);
}
