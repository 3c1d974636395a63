/* Ten thousand steps of workers that park, ask for room, die and come back, while budgets change and gpuwmd is killed, beside a model of what each
 * of them has. The room is only said, and never taken. */
#include "kept.h"
#include "tiers.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(parking_storm);

#define WORKERS 10
#define VERSIONS 3
#define STEPS 10000
#define STEPS_BETWEEN_KILLS 1500
#define STEPS_BETWEEN_BUDGETS 400
#define STEPS_BETWEEN_DRAINS 250
#define STEPS_BETWEEN_LOOKS 20

enum state { AWAKE, PARKED, WAITS };

struct worker {
	int sock;
	enum state state;
	struct raw_lease lease;
	unsigned version;
	uint64_t room; /* that gpuwmd counts, awake or parked */
	uint64_t asked; /* while it waits */
	uint64_t paid; /* as much as it ever had */
};

struct storm {
	struct gpuwmd *d;
	struct worker workers[WORKERS];
	uint64_t budget, versions; /* bytes */
	unsigned seed, step;
	unsigned granted, refused, waited, kills;
};

/* ---- what the model knows ------------------------------------------------------- */

static uint64_t rooms_of(const struct storm *s)
{
	uint64_t rooms = 0;

	for (int i = 0; i < WORKERS; i++)
		rooms += s->workers[i].room;
	return rooms;
}

/* Of those that wait, some have been granted less than they kept, and have not heard of it. */
static uint64_t fewest_rooms_of(const struct storm *s)
{
	uint64_t rooms = 0;

	for (int i = 0; i < WORKERS; i++) {
		const struct worker *w = &s->workers[i];

		rooms += w->state == WAITS && w->asked < w->room ? w->asked : w->room;
	}
	return rooms;
}

/* others: what other workers have. */
static bool fits(const struct storm *s, uint64_t others, uint64_t room)
{
	return s->versions + others + room <= s->budget && others + room <= s->budget - s->budget / 8;
}

static bool nobody_else_waits(const struct storm *s, const struct worker *w)
{
	for (int i = 0; i < WORKERS; i++) {
		if (&s->workers[i] != w && s->workers[i].state == WAITS)
			return false;
	}
	return true;
}

/* ---- what workers say ---------------------------------------------------------------- */

/* Returns the code of the answer. */
static int has_answer(struct storm *s, struct worker *w)
{
	static struct raw_reply reply;
	struct fields f;
	int code;

	cr_assert(raw_receive(w->sock, &reply), "step %u", s->step);
	code = reply.message.error.code;
	fields_of(&f, reply.message.body);
	if (code == 0) {
		w->lease.lease = fields_u64(&f, "lease");
		cr_assert_eq(fields_u64_or(&f, "room", 0), w->asked, "step %u", s->step);
		w->room = w->asked;
		w->state = AWAKE;
		s->granted++;
	} else {
		cr_assert(code == -ENOSPC || code == -ETIMEDOUT, "step %u: %s", s->step,
			  reply.message.error.message);
		w->state = PARKED;
		s->refused++;
	}
	raw_reply_clear(&reply);
	return code;
}

