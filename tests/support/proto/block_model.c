#include "block_model.h"

#include <criterion/criterion.h>

struct block_bounds block_bounds;

uint32_t generation_of(const struct model *m, unsigned block)
{
	return block_word_generation(m->words[block]);
}

/* Whether the slot names a block that is OWNED or READY. */
static bool is_slot_alive(const struct model *m, const uint8_t slot[2])
{
	const unsigned block = slot[0] - 1u;

	return slot[0] && generation_of(m, block) == slot[1] && block_word_state(m->words[block]) != BLOCK_FREE;
}

/* States that differ in what nobody tells apart are one state: what a slot that is void has, and the name and the bytes of a block that
 * is FREE. A slot that is void stays void until it is taken. So a process may find it unchanged here where the real one finds another void
 * slot, and looks again. */
static void reach(struct search *search, struct model m, const char *step)
{
	for (unsigned i = 0; i < block_bounds.blocks; i++) {
		if (block_word_state(m.words[i]) == BLOCK_FREE)
			m.names[i][0] = m.names[i][1] = m.bytes[i] = 0;
	}
	for (unsigned i = 0; i < block_bounds.slots; i++) {
		if (!is_slot_alive(&m, m.slots[i]))
			m.slots[i][0] = m.slots[i][1] = 0;
	}
	for (unsigned i = 0; i < block_bounds.processes; i++) {
		struct process *p = &m.processes[i];

		if (p->is_void || (p->place == TAKE_SLOT &&
				   !is_slot_alive(&m, (uint8_t[]){p->seen_number, p->seen_generation})))
			p->seen_number = p->seen_generation = 0;
	}
	search_reach(search, &m, step);
}

void block_go(struct search *search, struct model m, unsigned process, enum place place, const char *step)
{
	struct process *p = &m.processes[process];

	p->place = (uint8_t)place;
	if (place == IDLE)
		*p = (struct process){.place = IDLE};
	reach(search, m, step);
}

/* Ends what the process does. A block that it owns is given up first. */
static void stop(struct search *search, struct model m, unsigned process, const char *step)
{
	struct process *p = &m.processes[process];

	if (p->mine) {
		cr_assert_eq(block_word_abandon(m.words[p->mine - 1], process, p->mine_generation,
						&m.words[p->mine - 1]),
			     0);
	}
	block_go(search, m, process, IDLE, step);
}

/* ---- looking at the index ------------------------------------------------------- */

static void look_from(struct search *search, struct model m, unsigned process, enum aim aim, const char *step)
{
	struct process *p = &m.processes[process];

	p->aim = (uint8_t)aim;
	p->at = p->number = p->generation = 0;
	p->slot = p->is_void = p->seen_number = p->seen_generation = 0;
	block_go(search, m, process, SEE_SLOT, step);
}

/* The look is over, and has not found the key. */
static void not_found(struct search *search, struct model m, unsigned process)
{
	const struct process *p = &m.processes[process];

	m.processes[process].at = 0;
	switch (p->aim) {
	case RESERVE:
		block_go(search, m, process, p->mine ? WRITE_NAME_A : OWN, "finds no such key");
		break;
	case PUT:
		if (!p->slot)
			stop(search, m, process, "finds no slot that can be taken");
		else
			block_go(search, m, process, p->is_void ? TAKE_SLOT : DROP_VICTIM, "has chosen a slot");
		break;
	default:
		block_go(search, m, process, IDLE, "finds no such key");
	}
}

static void next_slot(struct search *search, struct model m, unsigned process, const char *step)
{
	struct process *p = &m.processes[process];

	p->number = p->generation = 0;
	if (++p->at < block_bounds.slots)
		block_go(search, m, process, SEE_SLOT, step);
	else
		not_found(search, m, process);
}

/* The slot names no block that is OWNED or READY. */
static void slot_is_void(struct search *search, const struct model *m, unsigned process)
{
	struct model next = *m;
	struct process *p = &next.processes[process];

	if (p->aim == PUT && !p->is_void) {
		p->slot = (uint8_t)(p->at + 1);
		p->is_void = 1;
		p->seen_number = p->number;
		p->seen_generation = p->generation;
	}
	next_slot(search, next, process, "finds a slot void");
}

