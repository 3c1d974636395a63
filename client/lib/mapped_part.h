/* Mapped parts, shared by all attaches of this process: one for each version,
 * rank, device and its peers, and subset of segments; one that may be written is
 * one attach's. Each attach has a lease of its own (attach.h). */
#ifndef GPUWM_LIB_MAPPED_PART_H
#define GPUWM_LIB_MAPPED_PART_H

#include "grant.h"
#include "memory.h"
#include "subset.h"

#include <pthread.h>

/* "model@tag". */
#define VERSION_LABEL_TEXT                                                                                     \
	(sizeof((struct gpuwm_version_info){0}.model) + sizeof((struct gpuwm_version_info){0}.tag))

struct mapped_part {
	char version[VERSION_ID_TEXT];
	char label[VERSION_LABEL_TEXT]; /* for messages */
	uint32_t rank;
	uint64_t generation; /* of fork: a child shares nothing with its parent */
	struct memory_device device;
	struct subset subset;
	unsigned uses; /* under fork_lock */
	struct mapped_part *next; /* under fork_lock */
	struct fork_hook hook; /* what the segments keep open is no child's */
	pthread_mutex_t lock; /* of what follows, until mapped */
	bool mapped;
	bool lost; /* a switch or an exchange failed, and so did putting the old segments back: nothing is there */
	bool held; /* the device's context, since the first read */
	struct index_map index;
	struct memory_range range; /* where they lie */
	struct memory_segment *segments; /* those of the subset */
	uint32_t segment_count;
	struct memory_segment *others; /* as many: that come, or go, in a switch */
};

/* The part that was granted: mapped already, or mapped now, at options->address if that can be had,
 * for its peers too. Completes grant->version. The descriptors stay the grant's. */
int mapped_part_use(struct grant *grant, const struct gpuwm_attach_options *options, struct mapped_part **ret,
		    struct error *error);

/* A part of memory that this process makes: nobody comes to share it before it is a version's. It holds
 * nothing yet, and is used once. NULL: out of memory. */
struct mapped_part *mapped_part_new(const struct memory_device *device);
/* From now on the part's, mapped where they are in the range. held: the device's context is, too. */
void mapped_part_take(struct mapped_part *part, const struct memory_range *range,
		      struct memory_segment *segments, uint32_t count, bool held);
/* What it holds is all of this version; the index is the part's. */
void mapped_part_become(struct mapped_part *part, const struct gpuwm_version_info *version,
			const struct index_map *index, const struct subset *all);

/* One use less; the last unmaps, after the device is idle. -EBUSY: a stream is
 * being captured; the use goes on. */
int mapped_part_drop(struct mapped_part *part, struct error *error);

/* The same in two steps: 1: it was the last use and the device is idle: mapped_part_free unmaps. 0: others
 * use it. -EBUSY. */
int mapped_part_leave(struct mapped_part *part, struct error *error);
void mapped_part_free(struct mapped_part *part);

/* Returns the first of all mapped parts; `next` leads to the others. A part that is being switched or exchanged is not
 * in the list. Takes no lock, so that a signal handler can read the list while other threads change it. */
const struct mapped_part *mapped_part_first(void);

/* What is mapped of a segment of the part's index; NULL: nothing. */
const struct memory_segment *mapped_part_segment(const struct mapped_part *part, uint32_t segment);

/* Makes its pages present. */
int mapped_part_populate(struct mapped_part *part, struct error *error);

/* Maps another version's segments where this one's are, and makes the part that version's; the
 * index is the part's then. idle: the caller has seen to the device. -EBUSY: others use the part,
 * or a stream is being captured. When it fails the part is as it was, or lost: -ENOTRECOVERABLE. */
int mapped_part_switch(struct mapped_part *part, const struct grant *grant, const struct index_map *index,
		       bool idle, struct error *error);

/* Whether other attachments use the part too. */
bool mapped_part_is_shared(const struct mapped_part *part);
/* Takes the part out of the table, so that nobody comes to share it. Returns false if others use it: then it stays in
 * the table. mapped_part_unclaim puts it back, unless it is lost. */
bool mapped_part_claim(struct mapped_part *part);
void mapped_part_unclaim(struct mapped_part *part);

/* 0, or -ENOTRECOVERABLE: the part is lost. */
int mapped_part_check(const struct mapped_part *part, struct error *error);

/* Keeps the device's context in being until the part is unmapped: making it
 * takes 100 ms, so whoever reads one tensor after another makes it once. */
int mapped_part_hold(struct mapped_part *part, struct error *error);

#endif
