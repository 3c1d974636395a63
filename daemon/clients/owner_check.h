/* Whether a version is one of those that a session accepts. */
#ifndef GPUWM_DAEMON_OWNER_CHECK_H
#define GPUWM_DAEMON_OWNER_CHECK_H

#include "../../proto/wire/owner_wish.h"
#include "../ledger/registry.h"

/* Fails with -EACCES; the message says whose the version is, and whose was asked for. */
int owner_check(const struct owner_wish *wish, const struct version *version, struct error *error);

#endif
