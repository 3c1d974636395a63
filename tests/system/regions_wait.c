/* Regions that wait for a quota: gpuwmd has started anew, and frees nothing yet. */
#include "region_raw.h"

#include <gpuwm/region.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(regions_wait);

/* No test waits until this grace time is over. */
#define FDS(most)                                                                                              \
	gpuwmd_start_kept(&(const struct kept){.limits = "grace_ms = 60000\nfds_per_uid = " most "\n"})

/* So many versions of this user are on their way to be freed: two descriptors each, which count until the grace time is over. */
static void leave_versions(struct gpuwmd *d, unsigned count)
{
	struct gpuwm_client *client = client_new();
	char name[16];

	for (unsigned i = 1; i <= count; i++) {
		snprintf(name, sizeof name, "m@v%u", i);
		OK(publish_version(client, "host", name, SMALL(i)));
	}
	gpuwm_close(client);
	kept_kill(d, SIGKILL);
	OK(swap_to(d, "m", NULL, false));
	for (unsigned i = 1; i <= count; i++) {
		snprintf(name, sizeof name, "m@v%u", i);
		FAILS(ETIMEDOUT, gpuwm_retire(d->admin, name, 1));
	}
}

/* By force a version is freed in the grace time too. */
static void free_versions(struct gpuwmd *d, unsigned count)
{
	char name[16];

	for (unsigned i = 1; i <= count; i++) {
		snprintf(name, sizeof name, "m@v%u", i);
		OK(gpuwm_retire_by_force(d->admin, name, 0, SOON_MS));
	}
}

static bool waiting(struct gpuwmd *d, uint64_t count)
{
	return EVENTUALLY(SOON_MS, status_of(d, "waiting") == count);
}

static void remove_region(int sock, struct raw_region *region)
{
	cr_assert_eq(RAW_ASK(sock, "region_remove", TEXT("region", region->text)), 0, "%s", raw_refusal());
	cr_assert_eq(region_close(sock, region), 0);
	close(sock);
}

#define POOL(...)                                                                                              \
	TEXT("name", "kv"), TEXT("device", "host"), TEXT("writers", "many"), TEXT("owner", "uid"),             \
		NUMBER("bytes", MB(1)), NUMBER("chunks", 16), __VA_ARGS__

/* ---- requests ----------------------------------------------------------- */

static void said_what_comes_back(void)
{
	cr_assert(strstr(raw_refusal(), "1 version of uid "), "%s", raw_refusal());
	cr_assert(strstr(raw_refusal(), " ms from now, which gives 2 descriptors in the store back"), "%s",
		  raw_refusal());
}

GPUWMD_TEST_BY(regions_wait, a_refusal_says_what_comes_back, FDS("4"), gpuwmd_stop_empty)
{
	struct raw_region kv, again, none;
	int sock;

	leave_versions(d, 1);
	sock = raw_client(d->socket);
	cr_assert_eq(REGION_CREATE(&kv, sock, POOL(SIGNED("wait_ms", 0))), -EDQUOT);
	said_what_comes_back();
	/* The same refusal comes when the time is over. */
	cr_assert_eq(REGION_CREATE(&kv, sock, POOL(SIGNED("wait_ms", 200))), -EDQUOT);
	said_what_comes_back();
	free_versions(d, 1);
	cr_assert_eq(REGION_CREATE(&kv, sock, POOL(SIGNED("wait_ms", 0))), 0, "%s", raw_refusal());
	/* What regions take does not come back by itself, so nothing waits for it. */
	cr_assert_eq(REGION_OPEN(&again, sock, TEXT("region", "kv")), 0, "%s", raw_refusal());
	cr_assert_eq(REGION_OPEN(&none, sock, TEXT("region", "kv"), SIGNED("wait_ms", -1)), -EDQUOT);
	cr_assert_null(strstr(raw_refusal(), "wait:"), "%s", raw_refusal());
	cr_assert_eq(region_close(sock, &again), 0);
	remove_region(sock, &kv);
}

GPUWMD_TEST_BY(regions_wait, an_open_that_waits_in_vain_says_what_comes_back, FDS("5"), gpuwmd_stop_empty)
{
	struct raw_region kv, again;
	int sock = raw_client(d->socket);

	region_make(&kv, sock, "kv", "uid");
	close(sock);
	leave_versions(d, 1);
	sock = raw_client(d->socket);
	cr_assert_eq(REGION_OPEN(&again, sock, TEXT("region", "kv")), -EDQUOT);
	said_what_comes_back();
	cr_assert_eq(REGION_OPEN(&again, sock, TEXT("region", "kv"), SIGNED("wait_ms", 200)), -EDQUOT);
	said_what_comes_back();
	/* Another region would need more than what comes back. */
	cr_assert_eq(REGION_CREATE(&again, sock, TEXT("device", "host"), NUMBER("bytes", MB(1)),
				   NUMBER("chunks", 16), SIGNED("wait_ms", -1)),
		     -EDQUOT);
	free_versions(d, 1);
	remove_region(sock, &kv);
}

GPUWMD_TEST_BY(regions_wait, who_goes_is_forgotten, FDS("7"), gpuwmd_stop_empty)
{
	struct raw_region kv;
	int sock = raw_client(d->socket), opens, creates;

	region_make(&kv, sock, "kv", "uid");
	close(sock);
	leave_versions(d, 2);
	opens = raw_client(d->socket);
	creates = raw_client(d->socket);
	RAW_SEND(opens, 7, "region_open", TEXT("region", "kv"), SIGNED("wait_ms", -1));
	RAW_SEND(creates, 7, "region_create", TEXT("device", "host"), NUMBER("bytes", MB(1)),
		 NUMBER("chunks", 16), SIGNED("wait_ms", -1));
	cr_assert(waiting(d, 2));
	close(opens);
	cr_assert(waiting(d, 1));
	close(creates);
	cr_assert(waiting(d, 0));
	free_versions(d, 2);
	cr_assert_eq(regions_count(d), 1);
	sock = raw_client(d->socket);
	remove_region(sock, &kv);
}

