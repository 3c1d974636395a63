/* Workers in the storm, as the conductor knows them. */
#include "registry_storm.h"

#include <stdio.h>
#include <string.h>

#define CHECKER(s) (&(s)->hands[WORKERS])
#define STAY_MS 400
#define STAY_LONG_MS 6000
#define REFUSED_PAUSE_MS 5

void hands_start(struct registry_storm *s)
{
	for (int i = 0; i <= WORKERS; i++)
		s->hands[i].process = process_start(registry_worker, s->storm.d->device, NULL);
}

static void hand_attach(struct hand *hand, const char *ref)
{
	struct work work = {.what = WORK_ATTACH};

	snprintf(work.ref, sizeof work.ref, "%s", ref);
	work_send(&hand->process, &work);
	hand->state = HAND_ATTACHING;
}

static void hand_detach(struct hand *hand)
{
	work_send(&hand->process, &(struct work){.what = WORK_DETACH});
	hand->state = HAND_DETACHING;
}

static void hand_attached(struct registry_storm *s, struct hand *hand, const struct work_done *done)
{
	const struct known *known = done->code == 0 ? known_find(s, done->version) : NULL;
	uint64_t stay = dice_percent(&s->guide, 20) ? STAY_LONG_MS : STAY_MS;

	if (done->code < 0) {
		/* Not there, or not ready yet; never that gpuwmd is on its way out. */
		cr_assert(done->code == -ENOENT || done->code == -ETIMEDOUT || done->code == -ECANCELED,
			  "attach: %d: %s", done->code, done->message);
		hand->state = HAND_IDLE;
		s->refusals++;
		return;
	}
	cr_assert(!known || known->seed == done->seed, "%s holds the bytes of %u", done->version, done->seed);
	hand->state = HAND_HOLDING;
	hand->seed = done->seed;
	strcpy(hand->version, done->version);
	hand->until = clock_ms() + (int64_t)dice_throw(&s->guide, stay);
	s->attaches++;
}

void hand_hear(struct registry_storm *s, struct hand *hand)
{
	struct work_done done;

	work_receive(&hand->process, &done);
	hand->reads = done.reads;
	if (done.what == WORK_ATTACH) {
		hand_attached(s, hand, &done);
	} else {
		cr_assert_eq(done.code, 0, "detach: %d: %s", done.code, done.message);
		hand->state = HAND_IDLE;
	}
}

/* A name, an alias, the current one, or an id. */
static void throw_ref(struct registry_storm *s, char ref[REF_TEXT])
{
	unsigned model = (unsigned)dice_throw(&s->guide, MODELS), tag = (unsigned)dice_throw(&s->guide, TAGS);
	const struct registry_version *version = &s->admins[model].model.versions[tag];

	switch (dice_throw(&s->guide, 4)) {
	case 0:
		snprintf(ref, REF_TEXT, "m%u", model);
		return;
	case 1:
		snprintf(ref, REF_TEXT, "m%u@prod", model);
		return;
	case 2:
		if (version->state == REGISTRY_READY && version->id[0]) {
			snprintf(ref, REF_TEXT, "%s", version->id);
			return;
		}
	}
	registry_name(ref, model, tag);
}

void hands_turn(struct registry_storm *s)
{
	char ref[REF_TEXT];

	for (int i = 0; i < WORKERS; i++) {
		struct hand *hand = &s->hands[i];

		if (hand->state == HAND_HOLDING && clock_ms() >= hand->until) {
			hand_detach(hand);
		} else if (hand->state == HAND_IDLE && clock_ms() >= hand->until) {
			throw_ref(s, ref);
			hand->until = clock_ms() + REFUSED_PAUSE_MS;
			hand_attach(hand, ref);
		}
	}
}

static bool under_way(enum hand_state state)
{
	return state == HAND_ATTACHING || state == HAND_DETACHING;
}

void hands_settle(struct registry_storm *s)
{
	for (int i = 0; i <= WORKERS; i++) {
		while (under_way(s->hands[i].state))
			hand_hear(s, &s->hands[i]);
	}
}

void hands_let_go(struct registry_storm *s)
{
	hands_settle(s);
	for (int i = 0; i <= WORKERS; i++) {
		if (s->hands[i].state == HAND_HOLDING)
			hand_detach(&s->hands[i]);
	}
	hands_settle(s);
}

void hands_stop(struct registry_storm *s)
{
	for (int i = 0; i <= WORKERS; i++) {
		work_send(&s->hands[i].process, &(struct work){.what = WORK_QUIT});
		hand_hear(s, &s->hands[i]);
		process_finish(&s->hands[i].process);
	}
}

/* Reads all bytes of a version that is ready, by one who attaches now. */
void check_bytes(struct registry_storm *s, const struct registry_version *version)
{
	struct hand *checker = CHECKER(s);

	hand_attach(checker, version->id);
	hand_hear(s, checker);
	cr_assert_eq(checker->state, HAND_HOLDING, "%s can't be attached to", version->id);
	cr_assert_eq(checker->seed, version->seed, "%s holds the bytes of %u", version->id, checker->seed);
	hand_detach(checker);
	hand_hear(s, checker);
}
