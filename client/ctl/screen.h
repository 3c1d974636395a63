/* A view that is drawn again and again. On a terminal it has a screen of its own, keys come at once, and Ctrl-C ends
 * gpuwmctl with exit status 0. screen_end, Ctrl-C and other signals give the terminal back as it was. If stdout is no
 * terminal, each drawing is appended as text. There is one screen in a process. */
#ifndef GPUWM_CTL_SCREEN_H
#define GPUWM_CTL_SCREEN_H

#include <stdint.h>

void screen_begin(void);
/* The same for drawings that are appended on a terminal too. There are no keys then. */
void screen_begin_appending(void);
void screen_end(void);

/* Draws lines, from the top of the terminal. Lines may have styles (terminal.h), and must fit in the terminal's columns.
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
