/* Asks gpuwmd for a lease, or for the claim of a version that is not there. */
#ifndef GPUWM_LIB_GRANT_ASK_H
#define GPUWM_LIB_GRANT_ASK_H

#include "grant.h"

/* Asks for a lease. options may be NULL. If they name no device and the version is on several, asks for the device of the thread's CUDA
 * context. */
int grant_take(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *options,
	       struct grant *ret, struct error *error);

/* The same by model@tag. If the version is not there and no other session builds it, the client gets the claim: returns 1, and sets
 * *ret_round to the round of the connection on which gpuwmd has the claim. */
int grant_claim(struct gpuwm_client *client, const char *name, const struct gpuwm_attach_options *options,
		struct grant *ret, uint64_t *ret_round, struct error *error);

#endif
