/* A call to gpuwmd that outlives a restart of it where that is safe. */
#ifndef GPUWM_LIB_CALL_H
#define GPUWM_LIB_CALL_H

#include "client.h"

struct call {
	struct gpuwm_client *client;
	const struct call_rule *rule;
	struct message_writer request; /* its params are open: put them, do not end them */
	uint64_t only; /* set it: this round's connection, or -ECONNRESET; 0: any */
	uint64_t round; /* of the connection that answered */
	unsigned
		taken; /* how often gpuwmd went away with the request, without an answer or saying that it stops */
};

void call_begin(struct call *call, struct gpuwm_client *client, const char *method);

/* Sends it, with the wait_ms that is left where the method takes one, and waits
 * for the answer: wait_ms (-1: for ever) and slack for the transport. Clears the
 * request. ret_reply may be NULL. A refusal by gpuwmd is its code. -ECONNREFUSED,
 * -ECONNABORTED, -ETIMEDOUT: see gpuwm/client.h. */
int call_run(struct call *call, int64_t wait_ms, struct reply *ret_reply, struct error *error);

#endif
