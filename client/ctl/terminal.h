/* What a terminal is, shows and asks: colours, questions, the screen, keys, and the progress of a job. */
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

/* ---- keys from the bytes that a terminal sends ---- */

enum key {
	KEY_NONE = 0, /* the sequence goes on */
	KEY_ESCAPE = 27,
	KEY_BACKSPACE = 127,
	KEY_UP = 256, /* above all characters */
	KEY_DOWN,
	KEY_PAGE_UP,
	KEY_PAGE_DOWN,
	KEY_HOME,
	KEY_END,
	KEY_OTHER, /* a sequence that means nothing here */
};

struct keys {
	char sequence[8]; /* what came of a sequence, from its ESC on */
	unsigned length;
};

/* Takes a byte. Returns a character, one of the above, or KEY_NONE. */
int keys_take(struct keys *keys, int byte);
/* Whether a sequence has begun. If no byte follows soon, it was the key Escape alone: then call keys_end. */
int keys_open(const struct keys *keys);
int keys_end(struct keys *keys);

/* ---- progress of a job on stderr ----
 * On a terminal one line that is redrawn (phase, bytes, share, rate, time left), else one line a phase,
 * and one now and then while a phase takes long. */

struct progress {
	unsigned columns; /* of the terminal; 0: there is none */
	bool drawn;
	char phase[256]; /* a terminal's line has the beginning of it */
	uint64_t done, total; /* total 0: not known */
	uint64_t phase_start_ns, phase_start_done; /* the rate is that of the phase */
	uint64_t moved_ns, told_ns;
};

/* Between two calls of progress_tick at most: a clock on the screen goes on. */
#define PROGRESS_TICK_MS 1000

/* columns: of the terminal that stderr is, which no line is wider than; 0: it is none. */
void progress_start(struct progress *progress, unsigned columns);
/* total 0: not known. now_ns: of the steady clock. */
void progress_update(struct progress *progress, const char *phase, uint64_t done, uint64_t total,
		     uint64_t now_ns);
/* Time passes: shows that it goes on. */
void progress_tick(struct progress *progress, uint64_t now_ns);
/* Leaves the cursor at the beginning of a line. */
void progress_end(struct progress *progress);

#endif
