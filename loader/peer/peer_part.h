/* One part of a version that is taken from a peer: its memory on this node, and the pieces that have arrived. It is an exact copy: the
 * same index, and segments of the same sizes with the same bytes. */
#ifndef GPUWM_LOADER_PEER_PART_H
#define GPUWM_LOADER_PEER_PART_H

#include "../check.h"
#include "../job.h"
#include "peer_pieces.h"

/* When what of the last take happened, by clock_seconds; 0: it did not. After the last message the loader only compares sums. */
struct take_times {
	double opened; /* UCX on this side */
	double agreed; /* the peer's UCX was open, and it said so */
	double met; /* both had greeted each other */
	double first, last; /* messages came */
	uint64_t bytes; /* of all messages but the first */
};

struct taken_part {
	const struct peer_offer_part *offer;
	const char *id; /* of the device */
	uint32_t rank, world;
	struct memory_device device;
	struct version_id publish; /* gpuwmd's id of the publish */
	int index; /* a sealed memfd; -1: none yet */
	struct memory_segment *segments; /* mapped for writing until they are sealed */
	struct peer_pieces *pieces;
	struct take_times times; /* the thread that takes writes them */
	/* Of a replica: the part whose bytes it copies. NULL: it takes its bytes from a peer. */
	const struct taken_part *origin;
};

/* Begins the part's publish with gpuwmd, creates its memory and maps it. The caller has set part->offer, id, rank and world. `join` is the
 * publish of the version's first part; NULL: this part is the first one. Returns 0. Fails with -ENOTSUP if the device can't have segments
 * of these sizes, and as publish_begin and the memory's create. */
int peer_part_begin(struct taken_part *part, const struct job *job, struct work *work,
		    const struct version_id *join, struct error *error);
/* Creates the memory on part->device, which is open, and maps it: the step of peer_part_begin that needs no gpuwmd. Calls `look` again
 * and again meanwhile. Returns 0. Fails as the memory's create does, and with the code that look returned. */
int peer_part_make(struct taken_part *part, memory_progress_fn *look, void *user_data, struct error *error);
/* Unmaps and seals the memory. All pieces are here. */
int peer_part_seal(struct taken_part *part, struct error *error);
/* peer_part_check checks a sealed part as loader/check.h does with a publisher's part. peer_part_hand_in hands it to gpuwmd. Return 0. */
int peer_part_check(const struct taken_part *part, struct work *work, struct check_result *ret,
		    struct error *error);
int peer_part_hand_in(const struct taken_part *part, struct work *work, const struct check_result *result,
		      struct error *error);
/* Frees everything. No thread may write into the memory any more. A zeroed part is fine. */
void peer_part_end(struct taken_part *part);

/* Returns the address of a run in the part's memory. */
void *peer_part_address(const struct taken_part *part, const struct peer_run *run);

#endif
