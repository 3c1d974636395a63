/* The word of a block: all words of three users, and all transitions, against plain structs that say what a word means. */
#include "proto/block_word.h"

#include <criterion/criterion.h>
#include <errno.h>

TestSuite(block_word);

#define USERS 3
#define NO_SUCH_USER 31
#define GENERATIONS 5
/* The first, one in the middle, the last; a writer may be any number, as a hostile user writes it. */
static const unsigned slots[USERS] = {0, 12, REGION_USERS_MAX - 1};
static const unsigned writers[USERS + 1] = {0, 12, REGION_USERS_MAX - 1, NO_SUCH_USER};
static const uint32_t generations[GENERATIONS] = {0, 1, 2, BLOCK_GENERATION_MAX - 1, BLOCK_GENERATION_MAX};

struct meaning {
	unsigned state; /* 3: there is no such state */
	unsigned writer;
	uint32_t generation, holders;
};

static uint64_t word_of(const struct meaning *m)
{
	return m->holders | (uint64_t)m->state << 26 | (uint64_t)m->writer << 28 |
	       (uint64_t)m->generation << 33;
}

typedef void check_fn(const struct meaning *m, uint64_t word);

/* Calls `check` for each word. Returns how many there are. */
static unsigned each_word(check_fn *check)
{
	unsigned count = 0;

	for (unsigned i = 0; i < 4u * (USERS + 1) * GENERATIONS * (1u << USERS); i++) {
		struct meaning m = {.state = i % 4,
				    .writer = writers[i / 4 % (USERS + 1)],
				    .generation = generations[i / 4 / (USERS + 1) % GENERATIONS]};

		for (unsigned u = 0; u < USERS; u++)
			m.holders |= (i / 4 / (USERS + 1) / GENERATIONS >> u & 1) << slots[u];
		check(&m, word_of(&m));
		count++;
	}
	return count;
}

#define EachWord(name)                                                                                         \
	static void name(const struct meaning *m, uint64_t word);                                              \
	Test(block_word, name)                                                                                 \
	{                                                                                                      \
		cr_assert_eq(each_word(name), 640);                                                            \
	}                                                                                                      \
	static void name(const struct meaning *m, uint64_t word)

/* The step gives this code; and if that is 0, the word with this meaning. */
static void gives(int code, int expected_code, uint64_t next, const struct meaning *expected)
{
	cr_assert_eq(code, expected_code, "%d instead of %d", code, expected_code);
	if (code == 0)
		cr_assert_eq(next, word_of(expected), "%jx instead of %jx", (uintmax_t)next,
			     (uintmax_t)word_of(expected));
}

EachWord(says_what_it_means)
{
	cr_assert_eq(block_word_state(word), m->state);
	cr_assert_eq(block_word_holders(word), m->holders);
	cr_assert_eq(block_word_writer(word), m->writer);
	cr_assert_eq(block_word_generation(word), m->generation);
	cr_assert_eq(block_word_is_unused(word), m->state != BLOCK_OWNED && m->holders == 0);
}

EachWord(own)
{
	for (unsigned u = 0; u < USERS; u++) {
		const bool free = m->state != BLOCK_OWNED && m->holders == 0;
		const uint32_t next_generation = m->generation == BLOCK_GENERATION_MAX ? 0 : m->generation + 1;
		uint64_t next = 0;
		int r = block_word_own(word, slots[u], &next);

		gives(r, free ? 0 : -EBUSY, next, &(struct meaning){BLOCK_OWNED, slots[u], next_generation, 0});
	}
}

/* Publish and abandon differ in the state that follows. */
static void ends_filling(const struct meaning *m, uint64_t word, enum block_state state)
{
	for (unsigned i = 0; i < USERS * GENERATIONS; i++) {
		const unsigned slot = slots[i % USERS];
		const uint32_t generation = generations[i / USERS];
		const bool owns = m->state == BLOCK_OWNED && m->writer == slot && m->generation == generation;
		uint64_t next = 0;
		int r = state == BLOCK_READY ? block_word_publish(word, slot, generation, &next)
					     : block_word_abandon(word, slot, generation, &next);

		gives(r, owns ? 0 : -ESTALE, next, &(struct meaning){state, slot, generation, 0});
	}
}

