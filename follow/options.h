/* The command line. */
#ifndef GPUWM_FOLLOW_OPTIONS_H
#define GPUWM_FOLLOW_OPTIONS_H

#include "route.h"

/* How long gpuwm-follow keeps a server that gpuwmd does not tell of after a restart. Workers of a gpuwmd that was restarted are back in
 * half a second (RECONNECT_MAX_MS); gpuwmd itself frees nothing for GRACE_MS, which is 10 seconds. */
#define KEEP_MS 30000
/* How often gpuwm-follow compares HAProxy's servers with what they should be: a HAProxy that was restarted has them wrong for so long. */
#define CHECK_MS 1000
/* A hook that takes longer hangs; one that failed fails again at once. */
#define EXEC_TIMEOUT_MS 30000
#define EXEC_RETRY_MS 5000

struct options {
	const char *socket; /* of gpuwmd; NULL: the usual one */
	const char *haproxy; /* NULL: there is none */
	const char *haproxy_state; /* a file; NULL: none is written */
	const char *exec; /* NULL: there is none */
	uint64_t keep_ms, check_ms, exec_timeout_ms, exec_retry_ms;
	struct route *routes; /* malloced */
	size_t route_count;
};

/* Returns 0 and sets *ret, or 1 if help or version was printed and there is nothing to do. Fails with -EINVAL, and logs why. */
int options_parse(struct options *ret, int argc, char *const *argv);

#endif
