/* The owners whose versions a caller accepts: owner_uids and owner_operator of gpuwm_attach_options, as a mapping keeps them. */
#ifndef GPUWM_LIB_OWNER_H
#define GPUWM_LIB_OWNER_H

#include "../../include/gpuwm/client.h"
#include "../../proto/limits.h"
#include "../../proto/message.h"

/* Zeroed: any owner. */
struct owner {
	uint32_t uids[OWNER_UIDS_MAX];
	size_t count;
	bool operators;
};

/* Checks the options. Fails with -EINVAL if there are too many users, or no array. */
int owner_check(const struct gpuwm_attach_options *options, struct error *error);
/* owner_copy copies the owners of options that were checked. owner_wish sets the options to the copy, which must outlive them. */
struct owner owner_copy(const struct gpuwm_attach_options *options);
void owner_wish(const struct owner *owner, struct gpuwm_attach_options *options);
/* Writes the parameter `owner` of a request, if the options have one. */
void owner_put(struct message_writer *w, const struct gpuwm_attach_options *options);

#endif