/* The slot names the block of another key. Which of several was wanted longest ago is open. */
static void slot_is_others(struct search *search, const struct model *m, unsigned process)
{
	struct model next = *m;
	struct process *p = &next.processes[process];

	next_slot(search, next, process, "finds another key");
	if (p->aim != PUT || p->is_void)
		return;
	if (!block_word_is_unused(m->words[p->number - 1]) && block_bounds.breakage != TAKES_SLOTS_ALIVE)
		return;
	p->slot = (uint8_t)(p->at + 1);
	p->seen_number = p->number;
	p->seen_generation = p->generation;
	next_slot(search, next, process, "finds a block that may be dropped");
}

static bool is_alive(const struct model *m, const struct process *p)
{
	const uint64_t word = m->words[p->number - 1];

	return block_word_generation(word) == p->generation && block_word_state(word) != BLOCK_FREE;
}

static void found_owned(struct search *search, const struct model *m, unsigned process)
{
	next_slot(search, *m, process, "finds its key, and goes on, since somebody fills it");
	if (m->processes[process].aim == RESERVE)
		stop(search, *m, process, "finds that somebody fills its key");
}

static void found(struct search *search, const struct model *m, unsigned process)
{
	struct model next = *m;
	struct process *p = &next.processes[process];
	const unsigned block = p->number - 1u;

	if (p->aim == PUT) {
		/* It keeps the block for another key. */
		stop(search, *m, process, "finds that its key has a block already");
		p->key = (uint8_t)(p->key % block_bounds.keys + 1);
		look_from(search, next, process, RESERVE, "goes on with the next key and the same block");
		return;
	}
	if (block_word_state(m->words[block]) == BLOCK_OWNED) {
		found_owned(search, m, process);
		return;
	}
	next.found_wrong |= m->bytes[block] != p->key;
	switch (p->aim) {
	case TO_HOLD:
		block_go(search, next, process, HOLD, "finds its key");
		break;
	case TO_DROP:
		block_go(search, next, process, DROP, "finds its key");
		break;
	default:
		stop(search, next, process, "finds its key");
	}
}

static void see_slot(struct search *search, const struct model *m, unsigned process)
{
	struct model next = *m;
	struct process *p = &next.processes[process];

	p->number = m->slots[p->at][0];
	p->generation = m->slots[p->at][1];
	if (p->number)
		block_go(search, next, process, SEE_WORD, "reads a slot");
	else
		slot_is_void(search, &next, process);
}

static void see_name(struct search *search, const struct model *m, unsigned process, unsigned half)
{
	const struct process *p = &m->processes[process];

	if (m->names[p->number - 1][half] != p->key)
		slot_is_others(search, m, process);
	else if (half == 0)
		block_go(search, *m, process, SEE_NAME_B, "reads half a name");
	else
		block_go(search, *m, process, SEE_WORD_AGAIN, "reads the other half");
}

void look_steps(struct search *search, const struct model *m, unsigned process)
{
	const struct process *p = &m->processes[process];

	switch (p->place) {
	case SEE_SLOT:
		see_slot(search, m, process);
		break;
	case SEE_WORD:
		if (is_alive(m, p))
			block_go(search, *m, process, SEE_NAME_A, "reads a word");
		else
			slot_is_void(search, m, process);
		break;
	case SEE_NAME_A:
		see_name(search, m, process, 0);
		break;
	case SEE_NAME_B:
		see_name(search, m, process, 1);
		break;
	case SEE_WORD_AGAIN:
		if (is_alive(m, p))
			found(search, m, process);
		else
			slot_is_others(search, m, process);
		break;
	}
}

/* ---- filling -------------------------------------------------------------------- */

