/* The owners whose versions a caller accepts: owner_uids and owner_operator of gpuwm_attach_options, as a mapping keeps them. */
#ifndef GPUWM_LIB_OWNER_H
#define GPUWM_LIB_OWNER_H

#include "../../include/gpuwm/client.h"
#include "../../proto/wire/owner_wish.h"

/* Checks the options. Fails with -EINVAL if there are too many users, or no array. */
int owner_check(const struct gpuwm_attach_options *options, struct error *error);
/* Returns the owners of options that were checked. */
struct owner_wish owner_of(const struct gpuwm_attach_options *options);
/* Sets the options to these owners, which must outlive the options. */
void owner_set(const struct owner_wish *owner, struct gpuwm_attach_options *options);

#endif
