/* 1,000 random kills: `make storm`; fewer in `make check`. GPUWM_STORM_KILLS says how many.
 * GPUWM_STORM_SEED repeats a storm: the same kills after the same delays, the same throws for what is asked. */
#include "registry_storm.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

STORM_SUITE(storm);

#define KILLS_DEFAULT (SANITIZED ? 15 : 50)
#define TURN_MS 2
#define CHANGE_US 400 /* about twice what one takes */
#define ANSWER_MS 5
#define STORE_MS 60 /* more than a load takes */

/* ---- between kills ---------------------------------------------------- */

/* Whether to ask for a list. It tells what answers did not: the ids of new versions, and how the calls ended whose answers were
 * lost. */
static bool wants_list(const struct admin *o)
{
	return o->state == OP_DOUBTED || (o->state == OP_NONE && o->op.kind <= OP_PUBLISH);
}

static void hear_all(struct registry_storm *s, const struct pollfd *fds)
{
	bool list = false;

	for (int i = 0; i < MODELS; i++) {
		if (!fds[i].revents)
			continue;
		admin_hear(&s->admins[i]);
		list |= wants_list(&s->admins[i]);
	}
	for (int i = 0; i <= WORKERS; i++) {
		if (fds[MODELS + i].revents)
			hand_hear(s, &s->hands[i]);
	}
	if (list)
		check_registry(s);
}

static void turn(struct registry_storm *s)
{
	struct pollfd fds[MODELS + WORKERS + 1];

	for (int i = 0; i < MODELS; i++)
		fds[i] = (struct pollfd){.fd = admin_fd(&s->admins[i]), .events = POLLIN};
	for (int i = 0; i <= WORKERS; i++)
		fds[MODELS + i] = (struct pollfd){.fd = s->hands[i].process.from, .events = POLLIN};
	if (poll(fds, MODELS + WORKERS + 1, TURN_MS) > 0)
		hear_all(s, fds);
}

/* at: the moment when those who rested until then go on. */
static void ask_all(struct registry_storm *s, int64_t at_us)
{
	for (int i = 0; i < MODELS; i++) {
		if (s->admins[i].state == OP_NONE && s->admins[i].rests_until_us <= at_us)
			admin_begin(&s->admins[i]);
	}
}

static void work_until(struct registry_storm *s, int64_t until_us)
{
	while (clock_us() < until_us) {
		ask_all(s, clock_us());
		hands_turn(s);
		turn(s);
	}
}

static void spin(int64_t us)
{
	int64_t until = clock_us() + us;

	while (clock_us() < until)
		; /* a sleep takes longer */
}

/* Until somebody has an answer. */
static void wait_for_answer(const struct registry_storm *s)
{
	struct pollfd fds[MODELS];

	for (int i = 0; i < MODELS; i++)
		fds[i] = (struct pollfd){.fd = admin_fd(&s->admins[i]), .events = POLLIN};
	poll(fds, MODELS, ANSWER_MS);
}

/* Until the keeper has more descriptors, or fewer: the state was not written yet, or just was. */
static void wait_for_store(struct registry_storm *s)
{
	int64_t deadline = clock_ms() + STORE_MS;
	size_t before = fds_of(s->storm.d->keeper);

	for (int i = 0; i < MODELS; i++) {
		struct admin *a = &s->admins[i];
		struct op op;

		if (a->state != OP_NONE)
			continue;
		op = op_throw_new(&a->dice, &a->model, a->number);
		admin_ask(a, &op);
	}
	while (fds_of(s->storm.d->keeper) == before && clock_ms() < deadline)
		;
}

/* Every operator has just asked for something: the kill comes while the store changes, anywhere in the time
 * that a change takes, or in the moment of an answer. */
static void come_close(struct registry_storm *s)
{
	uint64_t throw = dice_throw(&s->storm.dice, 100);
	int64_t us = (int64_t)dice_throw(&s->storm.dice, CHANGE_US);

	if (throw < 35)
		wait_for_store(s);
	ask_all(s, INT64_MAX);
	if (throw >= 65)
		wait_for_answer(s);
	else
		spin(us);
}

static void wait_for_admins(struct registry_storm *s)
{
	for (int i = 0; i < MODELS; i++) {
		while (s->admins[i].state != OP_NONE)
			turn(s);
	}
}

/* ---- kills ------------------------------------------------------------ */

/* From the moment when the last gpuwmd was ready: mostly amid the first requests, now and then after the
 * grace time. */
static int64_t throw_delay_us(struct registry_storm *s)
{
	uint64_t throw = dice_throw(&s->storm.dice, 100);

	if (throw < 25)
		return (int64_t)dice_throw(&s->storm.dice, 5000);
	if (throw < 60)
		return (int64_t)dice_throw(&s->storm.dice, 100000);
	if (throw < 87)
		return (int64_t)dice_throw(&s->storm.dice, 250000);
	return (int64_t)(GRACE_STORM_MS + 200 + dice_throw(&s->storm.dice, 300)) * 1000;
}

