/* The command line of a program: a table of its options. All programs read theirs with the one reader here, and print their
 * help from the same rows.
 *
 * An option is written --name VALUE or --name=VALUE, one with a letter also -n VALUE or -nVALUE. Letters of options without a
 * value may stand together. A value that may be missing is a number if it stands apart. "--" ends the options. */
#ifndef GPUWM_SERVICE_OPTION_H
#define GPUWM_SERVICE_OPTION_H

#include "../base/errors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- the table ---- */

struct option_row;
/* Takes the value, which is NULL if it is missing. data: the caller's. Returns 0, or fails with -EINVAL and *error: which
 * option takes what, and the value that was given. */
typedef int option_take_fn(const struct option_row *row, const char *text, void *data, struct error *error);

/* An option, and what it sets. A row begins with name and help, and, if the option takes a value, with what that is. */
struct option_row {
	const char *name; /* without its dashes; NULL ends a list */
	const char *help; /* one line */
	/* As the usage shows it. "[VALUE]": it may be missing. NULL: the option takes none. */
	const char *value;
	option_take_fn *take; /* NULL: `into` is a bool, which becomes true */
	void *into; /* what `take` sets; NULL: `take` knows */
	char letter; /* 0: none */
	bool repeats; /* each value counts, or takes the place of the one before it */
	const char *needs; /* the name of another option, without which this one has no meaning, or NULL */
	uint64_t least, most; /* numbers; times in ms; `most` also: how many texts */
	int kind; /* what a shell offers as its value, in gpuwmctl's table: enum word_kind */
};
/* The most rows of a command line. */
#define OPTION_ROWS_MAX 64

/* A day: a longer time is a mistake. */
#define OPTION_SECONDS_MAX 86400

/* `take` of rows. into: const char *: any text, which stays argv's. */
option_take_fn take_text;
/* into: uint64_t: a number from `least` to `most`. Help tells its value as the default. */
option_take_fn take_count;
/* into: uint64_t, in ms: seconds that may have a fraction, from `least` ms up to a day. Help tells its value as the default. */
option_take_fn take_seconds;

/* Sets *ret_number as take_count does. */
int option_number(const struct option_row *row, const char *text, uint64_t *ret_number, struct error *error);

/* ---- the reader ---- */

struct option_reader {
	const char *program; /* as messages call it */
	const char *command; /* of the program, in the same way; NULL: there is none, or it comes later */
	const char *note; /* what the message about an unknown option says besides, or NULL */
	bool once; /* an option that does not repeat takes one value; else the last one counts */
	int argc;
	char *const *argv;
	int next; /* the argument that is read next: at the beginning 1 */

	/* The reader's own. */
	const struct option_row *rows[OPTION_ROWS_MAX];
	bool given[OPTION_ROWS_MAX];
	size_t count;
	bool words_only; /* "--" was read */
	const char *letters; /* the rest of "-abc" */
};

/* Adds the options of a list, which may be NULL. */
void option_reader_add(struct option_reader *reader, const struct option_row *rows);
/* Reads what comes next. Returns 1 and sets either *ret_row and *ret_value (NULL: none was given), or, with *ret_row NULL, *ret_value
 * to a word that belongs to no option; 0 at the end. Fails with -EINVAL and *error. */
int option_next(struct option_reader *reader, const struct option_row **ret_row, const char **ret_value,
		struct error *error);
/* Takes what option_next found, by its row. */
int option_take(const struct option_row *row, const char *value, void *data, struct error *error);
/* After the end: whether each option that was given has the one that it needs, and the option `required` (NULL: none) was given. Returns 0,
 * or fails with -EINVAL and *error. */
int option_needs(const struct option_reader *reader, const char *required, struct error *error);

/* Whether the word is this option: "--device", "--device=host", "-o". */
bool option_is(const struct option_row *row, const char *word);

/* ---- the whole command line of a program that has no commands ---- */

struct command_line {
	const char *program;
	const char *usage; /* what follows the program's name; each line is a way to call it */
	const char *about; /* what the program does; each line is a paragraph */
	const struct option_row *rows; /* without --help and --version, which every program has */
	const char *required; /* the name of an option that must be given, or NULL */
	const char *word; /* what must follow the options, or NULL: nothing may follow */
	const char *version;
	void (*more)(void); /* prints what else the help says, or NULL */
};

/* Checks the names of all options, and prints help or version if the user asks for it. Takes no value. Returns 0; or 1: it has printed.
 * Fails with -EINVAL and *error. */
int command_line_check(const struct command_line *line, int argc, char *const *argv, struct error *error);
/* Takes the values of a line that was checked. data: for `take`. Sets *ret_words (which may be NULL) to the words that follow the options,
 * up to argv's NULL. Returns 0, or what a `take` returned, with *error. */
int command_line_take(const struct command_line *line, int argc, char *const *argv, void *data,
		      char *const **ret_words, struct error *error);
/* Both, for rows that need no data. */
int command_line_read(const struct command_line *line, int argc, char *const *argv, char *const **ret_words,
		      struct error *error);

/* ---- help, in lines that a terminal of 80 columns holds: option_help.c ---- */

#define LINE_COLUMNS 80 /* also where the terminal is wider: longer lines are harder to read */

/* Prints the words of text and ends the line. The text goes on at `column`; later lines begin at `indent`. A word in
 * brackets, such as "[--device DEVICE]...", is not divided. */
void lines_wrap(FILE *file, const char *text, size_t column, size_t indent);

/* Two columns, the first one as wide as `columns`. */
void help_entry_print(const char *left, size_t columns, const char *right);
/* The width that the first column of these rows needs, at least `columns`; what is longer than most entries stands on a line of its own.
 * rows may be NULL. */
size_t options_columns(const struct option_row *rows, size_t columns);
/* The rows, each with its help. rows may be NULL. */
void options_print(const struct option_row *rows, size_t columns);
/* Usage, what the program does, its options and the rest. */
void command_line_help(const struct command_line *line, const struct option_row *always);

#endif
