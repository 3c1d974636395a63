/* Loads that share: a load may take segments of a version that is resident, instead of memory of its own with the same bytes. The
 * loader compares the bytes. gpuwmd decides at the request which version may be shared, keeps it until the job ends, and lets the new
 * version hold the segments that the loader names. */
#ifndef GPUWM_DAEMON_SHARING_H
#define GPUWM_DAEMON_SHARING_H

#include "../../ledger/publish.h"

struct job;
struct load_job;
struct segment_shared;
struct work;

/* Checks that a version of `model` on these devices may share segments with the resident version. Whoever attaches to a version on a
 * GPU can write to its memory. So both must be made by operators, and the same section of rules must count for both models. Fails
 * with -EINVAL (the version is not ready, or not on its devices), -EBADMSG and -ENODEV (as version_check_sound, or it is not on one of the devices) and
 * -EACCES. */
int sharing_check(const struct work *work, const struct version *resident, const char *model,
		  struct device *const *devices, size_t device_count, struct error *error);
/* Returns whether the rules let these two versions, which operators made, hold the same segments now. */
bool sharing_may(const struct work *work, const struct version *resident, const struct version *version);
/* The load keeps the version from being freed until sharing_end, which does nothing for a load that shares nothing. */
void sharing_begin(struct load_job *load, struct version *resident);
void sharing_end(struct work *work, struct load_job *load);

/* Returns the version that the job shares, or NULL. */
struct version *sharing_of(const struct job *job);
/* Finds the part of the version that the job shares. Fails with -EINVAL (the job shares nothing), and -ENODEV (the version has no such
 * part). */
int sharing_part(const struct job *job, uint64_t rank, const char *device, const struct replica **ret,
		 struct error *error);

/* What the loader found: the bytes of a segment of its part are those of a segment of the resident part. */
struct sharing_pairs {
	const struct segment_shared *list;
	uint32_t count;
};
/* Enters the pairs into what a checker found. `part` is the resident one, of sharing_part. Fails with -EBADMSG if a pair can't be, or
 * if the resident version was found to be damaged meanwhile, and with -EACCES if gpuwmd has read other rules meanwhile, by which the
 * versions may not share. */
int sharing_take(const struct work *work, const struct job *job, const struct replica *part,
		 const struct sharing_pairs *pairs, struct publish_checked *checked, struct error *error);

/* A segment of the part's host copy is damaged: host copies that have it go. Versions whose memory it is are tainted. */
void sharing_damn_copy(struct work *work, const struct replica *replica, uint32_t position,
		       const struct error *found);
/* A verify of the part has found that a segment is damaged. Taints the other versions that hold the segment. Versions that hold it
 * and are not ready yet will fail (sharing_check_segments). position: of the segment in the part. */
void sharing_taint(struct work *work, const struct version *version, const struct replica *replica,
		   uint32_t position, const struct error *found);
/* The same for a segment that the version of this name was to share when it moved: taints all versions that hold it. */
void sharing_taint_twin(struct work *work, const char *name, struct segment *segment,
			const struct error *found);
/* Checks, before a version becomes ready, that none of its segments was found to be damaged. Fails with -EBADMSG. */
int sharing_check_segments(const struct version *version, struct error *error);

#endif
