/* Two users fill what all share: operators still get in, and so does a third user. */
#include "region_raw.h"
#include "user.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

SYSTEM_SUITE(shares);

#define GROUP "daemon" /* of publishers; Debian's gid 1 */
#define OPEN_TO_ALL "--set", "socket.mode=0666", "--set", "access.publish_group=" GROUP
#define MANY 512 /* more than any user gets */

#define SHARES_TEST(name, ...)                                                                                 \
	GPUWMD_TEST_IF(shares, name, NEEDS_ROOT(), gpuwmd_start(OPEN_TO_ALL, __VA_ARGS__ __VA_OPT__(, ) NULL), \
		       gpuwmd_stop)

/* What this process connects as: the kernel tells gpuwmd who connected. */
static void become(uid_t uid)
{
	const gid_t publishers = getgrnam(GROUP)->gr_gid;

	if (uid) {
		cr_assert(setgroups(1, &publishers) == 0 && setegid(uid) == 0 && seteuid(uid) == 0);
		return;
	}
	cr_assert(seteuid(0) == 0 && setegid(0) == 0 && setgroups(0, NULL) == 0);
}

static struct gpuwm_client *client_of(uid_t uid)
{
	struct gpuwm_client *client;

	become(uid);
	client = client_new();
	become(0);
	return client;
}

static int sock_of(const struct gpuwmd *d, uid_t uid)
{
	int sock;

	become(uid);
	sock = raw_client(d->socket);
	become(0);
	return sock;
}

static void says(const char *text, const char *words)
{
	cr_expect(strstr(text, words), "\"%s\" does not say \"%s\"", text, words);
}

/* ---- versions without a name ------------------------------------------- */

struct shelf {
	struct gpuwm_client *client;
	struct gpuwm_mapping *mappings[MANY];
	size_t count;
};

/* Publishes and holds as many as gpuwmd takes; the last error is the refusal. */
static void shelf_fill(struct shelf *shelf, uid_t uid)
{
	struct gpuwm_publish *publish;

	*shelf = (struct shelf){.client = client_of(uid)};
	while (shelf->count < MANY && publish_begin(shelf->client, "host", NULL, SMALL(1), &publish) == 0) {
		OK(publish_fill(publish, SMALL(1)));
		OK(gpuwm_publish_commit_attached(publish, &shelf->mappings[shelf->count]));
		shelf->count++;
	}
	cr_assert_eq(gpuwm_error()->code, -EDQUOT, "%s", gpuwm_error()->message);
}

static void shelf_clear(struct shelf *shelf)
{
	while (shelf->count > 0)
		gpuwm_detach(shelf->mappings[--shelf->count]);
	gpuwm_close(shelf->client);
}

SHARES_TEST(two_users_who_fill_the_nameless_versions_leave_an_eighth)
{
	static struct shelf first, second, third;
	struct gpuwm_publish *publish;

	shelf_fill(&first, ALICE);
	cr_expect_eq(first.count, 224);
	says(gpuwm_error()->message, "of 512, 64 are kept for operators, and other users hold 0");
	says(gpuwm_error()->detail, "nameless_per_uid in [limits]");
	shelf_fill(&second, BOB);
	cr_expect_eq(second.count, 112);
	says(gpuwm_error()->message, "other users hold 224");
	shelf_fill(&third, CAROL);
	cr_expect_eq(third.count, 56);
	OK(publish_begin(d->admin, "host", NULL, SMALL(1), &publish));
	OK(gpuwm_publish_abort(publish, NULL));
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	DROP(d, "m@v1");
	shelf_clear(&first);
	shelf_clear(&second);
	shelf_clear(&third);
}

/* Publishes as many versions as gpuwmd takes. Returns their number. */
static size_t versions_fill(uid_t uid)
{
	struct gpuwm_client *client = client_of(uid);
	struct gpuwm_publish *publish;
	char name[64];
	size_t count = 0;

	while (snprintf(name, sizeof(name), "u%u@v%zu", (unsigned)uid, count) > 0 &&
	       publish_begin(client, "host", name, SMALL(1), &publish) == 0) {
		OK(publish_fill(publish, SMALL(1)));
		OK(gpuwm_publish_commit(publish, NULL));
		count++;
	}
	cr_assert_eq(gpuwm_error()->code, -EDQUOT, "%s", gpuwm_error()->message);
	gpuwm_close(client);
	return count;
}

SHARES_TEST(two_users_who_fill_the_versions_leave_an_eighth)
{
	cr_expect_eq(versions_fill(ALICE), 448);
	cr_expect_eq(versions_fill(BOB), 224);
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	DROP(d, "m@v1");
	CTL_IS(0, "retire", "--uid", "61001");
	CTL_IS(0, "retire", "--uid", "61002");
}

