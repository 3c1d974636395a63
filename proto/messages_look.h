/* Messages: questions about all that there is. messages.h says how.
 *
 * gpuwmd writes their arrays in loops over all that it has. The library hands these results to programs as JSON. */
#ifndef GPUWM_PROTO_MESSAGES_LOOK_H
#define GPUWM_PROTO_MESSAGES_LOOK_H

#include "message_form.h"

extern const struct message_form form_list, form_status, form_clients;
struct list_params {
	const char *model;
};

#endif