static void own(struct search *search, const struct model *m, unsigned process)
{
	block_go(search, *m, process, IDLE, "finds no room");
	for (unsigned block = 0; block < block_bounds.blocks; block++) {
		struct model next = *m;
		struct process *p = &next.processes[process];

		if (generation_of(m, block) >= block_bounds.generations ||
		    block_word_own(m->words[block], process, &next.words[block]) < 0)
			continue;
		next.bytes[block] = 0;
		p->mine = (uint8_t)(block + 1);
		p->mine_generation = (uint8_t)generation_of(&next, block);
		if (block_bounds.breakage == PUTS_BEFORE_NAME)
			look_from(search, next, process, PUT, "owns a block");
		else
			block_go(search, next, process, WRITE_NAME_A, "owns a block");
	}
}

static void take_slot(struct search *search, const struct model *m, unsigned process)
{
	struct model next = *m;
	struct process *p = &next.processes[process];
	uint8_t *slot = next.slots[p->slot - 1];

	if (slot[0] != p->seen_number || slot[1] != p->seen_generation) {
		look_from(search, next, process, PUT, "finds that another one has taken the slot");
		return;
	}
	slot[0] = p->mine;
	slot[1] = p->mine_generation;
	p->slot = p->is_void = p->seen_number = p->seen_generation = p->aim = 0;
	block_go(search, next, process, block_bounds.breakage == PUTS_BEFORE_NAME ? WRITE_NAME_A : FILL,
		 "takes a slot");
}

static void drop_victim(struct search *search, const struct model *m, unsigned process)
{
	struct model next = *m;
	const struct process *p = &m->processes[process];
	uint64_t *word = &next.words[p->seen_number - 1];

	if (block_bounds.breakage == TAKES_SLOTS_ALIVE || block_word_drop(*word, p->seen_generation, word) == 0)
		block_go(search, next, process, TAKE_SLOT, "drops the block of a slot");
	else
		look_from(search, next, process, PUT, "can't drop it any more");
}

static void publish(struct search *search, const struct model *m, unsigned process)
{
	struct model next = *m;
	const struct process *p = &m->processes[process];
	uint64_t *word = &next.words[p->mine - 1];

	cr_assert_eq(block_word_publish(*word, process, p->mine_generation, word), 0);
	block_go(search, next, process, IDLE, "publishes");
	stop(search, *m, process, "abandons");
}

static void fill_steps(struct search *search, const struct model *m, unsigned process)
{
	struct model next = *m;
	struct process *p = &next.processes[process];
	const unsigned block = p->mine - 1u;

	switch (p->place) {
	case WRITE_NAME_A:
		next.names[block][0] = p->key;
		block_go(search, next, process, WRITE_NAME_B, "writes half a name");
		break;
	case WRITE_NAME_B:
		next.names[block][1] = p->key;
		if (block_bounds.breakage == PUTS_BEFORE_NAME)
			block_go(search, next, process, FILL, "writes the other half");
		else
			look_from(search, next, process, PUT, "writes the other half");
		break;
	case FILL:
		next.bytes[block] = p->key;
		block_go(search, next, process, FILLED, "writes the bytes");
		if (block_bounds.breakage == PUBLISHES_UNFILLED)
			publish(search, m, process);
		break;
	case FILLED:
		publish(search, m, process);
		break;
	}
}

/* ---- holding and dropping ----------------------------------------------------------- */

static void hold(struct search *search, const struct model *m, unsigned process)
{
	struct model next = *m;
	const struct process *p = &m->processes[process];
	uint64_t *word = &next.words[p->number - 1];
	const uint32_t generation =
		block_bounds.breakage == HOLDS_ANY_USE ? generation_of(m, p->number - 1u) : p->generation;

	if (block_word_hold(*word, process, generation, word) == 0)
		block_go(search, next, process, HOLDING, "holds");
	else
		block_go(search, next, process, IDLE, "comes too late to hold");
}

static void release(struct search *search, const struct model *m, unsigned process)
{
	struct model next = *m;
	const struct process *p = &m->processes[process];
	uint64_t *word = &next.words[p->number - 1];

	cr_assert_eq(block_word_release(*word, process, p->generation, word), 0);
	block_go(search, next, process, IDLE, "releases");
}

