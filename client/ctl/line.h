/* Sentences for people, each on a line of its own. On a terminal a sentence goes on in the next row between two words,
 * indented; a word that is longer than a row stays whole, so that it can be copied. Elsewhere it stays one line. */
#ifndef GPUWM_CTL_LINE_H
#define GPUWM_CTL_LINE_H

#include "terminal.h"

#include <stddef.h>
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

/* Prints `lead` in the style and then `text` as one line, to stdout or stderr. Both are fit for a terminal: see
 * utf8_show. */
void line_print(FILE *stream, enum style style, const char *lead, const char *text);

/* ---- help and explanations, in lines that a terminal of 80 columns holds ---- */

#define LINE_COLUMNS 80 /* also where the terminal is wider: longer lines are harder to read */

/* Prints the words of text and ends the line. The text goes on at `column`; later lines begin at `indent`. A word in
 * brackets, such as "[--device DEVICE]...", is not divided. */
void lines_wrap(FILE *file, const char *text, size_t column, size_t indent);

#endif
