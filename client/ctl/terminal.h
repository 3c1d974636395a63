/* Where a descriptor leads: to a terminal of so many columns, with colours or without, or elsewhere. Programs and
 * files get plain text of any length. */
#ifndef GPUWM_CTL_TERMINAL_H
#define GPUWM_CTL_TERMINAL_H

#include <stdbool.h>

/* Columns of a terminal that does not know its size, such as a serial line. */
#define TERMINAL_COLUMNS_DEFAULT 80
#define TERMINAL_ROWS_DEFAULT 24

bool terminal_is(int fd);
/* Returns $COLUMNS if it is a number, else what the terminal says, else TERMINAL_COLUMNS_DEFAULT. Returns 0 if the
 * descriptor is no terminal: then nothing is cut and nothing wraps. */
unsigned terminal_columns(int fd);
/* The same for the rows, with $LINES. */
unsigned terminal_rows(int fd);
/* Returns false if the descriptor is no terminal, if $NO_COLOR is set and not empty, or if $TERM is missing, empty or
 * "dumb". */
bool terminal_coloured(int fd);

enum style {
	STYLE_PLAIN,
	STYLE_BOLD,
	STYLE_DIM,
	STYLE_GOOD, /* green: it is as it should be */
	STYLE_BUSY, /* yellow: it goes on, or wants attention */
	STYLE_BAD, /* red: it failed */
};
/* Returns what switches to the style; STYLE_PLAIN ends every other one. Returns "" without colours. */
const char *terminal_style(int fd, enum style style);

#endif
