/* Leases that wait for room to be awake, in turn. The room is only said, and never taken. */
#include "described.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(parking_queue);

/* Of the budget, and of users' seven eighths: once a version of 64 MiB and ROOM with the context of a loader, and not twice without. */
#define BUDGET backend() == BACKEND_HOST ? "budget.host=1300M" : "budget.*=1300M"
#define ROOM MB(634)

#define QUEUE_TEST(name, ...)                                                                                  \
	GPUWMD_TEST_BY(parking_queue, name,                                                                    \
		       described_start("--set", BUDGET __VA_OPT__(, "--set", ) __VA_ARGS__, NULL),             \
		       described_stop)
#define QUEUE_GPU_TEST(name, ...)                                                                              \
	FAKECUDA_TEST(parking_queue, name,                                                                     \
		      described_start("--set", BUDGET __VA_OPT__(, "--set", ) __VA_ARGS__, NULL),              \
		      described_stop)

/* ---- workers that map nothing ------------------------------------------------ */

struct worker {
	int sock;
	uint64_t lease;
};

static void load_numbered(struct gpuwmd *d, unsigned seed)
{
	char name[16], ref[16];

	snprintf(name, sizeof(name), "v%u", seed);
	snprintf(ref, sizeof(ref), "m@v%u", seed);
	load_version(d, checkpoint_write(d, name, LARGE(seed)), ref);
}

/* A worker with a parked lease. */
static struct worker parked(const struct gpuwmd *d, const char *ref)
{
	struct worker w = {.sock = raw_client(d->socket)};
	struct raw_lease lease;

	cr_assert_eq(raw_lease(w.sock, ref, &lease), 0);
	w.lease = lease.lease;
	cr_assert_eq(RAW_ASK(w.sock, "park", NUMBER("lease", w.lease)), 0);
	return w;
}

static void asks(const struct worker *w, uint64_t room, int64_t wait_ms)
{
	RAW_SEND(w->sock, 3, "unpark", NUMBER("lease", w->lease), NUMBER("room", room),
		 SIGNED("wait_ms", wait_ms));
}

/* The same, and gpuwmd has read it when the function returns: the worker waits. */
static void asks_and_waits(const struct worker *w, uint64_t room)
{
	asks(w, room, SOON_MS);
	cr_assert_eq(raw_call(w->sock, "ping"), 0, "it was answered at once");
}

/* The code of the answer. */
static int told(struct worker *w)
{
	static struct raw_reply reply;
	struct fields f;
	int code;

	cr_assert(raw_receive(w->sock, &reply));
	code = reply.message.error.code;
	fields_of(&f, reply.message.body);
	if (code == 0)
		w->lease = fields_u64(&f, "lease");
	raw_reply_clear(&reply);
	return code;
}

static int unpark(struct worker *w, uint64_t room, int64_t wait_ms)
{
	asks(w, room, wait_ms);
	return told(w);
}

static void park(const struct worker *w)
{
	cr_assert_eq(RAW_ASK(w->sock, "park", NUMBER("lease", w->lease)), 0);
}