/* Those that have been answered meanwhile. */
static void hear(struct storm *s)
{
	for (int i = 0; i < WORKERS; i++) {
		struct worker *w = &s->workers[i];
		char byte;

		if (w->state == WAITS && recv(w->sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0)
			has_answer(s, w);
	}
}

static void begin(struct storm *s, struct worker *w)
{
	static struct raw_reply reply;
	struct fields f;
	char ref[16];

	*w = (struct worker){.sock = raw_client(s->d->socket),
			     .version = (unsigned)rand_r(&s->seed) % VERSIONS + 1};
	snprintf(ref, sizeof(ref), "m@v%u", w->version);
	RAW_SEND(w->sock, 2, "get_handles", TEXT("ref", ref), SIGNED("wait_ms", SOON_MS));
	cr_assert(raw_receive(w->sock, &reply));
	cr_assert_eq(reply.message.error.code, 0, "step %u: %s", s->step, reply.message.error.message);
	fields_of(&f, reply.message.body);
	w->lease.lease = fields_u64(&f, "lease");
	fields_hex128(&f, "version", w->lease.version);
	raw_reply_clear(&reply);
}

static void park(struct storm *s, struct worker *w, uint64_t kept)
{
	cr_assert_eq(RAW_ASK(w->sock, "park", NUMBER("lease", w->lease.lease), NUMBER("room", kept)), 0,
		     "step %u", s->step);
	w->state = PARKED;
	w->room = kept;
}

static void unpark(struct storm *s, struct worker *w, uint64_t room, bool waits)
{
	const bool may = room <= w->room || fits(s, fewest_rooms_of(s) - w->room, room);
	const bool must = (room <= w->room || fits(s, rooms_of(s) - w->room, room)) && nobody_else_waits(s, w);
	const enum state before = w->state;
	int code;

	w->asked = room;
	RAW_SEND(w->sock, 3, "unpark", NUMBER("lease", w->lease.lease), NUMBER("room", room),
		 SIGNED("wait_ms", waits ? 600000 : 0));
	w->state = WAITS;
	if (waits) {
		s->waited++;
		return;
	}
	code = has_answer(s, w);
	cr_assert(code < 0 || may, "step %u: it got %llu bytes that were not there", s->step,
		  (unsigned long long)room);
	cr_assert(code == 0 || !must, "step %u: it did not get %llu bytes that were there", s->step,
		  (unsigned long long)room);
	if (w->state == AWAKE)
		return;
	w->state = before; /* one that asked for other room has what it had */
	if (before == PARKED)
		park(s, w, w->room); /* gives its place up */
	else
		unpark(s, w, w->room, false);
}

/* ---- what is done ---------------------------------------------------------------------- */

/* The counts of gpuwmd are those of the model, once it has told what it granted. */
static void look(struct storm *s)
{
	cr_assert(EVENTUALLY(SOON_MS, (hear(s), device_number(s->d, "rooms") == rooms_of(s))),
		  "step %u: gpuwmd counts %llu bytes, the model %llu", s->step,
		  (unsigned long long)device_number(s->d, "rooms"), (unsigned long long)rooms_of(s));
}

static void die(struct storm *s, struct worker *w)
{
	close(w->sock);
	w->state = PARKED;
	w->room = 0;
	begin(s, w);
	look(s); /* gpuwmd has noticed */
}

static void step(struct storm *s)
{
	struct worker *w = &s->workers[(unsigned)rand_r(&s->seed) % WORKERS];
	const unsigned choice = (unsigned)rand_r(&s->seed) % 16;
	const uint64_t room = MB(10) * ((unsigned)rand_r(&s->seed) % 80);

	if (choice == 0)
		die(s, w);
	else if (w->state == WAITS)
		return;
	else if (choice < 7)
		park(s, w, w->room > 0 ? (uint64_t)rand_r(&s->seed) % (w->room / MB(1) + 1) * MB(1) / 4 : 0);
	else
		unpark(s, w, room, choice < 12 && w->state == PARKED);
	hear(s);
}

/* Everybody that waits is awake at last, if those that are awake park: nobody starves. Those that wait may keep so much that none of them has
 * room: then one of them dies. */
static struct worker *find_waiting(struct storm *s, bool fitting)
{
	for (int i = 0; i < WORKERS; i++) {
		struct worker *w = &s->workers[i];

		if (w->state == WAITS &&
		    (!fitting || w->asked <= w->room || fits(s, rooms_of(s) - w->room, w->asked)))
			return w;
	}
	return NULL;
}

static void drain(struct storm *s)
{
	while (find_waiting(s, false)) {
		const unsigned before = s->granted;

		for (int i = 0; i < WORKERS; i++) {
			if (s->workers[i].state != WAITS)
				park(s, &s->workers[i], 0);
		}
		if (!find_waiting(s, true)) {
			die(s, find_waiting(s, false));
			continue;
		}
		if (EVENTUALLY(SOON_MS, (hear(s), s->granted > before)))
			continue;
		CTL("ps");
		cr_assert_fail("step %u: nobody that waits is awake: %s", s->step, output);
	}
}

static void set_budget(struct storm *s, const char *size, uint64_t bytes)
{
	static char lines[256];

	snprintf(lines, sizeof(lines), LIMITS_SHORT "[budget]\n%s = %s\n",
		 backend() == BACKEND_HOST ? "host" : "*", size);
	kept_configure(s->d, &(const struct kept){.limits = lines});
	s->budget = bytes;
}

/* ---- gpuwmd is killed --------------------------------------------------------------------- */

static void resume(struct storm *s, struct worker *w)
{
	static struct raw_reply reply;
	const msgpack_object *answers;
	struct message_writer m;
	struct fields f, one;
	uint32_t count;

	close(w->sock);
	w->sock = raw_client(s->d->socket);
	raw_request(&m, 2, "resume");
	message_begin_array(&m, "leases");
	message_begin_map(&m, NULL);
	message_put_u64(&m, "lease", w->lease.lease);
	message_put_hex128(&m, "version", w->lease.version);
	message_put_text(&m, "device", s->d->device);
	message_put_u64(&m, "rank", 0);
	message_put_u64(&m, "room", w->room);
	message_put_bool(&m, "parked", w->state != AWAKE);
	message_end(&m);
	message_end(&m);
	raw_send(w->sock, &m);
	cr_assert(raw_receive(w->sock, &reply));
	fields_of(&f, reply.message.body);
	answers = fields_array(&f, "leases", &count);
	cr_assert_eq(count, 1);
	fields_of(&one, &answers[0]);
	w->lease.lease = fields_u64_or(&one, "lease", 0);
	cr_assert_neq(w->lease.lease, 0, "step %u: the lease did not come back", s->step);
	w->state = w->state == AWAKE ? AWAKE : PARKED;
	raw_reply_clear(&reply);
}

static void kill_gpuwmd(struct storm *s)
{
	hear(s);
	kept_kill(s->d, SIGKILL);
	s->kills++;
	/* What was granted, and read by nobody, is not the worker's. */
	for (int i = 0; i < WORKERS; i++)
		resume(s, &s->workers[i]);
}

/* ---- all of it -------------------------------------------------------------------------------- */

static void storm_go(struct storm *s)
{
	const unsigned steps = (unsigned)number_wanted("GPUWM_PARKING_STEPS", STEPS);

	for (s->step = 1; s->step <= steps; s->step++) {
		step(s);
		if (s->step % STEPS_BETWEEN_LOOKS == 0)
			look(s);
		if (s->step % STEPS_BETWEEN_DRAINS == 0)
			drain(s);
		if (s->step % STEPS_BETWEEN_KILLS == 0)
			kill_gpuwmd(s);
		if (s->step % STEPS_BETWEEN_BUDGETS == 0) {
			drain(s);
			if (s->step / STEPS_BETWEEN_BUDGETS % 2)
				set_budget(s, "1200M", MB(1200));
			else
				set_budget(s, "1500M", MB(1500));
			CTL_IS(0, "reload");
		}
	}
}

Test(parking_storm, ten_thousand_steps_are_as_the_model_says, .timeout = 600)
{
	static struct storm s;
	char name[16], ref[16];

	s.seed = (unsigned)number_wanted("GPUWM_STORM_SEED", (uint64_t)clock_ms());
	printf("parking_storm: GPUWM_STORM_SEED=%u\n", s.seed);
	s.d = gpuwmd_start_kept(&(const struct kept){.limits = LIMITS_SHORT});
	set_budget(&s, "1500M", MB(1500));
	CTL_IS(0, "reload");
	for (unsigned v = 1; v <= VERSIONS; v++) {
		snprintf(name, sizeof(name), "v%u", v);
		snprintf(ref, sizeof(ref), "m@v%u", v);
		load_version(s.d, checkpoint_write(s.d, name, SMALL(v)), ref);
		CTL_IS(0, "pin", ref, "storm"); /* it stays, so that the model knows what is there */
	}
	cr_assert(EVENTUALLY(SOON_MS, device_number(s.d, "contexts") == 0));
	s.versions = device_used(s.d);
	for (int i = 0; i < WORKERS; i++)
		begin(&s, &s.workers[i]);
	storm_go(&s);
	printf("parking_storm: %u granted, %u refused, %u waited, %u kills\n", s.granted, s.refused, s.waited,
	       s.kills);
	for (int i = 0; i < WORKERS; i++)
		close(s.workers[i].sock);
	for (unsigned v = 1; v <= VERSIONS; v++) {
		snprintf(ref, sizeof(ref), "m@v%u", v);
		CTL_IS(0, "unpin", ref, "storm");
		DROP(s.d, ref);
	}
	gpuwmd_stop_empty(s.d);
}
