/* Messages that ask about all that there is. */
#include "messages.h"
#include "methods.h"

static const struct record_field list_params_rows[] = {
	FIELD_TEXT_MAYBE(struct list_params, model, NAME_BYTES_MAX),
};
static const struct record list_params = {RECORD(struct list_params, list_params_rows)};

const struct message_form form_list = {METHOD_LIST, &list_params, &record_by_hand};
const struct message_form form_status = {METHOD_STATUS, &record_nothing, &record_by_hand};
const struct message_form form_clients = {METHOD_CLIENTS, &record_nothing, &record_by_hand};