static bool has_answer(const struct worker *w)
{
	char byte;

	return recv(w->sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

/* ---- in turn ------------------------------------------------------------------- */

QUEUE_TEST(who_asked_first_is_awake_first)
{
	struct worker w[4];

	load_numbered(d, 1);
	for (int i = 0; i < 4; i++)
		w[i] = parked(d, "m@v1");
	cr_assert_eq(unpark(&w[0], ROOM, 0), 0);
	for (int i = 1; i < 4; i++) {
		asks_and_waits(&w[i], ROOM);
	}
	for (int i = 1; i < 4; i++) {
		cr_assert_not(has_answer(&w[i]), "%d", i);
		park(&w[i - 1]);
		cr_assert_eq(told(&w[i]), 0);
	}
	for (int i = 0; i < 4; i++)
		close(w[i].sock);
}

/* Two are awake with 300 MiB each. The head lacks 163 MiB, and either of the two has 137 MiB more. */
QUEUE_TEST(what_fits_goes_past_a_head_that_does_not_wait_longer_for_it)
{
	struct worker awake[2], head, small, large;

	load_numbered(d, 1);
	for (int i = 0; i < 2; i++) {
		awake[i] = parked(d, "m@v1");
		cr_assert_eq(unpark(&awake[i], MB(300), 0), 0);
	}
	head = parked(d, "m@v1");
	small = parked(d, "m@v1");
	large = parked(d, "m@v1");
	asks_and_waits(&head, MB(700));
	cr_assert_eq(unpark(&large, MB(200), 0), -ENOSPC, "it would fit");
	cr_assert_eq(unpark(&small, MB(100), SOON_MS), 0);
	park(&awake[1]);
	cr_assert_eq(told(&head), 0, "with the small one awake");
	close(awake[0].sock);
	close(awake[1].sock);
	close(head.sock);
	close(small.sock);
	close(large.sock);
}

/* Without the queue, small ones that come and go would keep a large one waiting for ever. */
QUEUE_TEST(small_ones_do_not_starve_a_large_one)
{
	struct worker small[6], large;

	load_numbered(d, 1);
	for (int i = 0; i < 6; i++) {
		small[i] = parked(d, "m@v1");
		cr_assert_eq(unpark(&small[i], MB(100), SOON_MS), 0);
	}
	large = parked(d, "m@v1");
	asks_and_waits(&large, MB(700));
	park(&small[0]);
	for (int i = 0; i < 20; i++)
		cr_assert_eq(unpark(&small[0], MB(100), 0), -ENOSPC, "round %d", i);
	park(&small[1]);
	cr_assert_eq(told(&large), 0);
	for (int i = 0; i < 6; i++)
		close(small[i].sock);
	close(large.sock);
}

/* What parked ones keep does not come back when awake ones park. */
QUEUE_TEST(who_can_not_be_awake_holds_nobody_up)
{
	struct worker keeps, head, next;

	load_numbered(d, 1);
	keeps = parked(d, "m@v1");
	cr_assert_eq(unpark(&keeps, MB(500), SOON_MS), 0);
	cr_assert_eq(RAW_ASK(keeps.sock, "park", NUMBER("lease", keeps.lease), NUMBER("room", MB(500))), 0);
	head = parked(d, "m@v1");
	next = parked(d, "m@v1");
	asks_and_waits(&head, MB(700));
	cr_assert_eq(unpark(&next, MB(500), SOON_MS), 0);
	park(&next);
	cr_assert_not(has_answer(&head));
	park(&keeps);
	cr_assert_eq(told(&head), 0);
	close(keeps.sock);
	close(head.sock);
	close(next.sock);
}

/* ---- who gives up ------------------------------------------------------------------ */

QUEUE_TEST(a_head_that_gives_up_frees_the_queue)
{
	struct worker awake[2], head, next;

	load_numbered(d, 1);
	for (int i = 0; i < 2; i++) {
		awake[i] = parked(d, "m@v1");
		cr_assert_eq(unpark(&awake[i], MB(300), 0), 0);
	}
	head = parked(d, "m@v1");
	next = parked(d, "m@v1");
	asks_and_waits(&head, MB(700));
	asks_and_waits(&next, MB(200));
	close(head.sock); /* it dies */
	cr_assert_eq(told(&next), 0);
	park(&next);
	head = parked(d, "m@v1");
	asks(&head, MB(700), 10); /* its time runs out */
	cr_assert_eq(told(&head), -ETIMEDOUT);
	cr_assert_eq(unpark(&next, MB(200), SOON_MS), 0);
	park(&next);
	asks(&head, MB(700), 10); /* it parks again */
	cr_assert_eq(told(&head), -ETIMEDOUT);
	park(&head);
	cr_assert_eq(unpark(&next, MB(200), 0), 0);
	close(awake[0].sock);
	close(awake[1].sock);
	close(head.sock);
	close(next.sock);
}

/* A client that asks again keeps its place. */
QUEUE_TEST(short_questions_keep_their_place)
{
	struct worker awake, first, second;

	load_numbered(d, 1);
	awake = parked(d, "m@v1");
	first = parked(d, "m@v1");
	second = parked(d, "m@v1");
	cr_assert_eq(unpark(&awake, ROOM, 0), 0);
	cr_assert_eq(unpark(&first, ROOM, 10), -ETIMEDOUT);
	asks_and_waits(&second, ROOM);
	park(&awake);
	cr_assert_eq(unpark(&first, ROOM, 0), 0, "what was granted is reserved");
	cr_assert_not(has_answer(&second));
	park(&first);
	cr_assert_eq(told(&second), 0);
	close(awake.sock);
	close(first.sock);
	close(second.sock);
}

/* ---- weights and room ----------------------------------------------------------------- */

/* Five models of which one has room: 16 and 66 GiB of 140 in the figures. */
QUEUE_GPU_TEST(five_models_take_turns)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_client *client[5];
	struct gpuwm_mapping *mapping[5];
	const uint64_t most = MB(1300);
	char ref[16];

	options.room = ROOM;
	options.wait_ms = SOON_MS;
	for (unsigned i = 0; i < 5; i++) {
		load_numbered(d, i + 1);
		snprintf(ref, sizeof(ref), "m@v%u", i + 1);
		client[i] = client_new();
		OK(gpuwm_attach(client[i], ref, &options, &mapping[i]));
		OK(gpuwm_park(mapping[i], 0));
	}
	for (unsigned turn = 0; turn < 15; turn++) {
		const unsigned i = turn * 3 % 5, other = turn * 7 % 4 + (turn * 7 % 4 >= i);

		OK(gpuwm_unpark(mapping[i], GPUWM_ROOM_AS_BEFORE, SOON_MS));
		cr_assert(mapping_holds(mapping[i], i + 1));
		cr_assert_leq(device_used(d), most);
		FAILS(ENOSPC, gpuwm_unpark(mapping[other], GPUWM_ROOM_AS_BEFORE, 0));
		OK(gpuwm_park(mapping[i], 0));
	}
	for (unsigned i = 0; i < 5; i++) {
		OK(gpuwm_detach(mapping[i]));
		gpuwm_close(client[i]);
	}
}

QUEUE_GPU_TEST(fifty_of_one_version_make_one_copy)
{
	struct worker w[50];
	const char *at;
	unsigned moves = 0;

	load_numbered(d, 1);
	for (int i = 0; i < 50; i++)
		w[i] = parked(d, "m@v1");
	demote(d, "m@v1", "host");
	for (int i = 0; i < 50; i++)
		asks(&w[i], 0, SOON_MS);
	for (int i = 0; i < 50; i++)
		cr_assert_eq(told(&w[i]), 0);
	CTL_IS(0, "jobs");
	for (at = output; (at = strstr(at, " move ")); at++)
		moves++;
	cr_assert_eq(moves, 2, "down and up: %s", output);
	for (int i = 0; i < 50; i++)
		close(w[i].sock);
}

/* ---- wanted ------------------------------------------------------------------------------- */

struct seen {
	unsigned wanted;
	char json[512];
};

static void note_wanted(const struct gpuwm_event *event, void *data)
{
	struct seen *seen = data;

	if (strcmp(event->kind, "wanted") != 0)
		return;
	seen->wanted++;
	snprintf(seen->json, sizeof(seen->json), "%s", event->json);
}

QUEUE_TEST(who_is_awake_hears_once_that_room_is_wanted)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_events *events;
	struct seen seen = {0};
	struct worker awake, waits;

	load_numbered(d, 1);
	OK(gpuwm_events_open(client, UINT64_MAX, &events));
	awake = parked(d, "m@v1");
	waits = parked(d, "m@v1");
	cr_assert_eq(unpark(&awake, ROOM, 0), 0);
	asks_and_waits(&waits, ROOM);
	cr_assert(
		EVENTUALLY(SOON_MS, gpuwm_events_dispatch(events, 50, note_wanted, &seen) < 0 || seen.wanted));
	cr_assert(strstr(seen.json, d->device) && strstr(seen.json, "\"bytes\"") &&
			  strstr(seen.json, "\"until_ms\""),
		  "%s", seen.json);
	cr_assert_eq(RAW_ASK(awake.sock, "unpark", NUMBER("lease", awake.lease), NUMBER("room", ROOM + MB(1))),
		     0);
	park(&awake);
	cr_assert_eq(told(&waits), 0);
	cr_assert_geq(gpuwm_events_dispatch(events, 50, note_wanted, &seen), 0);
	cr_assert_eq(seen.wanted, 1);
	gpuwm_events_close(events);
	gpuwm_close(client);
	close(awake.sock);
	close(waits.sock);
}

