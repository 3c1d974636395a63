/* Whose version somebody wants: the parameter `owner`, so that nobody is served by who took a name first. */
#ifndef GPUWM_DAEMON_OWNER_WISH_H
#define GPUWM_DAEMON_OWNER_WISH_H

#include "../../proto/message.h"
#include "../ledger/registry.h"

/* Zeroed: anybody's. */
struct owner_wish {
	bool operators; /* what an operator made */
	uint32_t count;
	uid_t uids[OWNER_UIDS_MAX];
};

/* [u64 or "operator"]?: at most OWNER_UIDS_MAX users. Errors stick to the fields; -EINVAL: an array of none. */
void owner_wish_read(struct fields *fields, const char *key, struct owner_wish *ret);
/* -EACCES: it is somebody else's; says whose, and whose was asked for. */
int owner_wish_check(const struct owner_wish *wish, const struct version *version, struct error *error);

#endif
