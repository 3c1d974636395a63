/* The whole protocol of blocks and their index, in all orders of its atomic operations. Any process dies at any moment, and another one
 * gets its slot. */
#include "tests/support/proto/block_model.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(block_model, .timeout = 300);

/* ---- what is wrong ------------------------------------------------------------- */

static const char *owning_wrong(const struct model *m, unsigned process)
{
	const struct process *p = &m->processes[process];
	const uint64_t word = p->mine ? m->words[p->mine - 1] : 0;

	if (!p->mine)
		return NULL;
	if (block_word_state(word) != BLOCK_OWNED || block_word_writer(word) != process ||
	    block_word_generation(word) != p->mine_generation || block_word_holders(word))
		return "a process owns a block that is not its own by the word";
	return NULL;
}

static const char *holding_wrong(const struct model *m, unsigned process)
{
	const struct process *p = &m->processes[process];
	const unsigned block = p->number - 1u;

	if (p->place != HOLDING)
		return NULL;
	if (block_word_state(m->words[block]) != BLOCK_READY ||
	    block_word_generation(m->words[block]) != p->generation ||
	    !(block_word_holders(m->words[block]) >> process & 1))
		return "a block changes while a process holds it";
	if (p->key &&
	    (m->names[block][0] != p->key || m->names[block][1] != p->key || m->bytes[block] != p->key))
		return "a process holds a block of another key";
	return NULL;
}

static bool has_slot(const struct model *m, unsigned block)
{
	bool has = false;

	for (unsigned i = 0; i < block_bounds.slots; i++)
		has |= m->slots[i][0] == block + 1 && m->slots[i][1] == generation_of(m, block);
	return has;
}

static bool may_hold(const struct model *m, unsigned process)
{
	const enum place place = m->processes[process].place;

	return process < block_bounds.processes && (place == HOLDING || place == DEAD);
}

static const char *block_wrong(const struct model *m, unsigned block)
{
	const uint64_t word = m->words[block];

	if (block_word_state(word) > BLOCK_READY)
		return "a block has a state that there is not";
	if (block_word_state(word) != BLOCK_READY && block_word_holders(word))
		return "a block is held that is not READY";
	if (block_word_state(word) == BLOCK_READY &&
	    (!m->bytes[block] || m->names[block][0] != m->bytes[block] ||
	     m->names[block][1] != m->bytes[block]))
		return "a block is READY without the bytes of its key";
	if (block_word_state(word) == BLOCK_READY && !has_slot(m, block))
		return "a block is READY, and nobody can find it";
	for (unsigned i = 0; i < REGION_USERS_MAX; i++) {
		if (block_word_holders(word) >> i & 1 && !may_hold(m, i))
			return "a block is held by a process that does not know it";
	}
	return NULL;
}

/* Nobody is in the middle of anything, nor owns or holds anything. */
static bool is_quiet(const struct model *m)
{
	bool quiet = !m->forgets;

	for (unsigned i = 0; i < block_bounds.processes; i++)
		quiet &= m->processes[i].place == IDLE || m->processes[i].place == GONE;
	return quiet;
}

static const char *wrong(const void *state)
{
	const struct model *m = state;
	const char *what = m->found_wrong ? "a process finds a key whose block has other bytes" : NULL;

	for (unsigned i = 0; !what && i < block_bounds.processes; i++) {
		what = owning_wrong(m, i);
		if (!what)
			what = holding_wrong(m, i);
	}
	for (unsigned i = 0; !what && i < block_bounds.blocks; i++) {
		what = block_wrong(m, i);
		if (!what && is_quiet(m) && !block_word_is_unused(m->words[i]))
			what = "nobody uses a block, and it can't be used for ever";
	}
	return what;
}

static void print(const void *state)
{
	const struct model *m = state;

	fprintf(stderr, "words %09jx %09jx names %u%u %u%u bytes %u %u slots %u:%u %u:%u places",
		(uintmax_t)m->words[0], (uintmax_t)m->words[1], m->names[0][0], m->names[0][1], m->names[1][0],
		m->names[1][1], m->bytes[0], m->bytes[1], m->slots[0][0], m->slots[0][1], m->slots[1][0],
		m->slots[1][1]);
	for (unsigned i = 0; i < block_bounds.processes; i++)
		fprintf(stderr, " %u", m->processes[i].place);
	fprintf(stderr, "\n");
}

/* ---- the searches ----------------------------------------------------------------- */

static void follow(struct search *search, const void *state)
{
	const struct model *m = state;

	for (unsigned i = 0; i < block_bounds.processes; i++) {
		look_steps(search, m, i);
		block_steps(search, m, i);
	}
	block_gpuwmd_steps(search, m);
}

