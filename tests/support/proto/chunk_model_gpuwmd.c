/* Streams, deaths, and what gpuwmd does of them. */
#include "chunk_model.h"

void stream_steps(struct search *search, const struct model *m, unsigned slot)
{
	struct model next = *m;

	if (!m->processes[slot].queued)
		return;
	next.processes[slot].queued = 0;
	*(slot == WRITER ? &next.written : &next.finished[slot]) = m->processes[slot].queued;
	search_reach(search, &next, "a stream gets there");
}

void death_steps(struct search *search, const struct model *m, unsigned slot)
{
	struct model next = *m;

	if (m->processes[slot].place == DEAD || m->processes[slot].place == GONE || m->deaths == bounds.deaths)
		return;
	next.deaths++;
	next.processes[slot] = (struct process){.place = DEAD};
	search_reach(search, &next, "a process is killed");
}

static void gpuwmd_begins(struct search *search, const struct model *m)
{
	for (unsigned i = 0; i < PROCESSES; i++) {
		struct model next = *m;

		next.slot = (uint8_t)i;
		if (m->processes[i].place == DEAD) {
			next.duty = LOOK;
			next.here &= (uint8_t) ~(1u << i);
			search_reach(search, &next, "gpuwmd: notices");
		} else if (m->processes[i].place == GONE && bounds.reuses_slots) {
			next.duty = COME_LOOK;
			next.word &= chunk_word_forget(i);
			search_reach(search, &next, "gpuwmd: gives the slot again");
		}
	}
}

static void gpuwmd_rests(struct search *search, struct model m, enum place place, const char *step)
{
	m.processes[m.slot].place = (uint8_t)place;
	m.duty = NOTHING;
	m.slot = m.seen_generation = m.seen_written = m.seen_over = 0;
	search_reach(search, &m, step);
}

static void gpuwmd_lets_go(struct search *search, struct model m)
{
	m.finished[m.slot] = larger(m.finished[m.slot], m.seen_generation);
	for (unsigned i = 0; m.slot == WRITER && i < PROCESSES; i++) {
		if (chunk_word_state(m.word, i) == CHUNK_WAITING && !(m.here >> i & 1))
			m.word &= chunk_word_forget(i);
		if (chunk_word_open(m.word) == 0 && chunk_word_state(m.word, i) == CHUNK_NONE)
			m.finished[i] = larger(m.finished[i], m.generation);
	}
	if (m.slot == WRITER) {
		m.known = m.generation; /* it may have sent the token off before */
		m.ended = bounds.ends;
	}
	gpuwmd_rests(search, m, GONE, "gpuwmd: has let go");
}

static void gpuwmd_loses(struct search *search, struct model m)
{
	m.duty = FORGET;
	if (m.slot == WRITER && m.seen_written < m.seen_generation) {
		m.lost = m.seen_generation;
		m.written = m.written == m.seen_written ? m.seen_generation : m.written;
	}
	search_reach(search, &m, "gpuwmd: loses what was not written");
}

static void gpuwmd_forgets(struct search *search, struct model m)
{
	m.duty = RAISE;
	m.word &= chunk_word_forget(m.slot);
	search_reach(search, &m, "gpuwmd: forgets the state");
}

static void gpuwmd_lets_in(struct search *search, struct model m)
{
	m.finished[m.slot] = (uint8_t)(m.seen_generation - (!m.seen_over && m.seen_generation > 0));
	m.here |= (uint8_t)(1u << m.slot);
	gpuwmd_rests(search, m, IDLE, "gpuwmd: another process comes");
}

void gpuwmd_steps(struct search *search, const struct model *m)
{
	struct model next = *m;

	next.duty = (uint8_t)(m->duty + 1);
	switch (m->duty) {
	case NOTHING:
		gpuwmd_begins(search, m);
		break;
	case LOOK:
		next.seen_written = m->written;
		next.seen_generation = m->generation;
		search_reach(search, &next, "gpuwmd: looks what was written");
		break;
	case LOSE:
		gpuwmd_loses(search, *m);
		break;
	case FORGET:
		gpuwmd_forgets(search, *m);
		break;
	case RAISE:
	case COME_LOOK:
		next.seen_generation = m->generation;
		search_reach(search, &next, "gpuwmd: looks at the generation");
		break;
	case LET_GO:
		gpuwmd_lets_go(search, *m);
		break;
	case COME_RESET:
		next.seen_over =
			chunk_word_is_free(m->word) && chunk_word_is_of(m->word, real(m->seen_generation));
		search_reach(search, &next, "gpuwmd: looks whether the chunk is free");
		break;
	case COME_IN:
		gpuwmd_lets_in(search, *m);
		break;
	}
}
