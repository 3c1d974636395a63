/* Where gpuwmctl writes to: a terminal of so many columns, with colours or without, or a pipe. */
#include "client/ctl/terminal.h"

#include <criterion/criterion.h>
#include <pty.h>
#include <stdlib.h>
#include <unistd.h>

static int terminal, other_end;

static void begin(void)
{
	struct winsize size = {.ws_row = 50, .ws_col = 132};

	unsetenv("COLUMNS");
	unsetenv("LINES");
	unsetenv("NO_COLOR");
	setenv("TERM", "xterm", 1);
	cr_assert_eq(openpty(&other_end, &terminal, NULL, NULL, &size), 0);
}

static void end(void)
{
	close(terminal);
	close(other_end);
}

TestSuite(ctl_terminal, .init = begin, .fini = end);

Test(ctl_terminal, a_pipe_has_no_columns_and_no_colours)
{
	int fds[2];

	setenv("COLUMNS", "40", 1);
	cr_assert_eq(pipe(fds), 0);
	cr_expect_not(terminal_is(fds[1]));
	cr_expect_eq(terminal_columns(fds[1]), 0);
	cr_expect_eq(terminal_rows(fds[1]), 0);
	cr_expect_not(terminal_coloured(fds[1]));
	cr_expect_str_eq(terminal_style(fds[1], STYLE_BAD), "");
	close(fds[0]);
	close(fds[1]);
}

Test(ctl_terminal, a_terminal_tells_its_size)
{
	cr_expect(terminal_is(terminal));
	cr_expect_eq(terminal_columns(terminal), 132);
	cr_expect_eq(terminal_rows(terminal), 50);
}

Test(ctl_terminal, a_terminal_without_a_size_has_80_columns)
{
	struct winsize none = {0};

	cr_assert_eq(ioctl(terminal, TIOCSWINSZ, &none), 0);
	cr_expect_eq(terminal_columns(terminal), 80);
	cr_expect_eq(terminal_rows(terminal), 24);
}

Test(ctl_terminal, a_number_in_columns_counts_and_nothing_else)
{
	setenv("COLUMNS", "60", 1);
	setenv("LINES", "20", 1);
	cr_expect_eq(terminal_columns(terminal), 60);
	cr_expect_eq(terminal_rows(terminal), 20);
	for (const char *const *text = (const char *const[]){"", "0", "wide", "-5", "60x", "99999999999", NULL};
	     *text; text++) {
		setenv("COLUMNS", *text, 1);
		cr_expect_eq(terminal_columns(terminal), 132, "COLUMNS=%s", *text);
	}
}

Test(ctl_terminal, a_terminal_has_colours_unless_somebody_says_no)
{
	cr_expect(terminal_coloured(terminal));
	cr_expect_str_eq(terminal_style(terminal, STYLE_BAD), "\033[31m");
	cr_expect_str_eq(terminal_style(terminal, STYLE_PLAIN), "\033[0m");
	setenv("NO_COLOR", "", 1);
	cr_expect(terminal_coloured(terminal));
	setenv("NO_COLOR", "1", 1);
	cr_expect_not(terminal_coloured(terminal));
	cr_expect_str_eq(terminal_style(terminal, STYLE_PLAIN), "");
}

Test(ctl_terminal, a_dumb_or_unknown_terminal_has_no_colours)
{
	setenv("TERM", "dumb", 1);
	cr_expect_not(terminal_coloured(terminal));
	setenv("TERM", "", 1);
	cr_expect_not(terminal_coloured(terminal));
	unsetenv("TERM");
	cr_expect_not(terminal_coloured(terminal));
}