static void wait_for_start(struct registry_storm *s)
{
	cr_assert(EVENTUALLY(STORM_SETTLE_MS, (keeper_log_read(&s->log), s->log.starts >= s->starts)),
		  "the keeper starts no gpuwmd");
}

/* The next one too, wherever it is between exec and its first requests; again and again. */
static unsigned kill_in_adoption(struct registry_storm *s)
{
	unsigned starts = 1;

	while (dice_percent(&s->storm.dice, 15)) {
		const uint64_t delay_us = dice_throw(&s->storm.dice, 15000);

		wait_for_start(s);
		pause_us(delay_us);
		cr_assert(kill(s->log.pid, SIGKILL) == 0);
		s->starts++;
		s->in_adoption++;
		starts++;
	}
	return starts;
}

static void measure(struct registry_storm *s, int64_t killed_us)
{
	const struct registry_version *version = sure_version(s);
	struct moments *m = &s->moments[s->measured];

	*m = (struct moments){.killed_us = killed_us};
	registry_watch(s->storm.d, &s->log, version ? version->id : "", m);
	s->measured += m->attached_us > 0;
}

/* Who dies how; then another serves. */
static void strike(struct registry_storm *s)
{
	uint64_t throw = dice_throw(&s->storm.dice, 100);
	int64_t killed_ms = clock_ms(), killed_us;
	unsigned starts = 1;
	pid_t victim = throw < 92 ? s->storm.d->pid : s->storm.d->keeper;

	keeper_log_read(&s->log);
	killed_us = clock_us();
	cr_assert(kill(victim, throw < 84 ? SIGKILL : throw < 92 ? SIGTERM : SIGUSR1) == 0);
	s->starts++;
	s->storm.kills += throw < 84;
	s->storm.stops += throw >= 84 && throw < 92;
	s->upgrades += throw >= 92;
	s->freed_before = clock_ms() >= s->grace_until;
	if (throw < 84)
		starts = kill_in_adoption(s);
	if (throw < 84 && starts == 1)
		measure(s, killed_us);
	else
		wait_for_start(s);
	for (int i = 0; i < MODELS; i++)
		admin_drain(&s->admins[i]);
	kept_wait(s->storm.d);
	for (int i = 0; i < MODELS; i++)
		admin_connect(&s->admins[i]);
	s->grace_until = killed_ms + GRACE_STORM_MS;
	check_restart(s, starts, killed_ms);
}

/* ---- the end ---------------------------------------------------------- */

static void ask_and_wait(struct registry_storm *s, struct admin *o, struct op op)
{
	op.model = o->number;
	admin_ask(o, &op);
	while (o->state != OP_NONE)
		turn(s);
}

static void clear_model(struct registry_storm *s, struct admin *o)
{
	for (int i = 0; i < REGISTRY_ALIASES; i++) {
		if (i != REGISTRY_PREVIOUS && o->model.aliases[i].tag >= 0)
			ask_and_wait(s, o, (struct op){.kind = OP_REMOVE, .alias = i});
	}
	for (unsigned i = 0; i < TAGS; i++) {
		for (unsigned pin = 0; pin < PINS; pin++) {
			if (o->model.versions[i].pins & 1u << pin)
				ask_and_wait(s, o,
					     (struct op){.kind = OP_UNPIN, .tag = i, .pin = pin, .alias = -1});
		}
		if (o->model.versions[i].state == REGISTRY_READY)
			ask_and_wait(s, o, (struct op){.kind = OP_RETIRE, .tag = i, .alias = -1});
	}
}

static void finish(struct registry_storm *s)
{
	wait_for_admins(s);
	hands_let_go(s);
	check_registry(s);
	for (int i = 0; i < MODELS * TAGS; i++) {
		const struct registry_version *version = &s->admins[i / TAGS].model.versions[i % TAGS];

		if (version->state == REGISTRY_READY)
			check_bytes(s, version);
	}
	for (int i = 0; i < MODELS; i++)
		clear_model(s, &s->admins[i]);
	check_freed(s);
	cr_assert_eq(status_of(s->storm.d, "versions"), 0);
	cr_assert(EVENTUALLY(STORM_SETTLE_MS, kept_memory(s->storm.d) == 0), "%ju bytes are left over",
		  kept_memory(s->storm.d));
	cr_assert(EVENTUALLY(STORM_SETTLE_MS, storm_loaders() == 1), "%u loaders are left over",
		  storm_loaders() - 1);
	hands_stop(s);
	for (int i = 0; i < MODELS; i++)
		admin_stop(&s->admins[i]);
}

/* ---- what it was like ------------------------------------------------- */

