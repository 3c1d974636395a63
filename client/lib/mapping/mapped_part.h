/* Mapped parts. All attaches of this process to the same version, rank, device with its peers, and subset of segments share one. A
 * part that may be written belongs to one attach. Each attach has a lease of its own (attach.h). */
#ifndef GPUWM_LIB_MAPPED_PART_H
#define GPUWM_LIB_MAPPED_PART_H

#include "../request/lease.h"
#include "../../../memory/memory.h"
#include "../../../include/gpuwm/client.h"
#include "../../../proto/index/index.h"

#include <pthread.h>

/* ---- the segments of a part that are mapped ---- */

#define SUBSET_NOT 255 /* above every position: a part has PART_SEGMENTS_MAX segments at most */

struct subset {
	uint32_t count; /* how many are mapped */
	uint8_t place
		[PART_SEGMENTS_MAX]; /* the position of each segment among those that are mapped; SUBSET_NOT: it is not */
};

/* Sets *ret to the segments that hold a tensor whose name matches one of the globs, or to all segments if there are no globs. The
 * globs are those of Python's fnmatch: there are no escapes, and `*` stands for any characters. Fails with -ENOENT if a glob
 * matches no tensor, and with -EINVAL. */
int subset_of(const struct index_view *view, const char *const *globs, size_t count, struct subset *ret,
	      struct error *error);

bool subset_has(const struct subset *subset, uint32_t segment);
bool subset_is(const struct subset *a, const struct subset *b);

/* ---- the part ---- */

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
	struct fork_hook hook; /* closes in a child what the segments keep open */
	pthread_mutex_t lock; /* guards what follows, until the part is mapped */
	bool mapped;
	bool lost; /* a switch or an exchange failed, and so did putting the old segments back: nothing is there */
	bool vacated; /* all its uses are parked: nothing is there, and the range is kept */
	unsigned parked; /* of the uses: parked ones; under fork_lock */
	bool copied; /* its memory is a copy by CUDA IPC, opened by handles, each segment at addresses of its own */
	struct ipc_handle copy_event; /* which copy */
	bool held; /* it keeps the device's context in being, since the first read */
	struct index_map index;
	struct memory_range range; /* where they lie */
	struct memory_segment *segments; /* those of the subset */
	uint32_t segment_count;
	struct memory_segment *others; /* as many, for the segments that a switch puts in or takes out */
};

/* Sets *ret to the part of a grant: one that is mapped already, or a new one, which is mapped for the device's peers too, and at
 * options->address if possible. Completes grant->version. The descriptors stay the grant's. */
int mapped_part_use(struct grant *grant, const struct gpuwm_attach_options *options, struct mapped_part **ret,
		    struct error *error);

/* Makes a part for memory that this process makes, with one use and no memory yet. No attach shares it before it belongs to a
 * version. Returns NULL if there is no memory. */
struct mapped_part *mapped_part_new(const struct memory_device *device);
/* Moves segments, which are mapped in the range, to the part. held: the part also keeps the device's context in being. */
void mapped_part_take(struct mapped_part *part, const struct memory_range *range,
		      struct memory_segment *segments, uint32_t count, bool held);
/* Makes the part that of a version, all of whose segments it has. Takes the index over. */
void mapped_part_become(struct mapped_part *part, const struct gpuwm_version_info *version,
			const struct index_map *index, const struct subset *all);

/* Ends a use. The last one waits until the device is idle, and unmaps. Fails with -EBUSY if a stream is being captured; the use goes
 * on then. */
int mapped_part_drop(struct mapped_part *part, struct error *error);

/* The same in two steps. mapped_part_leave returns 1 if it was the last use and the device is idle: the caller then calls
 * mapped_part_free. It returns 0 if others use the part. Fails with -EBUSY. */
int mapped_part_leave(struct mapped_part *part, struct error *error);
void mapped_part_free(struct mapped_part *part);

/* Returns the first of all mapped parts; `next` leads to the others. A part that is being switched or exchanged is not
 * in the list. Takes no lock, so that a signal handler can read the list while other threads change it. */
const struct mapped_part *mapped_part_first(void);

/* Returns the mapped segment for a segment of the part's index. NULL: it is not mapped. */
const struct memory_segment *mapped_part_segment(const struct mapped_part *part, uint32_t segment);

/* Makes all pages of the part present. */
int mapped_part_populate(struct mapped_part *part, struct error *error);

/* Maps the segments of another version where those of this version are. The part then belongs to that version, and takes the index
 * over. idle: the caller has made the device idle. Fails with -EBUSY if others use the part or a stream is being captured. After an
 * error the part is as it was, or lost (-ENOTRECOVERABLE). */
int mapped_part_switch(struct mapped_part *part, const struct grant *grant, const struct index_map *index,
		       bool idle, struct error *error);

/* Parks a use, with its lease. If it is the last one that was awake, waits until the device is idle and takes the memory out; the addresses
 * stay. Fails with -EBUSY if a stream is being captured, and as lease_park; all is as before then. */
int mapped_part_park(struct mapped_part *part, struct gpuwm_client *client, struct lease *lease, uint64_t room,
		     struct error *error);
/* Ends that, and maps the memory of the grant where it was, unless it is there. After an error the use is parked. */
int mapped_part_unpark(struct mapped_part *part, const struct grant *grant, struct error *error);
/* A use that ends is not parked any more. */
void mapped_part_forget_parked(struct mapped_part *part);

/* Returns whether other attaches use the part too. */
bool mapped_part_is_shared(const struct mapped_part *part);
/* Takes the part out of the table, so that no attach shares it. Returns false if others use it: then it stays in
 * the table. mapped_part_unclaim puts it back, unless it is lost. */
bool mapped_part_claim(struct mapped_part *part);
void mapped_part_unclaim(struct mapped_part *part);

/* mapped_copy.c. Returns whether the part's memory is this copy (NULL: whether it is none). A new copy of the same version may have
 * been made after the holder of the old one was lost. */
bool mapped_part_is_copy(const struct mapped_part *part, const struct memory_copy *copy);
/* Opens the segments of the copy that the part's subset has into `to`. The part keeps the device's context in being from then on:
 * what is opened ends with it. The caller holds the part's lock, and closes what was opened with memory_ipc_close, on errors too. */
int mapped_part_open_copy(struct mapped_part *part, const struct memory_copy *copy, struct memory_segment *to,
			  struct error *error);
/* Fails with -ENOTSUP if nothing else can be mapped at the part's addresses, because it is a copy by CUDA IPC. */
int mapped_part_check_moves(const struct mapped_part *part, struct error *error);

/* Says that the part is parked. Returns -ENODATA. */
int mapped_part_is_away(const struct mapped_part *part, struct error *error);
/* Fails with -ENOTRECOVERABLE if the part is lost, and with -ENODATA if it is parked: nothing is there. */
int mapped_part_check(const struct mapped_part *part, struct error *error);

/* Keeps the device's context in being until the part is unmapped. To make it takes 100 ms, and a caller that reads one tensor after
 * another needs it each time. */
int mapped_part_hold(struct mapped_part *part, struct error *error);

#endif
