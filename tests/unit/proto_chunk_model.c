/* The whole protocol of one chunk's entry, in all orders of its atomic operations. Any of the processes dies at any moment, and another
 * one gets its slot. */
#include "tests/support/proto/chunk_model.h"

#include <criterion/criterion.h>
#include <stdio.h>

TestSuite(chunk_model);

/* ---- what is wrong ------------------------------------------------------- */

static bool believes_to_hold(const struct process *reader)
{
	return reader->place == HOLDING;
}

static const char *holding_wrong(const struct model *m, unsigned slot)
{
	const struct process *reader = &m->processes[slot];
	const uint8_t generation = reader->queued ? reader->queued : reader->generation;

	if (!reader->queued && !believes_to_hold(reader))
		return NULL;
	if (m->generation != generation)
		return "an entry is used again while a reader holds it";
	if (chunk_word_state(m->word, slot) != CHUNK_HOLDING)
		return "a reader holds a chunk without its state";
	return NULL;
}

static bool is_free(const struct model *m)
{
	const uint32_t holders = bits(m->word, CHUNK_HOLDING);
	bool is_held = false;

	for (unsigned i = 0; i < PROCESSES; i++)
		is_held |= holders >> i & 1 && m->finished[i] < m->generation;
	return !is_held && !bits(m->word, CHUNK_WAITING) && chunk_word_open(m->word) == 0 &&
	       m->written >= m->generation;
}

/* Nobody is in the middle of anything, nor holds anything. */
static bool is_quiet(const struct model *m)
{
	bool quiet = m->duty == NOTHING;

	for (unsigned i = 0; i < PROCESSES; i++)
		quiet &= (m->processes[i].place == IDLE || m->processes[i].place == GONE) &&
			 !m->processes[i].queued;
	return quiet;
}

static const char *quiet_wrong(const struct model *m)
{
	const uint32_t holders = bits(m->word, CHUNK_HOLDING);

	for (unsigned i = 0; i < PROCESSES; i++) {
		if (holders >> i & 1 && m->finished[i] < m->generation)
			return "a chunk is held by nobody, for ever";
		if (m->awaited[i] > m->finished[i] && (m->awaited[i] < m->generation || is_free(m)) &&
		    !bounds.reuses_slots)
			return "a stream waits for a user that has finished";
	}
	if (bits(m->word, CHUNK_WAITING) & ~m->here)
		return "a chunk waits for a user that has gone";
	if (m->written < m->generation)
		return "bytes are awaited that nobody writes";
	return NULL;
}

static const char *wrong(const void *state)
{
	const struct model *m = state;
	const char *what = NULL;

	for (unsigned i = READERS; !what && i < PROCESSES; i++)
		what = holding_wrong(m, i);
	if (!what && m->processes[WRITER].place == FILLING && bits(m->word, CHUNK_HOLDING) != 1u << WRITER)
		what = "somebody holds a chunk that is being filled";
	if (!what && is_quiet(m))
		what = quiet_wrong(m);
	return what;
}

static void print(const void *state)
{
	const struct model *m = state;

	fprintf(stderr,
		"word %014jx generation %u written %u finished %u %u %u here %x places %u %u %u queued %u %u %u\n",
		(uintmax_t)m->word, m->generation, m->written, m->finished[0], m->finished[1], m->finished[2],
		m->here, m->processes[0].place, m->processes[1].place, m->processes[2].place,
		m->processes[0].queued, m->processes[1].queued, m->processes[2].queued);
}

/* ---- the searches -------------------------------------------------------- */

static void follow(struct search *search, const void *state)
{
	const struct model *m = state;

	writer_steps(search, m);
	for (unsigned i = READERS; i < PROCESSES; i++)
		reader_steps(search, m, i);
	for (unsigned i = 0; i < PROCESSES; i++) {
		stream_steps(search, m, i);
		death_steps(search, m, i);
	}
	gpuwmd_steps(search, m);
}

static void search_all(void)
{
	struct search search = {
		.state_bytes = sizeof(struct model), .follow = follow, .wrong = wrong, .print = print};
	const char *what = search_run(&search, &(struct model){.here = (1u << PROCESSES) - 1});

	cr_log_info("%zu states", search.count);
	cr_expect_null(what, "%s", what);
	search_free(&search);
}

Test(chunk_model, without_deaths)
{
	bounds = (struct bounds){.stride = 1, .generations = 3, .has_streams = true};
	search_all();
}

Test(chunk_model, any_two_processes_die)
{
	bounds = (struct bounds){.stride = 1, .generations = 2, .deaths = 2, .has_streams = true};
	search_all();
}

Test(chunk_model, all_die)
{
	bounds = (struct bounds){.stride = 1, .generations = 2, .deaths = 3};
	search_all();
}

Test(chunk_model, the_region_ends_with_its_owner)
{
	bounds = (struct bounds){.stride = 1, .generations = 2, .deaths = 3, .ends = true};
	search_all();
}

Test(chunk_model, slots_are_given_again)
{
	bounds = (struct bounds){.stride = 1, .generations = 2, .deaths = 2, .reuses_slots = true};
	search_all();
}

Test(chunk_model, slots_are_given_again_and_streams_finish)
{
	bounds = (struct bounds){
		.stride = 1, .generations = 2, .deaths = 1, .reuses_slots = true, .has_streams = true};
	search_all();
}

/* The first and the third generation look the same in the word. */
Test(chunk_model, generations_that_look_the_same)
{
	bounds = (struct bounds){.stride = 128, .generations = 3, .deaths = 1};
	search_all();
}