static const char *search_all(const struct block_bounds *all)
{
	struct search search = {
		.state_bytes = sizeof(struct model), .follow = follow, .wrong = wrong, .print = print};
	const char *what;

	block_bounds = *all;
	what = search_run(&search, &(struct model){.deaths = 0});
	cr_log_info("%zu states", search.count);
	search_free(&search);
	return what;
}

#define IS_SOUND(...)                                                                                          \
	do {                                                                                                   \
		const char *what_ = search_all(&(struct block_bounds){__VA_ARGS__});                           \
		cr_expect_null(what_, "%s", what_);                                                            \
	} while (0)

#define FILLS (1u << RESERVE)
#define HOLDS (1u << TO_HOLD)
#define DROPS (1u << TO_DROP)
#define FINDS (1u << FIND)
#define HOLDS_NUMBERS (1u << BY_NUMBER)
#define READS (HOLDS | DROPS | FINDS | HOLDS_NUMBERS)

Test(block_model, two_fill_and_hold)
{
	IS_SOUND(.processes = 2, .blocks = 2, .keys = 2, .slots = 2, .generations = 2,
		 .aims = {FILLS | HOLDS, FILLS | HOLDS});
}

Test(block_model, two_fill_and_die)
{
	IS_SOUND(.processes = 2, .blocks = 2, .keys = 2, .slots = 2, .generations = 2, .deaths = 1,
		 .aims = {FILLS, FILLS});
}

Test(block_model, one_fills_and_one_reads_and_both_die)
{
	IS_SOUND(.processes = 2, .blocks = 2, .keys = 2, .slots = 2, .generations = 2, .deaths = 2,
		 .aims = {FILLS, READS});
}

Test(block_model, a_bucket_that_is_full)
{
	IS_SOUND(.processes = 2, .blocks = 2, .keys = 2, .slots = 1, .generations = 3, .deaths = 2,
		 .aims = {FILLS, READS});
}

Test(block_model, two_fill_a_bucket_that_is_full)
{
	IS_SOUND(.processes = 2, .blocks = 2, .keys = 2, .slots = 1, .generations = 2, .deaths = 1,
		 .aims = {FILLS, FILLS});
}

Test(block_model, one_block_and_many_deaths)
{
	IS_SOUND(.processes = 2, .blocks = 1, .keys = 2, .slots = 1, .generations = 3, .deaths = 3,
		 .aims = {FILLS | HOLDS, FILLS | HOLDS});
}

Test(block_model, two_fill_and_one_holds_and_all_die)
{
	IS_SOUND(.processes = 3, .blocks = 1, .keys = 2, .slots = 1, .generations = 2, .deaths = 3,
		 .aims = {FILLS, FILLS, HOLDS});
}

Test(block_model, one_fills_and_two_hold_and_all_die)
{
	IS_SOUND(.processes = 3, .blocks = 1, .keys = 2, .slots = 1, .generations = 2, .deaths = 3,
		 .aims = {FILLS, HOLDS, HOLDS_NUMBERS | DROPS});
}

Test(block_model, three_processes_and_two_blocks)
{
	IS_SOUND(.processes = 3, .blocks = 2, .keys = 2, .slots = 1, .generations = 1,
		 .aims = {FILLS, FILLS, HOLDS});
}

/* ---- what the searches find ---------------------------------------------------------- */

#define IS_WRONG(how, text)                                                                                    \
	do {                                                                                                   \
		const char *what_ = search_all(&(struct block_bounds){.processes = 2,                          \
								      .blocks = 2,                             \
								      .keys = 2,                               \
								      .slots = 1,                              \
								      .generations = 3,                        \
								      .deaths = 1,                             \
								      .breakage = (how),                       \
								      .aims = {FILLS, READS}});                \
		cr_assert(what_ &&strcmp(what_, (text)) == 0, "%s", what_);                                    \
	} while (0)

Test(block_model, a_slot_that_comes_before_the_name_is_found)
{
	IS_WRONG(PUTS_BEFORE_NAME, "a process finds a key whose block has other bytes");
}

Test(block_model, bytes_that_come_after_the_publish_are_found)
{
	IS_WRONG(PUBLISHES_UNFILLED, "a block is READY without the bytes of its key");
}

Test(block_model, a_hold_of_another_use_is_found)
{
	IS_WRONG(HOLDS_ANY_USE, "a block changes while a process holds it");
}

Test(block_model, a_slot_that_is_taken_from_a_block_is_found)
{
	IS_WRONG(TAKES_SLOTS_ALIVE, "a block is READY, and nobody can find it");
}

Test(block_model, a_dead_process_that_nobody_forgets_is_found)
{
	IS_WRONG(FORGETS_NOTHING, "nobody uses a block, and it can't be used for ever");
}
