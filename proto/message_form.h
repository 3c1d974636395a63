/* The form of a message, and the writing of a whole one by it. */
#ifndef GPUWM_PROTO_MESSAGE_FORM_H
#define GPUWM_PROTO_MESSAGE_FORM_H

#include "record.h"

/* The form of a method or of a notification: its name, and the records of its maps. */
struct message_form {
	const char *name;
	const struct record *params;
	const struct record *result; /* NULL: of a notification */
};

/* {} */
extern const struct record record_nothing;

/* Each of these makes a writer, of at most a packet, and writes a whole message with params, a
 * struct of the form's params. */
void message_write_request(struct message_writer *w, uint64_t id, const struct message_form *form,
			   const void *params);
void message_write_notification(struct message_writer *w, const struct message_form *form, const void *params);

#endif
