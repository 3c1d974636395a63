/* Mappings: each is one attach, or one publish that was committed attached. It has a lease, and uses a mapped part. */
#ifndef GPUWM_LIB_ATTACH_H
#define GPUWM_LIB_ATTACH_H

#include "mapped_part.h"
#include "owner.h"
#include "reaper.h"

struct gpuwm_mapping {
	struct gpuwm_client *client;
	struct fork_hook hook;
	struct keep keep; /* the caller's use, and those of exports and holds */
	struct gpuwm_version_info version;
	struct lease *lease;
	struct gpuwm_key_field *key; /* that was asked for: a switch asks for it too */
	size_t key_count;
	struct owner owner; /* the same */
	struct mapped_part *part;
};

/* A mapping (zeroed) of what was granted, which ends here: the lease is the mapping's, or given back, and the
 * descriptors are closed. */
int mapping_take(struct gpuwm_client *client, struct grant *grant, const struct gpuwm_attach_options *options,
		 struct gpuwm_mapping *mapping, struct error *error);
/* The caller's use of the part begins; the rest of it may come later: a mapping without a lease is of memory that
 * is nobody else's. */
void mapping_init(struct gpuwm_mapping *mapping, struct mapped_part *part);
/* Nothing of it is mapped any more: gives the lease back. As lease_release. */
int mapping_free(struct gpuwm_mapping *mapping, struct error *error);

#endif
