/* Names that a client is the one to build, until a publish of them begins. The client takes them again after a restart of
 * gpuwmd. */
#ifndef GPUWM_LIB_CLAIMS_H
#define GPUWM_LIB_CLAIMS_H

#include "reviver.h"

/* In the reviver's list, under its lock. */
struct claim {
	char name[2 * NAME_BYTES_MAX + 2];
	uint64_t round; /* of the connection that gpuwmd counts it on */
	struct claim *next;
};

/* Enters a (malloced) claim that gpuwmd granted on the connection of this round. Returns false if that connection has ended,
 * and the claim with it: then the caller still owns it. */
bool claims_hold(struct reviver *v, struct claim *claim, uint64_t round);

/* Takes the claim of this name out of the list, or any claim; the caller frees it. NULL: there is none. */
struct claim *claims_take(struct reviver *v, const char *name);
struct claim *claims_take_first(struct reviver *v);

/* Takes all again on a new connection, of this round; what another client builds by now is forgotten. Returns 0 also when
 * gpuwmd refuses to, or is older. After any other error the caller closes the connection and tries again. */
int claims_resume(struct reviver *v, struct connection *connection, uint64_t round, struct error *error);

/* Frees what is left. */
void claims_free(struct reviver *v);

#endif
