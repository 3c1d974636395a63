/* What gpuwmctl prints fits in a terminal, and nothing is cut elsewhere. stdout is a pseudo terminal. */
#include "client/ctl/table.h"
#include "client/ctl/exit.h"
#include "client/ctl/line.h"
#include "client/ctl/output.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

static int terminal, other_end;
static char seen[4096];

static void begin(void)
{
	struct winsize size = {.ws_row = 25, .ws_col = 40};
	struct termios raw;

	unsetenv("COLUMNS");
	setenv("TERM", "xterm", 1);
	setenv("NO_COLOR", "1", 1);
	cr_assert_eq(openpty(&other_end, &terminal, NULL, NULL, &size), 0);
	tcgetattr(terminal, &raw);
	cfmakeraw(&raw);
	tcsetattr(terminal, TCSANOW, &raw);
	dup2(terminal, STDOUT_FILENO);
	dup2(terminal, STDERR_FILENO);
}

static void end(void)
{
	close(terminal);
	close(other_end);
}

/* What came to the terminal since the last call. */
static void sees(const char *expected)
{
	struct pollfd ready = {.fd = other_end, .events = POLLIN};
	size_t have = 0;
	ssize_t got = 1;

	fflush(stdout);
	while (got > 0 && have < strlen(expected) && poll(&ready, 1, 5000) == 1) {
		got = read(other_end, seen + have, sizeof(seen) - 1 - have);
		have += got > 0 ? (size_t)got : 0;
	}
	seen[have] = '\0';
	cr_expect_str_eq(seen, expected, "%s", seen);
}

TestSuite(ctl_fit, .init = begin, .fini = end);

static const struct column columns[] = {{"NAME", cell_text, "name"},       {"!STATE", cell_text, "state"},
					{">SIZE", cell_number, "size"},    {"+ID", cell_text, "id"},
					{"COMMAND", cell_text, "command"}, {0}};

static void print(const char *name, const char *state, const char *command)
{
	json_t *rows = json_pack("[{s:s, s:s, s:i, s:s, s:s}]", "name", name, "state", state, "size", 7, "id",
				 "0123", "command", command);

	cr_assert_eq(table_of(columns, rows), EXIT_DONE);
	json_decref(rows);
}

Test(ctl_fit, a_table_that_fits_is_not_cut)
{
	print("llama@v1", "ready", "python3");
	sees("NAME      STATE  SIZE  COMMAND\n"
	     "llama@v1  ready     7  python3\n");
}

Test(ctl_fit, the_longest_texts_are_cut)
{
	print("llama-3.1-70b-instruct@v1", "ready", "python3 -m server");
	sees("NAME          STATE  SIZE  COMMAND\n"
	     "llama…uct@v1  ready     7  python…server\n");
}

Test(ctl_fit, wide_characters_are_cut_to_columns)
{
	print("模型模型模型模型模型模型@v1", "ready", "python3");
	sees("NAME                STATE  SIZE  COMMAND\n"
	     "模型模型…型模型@v1  ready     7  python3\n");
}

Test(ctl_fit, a_wide_table_has_more_columns_and_is_not_cut)
{
	output_choose(OUTPUT_WIDE);
	print("llama-3.1-70b-instruct@v1", "ready", "python3");
	sees("NAME                       STATE  SIZE  ID    COMMAND\n"
	     "llama-3.1-70b-instruct@v1  ready     7  0123  python3\n");
}

Test(ctl_fit, a_narrow_terminal_has_fewer_columns)
{
	setenv("COLUMNS", "20", 1);
	print("llama-3.1-70b-instruct@v1", "ready", "python3");
	sees("NAME           STATE\n"
	     "llama-…uct@v1  ready\n");
	setenv("COLUMNS", "5", 1);
	print("llama-3.1-70b-instruct@v1", "ready", "python3");
	sees("NAME\n"
	     "ll…v1\n");
}

Test(ctl_fit, optional_columns_are_left_out_before_a_text_is_cut_short)
{
	static const struct column some[] = {{"NAME", cell_text, "name"},
					     {"?>SIZE", cell_number, "size"},
					     {"?COMMAND", cell_text, "command"},
					     {">AGE", cell_number, "age"},
					     {0}};
	json_t *rows = json_pack("[{s:s, s:i, s:s, s:i}]", "name", "llama-3.1-70b-instruct@v1", "size", 7,
				 "command", "python3", "age", 12);

	cr_assert_eq(table_of(some, rows), EXIT_DONE);
	sees("NAME                       SIZE  AGE\n"
	     "llama-3.1-70b-instruct@v1     7   12\n");
	json_decref(rows);
}

Test(ctl_fit, states_have_colours)
{
	unsetenv("NO_COLOR");
	print("a", "ready", "b");
	print("a", "ready, tainted", "b");
	print("a", "checking", "b");
	sees("NAME  STATE  SIZE  COMMAND\n"
	     "a     \033[32mready\033[0m     7  b\n"
	     "NAME  STATE           SIZE  COMMAND\n"
	     "a     \033[31mready, tainted\033[0m     7  b\n"
	     "NAME  STATE     SIZE  COMMAND\n"
	     "a     \033[33mchecking\033[0m     7  b\n");
}

Test(ctl_fit, a_sentence_goes_on_in_the_next_row)
{
	say("restarts: versions outlive gpuwmd; start 3 with %s", "these weights");
	sees("restarts: versions outlive gpuwmd; start\n"
	     "    3 with these weights\n");
}

Test(ctl_fit, a_word_that_is_longer_than_a_row_stays_whole)
{
	say("loads from /srv/models/of/a/team/with/a/long/name/for/its/folder as told");
	sees("loads from\n"
	     "    /srv/models/of/a/team/with/a/long/name/for/its/folder\n"
	     "    as told\n");
}

Test(ctl_fit, a_line_is_made_of_pieces)
{
	struct line line = {0};

	line_say(&line);
	line_add(&line, "%s", "a\033b");
	line_add(&line, ", %d", 2);
	line_say(&line);
	sees("a?b, 2\n");
}

Test(ctl_fit, an_error_fits_too)
{
	unsetenv("NO_COLOR");
	exit_with(EXIT_NOT_FOUND, "gpuwmctl ls lists the versions that there are", "there is no version %s",
		  "llama@v9");
	sees("\033[31mgpuwmctl: \033[0mthere is no version llama@v9\n"
	     "  gpuwmctl ls lists the versions that\n"
	     "    there are\n");
}

Test(ctl_fit, an_error_is_data_where_data_was_asked_for)
{
	output_choose(OUTPUT_JSON);
	exit_with(EXIT_NOT_FOUND, "look \"there\"", "no\033[2J %s", "version");
	exit_note(NULL, "only for people");
	sees("{\"error\":{\"code\":\"ENOENT\",\"message\":\"no?[2J version\",\"detail\":\"look \\\"there\\\"\",\"exit\":4}}\n");
}
