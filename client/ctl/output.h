/* The form in which gpuwmctl prints, chosen with -o. It holds for all that this process prints, errors included. */
#ifndef GPUWM_CTL_OUTPUT_H
#define GPUWM_CTL_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

enum output_form {
	OUTPUT_TABLE, /* for people: tables and sentences that fit in the terminal's columns */
	OUTPUT_WIDE, /* the same with more columns and with ids in full; nothing is cut */
	OUTPUT_JSON, /* for programs: one document a line */
	OUTPUT_NAME, /* for shell loops: one reference a line */
};

/* What -o takes, for messages: "table, wide, json or name". */
extern const char output_forms[];
/* Returns 0 and sets *ret_form, or -EINVAL. */
int output_form_parse(const char *text, enum output_form *ret_form);
void output_choose(enum output_form form);
/* Chooses the form of the first valid -o in argv, so that an error in an option before it has that form too. */
void output_choose_early(int argc, char *const *argv);
enum output_form output_form(void);
/* Whether the result is data, JSON. Then stdout has nothing else, and stderr has errors in the same form. */
bool output_is_data(void);

/* Writes the value as one document of JSON. Returns 0, -EIO if a write failed, or -ENOMEM. */
int output_write(FILE *stream, const json_t *value);

#endif
