/* The step that puts a version onto another tier in the ledger. work/tiers/tiers.h has the steps before and after it. */
#ifndef GPUWM_DAEMON_RELOCATION_H
#define GPUWM_DAEMON_RELOCATION_H

#include "registry.h"

/* A segment that another version has where the part moves, with the same origin. */
struct relocated_twin {
	struct version *version; /* NULL: none has it, and the segment gets new memory */
	struct segment *segment;
};

/* The memory of a part that moves: before version_relocate the new memory, after it the old memory. */
struct relocated {
	bool moves; /* false: the part stays where it is */
	struct device *onto; /* whose memory the new segments are; NULL: the new tier has no memory */
	bool from_copy; /* the new segments are the part's host copy: nothing is copied */
	bool keeps_copy; /* the old segments become the part's host copy */
	struct segment_hold *segments; /* malloced */
	uint32_t count;
	uint64_t *sizes; /* malloced: of the present segments, if the new tier has no memory; else NULL */
	struct budget_charge charge; /* of the new segments that have not arrived yet */
	struct relocated_twin *twins; /* malloced: for each segment of the part; NULL: none has one */
	uint32_t twin_count; /* how many have one */
	uint64_t twin_bytes; /* of these */
	bool holds_twins; /* the twins' versions have a reader for each of them */
};

/* Returns the device that the part lies on if its version lies on the tier; NULL: on none, or no loader has reported that device. */
struct device *replica_place(const struct replica *replica, enum tier tier, const struct device_table *devices);
/* Sets *ret_sizes to the sizes of the part's segments, which the caller frees. Returns 0. Fails with -ENOMEM. */
int replica_sizes(const struct replica *replica, uint64_t **ret_sizes);
/* Returns how many segments the part has, or had before its version came to lie on files. */
uint32_t replica_count_segments(const struct replica *replica);

/* Finds the twins of the version's part `i` among the segments that lie on new->onto. They are those of the same rank, whose device is
 * the part's too, with the same origins, of ready versions that don't move and whose memory is sound. Of two versions that share, both
 * are operators'; `may` says of each whether it may be shared now. Call it before relocated_hold_twins. Fails with -ENOMEM. */
int relocated_find_twins(const struct version *version, uint32_t i, struct relocated *new,
			 bool (*may)(void *data, const struct version *twin), void *data);
/* The versions of the twins have as many readers more, which keep the segments where they are, or as many less. */
void relocated_hold_twins(struct relocated *new);
void relocated_let_go_of_twins(struct relocated *new);
/* Returns whether any parts of the two versions, of the same rank and device, have a segment of the same origin. */
bool version_is_akin(const struct version *version, const struct version *other);
/* Returns the bytes of segments on the device that only `other` holds, and that would be twins if `version` came there. */
uint64_t version_twin_bytes(const struct version *version, const struct version *other,
			    const struct device *device);

/* Takes the segments that a loader has made for a part into new->segments, which must be empty: each gets its share of new->charge,
 * and a use. The descriptors are the segments' from then on, and *part has none of them. Twins are taken as they are; their descriptors
 * stay in *part. Fails with -EBADMSG if they are not as many and as
 * large as those of `replica`, and -ENOMEM. */
int relocated_take(const struct replica *replica, struct relocated *new, struct part *part,
		   struct error *error);

/* Charges the owner with `more` descriptors, or gives `less` back. Fails with -EDQUOT. They do nothing for an operator's version. */
int version_charge_fds(struct version *version, uint64_t more, struct error *error);
void version_uncharge_fds(struct version *version, uint64_t less);

/* Moves the version to the tier `to`. `parts` has an entry for each of its parts: the new memory goes into the version, the old one
 * into the entry. The owner's charge for the bytes goes over from the old segments to the new ones, unless these have one. */
void version_relocate(struct version *version, enum tier to, struct relocated *parts);
/* Returns whether all parts of the version have host copies. */
bool version_has_whole_copy(const struct version *version);
/* The new memory in `parts`, which has an entry for each part of the version and is host memory, becomes the version's host copy. */
void version_add_host_copy(struct version *version, struct relocated *parts);
/* The version no longer has its host copy: what becomes of it goes into `parts`, which has a zeroed entry for each part. */
void version_take_host_copy(struct version *version, struct relocated *parts);
/* Gives the version this description, which the version owns from then on. Frees the one that the version had. */
void version_describe(struct version *version, struct description *description);

/* Ends the entry's uses of segments, gives its charge back, and frees its arrays. Closes no descriptors. */
void relocated_clear(struct relocated *part);

#endif
