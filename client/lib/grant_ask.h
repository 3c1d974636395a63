/* Asks gpuwmd for a lease, or for a claim of what is not there. */
#ifndef GPUWM_LIB_GRANT_ASK_H
#define GPUWM_LIB_GRANT_ASK_H

#include "grant.h"

/* Asks for a lease. options may be NULL. Where the device is left open and the
 * version is on several, the one of the thread's CUDA context is asked for. */
int grant_take(struct gpuwm_client *client, const char *ref, const struct gpuwm_attach_options *options,
	       struct grant *ret, struct error *error);

/* The same by model@tag, or this client becomes the one who builds it: 1, with the round of the connection
 * that the claim counts on. */
int grant_claim(struct gpuwm_client *client, const char *name, const struct gpuwm_attach_options *options,
		struct grant *ret, uint64_t *ret_round, struct error *error);

#endif