/* ---- regions ------------------------------------------------------------ */

static int region_of(struct raw_region *ret, int sock, uint64_t bytes)
{
	return REGION_CREATE(ret, sock, TEXT("device", "host"), NUMBER("bytes", bytes), NUMBER("chunks", 1));
}

/* Makes as many as gpuwmd takes. */
static size_t regions_fill(int sock, struct raw_region made[MANY])
{
	size_t count = 0;

	while (count < MANY && region_of(&made[count], sock, KB(64)) == 0)
		count++;
	return count;
}

static void regions_close(int sock, struct raw_region *made, size_t count)
{
	while (count > 0)
		cr_assert_eq(region_close(sock, &made[--count]), 0);
	close(sock);
}

SHARES_TEST(two_users_who_fill_the_regions_leave_an_eighth)
{
	int first = sock_of(d, ALICE), second = sock_of(d, BOB), admin = raw_client(d->admin_socket);
	static struct raw_region regions[2][MANY];
	struct raw_region region;

	cr_expect_eq(regions_fill(first, regions[0]), 112);
	says(raw_refusal(),
	     "uid 61001 has all 112 regions that it may have: of 256, 32 are kept for operators");
	cr_expect_eq(regions_fill(second, regions[1]), 56);
	says(raw_refusal(), "other users hold 112");
	cr_expect_eq(region_of(&region, admin, KB(64)), 0, "%s", raw_refusal());
	regions_close(admin, &region, 1);
	regions_close(first, regions[0], 112);
	regions_close(second, regions[1], 56);
}

/* A region takes a device without a byte behind it. */
SHARES_TEST(one_region_does_not_take_a_device, "--set", "budget.host=64M", "--set", "model.1.match=kv/*",
	    "--set", "model.1.share=100%", "--set", "model.1.publish=61001")
{
	int sock = sock_of(d, ALICE);
	struct raw_region region;

	strcpy(d->device, "host"); /* the device of the regions, for loads, too */
	cr_expect_eq(region_of(&region, sock, MB(60)), -EDQUOT);
	says(raw_refusal(), "uid 61001 may have 28.0 MiB for regions on host");
	says(raw_refusal(), "of 64.0 MiB, 8.0 MiB are kept for operators");
	says(raw_refusal(), "share for regions of this name");
	cr_expect_eq(REGION_CREATE(&region, sock, TEXT("name", "kv/a"), TEXT("device", "host"),
				   NUMBER("bytes", MB(60)), NUMBER("chunks", 1)),
		     -EDQUOT, "operators' eighth stays");
	cr_assert_eq(REGION_CREATE(&region, sock, TEXT("name", "kv/a"), TEXT("device", "host"),
				   NUMBER("bytes", MB(56)), NUMBER("chunks", 1)),
		     0, "%s", raw_refusal());
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	FAILS(ENOSPC, load_try(d, checkpoint_write(d, "v2", LARGE(2)), "m@v2"));
	says(gpuwm_error()->detail, "gpuwmctl regions --remove kv/a (of uid 61001)");
	CTL_IS(0, "regions", "--remove", "kv/a");
	FAILS(ENOSPC, load_try(d, checkpoint_write(d, "v2", LARGE(2)), "m@v2"));
	says(gpuwm_error()->detail, "of regions that have ended when their users have gone: ");
	says(gpuwm_error()->detail, ", uid 61001)");
	DROP(d, "m@v1");
	regions_close(sock, &region, 1);
}

/* Whoever may attach may take room besides, and has no half: an engine's cache needs most of a device. The refusal says who has it. */
SHARES_TEST(what_a_worker_takes_besides_leaves_an_eighth_and_is_named, "--set", "budget.host=64M")
{
	struct gpuwm_client *alice = client_of(ALICE);
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;

	strcpy(d->device, "host");
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	options.room = MB(60);
	FAILS(ENOSPC, gpuwm_attach(alice, "m@v1", &options, &mapping));
	options.room = MB(50);
	OK(gpuwm_attach(alice, "m@v1", &options, &mapping));
	FAILS(ENOSPC, load_try(d, checkpoint_write(d, "v2", LARGE(2)), "m@v2"));
	says(gpuwm_error()->detail, "end what workers take besides versions, 50.0 MiB, the most 50.0 MiB: ");
	says(gpuwm_error()->detail, "gpuwmctl kick ");
	says(gpuwm_error()->detail, " (of uid 61001)");
	gpuwm_detach(mapping);
	gpuwm_close(alice);
	DROP(d, "m@v1");
}

