#include "messages.h"

const struct record record_nothing = {0};

const struct message_form *const message_forms[] = {
	&form_pin_version, &form_unpin_version, &form_hot_swap, &form_retire, &form_remove,
	&form_kick,        &form_drain,         &form_reload,   NULL,
};