static void drop(struct search *search, const struct model *m, unsigned process)
{
	struct model next = *m;
	const struct process *p = &m->processes[process];
	uint64_t *word = &next.words[p->number - 1];

	if (block_word_drop(*word, p->generation, word) == 0)
		block_go(search, next, process, IDLE, "drops");
	else
		block_go(search, next, process, IDLE, "can't drop");
}

/* Another process has told it a number and a generation. Those of other generations are refused in one step. */
static void hold_by_number(struct search *search, const struct model *m, unsigned process)
{
	for (unsigned block = 0; block < block_bounds.blocks; block++) {
		struct model next = *m;

		next.processes[process].number = (uint8_t)(block + 1);
		next.processes[process].generation = (uint8_t)generation_of(m, block);
		block_go(search, next, process, HOLD, "is told a block");
	}
}

static void begin(struct search *search, const struct model *m, unsigned process)
{
	static const char *const steps[] = {[RESERVE] = "is to fill a key",
					    [TO_HOLD] = "is to hold a key",
					    [TO_DROP] = "is to drop a key",
					    [FIND] = "is to find a key"};

	for (uint8_t key = 1; key <= block_bounds.keys; key++) {
		struct model next = *m;

		next.processes[process].key = key;
		for (unsigned aim = 0; aim <= FIND; aim++) {
			if (block_bounds.aims[process] >> aim & 1)
				look_from(search, next, process, aim, steps[aim]);
		}
	}
	if (block_bounds.aims[process] >> BY_NUMBER & 1)
		hold_by_number(search, m, process);
}

void block_steps(struct search *search, const struct model *m, unsigned process)
{
	switch (m->processes[process].place) {
	case IDLE:
		begin(search, m, process);
		break;
	case OWN:
		own(search, m, process);
		break;
	case DROP_VICTIM:
		drop_victim(search, m, process);
		break;
	case TAKE_SLOT:
		take_slot(search, m, process);
		break;
	case HOLD:
		hold(search, m, process);
		break;
	case HOLDING:
		release(search, m, process);
		break;
	case DROP:
		drop(search, m, process);
		break;
	default:
		fill_steps(search, m, process);
	}
}

/* ---- deaths ---------------------------------------------------------------------- */

static void die(struct search *search, const struct model *m, unsigned process)
{
	struct model next = *m;

	if (m->processes[process].place == DEAD || m->processes[process].place == GONE ||
	    m->deaths == block_bounds.deaths)
		return;
	next.deaths++;
	next.processes[process] = (struct process){.place = DEAD};
	reach(search, next, "is killed");
}

/* gpuwmd looks through the blocks, one after the other, and others change them meanwhile. */
static void forget(struct search *search, const struct model *m)
{
	const unsigned process = m->forgets - 1u;
	struct model next = *m;

	if (m->forgotten < block_bounds.blocks) {
		if (block_bounds.breakage != FORGETS_NOTHING)
			next.words[m->forgotten] = block_word_forget(m->words[m->forgotten], process);
		next.forgotten++;
		reach(search, next, "gpuwmd: forgets the process in a word");
		return;
	}
	next.processes[process].place = m->comes ? IDLE : GONE;
	next.forgets = next.forgotten = next.comes = 0;
	reach(search, next, "gpuwmd: has looked through all words");
}

void block_gpuwmd_steps(struct search *search, const struct model *m)
{
	for (unsigned i = 0; i < block_bounds.processes; i++) {
		struct model next = *m;

		die(search, m, i);
		if (m->forgets || (m->processes[i].place != DEAD && m->processes[i].place != GONE))
			continue;
		next.forgets = (uint8_t)(i + 1);
		next.comes = m->processes[i].place == GONE;
		reach(search, next, "gpuwmd: notices a death, or gives a slot again");
	}
	if (m->forgets)
		forget(search, m);
}
