/* The control memory of a region: what gpuwmd and users do with it. */
#include "proto/control.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { CHUNKS = 3, BYTES = 4096, OWNER = 0, READER = 1, OTHER = 2 };

static struct control control;
static const struct version_id region = {{1, 2, 3}};

static void begin(void)
{
	void *memory = mmap(NULL, control_bytes((struct control_shape){.chunks = CHUNKS}),
			    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(memory, MAP_FAILED);
	control = control_at(memory, (struct control_shape){.chunks = CHUNKS});
	control_begin(&control, &region);
	for (unsigned slot = 0; slot <= OTHER; slot++)
		control_user_came(&control, slot, 100 + slot, "someone");
}

static void end(void)
{
	munmap(control.head, control_bytes((struct control_shape){.chunks = CHUNKS}));
}

TestSuite(control, .init = begin, .fini = end, .timeout = 60);

static uint64_t allocate(uint32_t chunk, unsigned writer)
{
	struct control_chunk *entry = &control.chunks[chunk];
	const uint64_t generation = entry->generation + 1;

	entry->word = chunk_word_filling(generation, writer);
	entry->writer = writer;
	entry->offset = chunk * 1024;
	entry->bytes = 1024;
	entry->generation = generation;
	return generation;
}

static void offer(uint32_t chunk, uint32_t named, unsigned open)
{
	struct control_chunk *entry = &control.chunks[chunk];

	entry->word = chunk_word_offered(entry->word, entry->writer, named, open);
}

static void write_and_offer(uint32_t chunk, uint32_t named, unsigned open)
{
	control.chunks[chunk].written = control.chunks[chunk].generation;
	offer(chunk, named, open);
}

static void take(uint32_t chunk, unsigned slot)
{
	struct control_chunk *entry = &control.chunks[chunk];
	uint64_t word;

	cr_assert_eq(chunk_word_take(entry->word, slot, entry->generation, &word), 0);
	entry->word = word;
}

static uint64_t finished(uint32_t chunk, unsigned slot)
{
	return *control_finished(&control, chunk, slot);
}

static const char *damage(void)
{
	return control_damage(&control, &region, BYTES, 7);
}

/* ---- the layout ---------------------------------------------------------- */

Test(control, parts_lie_behind_each_other_and_inside)
{
	const uint32_t counts[] = {1, 2, 64, 1023, REGION_CHUNKS_MAX};

	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		char *base = (char *)control.head;
		const struct control at = control_at(base, (struct control_shape){.chunks = counts[i]});
		const char *last = (char *)(control_finished(&at, counts[i] - 1, REGION_USERS_MAX - 1) + 1);

		cr_expect_eq((char *)at.chunks, base + CONTROL_HEAD_BYTES);
		cr_expect_eq((char *)at.finished, (char *)(at.chunks + counts[i]));
		cr_expect_leq(last, base + control_bytes((struct control_shape){.chunks = counts[i]}));
		cr_expect_eq(control_bytes((struct control_shape){.chunks = counts[i]}) % 4096, 0);
	}
}

/* ---- words that streams wait for ----------------------------------------- */

Test(control, a_raised_word_never_falls)
{
	_Atomic uint64_t word = 5;

	control_raise(&word, 4);
	cr_expect_eq(word, 5);
	control_raise(&word, UINT64_MAX);
	cr_expect_eq(word, UINT64_MAX);
}

Test(control, a_chunk_is_free_when_it_was_written_and_all_have_finished)
{
	const uint64_t generation = allocate(0, OWNER);

	cr_expect_not(control_chunk_is_free(&control, 0), "it is being filled");
	offer(0, 1u << READER, 1);
	take(0, READER);
	cr_expect_not(control_chunk_is_free(&control, 0), "one may come");
	take(0, OTHER);
	*control_finished(&control, 0, READER) = generation;
	*control_finished(&control, 0, OTHER) = generation;
	cr_expect_not(control_chunk_is_free(&control, 0), "a stream has still to write it");
	control.chunks[0].written = generation;
	cr_expect(control_chunk_is_free(&control, 0));
	*control_finished(&control, 0, OTHER) = generation - 1;
	cr_expect_not(control_chunk_is_free(&control, 0), "a stream still reads it");
}

