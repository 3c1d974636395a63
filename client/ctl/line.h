/* Sentences for people, each on a line of its own. On a terminal a sentence goes on in the next row between two words,
 * indented; a word that is longer than a row stays whole, so that it can be copied. Elsewhere it stays one line.
 * And the texts that stand in them, with how wide these are. */
#ifndef GPUWM_CTL_LINE_H
#define GPUWM_CTL_LINE_H

#include "terminal.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Prints a line to stdout. Control characters, and bytes that are not UTF-8, appear as utf8_show shows them. If memory is
 * short, a line on stderr says so instead. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for a line that is made in pieces. Begin with {0}. */
struct line {
	char *text; /* NULL: nothing was added, or memory was short */
	size_t length;
	int failed;
};
void line_add(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints and empties the line. A line without text is not printed. */
void line_say(struct line *line);
/* The same to stderr: for what is not the result. */
void line_note(struct line *line);

/* Whether a line of the result is missing for want of memory, which stderr says. */
bool line_is_lost(void);

/* Prints `lead` in the style and then `text` as one line, to stdout or stderr. Both are fit for a terminal: see
 * utf8_show. */
void line_print(FILE *stream, enum style style, const char *lead, const char *text);

/* ---- texts that people read: sizes, ages, times, digits ---- */

#define SHORT_TEXT 24

/* "1.5 GiB", "512 B". */
const char *size_text(uint64_t bytes, char ret_text[SHORT_TEXT]);
/* "3s", "12m", "5h", "2d": from `then` in milliseconds since 1970 until now; "" for 0. */
const char *age_text(uint64_t then_ms, char ret_text[SHORT_TEXT]);
/* "412 ms", "3.21 s", "2:05 min". */
const char *time_text(uint64_t ms, char ret_text[SHORT_TEXT]);
/* "1.5 GiB/s"; "" where no time passed or nothing was done. */
const char *rate_text(uint64_t bytes, uint64_t ms, char ret_text[SHORT_TEXT]);
/* Digests and ids in digits; ret_text has 2 * count + 1 bytes. */
const char *hex_text(const uint8_t *bytes, size_t count, char *ret_text);

/* ---- how many columns of a terminal a text takes ----
 * The texts are UTF-8, as utf8_show makes them. */

/* Chinese, Japanese and Korean characters and most emoji take two columns, combining ones none. */
size_t text_width(const char *text);
/* The same for the first `length` bytes of it, which cut no character. */
size_t text_width_of(const char *text, size_t length);
/* Returns how many bytes of the text take at most `columns`. A character is not cut. */
size_t text_fit(const char *text, size_t columns);
/* Copies the text so that it takes at most `columns`, 1 or more. A text that is too long loses its middle, where "…"
 * stands: of MODEL@TAG, both ends tell versions apart. size: more than the text's bytes and those of "…". */
void text_cut(const char *text, size_t columns, char *ret_text, size_t size);
/* Bytes of the buffer for text_cut of a text with that many. */
#define TEXT_CUT_MAX(bytes) ((bytes) + sizeof("…"))

#endif
