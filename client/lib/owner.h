/* Whose version is wished for: gpuwm_attach_options.owner_uids and owner_operator, as a mapping keeps them. */
#ifndef GPUWM_LIB_OWNER_H
#define GPUWM_LIB_OWNER_H

#include "../../include/gpuwm/client.h"
#include "../../proto/limits.h"
#include "../../proto/message.h"

/* Zeroed: anybody's. */
struct owner {
	uint32_t uids[OWNER_UIDS_MAX];
	size_t count;
	bool operators;
};

/* -EINVAL: too many users, or NULL. */
int owner_check(const struct gpuwm_attach_options *options, struct error *error);
/* A copy of what the options, which were checked, wish for; and options that wish for what was copied, for as long as
 * that is there. */
struct owner owner_copy(const struct gpuwm_attach_options *options);
void owner_wish(const struct owner *owner, struct gpuwm_attach_options *options);
/* The parameter `owner` of a request, if there is a wish. */
void owner_put(struct message_writer *w, const struct gpuwm_attach_options *options);

#endif