Test(control, who_was_awaited_has_finished_when_the_writer_withdraws)
{
	const uint64_t generation = allocate(0, OWNER);

	write_and_offer(0, 1u << READER | 1u << OTHER, 3);
	take(0, OTHER);
	control_withdraw(&control, 0);
	cr_expect_eq(chunk_word_open(control.chunks[0].word), 0);
	cr_expect_eq(finished(0, READER), generation);
	cr_expect_lt(finished(0, OTHER), generation, "it still reads");
	cr_expect_eq(chunk_word_state(control.chunks[0].word, OTHER), CHUNK_HOLDING);
}

Test(control, an_offer_to_a_user_that_has_just_left_waits_for_nobody)
{
	allocate(0, OWNER);
	control_user_left(&control, READER);
	write_and_offer(0, 1u << READER | 1u << OTHER, 0);
	control_forget_absent(&control, 0);
	cr_expect_eq(chunk_word_users(control.chunks[0].word, CHUNK_WAITING), 1u << OTHER);
}

/* ---- users come and go --------------------------------------------------- */

Test(control, a_user_that_comes_is_there_under_its_name)
{
	const struct control_user *user = &control.head->users[5];

	control_user_came(&control, 5, 4711, "a-name-that-is-longer-than-it-may-be");
	cr_expect_eq(user->here, 1);
	cr_expect_eq(user->pid, 4711);
	cr_expect_eq(user->generation, 1);
	cr_expect_str_eq(user->command, "a-name-that-is-");
	control_user_left(&control, 5);
	cr_expect_eq(user->here, 0);
	cr_expect_str_eq(user->command, "a-name-that-is-", "so that others can say who died");
	control_user_came(&control, 5, 4712, "b");
	cr_expect_eq(user->generation, 2);
	cr_expect_str_eq(user->command, "b");
}

Test(control, what_a_user_held_or_was_to_take_is_let_go)
{
	for (uint32_t i = 0; i < CHUNKS; i++) {
		allocate(i, OWNER);
		write_and_offer(i, 1u << READER | 1u << OTHER, 0);
	}
	take(0, READER);
	take(1, OTHER);
	take(2, READER);
	*control_finished(&control, 2, READER) = control.chunks[2].generation;
	cr_expect_eq(control_user_left(&control, READER), 2, "it has finished with one, in a stream");
	for (uint32_t i = 0; i < CHUNKS; i++) {
		cr_expect_eq(chunk_word_state(control.chunks[i].word, READER), CHUNK_NONE);
		cr_expect_eq(finished(i, READER), control.chunks[i].generation,
			     "streams that wait for it go on");
		cr_expect_neq(chunk_word_state(control.chunks[i].word, OTHER), CHUNK_NONE);
		cr_expect_lt(finished(i, OTHER), control.chunks[i].generation);
		cr_expect_neq(control.chunks[i].lost, control.chunks[i].generation);
	}
}

Test(control, what_a_writer_did_not_write_is_lost_and_the_rest_is_not)
{
	allocate(0, OWNER);
	write_and_offer(0, 1u << READER, 0);
	allocate(1, OWNER);
	offer(1, 1u << READER, 0);
	allocate(2, OWNER);
	control_user_left(&control, OWNER);
	cr_expect_eq(control.chunks[0].lost, 0);
	cr_expect_eq(control.chunks[1].lost, control.chunks[1].generation);
	cr_expect_eq(control.chunks[1].written, control.chunks[1].generation, "its reader goes on");
	cr_expect_not(control_chunk_is_free(&control, 1));
	cr_expect(control_chunk_is_free(&control, 2), "nobody waits for what was being filled");
}

Test(control, the_death_of_a_former_writer_leaves_the_next_ones_chunks_alone)
{
	allocate(0, OWNER);
	write_and_offer(0, 0, 1);
	control_withdraw(&control, 0);
	allocate(0, OTHER);
	control_user_left(&control, OWNER);
	cr_expect_eq(control.chunks[0].lost, 0);
	cr_expect_eq(control.chunks[0].written, 1);
	cr_expect_eq(chunk_word_state(control.chunks[0].word, OTHER), CHUNK_HOLDING);
}

Test(control, streams_wait_for_no_one_from_whom_a_writer_withdrew_before_it_died)
{
	allocate(0, OWNER);
	write_and_offer(0, 1u << READER, 0);
	control.chunks[0].word = chunk_word_withdrawn(control.chunks[0].word);
	control_user_left(&control, OWNER);
	cr_expect_eq(finished(0, READER), 1);
}

