/* Messages: versions on tiers. messages.h says how. */
#ifndef GPUWM_PROTO_MESSAGES_TIER_H
#define GPUWM_PROTO_MESSAGES_TIER_H

#include "message_form.h"
#include "record.h"
#include "reference.h"

extern const struct message_form form_demote;
struct demote_params {
	struct reference ref;
	const char *to; /* TIER_HOST or TIER_FILES */
};

extern const struct message_form form_promote;
struct promote_params {
	struct reference ref;
};

extern const struct message_form form_describe;
struct describe_params {
	struct reference ref;
	const char *source;
};

/* demote, promote, describe */
struct moves_result {
	struct {
		const uint64_t *items;
		uint32_t count;
	} jobs; /* one for each part that moves; none if nothing has to move */
};

#endif
