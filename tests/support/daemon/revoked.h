/* What the tests of revoked leases share. The peer of every connection is this process. */
#ifndef GPUWM_TESTS_DAEMON_REVOKED_H
#define GPUWM_TESTS_DAEMON_REVOKED_H

#include "daemon/ledger/registry_internal.h"
#include "daemon/work/versions/leases.h"
#include "tests/support/daemon/server.h"

struct device *host(void);

/* Gets handles. Returns the lease. */
uint64_t lease_by(int sock, const char *ref);

/* Each sends the request of its name. Returns the code. */
int kick(int admin, const char *key, uint64_t number);
int release(int sock, uint64_t lease);
int retire_by(int admin, const char *ref, bool force, uint64_t after_ms);

/* What gpuwmd says unasked of a lease of this connection. */
void hears_that_it_is_revoked(int sock, uint64_t lease);

/* A version without aliases, so that it can be retired. */
struct version *unnamed(const char *tag);

/* Whether m has no version of this tag any more. */
bool is_gone(const char *tag);

/* Returns the newest session of this kind. */
struct session *session_of(enum session_kind kind);
/* Grants it leases without requests. */
void grant_many(struct session *session, struct version *version, uint64_t count);

#endif