Test(control, a_new_user_of_a_slot_has_not_finished_what_it_takes)
{
	allocate(0, OWNER);
	write_and_offer(0, 0, 2);
	take(0, READER);
	allocate(1, OWNER);
	write_and_offer(1, 1u << READER, 0);
	control_user_left(&control, READER);
	control_user_came(&control, READER, 1, "next");
	cr_expect_eq(finished(0, READER), 0);
	take(0, READER);
	control_withdraw(&control, 0);
	cr_expect_not(control_chunk_is_free(&control, 0));
	cr_expect_eq(finished(1, READER), 1, "streams that wait for its former user go on");
	cr_expect_eq(finished(2, READER), 0, "not of any generation, as -1 would be");
}

/* Another reader still has the chunk, so its entry is in use. */
Test(control, streams_go_on_when_a_slot_is_given_again_while_others_read)
{
	allocate(0, OWNER);
	write_and_offer(0, 1u << READER | 1u << OTHER, 0);
	take(0, READER);
	control_user_left(&control, READER);
	control_user_came(&control, READER, 1, "next");
	cr_expect_eq(finished(0, READER), 1, "nobody may come any more");
	cr_expect_not(control_chunk_is_free(&control, 0));
}

Test(control, the_lock_opens_when_its_holder_has_left)
{
	control.head->lock = 1 + READER;
	control_user_left(&control, OTHER);
	cr_expect_eq(control.head->lock, 1 + READER);
	control_user_left(&control, READER);
	cr_expect_eq(control.head->lock, 0);
}

/* ---- damage -------------------------------------------------------------- */

Test(control, nothing_is_wrong_with_what_users_write)
{
	cr_expect_null(damage());
	allocate(0, OWNER);
	cr_expect_null(damage());
	write_and_offer(0, 1u << READER, 2);
	take(0, READER);
	take(0, OTHER);
	cr_expect_null(damage());
	control.head->lock = REGION_USERS_MAX;
	cr_expect_null(damage());
}

Test(control, a_writer_in_the_middle_of_something_has_done_no_damage)
{
	allocate(0, OWNER);
	offer(0, 1u << 9, 0);
	cr_expect_null(damage(), "it may not have looked yet whether the user has gone");
	control.chunks[1].word = chunk_word_filling(1, OWNER);
	control.chunks[1].offset = BYTES - 256;
	control.chunks[1].bytes = BYTES;
	cr_expect_null(damage(), "the generation comes last");
}

#define DAMAGED(statement)                                                                                     \
	do {                                                                                                   \
		allocate(0, OWNER);                                                                            \
		statement;                                                                                     \
		cr_expect_not_null(damage(), "%s", #statement);                                                \
		end();                                                                                         \
		begin();                                                                                       \
	} while (0)

Test(control, every_kind_of_scribble_is_found)
{
	DAMAGED(control.head->magic++);
	DAMAGED(control.head->chunks++);
	DAMAGED(control.head->region.bytes[15]++);
	DAMAGED(control.head->ended = CONTROL_ENDS);
	DAMAGED(control.head->ended = CONTROL_REMOVED);
	DAMAGED(control.head->lock = REGION_USERS_MAX + 1);
	DAMAGED(control.chunks[0].word |= UINT64_C(2) << 2 * 9); /* nobody has slot 9 */
	DAMAGED(control.chunks[0].offset = BYTES + 1);
	DAMAGED(control.chunks[0].offset = UINT64_MAX);
	DAMAGED(control.chunks[0].bytes = BYTES + 1);
	DAMAGED(control.chunks[0].bytes = UINT64_MAX);
}

/* Whatever is there: gpuwmd's part touches nothing outside, and ends. */
Test(control, gpuwmd_does_its_part_with_any_bytes)
{
	const size_t bytes = control_bytes((struct control_shape){.chunks = CHUNKS});

	srand(17);
	for (unsigned round = 0; round < 200; round++) {
		for (size_t i = 0; i < bytes; i++)
			((unsigned char *)control.head)[i] = (unsigned char)rand();
		damage();
		control_user_left(&control, (unsigned)rand() % REGION_USERS_MAX);
		control_user_came(&control, (unsigned)rand() % REGION_USERS_MAX, 1, "one");
		control_ended(&control, CONTROL_DAMAGED, 0);
	}
}
