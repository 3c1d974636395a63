/* Users and groups who may take part in a publish besides the user who began it. */
#ifndef GPUWM_DAEMON_JOINERS_H
#define GPUWM_DAEMON_JOINERS_H

#include "../../proto/message.h"

#include <sys/types.h>

struct joiners {
	uint32_t uid_count, gid_count; /* both 0: nobody */
	uid_t uids[JOIN_UIDS_MAX];
	gid_t gids[JOIN_GIDS_MAX];
};

/* Reads {uids: [u32]?, gids: [u32]?}; a missing key reads as nobody. Errors stick to the fields. */
void joiners_read(struct fields *f, const char *key, struct joiners *ret);
/* Writes what joiners_read reads. */
void joiners_put(struct message_writer *w, const char *key, const struct joiners *joiners);
bool joiners_have_uid(const struct joiners *joiners, uid_t uid);

#endif
