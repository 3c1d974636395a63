/* Segments, and who holds them. A segment is one piece of memory behind one descriptor. The parts of several versions may hold
 * the same segment: its bytes are charged once, the fd store has its descriptor once, and it is closed when the last part has
 * let go of it. */
#ifndef GPUWM_DAEMON_SEGMENT_H
#define GPUWM_DAEMON_SEGMENT_H

#include "device.h"

struct replica;
struct version;

struct segment {
	int fd; /* -1: it was closed, or an adopted descriptor was not taken yet */
	uint64_t bytes;
	uint64_t name; /* in the fd store; 0: it is not there */
	struct budget_charge charge;
	bool damaged; /* a loader found that its bytes are not what was checked */
	struct segment_hold *holds; /* a list: the parts that keep it open */
	unsigned uses; /* parts that have it, also after they let go; and shared charges */
	unsigned mapped; /* shared charges that count leases which were revoked and may still map it */
};

/* A segment in a part: the part's array has one for each segment, at a place that does not change. */
struct segment_hold {
	struct segment *segment;
	struct version *version;
	bool last; /* the part has let go, and no other part holds the segment: it leaves with this part */
	bool spare; /* of the part's host copy: the part can do without it */
	struct segment_hold *next, **link; /* in the segment's list; link NULL: the part has let go */
};

/* Makes a segment that nobody uses yet. Returns NULL if there is no memory. */
struct segment *segment_new(int fd, uint64_t bytes, uint64_t name);
/* Frees a segment that nobody uses. NULL is fine, and so is a segment that somebody uses: it stays. */
void segment_free_unused(struct segment *segment);
/* Adds the part of a version to those that hold the segment. */
void segment_hold(struct segment_hold *hold, struct segment *segment, struct version *version);
/* Returns whether only host copies hold the segment, so that it can be freed at once. */
bool segment_is_spare(const struct segment *segment);
/* The part no longer keeps the segment open. Sets hold->last. A second call does nothing. */
void segment_let_go(struct segment_hold *hold);
/* Ends the use of a part that has let go. The last use gives the charge back, and frees the segment. It closes no descriptor. */
void segment_drop(struct segment *segment);
/* Returns whether other parts hold it besides this one. */
bool segment_is_shared(const struct segment *segment);

/* A charge that several hold: descriptors that are being closed, a loader's process, the process of a dead publisher. It is given
 * back when the last of them lets go. The charge of a part also is a use of each of its segments. */
struct shared_charge {
	struct budget_charge charge; /* of a part: what it was granted and has not made segments of */
	unsigned uses;
	unsigned mapped; /* uses by revoked leases, whose holders may still map the memory */
	void *mapped_by; /* of the floors above: a list of those leases, of a part that was closed */
	bool of_none; /* nothing has the charge any more but those uses, and loaders that may not have gone */
	uint32_t segment_count;
	struct segment *segments[];
};
/* Makes a shared charge with one use. The charge moves in. Returns NULL if there is no memory; then the charge stays where it
 * is. */
struct shared_charge *shared_charge_new(struct budget_charge *charge);
/* The same for the charge of a part and for its segments. */
struct shared_charge *shared_charge_of_part(struct replica *part);
struct shared_charge *shared_charge_use(struct shared_charge *shared);
/* Ends one use. Returns NULL; NULL is fine. */
struct shared_charge *shared_charge_drop(struct shared_charge *shared);
/* Returns whether the user pays for it, or nobody does. */
bool shared_charge_is_paid_by(const struct shared_charge *shared, uid_t uid);
/* Charges this user with what is charged to a user, even beyond the limits; uid NULL: nobody. Segments that a version still holds stay
 * charged as they are. Without memory for a charge nobody is charged with it. */
void shared_charge_repay(struct shared_charge *shared, const uid_t *uid);
/* Another use, of a revoked lease. Its device counts as still mapped what no version holds any more (device->still_mapped). */
struct shared_charge *shared_charge_map(struct shared_charge *shared);
struct shared_charge *shared_charge_unmap(struct shared_charge *shared);
/* What the charge was for has ended: if revoked leases may still map it, it counts as still mapped from then on. Ends one use, as
 * shared_charge_drop does. For a charge without segments. */
struct shared_charge *shared_charge_leave(struct shared_charge *shared);

#endif
