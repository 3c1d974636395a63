/* What a terminal is, shows and asks. */
#ifndef GPUWM_CTL_TERMINAL_H
#define GPUWM_CTL_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>

/* ---- where a descriptor leads: to a terminal of so many columns, with colours or without, or elsewhere ----
 * Programs and files get plain text of any length. */

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

/* ---- states: a word such as "ready", "retiring" or "LOST" ---- */

/* The style of a text that begins with a state, as in "ready, cached". Damage counts most: "ready, tainted" is bad. */
enum style state_style(const char *text);

/* ---- a question before something that can't be undone ---- */

/* Whether somebody is there to answer: stdin and stderr are terminals. */
bool ask_can(void);
/* Prints "QUESTION [y/N] " to stderr and reads a line. Returns true for y and yes. */
bool ask(const char *question);

/* ---- the screen: a view that is drawn again and again ----
 * On a terminal it has a screen of its own, keys come at once, and Ctrl-C ends gpuwmctl with exit status 0. screen_end, Ctrl-C and
 * other signals give the terminal back as it was. If stdout is no terminal, each drawing is appended as text. There is one screen in
 * a process. */

void screen_begin(void);
/* The same for drawings that are appended on a terminal too. There are no keys then. */
void screen_begin_appending(void);
void screen_end(void);

/* Draws lines, from the top of the terminal. Lines may have styles, and must fit in the terminal's columns.
 * Lines that the terminal has no rows for are left out, and the last row says how many. Without a terminal, an empty
 * line follows the text. */
void screen_draw(const char *text);

#define SCREEN_TIME 0 /* the time is over */
#define SCREEN_READY -1 /* the descriptor has something */
#define SCREEN_RESIZED -2 /* draw again */
/* Waits for at most `ms` until the descriptor has one of the poll events (fd -1: there is none), the user presses a key,
 * or the terminal changes its size. Returns one of the above, or the key. The end of stdin counts as 'q'. Without a
 * terminal there are no keys. */
int screen_wait(int fd, short events, int64_t ms);

#endif
