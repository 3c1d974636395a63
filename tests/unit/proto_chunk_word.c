/* The word of a chunk: all words of three users, against a ledger that says in plain structs what the word means. */
#include "proto/chunk_word.h"
#include "tests/support/proto/search.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

TestSuite(chunk_word);

enum { USERS = 3, OPEN = 3, GENERATIONS = 2, WRITER = 0 };
/* The first, one in the middle, the last. */
static const unsigned slots[USERS] = {0, 12, REGION_USERS_MAX - 1};

struct ledger {
	uint64_t word;
	uint32_t generation, open, filling;
	uint32_t states[USERS];
	uint32_t takes[USERS]; /* of this generation, by the process that is in the slot now */
};

static uint32_t mask_of(unsigned users)
{
	uint32_t mask = 0;

	for (unsigned i = 0; i < USERS; i++)
		mask |= (users >> i & 1) << slots[i];
	return mask;
}

static bool is_free(const struct ledger *l)
{
	bool waits = l->open > 0;

	for (unsigned i = 0; i < USERS; i++)
		waits |= l->states[i] == CHUNK_WAITING || l->states[i] == CHUNK_HOLDING;
	return !waits;
}

static const char *wrong(const void *state)
{
	const struct ledger *l = state;
	uint32_t users[4] = {0};

	for (unsigned i = 0; i < USERS; i++) {
		if (chunk_word_state(l->word, slots[i]) != l->states[i])
			return "a user's state is not the ledger's";
		if (l->takes[i] > 1)
			return "a user took the chunk twice";
		users[l->states[i]] |= 1u << slots[i];
	}
	for (unsigned i = CHUNK_WAITING; i <= CHUNK_DONE; i++) {
		if (chunk_word_users(l->word, i) != users[i])
			return "other users than the ledger's have a state";
	}
	if (chunk_word_open(l->word) != l->open)
		return "`open` is not the ledger's";
	if (chunk_word_is_free(l->word) != is_free(l))
		return "the chunk is free by the word only, or by the ledger only";
	for (unsigned g = 0; g <= GENERATIONS + 1; g++) {
		if (chunk_word_is_of(l->word, g) != (g == l->generation))
			return "the word is of another generation";
	}
	return NULL;
}

/* ---- the transitions ---------------------------------------------------- */

static void follow_offers(struct search *search, const struct ledger *l)
{
	for (unsigned named = 0; named < 1u << USERS; named++) {
		for (unsigned open = 0; open <= OPEN; open++) {
			struct ledger next = *l;

			next.word = chunk_word_offered(l->word, slots[WRITER], mask_of(named), open);
			for (unsigned i = 0; i < USERS; i++)
				next.states[i] = named >> i & 1 ? CHUNK_WAITING : CHUNK_NONE;
			next.open = open;
			next.filling = 0;
			search_reach(search, &next, "offer");
		}
	}
}

static int expected_take(const struct ledger *l, unsigned user, uint32_t generation)
{
	if (generation != l->generation)
		return -ESTALE;
	if (l->states[user] == CHUNK_HOLDING || l->states[user] == CHUNK_DONE)
		return -EALREADY;
	return l->states[user] == CHUNK_NONE && l->open == 0 ? -ESTALE : 0;
}

static void follow_take(struct search *search, const struct ledger *l, unsigned user, uint32_t generation)
{
	struct ledger next = *l;
	int r = chunk_word_take(l->word, slots[user], generation, &next.word);

	cr_assert_eq(r, expected_take(l, user, generation));
	if (r < 0)
		return;
	next.open -= l->states[user] == CHUNK_NONE;
	next.states[user] = CHUNK_HOLDING;
	next.takes[user]++;
	search_reach(search, &next, "take");
}

static void follow_finish(struct search *search, const struct ledger *l, unsigned user, uint32_t generation)
{
	const bool holds = l->states[user] == CHUNK_HOLDING && generation == l->generation;
	struct ledger next = *l;

	cr_assert_eq(chunk_word_finish(l->word, slots[user], generation, &next.word), holds ? 0 : -EALREADY);
	if (!holds)
		return;
	next.states[user] = CHUNK_DONE;
	next.filling = 0;
	search_reach(search, &next, "finish");
}

static void follow_user(struct search *search, const struct ledger *l, unsigned user)
{
	struct ledger dead = *l;

	for (uint32_t g = 0; g <= GENERATIONS; g++) {
		follow_take(search, l, user, g);
		follow_finish(search, l, user, g);
	}
	dead.word &= chunk_word_forget(slots[user]);
	dead.states[user] = CHUNK_NONE;
	dead.takes[user] = 0;
	dead.filling &= user != WRITER;
	search_reach(search, &dead, "forget");
}

static void follow_withdraw(struct search *search, const struct ledger *l)
{
	struct ledger next = *l;

	next.word = chunk_word_withdrawn(l->word);
	for (unsigned i = 0; i < USERS; i++) {
		if (l->states[i] == CHUNK_WAITING)
			next.states[i] = CHUNK_NONE;
	}
	next.open = 0;
	search_reach(search, &next, "withdraw");
}

static void follow(struct search *search, const void *state)
{
	const struct ledger *l = state;
	struct ledger next = {.filling = 1};

	if (l->filling)
		follow_offers(search, l);
	else
		follow_withdraw(search, l);
	for (unsigned i = 0; i < USERS; i++)
		follow_user(search, l, i);
	if (!is_free(l) || l->generation == GENERATIONS)
		return;
	next.generation = l->generation + 1;
	next.word = chunk_word_filling(next.generation, slots[WRITER]);
	next.states[WRITER] = CHUNK_HOLDING;
	search_reach(search, &next, "allocate");
}

static void print(const void *state)
{
	const struct ledger *l = state;

	fprintf(stderr, "word %016jx generation %u open %u states %u %u %u\n", (uintmax_t)l->word,
		l->generation, l->open, l->states[0], l->states[1], l->states[2]);
}

Test(chunk_word, all_words_of_three_users_mean_what_a_ledger_says)
{
	struct search search = {
		.state_bytes = sizeof(struct ledger), .follow = follow, .wrong = wrong, .print = print};
	const char *what = search_run(&search, &(struct ledger){0});

	cr_expect_null(what, "%s", what);
	/* Every combination of states and `open` in both generations, and the first word. */
	cr_expect_gt(search.count, 2 * (4 * 4 * 4 * (OPEN + 1)));
	search_free(&search);
}

Test(chunk_word, a_count_that_is_too_large_leaves_other_bits_alone)
{
	const uint64_t filling = chunk_word_filling(7, 3);
	const uint64_t word = chunk_word_offered(filling, 3, 1, CHUNK_OPEN_MAX);

	cr_expect_eq(chunk_word_open(word), CHUNK_OPEN_MAX);
	cr_expect(chunk_word_is_of(chunk_word_offered(filling, 3, 1, CHUNK_OPEN_MAX + 1), 7));
	cr_expect_eq(chunk_word_users(chunk_word_offered(filling, 3, UINT32_MAX, 0), CHUNK_WAITING),
		     (1u << REGION_USERS_MAX) - 1, "bits above the last slot name nobody");
}

Test(chunk_word, only_the_lowest_byte_of_a_generation_is_in_it)
{
	const uint64_t word = chunk_word_filling(UINT64_C(0x1234567890ab), 0);

	cr_expect(chunk_word_is_of(word, 0xab));
	cr_expect(chunk_word_is_of(word, UINT64_C(0x1234567891ab)));
	cr_expect_not(chunk_word_is_of(word, 0xaa));
}