static const uint8_t use[16] = {7, 7, 7};

/* A process asks again whose answer was lost. gpuwmd may not know yet that the first connection has ended. */
GPUWMD_TEST_BY(regions_wait, a_request_that_is_sent_again_takes_the_place_of_the_first, FDS("4"),
	       gpuwmd_stop_empty)
{
	static struct raw_reply reply;
	struct raw_region kv;
	int first, second, third;

	leave_versions(d, 1);
	first = raw_client(d->socket);
	second = raw_client(d->socket);
	third = raw_client(d->socket);
	RAW_SEND(first, 7, "region_create", POOL(ID("use", use), SIGNED("wait_ms", -1)));
	cr_assert(waiting(d, 1));
	RAW_SEND(second, 7, "region_create", POOL(ID("use", use), SIGNED("wait_ms", -1)));
	cr_assert_eq(raw_code(first), -ECANCELED);
	cr_assert(strstr(raw_refusal(), "asked again"), "%s", raw_refusal());
	cr_assert(waiting(d, 1));
	free_versions(d, 1);
	cr_assert(raw_receive(second, &reply));
	cr_assert_eq(reply.message.error.code, 0, "%s", reply.message.error.message);
	raw_reply_clear(&reply);
	cr_assert_eq(REGION_CREATE(&kv, third, POOL(ID("use", use))), 0, "%s", raw_refusal());
	cr_assert_eq(regions_count(d), 1);
	close(first);
	close(second);
	remove_region(third, &kv);
}

/* ---- the library ---------------------------------------------------------- */

/* A thread that makes or opens a region, however long that takes. */
struct asking {
	pthread_t thread;
	struct gpuwm_region_options options;
	const char *opens; /* NULL: it makes one */
	struct gpuwm_client *client;
	struct gpuwm_region *region;
	int result;
};

static void *ask(void *data)
{
	struct asking *asking = data;

	asking->result = asking->opens
				 ? gpuwm_region_open(asking->client, asking->opens, 0, -1, &asking->region)
				 : gpuwm_region_create(asking->client, &asking->options, &asking->region);
	return NULL;
}

static void ask_begin(struct asking *asking)
{
	asking->client = client_new();
	asking->options.size = sizeof(asking->options);
	asking->options.wait_ms = -1;
	cr_assert_eq(pthread_create(&asking->thread, NULL, ask, asking), 0);
}

static void ask_end(struct asking *asking)
{
	struct gpuwm_region_info info;

	pthread_join(asking->thread, NULL);
	cr_assert_eq(asking->result, 0, "kind %d: %d", (int)asking->options.kind, asking->result);
	gpuwm_region_info(asking->region, &info);
	cr_assert(asking->opens || info.kind == asking->options.kind);
	if (info.owner == GPUWM_OWNER_UID)
		OK(gpuwm_region_remove(asking->client, info.id));
	OK(gpuwm_region_close(asking->region));
	gpuwm_close(asking->client);
}

GPUWMD_TEST_BY(regions_wait, regions_of_each_kind_wait_for_what_comes_back, FDS("12"), gpuwmd_stop_empty)
{
	struct asking all[] = {
		{.options = {.kind = GPUWM_REGION_POOL, .bytes = MB(1)}},
		{.options = {.kind = GPUWM_REGION_QUEUE,
			     .writers = GPUWM_WRITERS_MANY,
			     .items = 4,
			     .item_bytes = 64}},
		{.options = {.kind = GPUWM_REGION_BLOCKS,
			     .writers = GPUWM_WRITERS_MANY,
			     .owner = GPUWM_OWNER_UID,
			     .blocks = 4,
			     .block_bytes = KB(4)}},
		{.options = {.kind = GPUWM_REGION_SCRATCH,
			     .writers = GPUWM_WRITERS_MANY,
			     .owner = GPUWM_OWNER_UID,
			     .bytes = MB(1)}},
	};
	const size_t count = sizeof(all) / sizeof(*all);

	leave_versions(d, 5);
	for (size_t i = 0; i < count; i++)
		ask_begin(&all[i]);
	cr_assert(waiting(d, count));
	free_versions(d, 5);
	for (size_t i = 0; i < count; i++)
		ask_end(&all[i]);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
}

/* The next gpuwmd is asked for the same, and its grace time begins anew. */
static void wait_over_an_end(int signal_number)
{
	struct gpuwmd *d = FDS("7");
	struct asking opens = {.opens = "kv"};
	struct asking creates = {.options = {.kind = GPUWM_REGION_POOL, .bytes = MB(1)}};
	struct raw_region kv;
	int sock = raw_client(d->socket);

	region_make(&kv, sock, "kv", "uid");
	close(sock);
	leave_versions(d, 2);
	ask_begin(&opens);
	ask_begin(&creates);
	cr_assert(waiting(d, 2));
	kept_kill(d, signal_number);
	cr_assert(waiting(d, 2));
	free_versions(d, 2);
	ask_end(&creates);
	ask_end(&opens);
	sock = raw_client(d->socket);
	cr_assert_eq(region_close(sock, &kv), 0);
	close(sock);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	gpuwmd_stop_empty(d);
}

Test(regions_wait, a_wait_goes_on_after_a_kill)
{
	wait_over_an_end(SIGKILL);
}

Test(regions_wait, a_wait_goes_on_after_a_stop)
{
	wait_over_an_end(SIGTERM);
}
