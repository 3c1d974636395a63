/* Forms of messages as the documents write them: {key: type?, …}. */
#ifndef TESTS_SUPPORT_PROTO_FORMS_H
#define TESTS_SUPPORT_PROTO_FORMS_H

#include "proto/wire/message_form.h"

/* Prints the map of a record. If it has a name, prints that instead, unless `whole` is true. */
void record_print(const struct record *record, bool whole);

/* Prints a line "method NAME PARAMS → RESULT" or "notification NAME PARAMS". */
void form_print(const struct message_form *form);

#endif