/* ---- attaches with room ---------------------------------------------------------------- */

QUEUE_TEST(an_attach_waits_for_its_room_or_leaves_nothing)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	struct worker awake;

	load_numbered(d, 1);
	awake = parked(d, "m@v1");
	cr_assert_eq(unpark(&awake, ROOM, 0), 0);
	options.room = ROOM;
	FAILS(ENOSPC, gpuwm_attach(client, "m@v1", &options, &mapping));
	options.wait_ms = 10;
	FAILS(ETIMEDOUT, gpuwm_attach(client, "m@v1", &options, &mapping));
	cr_assert(strstr(gpuwm_error()->message, "no room on"), "%s", gpuwm_error()->message);
	CTL_IS(0, "status");
	SAYS("leases 1,");
	park(&awake);
	options.wait_ms = SOON_MS;
	OK(gpuwm_attach(client, "m@v1", &options, &mapping));
	cr_assert_eq(gpuwm_mapping_room(mapping), ROOM);
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	close(awake.sock);
}

/* ---- quotas ------------------------------------------------------------------------------ */

QUEUE_TEST(a_lease_that_has_paid_does_not_fail_by_its_quota, "limits.bytes_per_uid=200M")
{
	struct worker first, second, third;

	load_numbered(d, 1);
	first = parked(d, "m@v1");
	second = parked(d, "m@v1");
	third = parked(d, "m@v1");
	cr_assert_eq(unpark(&first, MB(150), 0), 0);
	park(&first);
	cr_assert_eq(unpark(&second, MB(150), 0), 0);
	cr_assert_eq(unpark(&third, MB(150), SOON_MS), -EDQUOT, "it has paid nothing");
	cr_assert_eq(unpark(&first, MB(160), SOON_MS), -EDQUOT, "it has paid less");
	cr_assert_eq(unpark(&first, MB(150), 0), 0);
	close(first.sock);
	close(second.sock);
	close(third.sock);
}

/* The fifth promotion of a user's attaches fails with EDQUOT. */
QUEUE_GPU_TEST(unparks_are_not_promotions_of_attaches)
{
	struct worker w[6];
	char ref[16];

	for (unsigned i = 0; i < 6; i++) {
		load_numbered(d, i + 1);
		snprintf(ref, sizeof(ref), "m@v%u", i + 1);
		w[i] = parked(d, ref);
		demote(d, ref, "host");
	}
	for (unsigned i = 0; i < 6; i++)
		asks(&w[i], 0, 4 * SOON_MS);
	for (unsigned i = 0; i < 6; i++)
		cr_assert_eq(told(&w[i]), 0);
	for (unsigned i = 0; i < 6; i++)
		close(w[i].sock);
}
