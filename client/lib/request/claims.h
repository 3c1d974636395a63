/* The names that a client claims, until it begins a publish of them. After a restart of gpuwmd the client takes them again. */
#ifndef GPUWM_LIB_CLAIMS_H
#define GPUWM_LIB_CLAIMS_H

#include "reviver.h"

/* A claim in the reviver's list, under the reviver's lock. */
struct claim {
	char name[2 * NAME_BYTES_MAX + 2];
	uint64_t round; /* of the connection on which gpuwmd has the claim */
	struct claim *next;
};

/* Enters a (malloced) claim that gpuwmd granted on the connection of this round. Returns false if that connection has ended,
 * and the claim with it: then the caller still owns it. */
bool claims_hold(struct reviver *v, struct claim *claim, uint64_t round);

/* Take the claim of this name, or any claim, out of the list. The caller frees it. NULL: there is none. */
struct claim *claims_take(struct reviver *v, const char *name);
struct claim *claims_take_first(struct reviver *v);

/* Takes all claims again on a new connection, which has this round. Forgets claims of names that another client builds by now.
 * Returns 0 also if gpuwmd refuses a claim, or is too old. After any other error the caller closes the connection and tries
 * again. */
int claims_resume(struct reviver *v, struct connection *connection, uint64_t round, struct error *error);

/* Frees the claims that are left. */
void claims_free(struct reviver *v);

#endif
