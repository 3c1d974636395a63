/* The quotas: what a user may hold, a row each. Configuration, limits, refusals and the list of users are made of this table.
 *
 *   QUOTA(KIND, name, unit, most, noun, help)
 *
 *   KIND   QUOTA_KIND of enum quota_kind
 *   name   what a user is charged with, in the result of `clients`. NAME_per_uid is the key in [limits], and in the limits
 *          that hello tells
 *   unit   THINGS or BYTES
 *   most   the limit unless the configuration has the key
 *   noun   what a refusal says after the limit ("uid 7 may have 5 leases")
 *   help   what the key means, for gpuwmd --help
 *
 * Versions that operators made count for no quota. proto/wire/messages_session.c and proto/wire/messages_look.c have the names as
 * docs/protocol.md writes them, and tests/unit/daemon_quota.c compares them with this table. */
#ifndef GPUWM_DAEMON_QUOTAS_H
#define GPUWM_DAEMON_QUOTAS_H

#define QUOTAS(QUOTA)                                                                                            \
	QUOTA(SESSIONS, "sessions", THINGS, SESSIONS_PER_UID_MAX, "connections",                                 \
	      "connections of one user to the workers' socket")                                                  \
	QUOTA(LEASES, "leases", THINGS, LEASES_PER_UID_MAX, "leases", "leases of one user")                      \
	QUOTA(REQUESTS, "requests", THINGS, REQUESTS_PER_UID_MAX, "waiting requests",                            \
	      "requests of one user that wait for something")                                                    \
	/* Each open publish holds a loader. */                                                                  \
	QUOTA(PUBLISHES, "publishes", THINGS, PUBLISHES_PER_UID_MAX, "open publishes",                           \
	      "open publishes of one user, and parts of one user that are checked at the same time")             \
	QUOTA(CLAIMS, "claims", THINGS, CLAIMS_PER_UID_MAX, "claims",                                            \
	      "versions that processes of one user have claimed to build and not built yet")                     \
	QUOTA(VERSIONS, "versions", THINGS, VERSIONS_PER_UID_MAX, "versions",                                    \
	      "versions that one user has published and that did not fail")                                      \
	QUOTA(NAMELESS, "nameless", THINGS, NAMELESS_PER_UID_MAX, "versions without a name",                     \
	      "versions without a name that one user has published and that did not fail")                       \
	QUOTA(REGIONS, "regions", THINGS, REGIONS_PER_UID_MAX, "regions", "regions of one user")                 \
	/* Each takes a process with a CUDA context besides its bytes. */                                        \
	QUOTA(COPIES, "copies", THINGS, COPIES_PER_UID_MAX, "copies by CUDA IPC",                                \
	      "copies for processes of one user that attach by cuda_ipc")                                        \
	/* Of segments, regions and copies, promised or held, on all devices together. */                        \
	QUOTA(BYTES, "bytes", BYTES, QUOTA_NONE, "of memory",                                                    \
	      "memory of one user's versions, regions and copies, on all devices together; by default only the " \
	      "budgets limit it")                                                                                \
	QUOTA(FDS, "fds", THINGS, FDS_PER_UID_MAX, "descriptors in the store",                                   \
	      "descriptors of one user's versions, regions, and processes that use regions")                     \
	QUOTA(INDEX_BYTES, "index_bytes", BYTES, INDEX_BYTES_PER_UID_MAX, "of indices",                          \
	      "bytes of the indices of one user's versions")

#endif
