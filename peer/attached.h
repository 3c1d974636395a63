/* A version of gpuwmd that is attached: all its ranks, under leases, mapped read-only. */
#ifndef GPUWM_PEER_ATTACHED_H
#define GPUWM_PEER_ATTACHED_H

#include "gpuwmd.h"
#include "serve.h"

struct attached;

/* Attaches the version at `position` of the listing. Returns 0 and sets *ret. Fails as gpuwm_get_handles, with -ENOMEM, and with
 * -EAGAIN if the version lies on a lower tier: gpuwm-peer never begins a promotion. */
int attached_new(struct gpuwmd *gpuwmd, const struct listing *listing, size_t position, struct attached **ret,
		 struct error *error);
/* Unmaps everything and gives the leases back. Nobody may read it any more. NULL is fine. Returns NULL. */
struct attached *attached_free(struct attached *attached);

/* Its parts, one for each rank, as long as it is attached. */
const struct served_part *attached_parts(const struct attached *attached);

#endif