EachWord(publish)
{
	ends_filling(m, word, BLOCK_READY);
}

EachWord(abandon)
{
	ends_filling(m, word, BLOCK_FREE);
}

static int hold_code(const struct meaning *m, unsigned slot, uint32_t generation)
{
	if (m->generation != generation)
		return -ESTALE;
	if (m->state == BLOCK_OWNED)
		return -EAGAIN;
	if (m->state != BLOCK_READY)
		return -ESTALE;
	return m->holders >> slot & 1 ? -EALREADY : 0;
}

EachWord(hold)
{
	for (unsigned i = 0; i < USERS * GENERATIONS; i++) {
		const unsigned slot = slots[i % USERS];
		const uint32_t generation = generations[i / USERS];
		struct meaning expected = *m;
		uint64_t next = 0;
		int r = block_word_hold(word, slot, generation, &next);

		expected.holders |= UINT32_C(1) << slot;
		gives(r, hold_code(m, slot, generation), next, &expected);
	}
}

EachWord(release)
{
	for (unsigned i = 0; i < USERS * GENERATIONS; i++) {
		const unsigned slot = slots[i % USERS];
		const uint32_t generation = generations[i / USERS];
		const bool holds =
			m->state == BLOCK_READY && m->generation == generation && m->holders >> slot & 1;
		struct meaning expected = *m;
		uint64_t next = 0;
		int r = block_word_release(word, slot, generation, &next);

		expected.holders &= ~(UINT32_C(1) << slot);
		gives(r, holds ? 0 : -EALREADY, next, &expected);
	}
}

EachWord(drop)
{
	for (unsigned g = 0; g < GENERATIONS; g++) {
		const bool ready = m->state == BLOCK_READY && m->generation == generations[g];
		uint64_t next = 0;
		int r = block_word_drop(word, generations[g], &next);

		gives(r,
		      !ready       ? -ESTALE
		      : m->holders ? -EBUSY
				   : 0,
		      next, &(struct meaning){BLOCK_FREE, m->writer, m->generation, 0});
	}
}

EachWord(forget)
{
	for (unsigned u = 0; u < USERS; u++) {
		struct meaning expected = *m;
		uint64_t next = block_word_forget(word, slots[u]);

		if (m->state == BLOCK_OWNED && m->writer == slots[u])
			expected = (struct meaning){BLOCK_FREE, m->writer, m->generation, 0};
		expected.holders &= ~(UINT32_C(1) << slots[u]);
		cr_assert_eq(next, word_of(&expected));
		cr_assert_eq(block_word_forget(next, slots[u]), next, "it forgets once");
	}
}

/* New memory reads as zeros. */
Test(block_word, zero_is_free_and_held_by_nobody)
{
	cr_assert_eq(block_word_state(0), BLOCK_FREE);
	cr_assert(block_word_is_unused(0));
	cr_assert_eq(block_word_generation(0), 0);
}

/* Whatever the users of a region do, the holders of a block that is READY are those that hold it, and nobody else changes it. */
Test(block_word, a_life_of_a_block)
{
	uint64_t word = 0, next;

	for (uint32_t i = 1; i <= 3; i++) {
		cr_assert_eq(block_word_own(word, 3, &word), 0);
		cr_assert_eq(block_word_generation(word), i);
		cr_assert_eq(block_word_own(word, 3, &next), -EBUSY);
		cr_assert_eq(block_word_publish(word, 3, i, &word), 0);
		cr_assert_eq(block_word_hold(word, 25, i, &word), 0);
		cr_assert_eq(block_word_hold(word, 0, i, &word), 0);
		cr_assert_eq(block_word_own(word, 3, &next), -EBUSY);
		cr_assert_eq(block_word_drop(word, i, &next), -EBUSY);
		cr_assert_eq(block_word_release(word, 25, i, &word), 0);
		word = block_word_forget(word, 0);
		cr_assert(block_word_is_unused(word));
	}
}
