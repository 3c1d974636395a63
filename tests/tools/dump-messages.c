/* Prints the forms of all messages, one a line, as docs/protocol.md writes them:
 *
 *   method NAME PARAMS → RESULT
 *   notification NAME PARAMS
 *   event KIND MAP
 *   record NAME MAP
 *   again NAME, of a method that may be sent again
 *
 * python/tests/test_protocol.py compares them with the document. */
#include "proto/wire/messages.h"
#include "tests/support/proto/forms.h"

#include <stdio.h>

static void print_named(const struct record *record)
{
	printf("record %s ", record->name);
	record_print(record, true);
	printf("\n");
}

int main(void)
{
	for (const struct message_form *const *form = message_forms; *form; form++) {
		form_print(*form);
		if ((*form)->again)
			printf("again %s\n", (*form)->name);
	}
	for (const struct message_form *const *form = event_forms; *form; form++) {
		printf("event %s ", (*form)->name);
		record_print((*form)->params, false);
		printf("\n");
	}
	print_named(&device_told_record);
	print_named(&limits_told_record);
}
