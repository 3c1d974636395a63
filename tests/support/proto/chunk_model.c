#include "chunk_model.h"

#include <criterion/criterion.h>

struct bounds bounds;

uint64_t real(unsigned generation)
{
	return generation * bounds.stride;
}

uint8_t larger(uint8_t a, uint8_t b)
{
	return a > b ? a : b;
}

uint32_t bits(uint64_t word, enum chunk_state state)
{
	return chunk_word_users(word, state);
}

void go(struct search *search, struct model m, unsigned slot, enum place place, const char *step)
{
	struct process *p = &m.processes[slot];

	p->place = (uint8_t)place;
	if (place == IDLE)
		p->generation = p->mask = 0;
	search_reach(search, &m, step);
}

/* ---- the writer ---------------------------------------------------------- */

static void offer(struct search *search, const struct model *m, unsigned named, unsigned open)
{
	struct model next = *m;

	if (named & ~m->here || (named == 0 && open == 0))
		return;
	next.processes[WRITER].mask = (uint8_t)(named | open << 4);
	if (bounds.has_streams) {
		next.processes[WRITER].queued = m->generation;
		go(search, next, WRITER, OFFERING, "writer: queues its writes");
	}
	next.processes[WRITER].queued = 0;
	next.written = m->generation;
	go(search, next, WRITER, OFFERING, "writer: has written");
}

static void writer_idle(struct search *search, const struct model *m)
{
	struct model next = *m;
	const uint32_t users =
		bits(m->word, CHUNK_WAITING) | bits(m->word, CHUNK_HOLDING) | bits(m->word, CHUNK_DONE);

	if (m->generation < bounds.generations && chunk_word_open(m->word) == 0 &&
	    !bits(m->word, CHUNK_WAITING)) {
		next.processes[WRITER].mask = (uint8_t)bits(m->word, CHUNK_HOLDING);
		go(search, next, WRITER, REUSE, "writer: sees a word");
	}
	if (m->known == 0 || m->known != m->generation)
		return;
	next = *m;
	for (unsigned i = READERS; bounds.has_streams && i < PROCESSES; i++)
		next.awaited[i] = users >> i & 1 ? m->generation : m->awaited[i];
	go(search, next, WRITER, IDLE, "writer: its stream waits for readers");
	next = *m;
	next.word = chunk_word_withdrawn(m->word);
	next.processes[WRITER].mask = (uint8_t)bits(m->word, CHUNK_WAITING);
	go(search, next, WRITER, WITHDRAWN, "writer: withdraws");
}

static void writer_reuses(struct search *search, const struct model *m)
{
	const uint32_t holders = m->processes[WRITER].mask;
	bool is_held = m->written < m->generation;

	for (unsigned i = 0; i < PROCESSES; i++)
		is_held |= holders >> i & 1 && m->finished[i] < m->generation;
	go(search, *m, WRITER, is_held ? IDLE : ALLOCATE, "writer: looks at finished words");
}

static void writer_checks(struct search *search, struct model m)
{
	for (unsigned i = 0; i < PROCESSES; i++) {
		if (chunk_word_state(m.word, i) == CHUNK_WAITING && !(m.processes[WRITER].mask >> i & 1))
			m.word &= chunk_word_forget(i);
	}
	m.known = m.generation;
	go(search, m, WRITER, IDLE, "writer: forgets who is absent");
}

static void writer_fills(struct search *search, const struct model *m)
{
	struct model next = *m;

	for (unsigned named = 0; named < 1u << PROCESSES; named += 2) {
		for (unsigned open = 0; open <= 2; open++)
			offer(search, m, named, open);
	}
	next.written = m->generation;
	go(search, next, WRITER, DISCARDING, "writer: discards");
}

