/* Users and groups who may take part in a publish besides the user who began it. */
#ifndef GPUWM_DAEMON_JOINERS_H
#define GPUWM_DAEMON_JOINERS_H

#include "../../proto/wire/messages_publish.h"

#include <sys/types.h>

struct joiners {
	uint32_t uid_count, gid_count; /* both 0: nobody */
	uid_t uids[JOIN_UIDS_MAX];
	gid_t gids[JOIN_GIDS_MAX];
};

/* Copies the ids of a message, which are at most as many as there is room for. */
void joiners_set(struct joiners *joiners, const struct join_params *params);
/* Returns them for a message. The arrays stay those of `joiners`. */
struct join_params joiners_tell(const struct joiners *joiners);
bool joiners_have_uid(const struct joiners *joiners, uid_t uid);

#endif