static void resume_with_room(int sock, const struct raw_lease *lease, uint64_t room)
{
	struct message_writer w;

	raw_request(&w, 7, "resume");
	message_begin_array(&w, "leases");
	message_begin_map(&w, NULL);
	message_put_u64(&w, "lease", lease->lease);
	message_put_hex128(&w, "version", lease->version);
	message_put_text(&w, "device", "host");
	message_put_u64(&w, "rank", 0);
	message_put_u64(&w, "room", room);
	message_end(&w);
	message_end(&w);
	raw_send(sock, &w);
	cr_assert_eq(raw_code(sock), 0);
}

/* Anybody may resume a lease with any number that was given, and say any room. */
SHARES_TEST(what_a_worker_says_that_it_had_takes_no_more_than_its_share, "--set", "budget.host=64M")
{
	int sock = sock_of(d, ALICE);
	struct raw_lease lease;

	strcpy(d->device, "host");
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	cr_assert_eq(raw_lease(sock, "m@v1", &lease), 0);
	resume_with_room(sock, &lease, MB(60));
	cr_expect_eq(device_number(d, "rooms"), 0, "operators' eighth stays");
	resume_with_room(sock, &lease, UINT64_C(1) << 50);
	cr_expect_eq(device_number(d, "rooms"), 0);
	resume_with_room(sock, &lease, MB(40));
	cr_expect_eq(device_number(d, "rooms"), MB(40), "what there is room for");
	resume_with_room(sock, &lease, MB(40));
	cr_expect_eq(device_number(d, "rooms"), MB(40));
	close(sock);
	cr_assert(EVENTUALLY(SOON_MS, device_number(d, "rooms") == 0));
	DROP(d, "m@v1");
}

/* ---- connections ---------------------------------------------------------- */

/* gpuwmd may have refused the connection, and closed it. */
static void say_hello(int sock)
{
	struct message_writer w;

	raw_request(&w, 1, "hello");
	message_put_u64(&w, "protocol_min", PROTOCOL_MIN);
	message_put_u64(&w, "protocol_max", PROTOCOL_MAX);
	message_put_text(&w, "client", "raw");
	message_end(&w);
	cr_assert_eq(message_finish(&w), 0);
	send(sock, w.buffer.data, w.buffer.size, MSG_NOSIGNAL);
	message_writer_clear(&w);
}

static size_t connect_all(const struct gpuwmd *d, uid_t uid, int socks[MANY])
{
	size_t count = 0;

	for (;; count++) {
		become(uid);
		socks[count] = raw_connect(d->socket);
		become(0);
		say_hello(socks[count]);
		if (raw_code(socks[count]) != 0)
			break;
	}
	close(socks[count]);
	return count;
}

SHARES_TEST(two_users_who_fill_the_connections_leave_an_eighth, "--set", "limits.sessions=48")
{
	static int first[MANY], second[MANY];
	size_t count = connect_all(d, ALICE, first), then = connect_all(d, BOB, second);
	struct gpuwm_client *other = client_of(CAROL);

	cr_expect_eq(count, 21, "half of 48 without 6: %zu", count);
	cr_expect_eq(then, 11, "%zu", then);
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	DROP(d, "m@v1");
	gpuwm_close(other);
	while (count > 0)
		close(first[--count]);
	while (then > 0)
		close(second[--then]);
}

/* ---- what an operator takes back ------------------------------------------- */

static void publish_of(struct gpuwm_client *client, const char *name)
{
	struct gpuwm_publish *publish;

	OK(publish_begin(client, "host", name, SMALL(1), &publish));
	OK(publish_fill(publish, SMALL(1)));
	OK(gpuwm_publish_commit(publish, NULL));
}

SHARES_TEST(retire_takes_back_all_that_a_user_published)
{
	struct gpuwm_client *alice = client_of(ALICE), *bob = client_of(BOB);
	struct gpuwm_mapping *mapping;

	publish_of(alice, "a@v1");
	publish_of(alice, "a@v2");
	publish_of(alice, "b@v1");
	publish_of(bob, "c@v1");
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	OK(gpuwm_attach(bob, "a@v2", NULL, &mapping));
	CTL_IS(0, "retire", "--uid", "61001");
	SAYS("3 versions of uid 61001 are retired, and 2 of them freed or being freed");
	SAYS("a@v2");
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "a", "v1", "none") && version_is(d, "b", "v1", "none")));
	cr_expect(version_is(d, "a", "v2", "retiring"));
	cr_expect(version_is(d, "c", "v1", "ready") && version_is(d, "m", "v1", "ready"));
	CTL_IS(0, "-o", "json", "retire", "--uid", "61002", "--force");
	SAYS("\"retired\":1");
	CTL_IS(2, "retire", "--uid", "61001", "a@v2");
	CTL_IS(2, "retire");
	gpuwm_detach(mapping);
	DROP(d, "m@v1");
	gpuwm_close(alice);
	gpuwm_close(bob);
}