/* From an entry that is free to a chunk that is filled, or given back. */
static void writer_allocates(struct search *search, const struct model *m)
{
	struct model next = *m;

	switch (m->processes[WRITER].place) {
	case ALLOCATE:
		next.word = chunk_word_filling(real(m->generation + 1u), WRITER);
		next.processes[WRITER].mask = 0;
		go(search, next, WRITER, FILLING_SOON, "writer: allocates");
		break;
	case FILLING_SOON:
		next.generation++;
		go(search, next, WRITER, FILLING, "writer: next generation");
		break;
	case FILLING:
		writer_fills(search, m);
		break;
	case DISCARDING:
		cr_assert_eq(chunk_word_finish(m->word, WRITER, real(m->generation), &next.word), 0);
		go(search, next, WRITER, IDLE, "writer: has discarded");
		break;
	}
}

static void writer_withdraws(struct search *search, struct model m)
{
	for (unsigned i = 0; i < PROCESSES; i++) {
		if (m.processes[WRITER].mask >> i & 1)
			m.finished[i] = larger(m.finished[i], m.generation);
	}
	go(search, m, WRITER, IDLE, "writer: raises who was awaited");
}

void writer_steps(struct search *search, const struct model *m)
{
	const uint8_t mask = m->processes[WRITER].mask;
	struct model next = *m;

	switch (m->processes[WRITER].place) {
	case IDLE:
		writer_idle(search, m);
		break;
	case REUSE:
		writer_reuses(search, m);
		break;
	case OFFERING:
		next.word = chunk_word_offered(m->word, WRITER, mask & 7, mask >> 4);
		go(search, next, WRITER, OFFERED, "writer: offers");
		break;
	case OFFERED:
		next.processes[WRITER].mask = m->here;
		go(search, next, WRITER, CHECKING, "writer: looks who is here");
		break;
	case CHECKING:
		writer_checks(search, *m);
		break;
	case WITHDRAWN:
		writer_withdraws(search, *m);
		break;
	default:
		writer_allocates(search, m);
	}
}

/* ---- a reader ------------------------------------------------------------ */

static void reader_takes(struct search *search, const struct model *m, unsigned slot)
{
	struct model next = *m;
	int r = chunk_word_take(m->word, slot, real(m->processes[slot].generation), &next.word);

	if (r == 0)
		go(search, next, slot, TAKEN, "reader: takes");
	else
		go(search, *m, slot, IDLE, "reader: is refused");
}

static void reader_finishes(struct search *search, const struct model *m, unsigned slot, const char *step)
{
	struct model next = *m;
	uint64_t word;

	if (chunk_word_finish(m->word, slot, real(m->processes[slot].generation), &word) == 0)
		next.word = word;
	go(search, next, slot, FINISHED, step);
}

static void reader_holds(struct search *search, const struct model *m, unsigned slot)
{
	struct model next = *m;

	reader_finishes(search, m, slot, "reader: finishes");
	if (!bounds.has_streams)
		return;
	next.processes[slot].queued = m->processes[slot].generation;
	go(search, next, slot, IDLE, "reader: finishes in its stream");
}

static void reader_begins(struct search *search, const struct model *m, unsigned slot)
{
	struct model next = *m;

	/* With the tokens of all generations; those that are not the entry's are refused at once. */
	if (m->generation == 0 || m->known < m->generation)
		return;
	next.processes[slot].generation = m->generation;
	go(search, next, slot, TAKING, "reader: has a token");
}

void reader_steps(struct search *search, const struct model *m, unsigned slot)
{
	const uint8_t generation = m->processes[slot].generation;
	struct model next = *m;

	switch (m->processes[slot].place) {
	case IDLE:
		reader_begins(search, m, slot);
		break;
	case TAKING:
		reader_takes(search, m, slot);
		break;
	case TAKEN:
		next.processes[slot].generation = m->generation;
		go(search, next, slot, m->generation == generation ? CURRENT : OTHER,
		   "reader: looks at the generation");
		break;
	case CURRENT:
		if (m->ended)
			reader_finishes(search, m, slot, "reader: finds it ended");
		else
			go(search, *m, slot, HOLDING, "reader: finds it open");
		break;
	case OTHER:
		reader_finishes(search, m, slot, "reader: finishes with another one");
		break;
	case HOLDING:
		reader_holds(search, m, slot);
		break;
	case FINISHED:
		next.finished[slot] = larger(m->finished[slot], generation);
		go(search, next, slot, IDLE, "reader: raises its word");
		break;
	}
}
