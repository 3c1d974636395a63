/* Leases that are awake together or not at all: those of engines whose ranks have a device each. The room is only said, and never taken. */
#include "described.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(parking_groups);

#define RANKS 2

/* Of users' seven eighths of each GPU's budget ROOM fits once. */
#define GROUP_TEST(name, ...)                                                                                  \
	FAKECUDA_TEST(parking_groups, name,                                                                    \
		      groups_begin("--set", "budget.*=1300M" __VA_OPT__(, "--set", ) __VA_ARGS__, NULL),       \
		      described_stop)
#define groups_begin(...) load_ranks(described_start(__VA_ARGS__))
#define ROOM MB(634)

/* ---- ranks that map nothing ---------------------------------------------------- */

struct rank {
	int sock;
	uint64_t lease;
};

/* m@v1, of which each GPU has a rank. */
static struct gpuwmd *load_ranks(struct gpuwmd *d)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	const struct gpuwm_device *all;
	const char *devices[RANKS];
	char folder[256];
	uint64_t job;

	cr_assert_gt(gpuwm_devices(d->admin, &all), RANKS);
	for (unsigned i = 0; i < RANKS; i++)
		devices[i] = all[i + 1].id;
	checkpoint_write(d, "m/model-rank-0-part-0", SMALL(10));
	checkpoint_write(d, "m/model-rank-1-part-0", SMALL(11));
	file_write(d, "m/config.json", "{}", 2);
	snprintf(folder, sizeof(folder), "%s/m", d->root);
	options.source = folder;
	options.name = "m@v1";
	options.devices = devices;
	options.device_count = RANKS;
	OK(gpuwm_load(d->admin, &options, &job));
	OK(gpuwm_job_wait(d->admin, job, 30000));
	return d;
}

/* A parked lease of this rank, on a connection of its own. */
static struct rank parked(const struct gpuwmd *d, const char *ref, uint64_t rank)
{
	static struct raw_reply reply;
	struct rank w = {.sock = raw_client(d->socket)};
	struct fields f;

	RAW_SEND(w.sock, 2, "get_handles", TEXT("ref", ref), NUMBER("rank", rank), SIGNED("wait_ms", SOON_MS));
	cr_assert(raw_receive(w.sock, &reply));
	cr_assert_eq(reply.message.error.code, 0, "%s", reply.message.error.message);
	fields_of(&f, reply.message.body);
	w.lease = fields_u64(&f, "lease");
	raw_reply_clear(&reply);
	cr_assert_eq(RAW_ASK(w.sock, "park", NUMBER("lease", w.lease)), 0);
	return w;
}

static void asks(const struct rank *w, const char *group, uint64_t count, uint64_t room, int64_t wait_ms)
{
	RAW_SEND(w->sock, 3, "unpark", NUMBER("lease", w->lease), NUMBER("room", room),
		 SIGNED("wait_ms", wait_ms), TEXT("group", group), NUMBER("group_leases", count));
}

/* The same, and gpuwmd has read it when the function returns: the rank waits. */
static void asks_and_waits(const struct rank *w, const char *group, uint64_t room)
{
	asks(w, group, RANKS, room, 600000);
	cr_assert_eq(raw_call(w->sock, "ping"), 0, "it was answered at once");
}

/* The code of the answer. */
static int told(struct rank *w)
{
	static struct raw_reply reply;
	struct fields f;
	int code;

	cr_assert(raw_receive(w->sock, &reply));
	code = reply.message.error.code;
	raw_refused_with(&reply.message.error);
	fields_of(&f, reply.message.body);
	if (code == 0)
		w->lease = fields_u64(&f, "lease");
	raw_reply_clear(&reply);
	return code;
}

static int asks_alone(struct rank *w)
{
	RAW_SEND(w->sock, 3, "unpark", NUMBER("lease", w->lease), NUMBER("room", ROOM));
	return told(w);
}

static void park(const struct rank *w)
{
	cr_assert_eq(RAW_ASK(w->sock, "park", NUMBER("lease", w->lease)), 0);
}