static int compare_times(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

static void tell_time(const struct registry_storm *s, const char *what, size_t from, size_t to)
{
	int64_t *times = calloc(s->measured + 1, sizeof *times);

	for (unsigned i = 0; i < s->measured; i++) {
		const char *m = (const char *)&s->moments[i];

		times[i] = *(const int64_t *)(m + to) - *(const int64_t *)(m + from);
	}
	qsort(times, s->measured, sizeof *times, compare_times);
	fprintf(stderr, "  %-38s p50 %6.1f ms, max %6.1f ms\n", what, (double)times[s->measured / 2] / 1000,
		(double)times[s->measured ? s->measured - 1 : 0] / 1000);
	free(times);
}

static void tell_times(const struct registry_storm *s)
{
#define MOMENT(name) offsetof(struct moments, name)
	fprintf(stderr, "  %u kills with an attach that waited:\n", s->measured);
	tell_time(s, "kill to the keeper's next exec", MOMENT(killed_us), MOMENT(started_us));
	tell_time(s, "exec to ready", MOMENT(started_us), MOMENT(ready_us));
	tell_time(s, "ready to the first attach", MOMENT(ready_us), MOMENT(attached_us));
	tell_time(s, "kill to the first attach", MOMENT(killed_us), MOMENT(attached_us));
}

static void tell_all(const struct registry_storm *s)
{
	uint64_t reads = 0;

	for (int i = 0; i <= WORKERS; i++)
		reads += s->hands[i].reads;
	fprintf(stderr, "storm: %u kills, %u more in adoption, %u stops, %u upgrades; %zu versions\n",
		s->storm.kills, s->in_adoption, s->storm.stops, s->upgrades, s->known_count);
	fprintf(stderr,
		"  workers: %u attaches (%u refused), %ju tensors read and right; leases back in %jd ms; %u verifies\n",
		s->attaches, s->refusals, reads, (intmax_t)s->leases_back_ms, s->verified);
	for (int kind = 0; kind < OP_KINDS; kind++) {
		unsigned done = 0, refused = 0, there = 0, absent = 0;

		for (int i = 0; i < MODELS; i++) {
			done += s->admins[i].counts[kind].done;
			refused += s->admins[i].counts[kind].refused;
			there += s->admins[i].counts[kind].there;
			absent += s->admins[i].counts[kind].absent;
		}
		fprintf(stderr, "  %-8s %6u done, %5u refused; in doubt: %4u there, %4u not\n", op_names[kind],
			done, refused, there, absent);
	}
	if (s->measured)
		tell_times(s);
}

/* ---- the storm -------------------------------------------------------- */

/* What is current is read again meanwhile, whatever happens to it, its loader or gpuwmd. */
static void verify_all(struct registry_storm *s)
{
	uint64_t jobs[GPUWM_VERIFY_JOBS_MAX];
	char model[16];
	size_t count;

	for (unsigned i = 0; i < MODELS; i++) {
		int r;

		snprintf(model, sizeof model, "m%u", i);
		r = gpuwm_verify(s->storm.d->admin, model, NULL, jobs, &count);
		cr_assert(r == 0 || r == -ENOENT, "%s: %s", model, gpuwm_error()->message);
		s->verified += r == 0;
	}
}

static struct registry_storm *begin(void)
{
	struct registry_storm *s = calloc(1, sizeof *s);
	char limits[64];

	storm_begin(&s->storm, "storm", "GPUWM_STORM_KILLS", KILLS_DEFAULT);
	s->storm.dice.state = s->storm.seed * 1000 + 100;
	s->guide.state = s->storm.seed * 1000 + 200;
	s->moments = calloc(s->storm.length + 1, sizeof *s->moments);
	snprintf(limits, sizeof limits, "grace_ms = %d\n", GRACE_STORM_MS);
	s->storm.d = gpuwmd_start_kept(&(struct kept){.limits = limits});
	learn_contents(s);
	hands_start(s);
	for (unsigned i = 0; i < MODELS; i++)
		admin_start(&s->admins[i], s->storm.d, i, s->storm.seed);
	keeper_log_open(&s->log, s->storm.d);
	s->starts = 1;
	s->epoch = status_of(s->storm.d, "epoch");
	snprintf(s->ledger, sizeof s->ledger, "%s", gpuwm_ledger(s->storm.d->admin));
	return s;
}

Test(storm, nothing_is_lost_and_nothing_left_over, .timeout = 3000)
{
	struct registry_storm *s = begin();

	for (uint64_t i = 0; i < s->storm.length; i++) {
		int64_t delay_us = throw_delay_us(s);

		if (delay_us > GRACE_STORM_MS * 1000) {
			work_until(s, s->grace_until * 1000);
			check_freed(s);
			delay_us -= GRACE_STORM_MS * 1000;
		}
		work_until(s, clock_us() + delay_us / 2);
		verify_all(s);
		work_until(s, clock_us() + delay_us / 2);
		come_close(s);
		strike(s);
	}
	finish(s);
	tell_all(s);
	gpuwmd_stop_empty(s->storm.d);
	cr_assert_eq(log_count(s->storm.d, "error: "), 0, "gpuwmd or its keeper logged an error");
	storm_passed();
	free(s->moments);
	free(s->known);
	free(s);
}
