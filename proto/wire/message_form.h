/* The form of a message, and the writing of a whole one by it. */
#ifndef GPUWM_PROTO_MESSAGE_FORM_H
#define GPUWM_PROTO_MESSAGE_FORM_H

#include "record.h"

/* The form of a method, a notification or an event: all that both ends know of it. The name stands only here. */
struct message_form {
	const char *name;
	const struct record *params;
	const struct record *result; /* NULL: of a notification or an event */
	/* Of a method: the request may be sent again if gpuwmd took it and went away before it answered. A second request of other
	 * methods could fail on what the first one did (pin_version), undo what somebody else did meanwhile (hot_swap), find
	 * another version under the name (retire), or make a second one (load). */
	bool again;
};

/* {} */
extern const struct record record_nothing;

/* Each of these makes a writer, of at most a packet, and writes a whole message with params, a
 * struct of the form's params. */
void message_write_request(struct message_writer *w, uint64_t id, const struct message_form *form,
			   const void *params);
void message_write_notification(struct message_writer *w, const struct message_form *form, const void *params);

#endif
