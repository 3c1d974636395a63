/* Names that this client is the one to build, until a publish of them begins. */
#ifndef GPUWM_LIB_CLAIM_H
#define GPUWM_LIB_CLAIM_H

#include "client.h"

/* In the reviver's list, under its lock. */
struct claim {
	char name[2 * NAME_BYTES_MAX + 2];
	uint64_t round; /* of the connection that gpuwmd counts it on */
	struct claim *next;
};

/* The publish that was begun has taken the claim of its name over, where there was one. */
void claim_spend(struct gpuwm_client *client, const char *name);

/* Gives up all of a client that is closed: its connection may go on. */
void claims_give_up(struct gpuwm_client *client);

/* For the reviver: takes all again on a new connection, of this round; what another one builds by now is forgotten.
 * 0 also when gpuwmd refuses to, or is older; else the connection is not worth having. */
int claims_resume(struct gpuwm_client *client, struct connection *connection, uint64_t round,
		  struct error *error);

/* Frees what is left. */
void claims_free(struct gpuwm_client *client);

#endif