static bool has_answer(const struct rank *w)
{
	char byte;

	return recv(w->sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

struct engine {
	struct rank ranks[RANKS];
	char name[16];
	/* For the storm. */
	uint64_t room;
	unsigned asked; /* ranks that have, in a random order */
	unsigned first; /* the rank that asks first */
	bool awake;
};

static struct engine engine_start(const struct gpuwmd *d, const char *name)
{
	struct engine e = {.room = ROOM};

	snprintf(e.name, sizeof(e.name), "%s", name);
	for (unsigned i = 0; i < RANKS; i++)
		e.ranks[i] = parked(d, "m@v1", i);
	return e;
}

static void engine_end(struct engine *e)
{
	for (unsigned i = 0; i < RANKS; i++)
		close(e->ranks[i].sock);
}

/* ---- together, or not at all ------------------------------------------------------ */

/* Each of two engines has what the other one needs, if its ranks ask one by one. */
GROUP_TEST(two_engines_of_two_ranks_do_not_wait_for_each_other)
{
	struct engine a = engine_start(d, "a"), b = engine_start(d, "b");

	asks_and_waits(&a.ranks[0], "a", ROOM);
	asks_and_waits(&b.ranks[1], "b", ROOM);
	asks(&b.ranks[0], "b", RANKS, ROOM, 600000);
	cr_assert_eq(told(&b.ranks[0]), 0);
	cr_assert_eq(told(&b.ranks[1]), 0);
	asks_and_waits(&a.ranks[1], "a", ROOM);
	park(&b.ranks[0]);
	cr_assert_not(has_answer(&a.ranks[0]), "its other device is not free");
	park(&b.ranks[1]);
	cr_assert_eq(told(&a.ranks[0]), 0);
	cr_assert_eq(told(&a.ranks[1]), 0);
	engine_end(&a);
	engine_end(&b);
}

/* In the same order, without a group. */
GROUP_TEST(ranks_that_ask_alone_wait_for_each_other)
{
	struct engine a = engine_start(d, "a"), b = engine_start(d, "b");

	cr_assert_eq(asks_alone(&a.ranks[0]), 0);
	cr_assert_eq(asks_alone(&b.ranks[1]), 0);
	cr_assert_eq(asks_alone(&b.ranks[0]), -ENOSPC);
	cr_assert_eq(asks_alone(&a.ranks[1]), -ENOSPC);
	engine_end(&a);
	engine_end(&b);
}

GROUP_TEST(a_group_of_which_some_have_not_asked_holds_nobody_up)
{
	struct engine a = engine_start(d, "a");
	struct rank single = parked(d, "m@v1", 0);

	asks(&a.ranks[0], "a", RANKS, ROOM, 0);
	cr_assert_eq(told(&a.ranks[0]), -ENOSPC);
	cr_assert(strstr(raw_refusal(), "of the group \"a\" 1 of 2 leases have asked"), "%s", raw_refusal());
	asks_and_waits(&a.ranks[0], "a", ROOM);
	cr_assert_eq(asks_alone(&single), 0);
	asks_and_waits(&a.ranks[1], "a", ROOM);
	close(single.sock);
	cr_assert_eq(told(&a.ranks[0]), 0);
	cr_assert_eq(told(&a.ranks[1]), 0);
	engine_end(&a);
}

GROUP_TEST(a_rank_that_dies_leaves_its_group_waiting)
{
	struct engine a = engine_start(d, "a");
	struct rank single = parked(d, "m@v1", 1);

	cr_assert_eq(asks_alone(&single), 0);
	asks_and_waits(&a.ranks[0], "a", ROOM);
	asks_and_waits(&a.ranks[1], "a", ROOM);
	close(a.ranks[1].sock);
	close(single.sock);
	single = parked(d, "m@v1", 1);
	cr_assert_eq(asks_alone(&single), 0);
	cr_assert_not(has_answer(&a.ranks[0]));
	close(single.sock);
	a.ranks[1] = parked(d, "m@v1", 1);
	asks(&a.ranks[1], "a", RANKS, ROOM, SOON_MS);
	cr_assert_eq(told(&a.ranks[1]), 0);
	cr_assert_eq(told(&a.ranks[0]), 0);
	engine_end(&a);
}

GROUP_TEST(the_error_of_one_is_the_error_of_all)
{
	struct engine a = engine_start(d, "a");

	asks_and_waits(&a.ranks[0], "a", ROOM);
	asks(&a.ranks[1], "a", RANKS, MB(1400), 600000);
	cr_assert_eq(told(&a.ranks[1]), -ENOSPC);
	cr_assert_eq(told(&a.ranks[0]), -ENOSPC);
	cr_assert(strstr(raw_refusal(), "no room on"), "%s", raw_refusal());
	for (unsigned i = 0; i < RANKS; i++)
		asks(&a.ranks[i], "a", RANKS, ROOM, 600000);
	for (unsigned i = 0; i < RANKS; i++)
		cr_assert_eq(told(&a.ranks[i]), 0, "the next try");
	engine_end(&a);
}

/* One process waits for its two models one after the other, in short questions. */
GROUP_TEST(a_group_may_have_several_versions)
{
	struct rank target, draft, single;

	load_version(d, checkpoint_write(d, "v2", LARGE(2)), "m@v2");
	target = parked(d, "m@v1", 0);
	draft = parked(d, "m@v2", 0);
	single = parked(d, "m@v1", 0);
	cr_assert_eq(asks_alone(&single), 0);
	demote(d, "m@v2", "host");
	asks(&target, "a", 2, ROOM, 0);
	cr_assert_eq(told(&target), -ENOSPC);
	asks(&draft, "a", 2, 0, 0);
	cr_assert_eq(told(&draft), -ENOSPC);
	cr_assert(lies_on(d, "v2", "host"), "it does not come before the room of the other one");
	asks_and_waits(&target, "a", ROOM);
	close(single.sock);
	cr_assert_eq(told(&target), 0);
	asks(&draft, "a", 2, 0, SOON_MS);
	cr_assert_eq(told(&draft), 0);
	close(target.sock);
	close(draft.sock);
	DROP(d, "m@v2");
}

GROUP_TEST(the_library_asks_together)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_client *client[RANKS];
	struct gpuwm_mapping *mapping[RANKS];

	for (uint32_t i = 0; i < RANKS; i++) {
		options.rank = i;
		client[i] = client_new();
		OK(gpuwm_attach(client[i], "m@v1", &options, &mapping[i]));
		OK(gpuwm_park(mapping[i], 0));
	}
	FAILS(ENOSPC, gpuwm_unpark_together(mapping[0], "a", RANKS, ROOM, 0));
	FAILS(EINVAL, gpuwm_unpark_together(mapping[0], NULL, RANKS, ROOM, 0));
	FAILS(EINVAL, gpuwm_unpark_together(mapping[0], "a", 257, ROOM, 0));
	FAILS(ENOSPC, gpuwm_unpark_together(mapping[0], "a", RANKS, ROOM, 0));
	OK(gpuwm_unpark_together(mapping[1], "a", RANKS, ROOM, SOON_MS));
	OK(gpuwm_unpark_together(mapping[0], "a", RANKS, ROOM, 0));
	for (uint32_t i = 0; i < RANKS; i++) {
		cr_assert(mapping_holds(mapping[i], 10 + i));
		cr_assert_eq(gpuwm_mapping_room(mapping[i]), ROOM);
		OK(gpuwm_detach(mapping[i]));
		gpuwm_close(client[i]);
	}
}

/* ---- a storm ----------------------------------------------------------------------------- */

#define ENGINES 6
#define STEPS 4000
#define STEPS_BETWEEN_DRAINS 100
#define USERS_BUDGET (MB(1300) / 8 * 7)

struct storm {
	struct gpuwmd *d;
	struct engine engines[ENGINES];
	unsigned seed, step, woken;
};

/* If one rank is told, the others are. */
static void storm_hear(struct storm *s)
{
	for (struct engine *e = s->engines; e < s->engines + ENGINES; e++) {
		if (e->awake || e->asked < RANKS || !(has_answer(&e->ranks[0]) || has_answer(&e->ranks[1])))
			continue;
		for (unsigned i = 0; i < RANKS; i++)
			cr_assert_eq(told(&e->ranks[i]), 0, "step %u: %s", s->step, raw_refusal());
		e->awake = true;
		s->woken++;
	}
}

static void storm_check(const struct storm *s)
{
	uint64_t rooms = 0;

	for (const struct engine *e = s->engines; e < s->engines + ENGINES; e++) {
		rooms += e->awake ? e->room : 0;
		cr_assert(e->asked == RANKS || !(has_answer(&e->ranks[0]) || has_answer(&e->ranks[1])),
			  "step %u: a rank was told before all had asked", s->step);
	}
	cr_assert_leq(rooms, USERS_BUDGET, "step %u", s->step);
}

static void engine_ask(struct storm *s, struct engine *e)
{
	if (e->asked == 0) {
		e->first = (unsigned)rand_r(&s->seed) % RANKS;
		e->room = MB(10) * (1 + (unsigned)rand_r(&s->seed) % 80);
	}
	asks(&e->ranks[(e->first + e->asked) % RANKS], e->name, RANKS, e->room, 600000);
	e->asked++;
}

static void engine_park(struct engine *e)
{
	for (unsigned i = 0; i < RANKS; i++)
		park(&e->ranks[i]);
	e->awake = false;
	e->asked = 0;
}

static void storm_step(struct storm *s)
{
	struct engine *e = &s->engines[(unsigned)rand_r(&s->seed) % ENGINES];
	const unsigned choice = (unsigned)rand_r(&s->seed) % 16;

	if (choice == 0) {
		engine_end(e);
		*e = engine_start(s->d, e->name);
	} else if (e->awake && choice < 8) {
		engine_park(e);
	} else if (!e->awake && e->asked < RANKS) {
		engine_ask(s, e);
	}
}

static unsigned storm_waiting(const struct storm *s)
{
	unsigned waiting = 0;

	for (const struct engine *e = s->engines; e < s->engines + ENGINES; e++)
		waiting += e->asked > 0 && !e->awake;
	return waiting;
}

/* Each engine is awake at last, if those that are awake park. */
static void storm_drain(struct storm *s)
{
	for (struct engine *e = s->engines; e < s->engines + ENGINES; e++) {
		while (e->asked > 0 && e->asked < RANKS)
			engine_ask(s, e);
	}
	while (storm_waiting(s) > 0) {
		const unsigned before = s->woken;

		for (struct engine *e = s->engines; e < s->engines + ENGINES; e++) {
			if (e->awake)
				engine_park(e);
		}
		cr_assert(EVENTUALLY(SOON_MS, (storm_hear(s), s->woken > before || storm_waiting(s) == 0)),
			  "step %u: %u engines wait, and nobody is awake", s->step, storm_waiting(s));
	}
}

GROUP_TEST(no_engine_starves_in_a_storm)
{
	static struct storm s;

	s.d = d;
	s.seed = (unsigned)number_wanted("GPUWM_STORM_SEED", (uint64_t)clock_ms());
	printf("parking_groups: GPUWM_STORM_SEED=%u\n", s.seed);
	for (unsigned i = 0; i < ENGINES; i++)
		s.engines[i] = engine_start(d, (const char[]){(char)('a' + i), '\0'});
	for (s.step = 1; s.step <= STEPS; s.step++) {
		storm_step(&s);
		storm_hear(&s);
		storm_check(&s);
		if (s.step % STEPS_BETWEEN_DRAINS == 0)
			storm_drain(&s);
	}
	printf("parking_groups: %u times an engine woke\n", s.woken);
	cr_assert_gt(s.woken, STEPS / 100);
	for (unsigned i = 0; i < ENGINES; i++)
		engine_end(&s.engines[i]);
}
