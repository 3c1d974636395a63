/* The parameter `owner` of get_handles and claim: whose versions a client accepts. With it, a client does not get the
 * version of a stranger who took the name first. */
#ifndef GPUWM_PROTO_OWNER_WISH_H
#define GPUWM_PROTO_OWNER_WISH_H

#include "record.h"

/* Zeroed: versions of anybody. */
struct owner_wish {
	uint32_t uids[OWNER_UIDS_MAX];
	uint32_t count;
	bool operators; /* versions that an operator made */
};

/* An array that is there must name somebody. */
extern const struct record_codec owner_codec;

/* The text among the uids that stands for `operators`. */
#define OWNER_OPERATOR "operator"

#define FIELD_OWNER(S, m) FIELD_CODEC(S, m, RECORD_MAYBE, struct owner_wish, &owner_codec)

#endif
