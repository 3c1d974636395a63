/* The step that puts a version onto another tier in the ledger. work/tiers/tiers.h has the steps before and after it. */
#ifndef GPUWM_DAEMON_RELOCATION_H
#define GPUWM_DAEMON_RELOCATION_H

#include "registry.h"

/* The memory of a part that moves: before version_relocate the new memory, after it the old memory. */
struct relocated {
	bool moves; /* false: the part stays where it is */
	struct device *onto; /* whose memory the new segments are; NULL: the new tier has no memory */
	struct segment_hold *segments; /* malloced */
	uint32_t count;
	uint64_t *sizes; /* malloced: of the present segments, if the new tier has no memory; else NULL */
	struct budget_charge charge; /* of the new segments that have not arrived yet */
};

/* Returns the device that the part lies on if its version lies on the tier; NULL: on none, or no loader has reported that device. */
struct device *replica_place(const struct replica *replica, enum tier tier, const struct device_table *devices);
/* Sets *ret_sizes to the sizes of the part's segments, which the caller frees. Returns 0. Fails with -ENOMEM. */
int replica_sizes(const struct replica *replica, uint64_t **ret_sizes);
/* Returns how many segments the part has, or had before its version came to lie on files. */
uint32_t replica_count_segments(const struct replica *replica);

/* Takes the segments that a loader has made for a part into new->segments, which must be empty: each gets its share of new->charge,
 * and a use. The descriptors are the segments' from then on, and *part has none. Fails with -EBADMSG if they are not as many and as
 * large as those of `replica`, and -ENOMEM. */
int relocated_take(const struct replica *replica, struct relocated *new, struct part *part,
		   struct error *error);

/* Charges the owner with `more` descriptors, or gives `less` back. Fails with -EDQUOT. They do nothing for an operator's version. */
int version_charge_fds(struct version *version, uint64_t more, struct error *error);
void version_uncharge_fds(struct version *version, uint64_t less);

/* Moves the version to the tier `to`. `parts` has an entry for each of its parts: the new memory goes into the version, the old one
 * into the entry. The owner's charge for the bytes goes over from the old segments to the new ones, unless these have one. */
void version_relocate(struct version *version, enum tier to, struct relocated *parts);
/* Gives the version this description, which the version owns from then on. Frees the one that the version had. */
void version_describe(struct version *version, struct description *description);

/* Ends the entry's uses of segments, gives its charge back, and frees its arrays. Closes no descriptors. */
void relocated_clear(struct relocated *part);

#endif
