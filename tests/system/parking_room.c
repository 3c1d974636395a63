/* Room: what a worker takes on the device besides its version. gpuwmd counts it while the worker is awake. */
#include "described.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

SYSTEM_SUITE(parking_room);

#define ROOM_TEST(name) GPUWMD_TEST_BY(parking_room, name, tiers_begin(), tiers_end)

/* ---- a worker ------------------------------------------------------------ */

static struct gpuwm_attach_options with_room(uint64_t room, int64_t wait_ms)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);

	options.room = room;
	options.wait_ms = wait_ms;
	return options;
}

static struct gpuwm_mapping *attach(struct gpuwm_client *client, const char *ref, uint64_t room)
{
	const struct gpuwm_attach_options options = with_room(room, SOON_MS);
	struct gpuwm_mapping *mapping;

	OK(gpuwm_attach(client, ref, &options, &mapping));
	return mapping;
}

/* ---- counted while awake --------------------------------------------------- */

ROOM_TEST(it_is_counted_while_its_worker_is_awake)
{
	const uint64_t used = device_used(d);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = attach(client, "m@v1", MB(10));

	cr_assert_eq(device_used(d), used + MB(10));
	CTL_IS(0, "ps");
	SAYS("10.0 MiB");
	CTL_IS(0, "status");
	SAYS("ROOM");
	OK(gpuwm_park(mapping, MB(2)));
	cr_assert_eq(device_used(d), used + MB(2), "what it keeps");
	cr_assert_eq(gpuwm_mapping_room(mapping), MB(2));
	OK(gpuwm_unpark(mapping, GPUWM_ROOM_AS_BEFORE, 0));
	cr_assert_eq(device_used(d), used + MB(10), "as before");
	OK(gpuwm_park(mapping, 0));
	OK(gpuwm_unpark(mapping, MB(4), 0));
	cr_assert_eq(device_used(d), used + MB(4), "as it asked");
	OK(gpuwm_unpark(mapping, MB(6), 0)); /* one that is awake */
	cr_assert_eq(gpuwm_mapping_room(mapping), MB(6));
	cr_assert_eq(device_used(d), used + MB(6));
	OK(gpuwm_detach(mapping));
	cr_assert_eq(device_used(d), used);
	gpuwm_close(client);
}

ROOM_TEST(it_is_given_back_when_its_worker_dies)
{
	const uint64_t used = device_used(d);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	struct raw_lease lease;
	int sock = raw_client(d->socket);

	cr_assert_eq(raw_lease(sock, "m@v1", &lease), 0);
	cr_assert_eq(RAW_ASK(sock, "unpark", NUMBER("lease", lease.lease), NUMBER("room", MB(10))), 0);
	cr_assert_eq(device_used(d), used + MB(10));
	close(sock);
	cr_assert(EVENTUALLY(SOON_MS, device_used(d) == used));
	mapping = attach(client, "m@v1", MB(10));
	gpuwm_drop(mapping);
	cr_assert(EVENTUALLY(SOON_MS, device_used(d) == used));
	gpuwm_close(client);
}

/* A worker that goes on with another version has its caches still. */
ROOM_TEST(a_switch_keeps_it)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = attach(client, "m@v1", MB(10));
	struct raw_lease lease;
	int sock = raw_client(d->socket);
	uint64_t used;

	load_version(d, checkpoint_write(d, "v2", LARGE(2)), "m@v2");
	used = device_used(d);
	OK(gpuwm_switch(mapping, "m@v2", NULL));
	cr_assert_eq(gpuwm_mapping_room(mapping), MB(10));
	cr_assert_eq(device_used(d), used);
	CTL_IS(0, "ps");
	SAYS("10.0 MiB");
	OK(gpuwm_park(mapping, 0));
	cr_assert_eq(device_used(d), used - MB(10));
	OK(gpuwm_unpark(mapping, GPUWM_ROOM_AS_BEFORE, 0));
	cr_assert_eq(device_used(d), used);
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	cr_assert_eq(raw_lease(sock, "m@v1", &lease), 0);
	cr_assert_eq(RAW_ASK(sock, "release", NUMBER("lease", lease.lease), NUMBER("room_to", lease.lease)),
		     -EINVAL);
	cr_assert_eq(RAW_ASK(sock, "release", NUMBER("lease", lease.lease), NUMBER("room_to", 99)), -ENOENT);
	cr_assert_eq(RAW_ASK(sock, "release", NUMBER("lease", lease.lease)), 0);
	close(sock);
	DROP(d, "m@v2");
}

/* ---- what is refused ---------------------------------------------------------- */

ROOM_TEST(what_no_device_has_is_refused)
{
	const struct gpuwm_attach_options most = with_room(1ULL << 50, 0),
					  more = with_room((1ULL << 50) + 1, 0);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	FAILS(ENOSPC, gpuwm_attach(client, "m@v1", &most, &mapping));
	cr_assert(strstr(gpuwm_error()->message, "no room on"), "%s", gpuwm_error()->message);
	FAILS(EINVAL, gpuwm_attach(client, "m@v1", &more, &mapping));
	mapping = attach(client, "m@v1", MB(2));
	FAILS(EINVAL, gpuwm_park(mapping, MB(4)));
	cr_assert(strstr(gpuwm_error()->message, "4.0 MiB of room: it has 2.0 MiB"), "%s",
		  gpuwm_error()->message);
	cr_assert_not(gpuwm_mapping_parked(mapping));
	cr_assert_eq(gpuwm_mapping_room(mapping), MB(2));
	FAILS(EINVAL, gpuwm_unpark(mapping, (1ULL << 50) + 1, 0));
	FAILS(ENOSPC, gpuwm_unpark(mapping, 1ULL << 50, 0));
	cr_assert_eq(gpuwm_mapping_room(mapping), MB(2));
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
}

/* ---- after a restart ------------------------------------------------------------ */

KILL_AND_STOP_TEST(parking_room, it_is_counted_again)
{
	struct gpuwmd *d = gpuwmd_start_kept(&(const struct kept){0});
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *awake, *parked;
	uint64_t used;

	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	used = device_used(d);
	awake = attach(client, "m@v1", MB(10));
	parked = attach(client, "m@v1", MB(20));
	OK(gpuwm_park(parked, MB(2)));
	kept_kill(d, signal_number);
	cr_assert(EVENTUALLY(SOON_MS, device_used(d) == used + MB(12)));
	OK(gpuwm_unpark(parked, MB(20), SOON_MS));
	cr_assert_eq(device_used(d), used + MB(30));
	OK(gpuwm_detach(parked));
	OK(gpuwm_detach(awake));
	gpuwm_close(client);
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}
