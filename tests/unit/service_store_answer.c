/* What gpuwm-keeper answers at a barrier, from its writer to its reader. */
#include "service/manager.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct store_answer answer;
static char text[STORE_ANSWER_BYTES + 1];

/* Through a pipe, as a barrier's. */
static const char *sent(void)
{
	int ends[2];
	ssize_t got;

	cr_assert_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	store_answer_send(&answer, ends[1]);
	got = read(ends[0], text, STORE_ANSWER_BYTES);
	text[got > 0 ? got : 0] = '\0';
	close(ends[0]);
	close(ends[1]);
	return text;
}

Test(store_answer, nothing_refused_is_an_answer_too)
{
	cr_assert_str_eq(sent(), "END\n");
	cr_expect(store_answer_is_whole(text));
	cr_expect_eq(store_answer_find(text, "g1"), 0);
}

Test(store_answer, each_refusal_is_told_by_name_and_once)
{
	char line[64];

	store_answer_refuse(&answer, "g1f", -EMFILE);
	store_answer_refuse(&answer, "g2", -ENOSPC);
	snprintf(line, sizeof(line), "%d g1f\n%d g2\nEND\n", EMFILE, ENOSPC);
	cr_assert_str_eq(sent(), line);
	cr_expect(store_answer_is_whole(text));
	cr_expect_eq(store_answer_find(text, "g1f"), -EMFILE);
	cr_expect_eq(store_answer_find(text, "g2"), -ENOSPC);
	cr_expect_eq(store_answer_find(text, "g1"), 0, "a part of a name is another name");
	cr_expect_eq(store_answer_find(text, "1f"), 0);
	cr_assert_str_eq(sent(), "END\n");
}

Test(store_answer, what_has_no_room_counts_for_every_name)
{
	char name[64];

	for (int i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "g%d", i);
		store_answer_refuse(&answer, name, -EMFILE);
	}
	cr_expect_leq(answer.bytes, STORE_ANSWER_BYTES - 4);
	sent();
	cr_expect(store_answer_is_whole(text));
	cr_expect_eq(store_answer_find(text, "g1999"), -EMFILE);
	cr_expect_not(answer.has_more);
}

Test(store_answer, a_longest_name_that_just_fits_leaves_room_for_the_rest)
{
	char name[256];

	memset(name, 'x', 255);
	name[255] = '\0';
	for (size_t fill = 0; fill < 255; fill++) {
		answer = (struct store_answer){0};
		store_answer_refuse(&answer, name + fill, INT_MIN + 1);
		for (int i = 0; i < 40; i++)
			store_answer_refuse(&answer, name, INT_MIN + 1);
		cr_assert_leq(answer.bytes, STORE_ANSWER_BYTES - 4);
		cr_assert(store_answer_is_whole(sent()));
	}
}

Test(store_answer, what_is_cut_is_not_whole)
{
	cr_expect_not(store_answer_is_whole(""));
	cr_expect_not(store_answer_is_whole("24 g1\n"));
	cr_expect_not(store_answer_is_whole("24 g1\nEND"));
	cr_expect_not(store_answer_is_whole("24 gEND\n"));
	cr_expect_eq(store_answer_find("24", "g1"), 0);
	cr_expect_eq(store_answer_find("24 g", "g1"), 0);
	cr_expect_eq(store_answer_find("nonsense\n", "g1"), 0);
}

Test(store_answer, a_descriptor_that_takes_no_answer_does_not_hold_up_the_writer)
{
	char block[4096] = {0};
	int ends[2];

	signal(SIGPIPE, SIG_IGN);
	cr_assert_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	while (write(ends[1], block, sizeof(block)) > 0)
		;
	fcntl(ends[1], F_SETFL, 0);
	store_answer_refuse(&answer, "g1", -EMFILE);
	store_answer_send(&answer, ends[1]);
	cr_expect_eq(answer.bytes, 0);
	close(ends[0]);
	store_answer_send(&answer, ends[1]);
	close(ends[1]);
	store_answer_send(&answer, -1);
}
