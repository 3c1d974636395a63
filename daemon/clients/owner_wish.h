/* The parameter `owner`: whose version a session wants. With it, a session does not get the version of a stranger who took the name
 * first. */
#ifndef GPUWM_DAEMON_OWNER_WISH_H
#define GPUWM_DAEMON_OWNER_WISH_H

#include "../../proto/message.h"
#include "../ledger/registry.h"

/* Zeroed: a version of any user. */
struct owner_wish {
	bool operators; /* a version that an operator made */
	uint32_t count;
	uid_t uids[OWNER_UIDS_MAX];
};

/* Reads `[u64 or "operator"]?`, at most OWNER_UIDS_MAX users. Errors stick to the fields; an empty array is -EINVAL. */
void owner_wish_read(struct fields *fields, const char *key, struct owner_wish *ret);
/* Checks that the version is one of those. Fails with -EACCES; the message says whose it is, and whose was asked for. */
int owner_wish_check(const struct owner_wish *wish, const struct version *version, struct error *error);

#endif
