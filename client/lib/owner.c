#include "owner.h"

#include <errno.h>
#include <string.h>

int owner_check(const struct gpuwm_attach_options *options, struct error *error)
{
	if (options->owner_uid_count > OWNER_UIDS_MAX)
		return error_set(error, -EINVAL, NULL,
				 "%zu users are wished for as owner; at most %d are possible",
				 options->owner_uid_count, OWNER_UIDS_MAX);
	if (!options->owner_uids && options->owner_uid_count > 0)
		return error_set(error, -EINVAL, NULL, "owner_uids is NULL, but owner_uid_count is %zu",
				 options->owner_uid_count);
	return 0;
}

struct owner_wish owner_of(const struct gpuwm_attach_options *options)
{
	struct owner_wish owner = {.count = (uint32_t)options->owner_uid_count,
				   .operators = options->owner_operator};

	if (owner.count > 0)
		memcpy(owner.uids, options->owner_uids, owner.count * sizeof(*owner.uids));
	return owner;
}

void owner_set(const struct owner_wish *owner, struct gpuwm_attach_options *options)
{
	options->owner_uids = owner->uids;
	options->owner_uid_count = owner->count;
	options->owner_operator = owner->operators;
}
