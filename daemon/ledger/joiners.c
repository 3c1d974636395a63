#include "joiners.h"

void joiners_set(struct joiners *joiners, const struct join_params *params)
{
	*joiners = (struct joiners){.uid_count = params->uids.count, .gid_count = params->gids.count};
	for (uint32_t i = 0; i < params->uids.count; i++)
		joiners->uids[i] = params->uids.items[i];
	for (uint32_t i = 0; i < params->gids.count; i++)
		joiners->gids[i] = params->gids.items[i];
}

struct join_params joiners_tell(const struct joiners *joiners)
{
	return (struct join_params){.uids = {joiners->uids, joiners->uid_count},
				    .gids = {joiners->gids, joiners->gid_count}};
}

bool joiners_have_uid(const struct joiners *joiners, uid_t uid)
{
	uint32_t i = 0;

	while (i < joiners->uid_count && joiners->uids[i] != uid)
		i++;
	return i < joiners->uid_count;
}
